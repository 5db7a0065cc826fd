#!/usr/bin/env python3
"""Reproduces the papers: `python3 paper_repro.py --help`. The first call makes its environment by itself."""

import os
import sys

# Nothing above or in this check needs a recent Python, so that an old one reads it and can say what is wrong.
if sys.version_info < (3, 11) or os.name != "posix":
    sys.stderr.write("dmlcore needs Python 3.11 or later on Linux, macOS or WSL; this is Python ")
    sys.stderr.write(sys.version.split()[0] + " on " + sys.platform + "\n")
    sys.exit(2)

import signal
from pathlib import Path

from bootstrap import ensure_environment

if __name__ == "__main__":
    root = Path(__file__).resolve().parent
    # `kill` ends a command as Ctrl-C does: kernels end with it, and what is finished is kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        ensure_environment(root)
        from dmlcore.reproduce.command import main

        code = main(sys.argv[1:], root=root)
    except KeyboardInterrupt:  # as early as in an import
        code = 130
    sys.exit(code)
