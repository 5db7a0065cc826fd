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


# Words of a test's file, name or parameters, and fixtures, by which it is run on one Python only: it trains
# on threads or Ray, installs something, or checks files with tools that are the same on every Python.
ONCE = {"threads", "ray", "bootstrap", "browser", "environment", "checker"}
ONCE_FIXTURES = {"ray_cluster", "measured"}  # the program of test_devices trains on threads, too


def on_one_python(item):
    return bool(ONCE & {*re.findall("[a-z]+", item.nodeid)} or ONCE_FIXTURES & {*item.fixturenames})


def pytest_collection_modifyitems(items):
    """Marks what is run on one Python only, and has tests of Ray's shared cluster run first.

    One process is then at Ray's while the others are at all the rest. Not so the tests with clusters of their
    own: two that start at once may be too much for two cores.
    """
    for item in items:
        if isinstance(item, pytest.Function) and on_one_python(item):
            item.add_marker("real_clock")
    items.sort(key=lambda item: not ("test_ray" in item.nodeid or "-ray-" in item.nodeid))


@pytest.fixture(scope="session")
def ray_cluster():
    """One cluster on loopback for all tests that need Ray."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'dmlcore[ray]'")
    from dmlcore.engines.on_ray.connection import start_local

    start_local(num_cpus=5)
    yield ray
    ray.shutdown()


@pytest.fixture
def both_dtypes():
    """Arrays of 64 bits beside those of 32."""
    import jax

    with jax.enable_x64(True):
        yield
