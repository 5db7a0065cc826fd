"""Calls as text: threads that run methods read their names at the same time."""

import ast
import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import dmlcore as dml
from dmlcore import calls
from dmlcore.methods import loads

CALL = "coded(push=affine(bits=4, stochastic=True), pull=difference(affine(bits=8, stochastic=False)))"


@pytest.fixture
def switching():
    """The garbage collector is called often and lets other threads run, as JAX's callback does."""
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    callback = lambda *_: time.sleep(0)  # noqa: E731
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20)
    gc.callbacks.append(callback)
    yield
    gc.callbacks.remove(callback)
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


def test_one_thread_at_a_time_parses(monkeypatch):
    parse = ast.parse

    def alone(*given, **named):
        assert calls._parsing.locked()
        return parse(*given, **named)

    monkeypatch.setattr(calls.ast, "parse", alone)
    assert ast.unparse(calls.parsed(CALL)) == CALL
    assert not calls._parsing.locked()


@pytest.mark.full  # the test before says what makes it so
def test_threads_read_calls_at_the_same_time(switching):
    """`ast.parse` without a lock fails some ten times in 20,000 calls on CPython 3.11."""
    with ThreadPoolExecutor(8) as pool:
        read = [*pool.map(calls.parsed, [CALL] * 20_000)]
    assert {ast.unparse(tree) for tree in read[:100]} == {CALL}


def test_a_call_that_does_not_fit_shows_the_signature():
    """Also where the call is text."""
    told = (
        r"too many positional arguments; its signature is dirichlet\(num_workers, alpha, \*, seed=0, labels="
    )
    with pytest.raises(TypeError, match=rf"dirichlet\(\): {told}'labels'\)"):
        dml.shards.dirichlet(4, 0.1, 3)
    with pytest.raises(
        TypeError, match=r"ssp\(\): missing .*; its signature is ssp\(staleness, \*, weight=None\)"
    ):
        dml.ssp()
    with pytest.raises(
        ValueError, match=r"load: .*speed_proportional\(\): .*its signature is speed_proportional\("
    ):
        loads.resolve("speed_proportional(1, 2, 3, 4)")
