"""The site in a real headless Chromium, with the network off; see tests/browser_setup.sh."""

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "build/browser"))
pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: tests/browser_setup.sh")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: tests/browser_setup.sh")

PAGES = (
    "index.html",
    "papers/ssp.html",
    "api/index.html",
    "api/training.html",
    "api/policies.html",
    "notebooks/00_tour.html",
    "notebooks/04_hps.html",
    "contributing.html",
    "_modules/dmlcore/experiments/runs.html",
)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_pages_open_without_a_network(chromium, site, theme, width):
    said, asked = [], []
    with chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, offline=True
    ) as context:
        page = context.new_page()
        page.on("console", lambda message: said.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"{page.url}: {error}"))
        page.on("requestfailed", lambda request: said.append(f"failed: {request.url[:80]}"))
        page.on("request", lambda request: asked.append(request.url))
        for name in PAGES:
            page.goto((site / name).as_uri())
            page.wait_for_load_state("networkidle")
            wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert wide[0] <= wide[1], f"{name} is wider than the screen"
            light = page.evaluate(
                "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
            )
            assert (sum(light) > 3 * 128) == (theme == "light")
            if folder := os.environ.get("DMLCORE_SCREENSHOTS"):
                page.screenshot(path=Path(folder) / f"{name.replace('/', '_')}_{width}_{theme}.png")
        page.goto((site / "search.html").as_uri() + "?q=staleness")
        page.wait_for_selector("#search-results li a", timeout=60_000)
        found = page.locator("#search-results li a").all_text_contents()
        assert "dmlcore.metrics.staleness" in found
    assert not said
    assert all(url.startswith(("file:", "data:")) for url in asked)
