"""Fixtures that several files need, which cases of tests are run, and which share a process."""

import collections
import contextlib
import functools
import gc
import io
import itertools
import os
import shutil
import sys
import warnings
import zlib
from importlib.metadata import version
from pathlib import Path

import hypothesis  # its plugin would do it in the summary, too deep for the parser of Python 3.11
import pytest

from dmlcore.reproduce.arithmetic import ALONE, QUICKLY

with contextlib.suppress(ImportError):
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        """Hands out files, whose tests share problems and compiled programs; the longest tests one by one."""

        def _split_scope(self, nodeid):
            path, _, name = nodeid.partition("::")
            if "test_ray" in path or "-ray-" in name or name.endswith(("-ray]", "[ray]")):
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

# What tests vary over the same lines of code: of one such parameter alone, a test is run with one value in
# `SHARE` by default, and the tests of a file take turns. Rows of other tables are promises of their own.
SHARE = 10
VARIED = {"policy", "load", "engine", "codec", "transport", "optimizer", "problem", "claim", "source"}
VARIED |= {"lanes", "seed", "sizes", "case"}

# The longest first, so that processes end together: one is at Ray's cluster while the others are at the rest.
# There, tests that end its actors come last, since new ones take long to start.
RAY = ("-ray-exponential", "slow_down_too[one-ray-", "test_ray", "-ray-")
LONGEST = (*RAY, "test_devices", "with_plain_pip", "killed")
LONGEST += ("test_train.py", "test_transport.py", "test_watching.py")

LITTLE = "JAX_DISABLE_MOST_OPTIMIZATIONS"


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run every case of every test, not only a selection")


def pytest_configure(config):
    """By default XLA optimises little, since programs of tests run for milliseconds and compile for seconds.

    Operations are fused as in the kernels of quick papers, which takes half the time to compile, where
    releases have both ways. Child processes do the same. With `--all`, and where tests are about bits
    (`optimised`), XLA does what it does for users.
    """
    little = not config.option.all and os.environ.setdefault(LITTLE, "true") == "true"
    own = os.environ.get("XLA_FLAGS", "")
    if little and version("jaxlib").startswith(ALONE) and QUICKLY not in own:  # workers inherit it
        os.environ["XLA_FLAGS"] = f"{QUICKLY} {own}".rstrip()


def values(item):
    """What a case combines: a value of each `parametrize`, or every word of one that has several; no more of
    what a fixture varies."""
    found = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        given = [item.callspec.params[name.strip()] for name in names]
        if isinstance(given[0], tuple) and all(isinstance(word, str) for word in given[0]):
            found += given[0]
        else:
            found.append(tuple(one if isinstance(one, str | int | float) else id(one) for one in given))
    return tuple(found)


@functools.cache
def covering(cases, first):
    """The places of few cases that have all pairs of values in `cases`; of two parameters, all values.

    It takes the case that adds most, and among equals the one with the values that were taken least often.
    """
    adds = [{*itertools.combinations(enumerate(case), min(2, len(case) - 1))} for case in cases]
    missing, chosen, taken = set().union(*adds), set(), collections.Counter()
    order = sorted(range(len(cases)), key=lambda place: (place - first) % len(cases))
    while missing:
        best = max(
            order, key=lambda n: (len(adds[n] & missing), -sum(taken[one] for one in enumerate(cases[n])))
        )
        chosen.add(best)
        missing -= adds[best]
        taken.update(enumerate(cases[best]))
    return chosen


def selected(items):
    """Yields the cases of a file to run by default; tests with the same cases share those that are chosen."""
    functions = collections.defaultdict(list)
    for item in items:
        functions[item.nodeid.partition("[")[0]].append(item)
    first = zlib.crc32(items[0].path.name.encode())
    for number, own in enumerate(functions.values()):
        cases = tuple(map(values, own))
        if len(cases[0]) > 1:
            yield from (own[place] for place in covering(cases, first % len(cases)))
        elif not cases[0] or {*own[0].callspec.params} <= VARIED:
            yield from own[(first + number) % min(SHARE, len(own)) :: SHARE]
        else:
            yield from own


@pytest.hookimpl(trylast=True)  # -k comes first: the selection is one of what is asked for
def pytest_collection_modifyitems(config, items):
    """Leaves a selection of the cases, unless `--all` or a test by its name is asked for. Longest first."""
    if not config.option.all and not any("::" in word for word in config.args):
        files = collections.defaultdict(list)
        # The whole site takes as long as hundreds of tests; by default its parts are tried on small pages.
        left_out = {item for item in items if item.get_closest_marker("full") or "site" in item.fixturenames}
        for item in items:
            if hasattr(item, "callspec") and item not in left_out:
                files[item.path].append(item)
        left_out.update(item for own in files.values() for item in {*own}.difference(selected(own)))
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: next((n for n, word in enumerate(LONGEST) if word in item.nodeid), 99))


def pytest_collection_finish():
    """Makes the garbage collector run seldom: where tests are many and short, it takes a sixth of their time.

    What is imported by now stays anyway. Tests that ask what is released collect by themselves. JAX is among
    it, so its compiler is set here, too; a process that only hands out tests does not come here.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    if QUICKLY in os.environ.get("XLA_FLAGS", ""):
        let_fusion_change()


def let_fusion_change():
    """Where tests are about bits, operations are fused as for users, whatever the process started with.

    Otherwise one program may round otherwise than another. JAX has no public setting for all programs of a
    process that can be changed.
    """
    import jax
    from jax._src import compiler

    made = compiler.get_compile_options

    def get_compile_options(*args, env_options_overrides=None, **rest):
        little = jax.config.read("jax_disable_most_optimizations")
        own = {"xla_cpu_use_fusion_emitters": not little}
        return made(*args, env_options_overrides=own | (env_options_overrides or {}), **rest)

    compiler.get_compile_options = get_compile_options


@pytest.fixture(scope="session")
def environment():
    """Variables for programs that import dmlcore and the tests; what they can do without is not imported."""
    here = Path(__file__).parent
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (here / "without", here, here.parent)))}


@pytest.fixture(scope="session")
def ray_cluster(environment):
    """One cluster on loopback for all tests that need Ray."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment["PYTHONPATH"])
        ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'dmlcore[ray]'")
        from dmlcore.engines.on_ray.connection import start_local

        start_local(num_cpus=5)
    yield ray
    ray.shutdown()


@pytest.fixture
def made_engine(engine, request):
    """The engine that a test's parameter `engine` names."""
    from engine_runs import ENGINES

    if engine == "ray":
        request.getfixturevalue("ray_cluster")
    return ENGINES[engine][0]


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


@pytest.fixture(scope="module")
def optimised():
    """Programs that are compiled as users' are, for modules about bits; variables for other processes.

    See `pytest_configure`.
    """
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
    yield {LITTLE: "false", "XLA_FLAGS": os.environ.get("XLA_FLAGS", "").replace(QUICKLY, "").strip()}
    jax.config.update("jax_disable_most_optimizations", before)
    jax.clear_caches()


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """Forgets compiled programs before they use up the memory maps that Linux grants a process (65,530).

    A run of new shapes takes some 300; where none are left, XLA crashes as it loads a program.
    """
    yield
    maps = Path("/proc/self/maps")
    if "jax" in sys.modules and maps.exists() and maps.read_bytes().count(b"\n") > 30_000:
        sys.modules["jax"].clear_caches()
