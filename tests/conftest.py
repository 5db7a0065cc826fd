"""Fixtures that several files need, and which tests share a process."""

import contextlib
import re

import hypothesis  # noqa: F401 - else its plugin does it in the summary, too deep for the parser of Python 3.11
import pytest

with contextlib.suppress(ImportError):
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        """Hands out tests one by one, but those that share something costly to one process."""

        def _split_scope(self, nodeid):
            path, _, name = nodeid.partition("::")
            if "test_ray" in path or "-ray-" in name:
                return "Ray's cluster"
            if "test_conformance" in path:  # one run, many questions
                return name.partition("[")[2] or nodeid
            if "test_browser" in path:
                return "JupyterLab"
            return "eight devices" if "test_devices" in path else nodeid

    def pytest_xdist_make_scheduler(config, log):
        """Overrides `--dist`."""
        return Together(config, log)


REAL_CLOCKS = {"threads", "ray"}
INSTALLS = {"test_bootstrap.py", "test_browser.py", "test_environment.py"}


def needs_a_real_clock(item):
    """Whether a test trains on threads or Ray, or installs something: these run on one Python only."""
    words = {*re.findall("[a-z]+", item.nodeid)}  # of the file's name, the test's and its parameters
    return bool(words & REAL_CLOCKS) or "ray_cluster" in item.fixturenames or item.path.name in INSTALLS


def pytest_collection_modifyitems(items):
    """Marks tests of real clocks, and has those of Ray's shared cluster run first.

    One process is then at Ray's while the others are at all the rest. Not so the tests with clusters of their
    own: two that start at once may be too much for two cores.
    """
    for item in items:
        if isinstance(item, pytest.Function) and needs_a_real_clock(item):
            item.add_marker("real_clock")
    items.sort(key=lambda item: not ("test_ray" in item.nodeid or "-ray-" in item.nodeid))


@pytest.fixture(scope="session")
def ray_cluster():
    """One cluster on loopback for all tests that need Ray."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'dmlcore[ray]'")
    from dmlcore.engines.ray_cluster import start_local

    start_local(num_cpus=5)
    yield ray
    ray.shutdown()


@pytest.fixture
def both_dtypes():
    """Arrays of 64 bits beside those of 32."""
    import jax

    with jax.enable_x64(True):
        yield
