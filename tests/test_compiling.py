"""Compiled programs: what is let go of before a process runs out of mappings, and comes back when needed."""

import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dmlcore.training import compiling


@pytest.fixture
def product():
    """A function of its own, compiled for each `times`."""

    @compiling.compiled(static_argnames=("times",))
    def product(number, times):
        return number * times

    return product


def test_programs_are_kept_while_there_is_room(product, monkeypatch):
    monkeypatch.setattr(compiling, "mappings", lambda: 10)
    monkeypatch.setattr(compiling, "most_mappings", lambda: 20)
    for times in (2, 3, 2):
        product(jnp.ones(()), times=times)
    assert product._kept() == product.programs() == 2


def test_programs_are_let_go_of_where_mappings_run_out(product, monkeypatch):
    monkeypatch.setattr(compiling, "mappings", lambda: 11)
    monkeypatch.setattr(compiling, "most_mappings", lambda: 20)
    other = jax.jit(lambda number: number + 1)  # one that is not ours: its mappings count, too
    other(1.0)
    found = [float(product(jnp.full((), 5.0), times=times)) for times in (2, 3, 2)]
    assert found == [10, 15, 10]
    assert product._kept() == other._cache_size() == 0
    assert product.programs() == 3  # what was let go of counts on: it was compiled


def test_a_system_that_tells_nothing_lets_go_of_nothing(product, monkeypatch):
    monkeypatch.setattr(compiling, "mappings", lambda: 0)
    monkeypatch.setattr(compiling, "most_mappings", lambda: 0)
    product(jnp.ones(()), times=2)
    assert product._kept() == 1


def test_of_several_threads_that_need_a_program_one_compiles_it():
    traced = []

    @compiling.compiled()
    def slowly(number):
        traced.append(number)
        time.sleep(0.2)
        return number + 1

    with ThreadPoolExecutor(4) as pool:
        assert [*map(int, pool.map(slowly, [jnp.ones(())] * 4))] == [2] * 4
    assert len(traced) == 1


def test_nothing_is_held_while_a_program_runs():
    """A callback that needs the same program for the first time, too, gets JAX's error and never waits."""

    def steps(number):
        return np.float32(0 if number <= 0 else 1 + countdown(jnp.float32(number - 1)))

    @compiling.compiled()
    def countdown(number):
        return jax.pure_callback(steps, jax.ShapeDtypeStruct((), jnp.float32), number)

    with ThreadPoolExecutor(1) as pool, pytest.raises(Exception, match="Recursively calling jit"):
        pool.submit(countdown, jnp.float32(2)).result(120)


def test_this_system_tells_what_it_can():
    assert 0 <= compiling.mappings() < max(compiling.most_mappings(), 1)
