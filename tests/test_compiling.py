"""Loops are compiled for one thread, and without that where a release of XLA cannot."""

import jax

from dmlcore.training import compiling
from dmlcore.training.compiling import ONE_BY_ONE, compiled


def test_this_release_knows_the_options():
    assert compiling.options() == ONE_BY_ONE


def test_options_that_a_release_does_not_know_are_left_out(monkeypatch):
    monkeypatch.setattr(compiling, "ONE_BY_ONE", {"xla_cpu_no_such_option": 1})
    compiling.options.cache_clear()
    try:
        doubled = compiled()(lambda x: 2 * x)
        assert compiling.options() == {}
        assert doubled(jax.numpy.float32(3)) == 6
    finally:
        compiling.options.cache_clear()
