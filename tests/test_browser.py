"""A real JupyterLab and the report in a real headless Chromium; `tests/browser_setup.sh` installs both.

DMLCORE_BROWSER=all runs every notebook, which takes minutes each; DMLCORE_SCREENSHOTS names a folder for
pictures.
"""

import contextlib
import io
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from dmlcore.reproduce import chapters
from dmlcore.reproduce.command import TOUR
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.papers import PAPERS

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "build/browser"))
api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: tests/browser_setup.sh")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed: tests/browser_setup.sh")

OTHERS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb") if path.name != TOUR)
NOTEBOOKS = [TOUR, *(OTHERS if os.environ.get("DMLCORE_BROWSER") == "all" else ())]
SECONDS = 900  # for a notebook
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets.map((cell, at) => ({
    at, kind: cell.model.type, source: cell.model.sharedModel.source, count: cell.model.executionCount,
    outputs: cell.model.type === 'code' ? cell.model.outputs.toJSON() : []}))"""
READY = """name => {
    const open = window.jupyterapp?.shell.currentWidget;
    return open?.context?.path === name && open.content?.widgets?.length > 1
        && open.sessionContext?.session?.kernel?.status === 'idle';
}"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """`paper_repro.py lab` on copies of the notebooks, since it saves them: address, token and start."""
    root, home = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("home")
    shutil.copytree(ROOT / "notebooks", root / "notebooks", ignore=shutil.ignore_patterns(".*"))
    shutil.copytree(ROOT / "figures", root / "figures", ignore=shutil.ignore_patterns("full"))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    names = (
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_RUNTIME_DIR",
        "JUPYTERLAB_SETTINGS_DIR",
        "JUPYTERLAB_WORKSPACES_DIR",
        "IPYTHONDIR",
    )
    own = {name: str(home / name.lower()) for name in names}
    program = "import sys; from dmlcore.reproduce.command import main; from pathlib import Path; "
    program += "main(sys.argv[2:], root=Path(sys.argv[1]))"
    words = ["lab", "--no-browser", f"--port={port}", "--ServerApp.port_retries=0", "--expose-app-in-browser"]
    words += ["--allow-root"] * (os.getuid() == 0)
    start = time.monotonic()
    with (home / "lab.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", program, root, *words],
            env=os.environ | own | {"PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        while not listens(port):
            assert process.poll() is None, (home / "lab.log").read_text()
            assert time.monotonic() < start + 120, "JupyterLab does not listen"
            time.sleep(0.1)
        token = re.search(r"log in with the token (\w+)", (home / "lab.log").read_text())
        assert token is not None
        yield f"http://127.0.0.1:{port}", token[1], start
        process.send_signal(signal.SIGTERM)  # on which it shuts down its kernels
        process.wait(10)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def listens(port):
    """Whether somebody does, on this machine."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def picture(page, name):
    """Takes a screenshot, where somebody wants to look at it."""
    if folder := os.environ.get("DMLCORE_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


def run_all(page, name, started):
    """Runs all cells of the notebook when it is open; returns the seconds until its first picture."""
    page.wait_for_function(READY, arg=f"notebooks/{name}", timeout=1000 * SECONDS)
    first = None
    page.evaluate("void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    end = time.monotonic() + SECONDS
    while True:
        code = [cell for cell in page.evaluate(CELLS) if cell["kind"] == "code" and cell["source"].strip()]
        outputs = [output for cell in code for output in cell["outputs"]]
        errors = [f"{each['ename']}: {each['evalue']}" for each in outputs if each["output_type"] == "error"]
        assert not errors
        if first is None and any("image/png" in output.get("data", ()) for output in outputs):
            first = time.monotonic() - started
        if all(cell["count"] for cell in code):
            return first
        assert time.monotonic() < end, "not done in time"
        with contextlib.suppress(api.TimeoutError):
            page.click(".jp-Dialog .jp-mod-accept", timeout=300)
        page.wait_for_timeout(200)


def show(page, text):
    """Scrolls to the cell whose source contains the text."""
    (at,) = [cell["at"] for cell in page.evaluate(CELLS) if text in cell["source"] and cell["kind"] == "code"]
    page.evaluate(f"window.jupyterapp.shell.currentWidget.content.scrollToItem({at}, 'start')")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(chromium, lab, name):
    """From its opening to its last cell, without an error; in the tour a slider's picture follows it."""
    address, token, start = lab
    started = start if name == TOUR else time.monotonic()
    with chromium.new_context(viewport={"width": 1280, "height": 1000}) as context:
        page = context.new_page()
        # The tour opens by itself; others in workspaces of their own, where no other notebook is.
        where = f"lab/workspaces/{Path(name).stem}/tree/notebooks/{name}" if name != TOUR else ""
        page.goto(f"{address}/{where}?token={token}", timeout=1000 * SECONDS)
        page.wait_for_selector(".jp-Notebook", timeout=1000 * SECONDS)
        first = run_all(page, name, started)
        assert first is not None, "no picture"
        print(
            f"{name}: first picture after {first:.1f} s, all cells after {time.monotonic() - started:.1f} s"
        )
        if name == TOUR:
            check_slider(page)
        page.wait_for_function(READY, arg=f"notebooks/{name}", timeout=1000 * SECONDS)


def check_slider(page):
    show(page, "dml.explore(")
    image = page.locator(".widget-image")
    image.wait_for(timeout=60_000)
    page.wait_for_timeout(1500)  # until what is above has its size
    image.scroll_into_view_if_needed()
    for theme in ("Light", "Dark"):
        page.evaluate(
            f"window.jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})"
        )
        page.wait_for_timeout(1500)
        picture(page, f"tour_{theme.lower()}")
        corner = Image.open(io.BytesIO(image.screenshot())).convert("L").getpixel((4, 4))
        assert (corner < 64, corner > 192) == (theme == "Dark", theme == "Light"), "the picture's background"
    handle = page.locator(".widget-slider", has_text="staleness").locator(".noUi-handle")
    took = []
    for _ in range(10):
        before, handle_at = image.get_attribute("src"), handle.get_attribute("aria-valuenow")
        handle.focus()
        start = time.monotonic()
        page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "before => document.querySelector('.widget-image').src !== before", arg=before, timeout=60_000
        )
        took.append(time.monotonic() - start)
        assert handle.get_attribute("aria-valuenow") != handle_at
    print(
        f"a move of the slider was answered after {statistics.median(took):.2f} s (median), "
        f"at most {max(took):.2f} s"
    )
    picture(page, "tour_moved")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_report_opens_without_a_network(chromium, theme, width, tmp_path):
    page_of = chapters.report(
        Folders(ROOT / "dmlcore", ROOT / "notebooks", ROOT / "figures", tmp_path), PAPERS
    )
    said, asked = [], []
    with chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, offline=True
    ) as context:
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("requestfailed", lambda request: said.append(f"failed: {request.url[:80]}"))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(page_of.as_uri())
        page.wait_for_load_state("networkidle")
        assert page.evaluate(
            "[...document.images].every(image => image.complete && image.naturalWidth > 0 && image.alt)"
        )
        assert page.evaluate("document.images.length") > 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the screen"
        light = page.evaluate(
            "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
        )
        assert (sum(light) > 3 * 128) == (theme == "light")
        picture(page, f"report_{theme}_{width}")
    assert not said
    assert [url for url in asked if not url.startswith("data:")] == [page_of.as_uri()]
