#!/usr/bin/env bash
# What tests/test_browser.py needs besides the lock: Chromium, by Debian's or Ubuntu's packages, and Playwright in build/browser,
# for the interpreter that is named, else that of .venv. Then: python3 paper_repro.py test tests/test_browser.py -s
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv/bin/python}
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null; then
  root=$([[ $(id -u) = 0 ]] || echo sudo)
  $root apt-get update -q
  $root apt-get install -qy --no-install-recommends chromium fonts-dejavu-core
fi
rm -rf build/browser build/pip
python3 -m venv build/pip # that of a uv environment has no pip of its own
build/pip/bin/pip --quiet --python "$python" install --target build/browser "playwright==1.65.2"
rm -rf build/pip
