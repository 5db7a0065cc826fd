"""Fixtures that several files need, and which tests share a process."""

import collections
import contextlib
import gc
import io
import os
import re
import shutil
import sys
import warnings
import zlib
from pathlib import Path

import hypothesis  # its plugin would do it in the summary, too deep for the parser of Python 3.11
import pytest

with contextlib.suppress(ImportError):
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        """Hands out files, whose tests share problems and compiled programs; the longest tests one by one."""

        def _split_scope(self, nodeid):
            path, _, name = nodeid.partition("::")
            if "test_ray" in path or "-ray-" in name:
                return "Ray's cluster"
            if "test_site" in path:
                return "the site"
            if "test_conformance" in path:  # one run, many questions; one policy, few programs
                return name.partition("[")[2].partition("-")[0] or nodeid
            return nodeid if any(word in name for word in LONGEST) else path

    def pytest_xdist_make_scheduler(config, log):
        """Overrides `--dist`. Tests are handed out in their order, not by how many there are of a kind."""
        config.option.loadscopereorder = False
        return Together(config, log)


collect_ignore = ["without"]

# No property is about time, and on a busy machine any example may take long.
hypothesis.settings.register_profile("whenever", deadline=None)
hypothesis.settings.load_profile("whenever")

# Words of a test's file, name or parameters, and fixtures, by which it is run on one Python only: it trains
# on threads or Ray, is about killed processes, installs something, builds the site, or checks files with
# tools that are the same on every Python.
ONCE = {"threads", "ray", "killed", "bootstrap", "browser", "site", "environment", "checker"}
ONCE_FIXTURES = {"ray_cluster", "measured"}  # the program of test_devices trains on threads, too

# Tests with these parameters are products of policies, clusters, codecs and the like, over the same lines
# of code and compiled programs: another Python runs one case in five, and every test in at least one. The
# rows of a policy in the table of engine_runs.py are not a multiple of five, so that all take turns.
PRODUCTS = {"trace", "policy", "name", "family", "codec", "transport", "optimizer", "case", "workers", "seed"}
ONE_IN = 5

# The longest first, so that processes end together: one is at Ray's cluster while the others are at the rest.
# There, tests that end its actors come last, since new ones take long to start.
RAY = ("-ray-exponential", "slow_down_too[one-ray-", "test_ray", "-ray-")
LONGEST = (*RAY, "test_devices", "with_plain_pip", "mypy", "killed")
LONGEST += ("test_train.py", "test_transport.py", "test_watching.py")


def on_one_python(item):
    return bool(ONCE & {*re.findall("[a-z]+", item.nodeid)} or ONCE_FIXTURES & {*item.fixturenames})


def further_cases(items):
    """The cases of products that one Python is enough for, with the same rows left to all tests of a file."""
    cases = collections.defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and PRODUCTS & {*item.callspec.params}:
            cases[item.path, item.nodeid.partition("[")[0]].append(item)
    for (path, _), own in cases.items():
        first = zlib.crc32(path.name.encode()) % min(ONE_IN, len(own))
        yield from (item for number, item in enumerate(own) if number % ONE_IN != first)


def pytest_collection_modifyitems(items):
    """Marks what is run on one Python only, and has the longest tests run first."""
    functions = [item for item in items if isinstance(item, pytest.Function)]
    once = {item for item in functions if on_one_python(item)}
    once.update(further_cases([item for item in functions if item not in once]))
    for item in once:
        item.add_marker("one_python")
    items.sort(key=lambda item: next((n for n, word in enumerate(LONGEST) if word in item.nodeid), 99))


def pytest_collection_finish():
    """Makes the garbage collector run seldom: where tests are many and short, it takes a sixth of their time.

    What is imported by now stays anyway. Tests that ask what is released collect by themselves.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session")
def environment():
    """Variables for programs that import dmlcore and the tests; what they can do without is not imported."""
    here = Path(__file__).parent
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (here / "without", here, here.parent)))}


@pytest.fixture(scope="session")
def ray_cluster(environment):
    """One cluster on loopback for all tests that need Ray."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "rfc3987_syntax", None)
        patch.setenv("PYTHONPATH", environment["PYTHONPATH"])
        ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'dmlcore[ray]'")
        from dmlcore.engines.on_ray.connection import start_local

        start_local(num_cpus=5)
    yield ray
    ray.shutdown()


@pytest.fixture(scope="module")
def chromium():
    """A browser without a window, for modules that are skipped where Playwright or Chromium is missing."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("chromium-browser"),
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The documentation site, built as `docs --no-run` does, of notebooks that were never run."""
    from dmlcore.reproduce.command import main

    here = Path(__file__).parents[1]
    root = tmp_path_factory.mktemp("checkout")
    for path in here.iterdir():
        if path.name not in {"build", "runs", ".git", ".venv"}:
            (root / path.name).symlink_to(path)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of Sphinx's extensions
        code = main(["docs", "--no-run"], root=root)
    assert code == 0, said.getvalue()
    return root / "build/site"


@pytest.fixture
def both_dtypes():
    """Arrays of 64 bits beside those of 32."""
    import jax

    with jax.enable_x64(True):
        yield


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Forgets compiled programs before they use up the memory maps that Linux grants a process (65,530).

    A run of new shapes takes some 300; where none are left, XLA crashes as it loads a program.
    """
    yield
    maps = Path("/proc/self/maps")
    if "jax" in sys.modules and maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        sys.modules["jax"].clear_caches()
