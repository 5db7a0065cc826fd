"""Identities that hold to the last bit, and the compiled replay against the readable one."""

import functools
import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, MIXED
from engine_runs import plane, relative_error, same_bits
from reference import replay_reference

import dmlcore as dml
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.training import replay
from dmlcore.training.batches import BATCHES, INIT, run_key, task_indices

pytestmark = pytest.mark.usefixtures("optimised")

OPTIMIZERS = {
    "sgd": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.02, momentum=0.9),
    "adam": lambda: optax.adam(1e-3),
}


# Optimizers with a state, with one policy of each kind of update; every policy without.
WITH_STATE = ("bsp", "ssp", "asp", "k_async", "k_batch_async")
EACH = [(name, kind) for name in ALL_POLICIES for kind in (OPTIMIZERS if name in WITH_STATE else ["sgd"])]


def train(policy, cluster=MIXED, optimizer=None, problem=None, **options):
    options = {"updates": 200, "seed": 4, "eval_every": 100} | options
    problem = problem or plane()
    return dml.train(problem, cluster, policy, optimizer or optax.sgd(0.1), **options)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("size", [32, 20])  # tasks of 20 samples are padded to 32; the padding does not count
def test_asp_with_one_worker_is_plain_sgd(optimizer, size):
    """In 64 bits: in a loop written by hand, XLA fuses a gradient with what surrounds it."""
    with jax.enable_x64(True):
        problem, optimizer = plane("float64"), OPTIMIZERS[optimizer]()
        run = train(dml.asp(), dml.Cluster.uniform(1), optimizer, problem, batch_size=size)
        params = problem.init(run_key(4, INIT))
        state = optimizer.init(params)

        @jax.jit
        def step(params, state, clock):
            indices = task_indices(run_key(4, BATCHES), 0, clock, size, problem.num_samples)
            batch = jax.tree.map(lambda column: jnp.asarray(column)[indices], problem.data)
            gradient = jax.grad(lambda p: problem.losses(p, batch).mean())(params)
            updates, state = optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state

        for clock in range(200):
            params, state = step(params, state, clock)
        assert relative_error(run.params, params) <= 1e-12


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("one", "two"),
    [
        (dml.ssp(0), dml.bsp()),
        (dml.essp(0), dml.bsp()),
        (dml.k_sync(4), dml.bsp()),
        (dml.deadline(math.inf), dml.bsp()),
        (dml.dssp(2, 2), dml.essp(2)),
        (dml.dssp(0, 0), dml.bsp()),
        (dml.k_async(1), dml.asp()),
        (dml.k_batch_async(1), dml.asp()),
        (dml.n_softsync(4), dml.asp()),
        (dml.n_softsync(2), dml.k_batch_async(2)),
        (dml.ssp(10_000), dml.ssp(math.inf)),
        (dml.essp(10_000), dml.asp(weight=1 / 4)),
    ],
    ids=lambda policy: policy.name,
)
def test_limiting_identities(one, two, optimizer):
    """Same tasks, same times, same versions, same bits."""
    left, right = (train(policy, optimizer=OPTIMIZERS[optimizer]()) for policy in (one, two))
    assert left.trace.tasks.equals(right.trace.tasks)
    assert left.trace.updates.equals(right.trace.updates)
    assert same_bits(left.params, right.params)
    assert left.history.equals(right.history)


def test_ssp_beyond_the_run_never_waits():
    """Without a gate a worker's timeline is its own: on free links it is that of ASP, task by task."""
    left, right = (dml.simulate(p, EXPONENTIAL, updates=300, seed=2) for p in (dml.ssp(300), dml.asp()))
    columns = ["worker", "clock", "compute_start", "compute_end", "push_end", "update"]
    arrived = slice(0, 300)  # at the end, workers that keep their copies have begun before the server knows
    assert left.tasks[columns][arrived].equals(right.tasks[columns][arrived])
    assert left.tasks["pull_start"].isna().sum() == len(left.tasks) - 4, "only the first tasks pull"


def test_bsp_does_not_depend_on_latencies():
    assert same_bits(train(dml.bsp(), MIXED).params, train(dml.bsp(), EXPONENTIAL).params)


def test_bsp_is_large_batch_sgd():
    """One round of P workers with b samples is one step on the P b samples together."""
    problem = plane()
    run = train(dml.bsp(), optimizer=optax.sgd(0.1))
    params, data = problem.init(run_key(4, INIT)), jax.tree.map(jnp.asarray, problem.data)
    draw = jax.vmap(
        lambda worker, clock: task_indices(run_key(4, BATCHES), worker, clock, 32, problem.num_samples)
    )

    @jax.jit
    def step(params, clock):
        indices = draw(jnp.arange(4), jnp.full(4, clock)).ravel()
        batch = jax.tree.map(lambda column: column[indices], data)
        gradient = jax.grad(lambda p: problem.losses(p, batch).mean())(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)

    for clock in range(200):
        params = step(params, clock)
    assert relative_error(run.params, params) < 1e-5


@pytest.mark.parametrize(("policy", "optimizer"), EACH)
def test_compiled_equals_reference(policy, optimizer):
    """In 64 bits; that 32 bits give the same to the last bit, where nothing is fused, is in test_bits."""
    make = OPTIMIZERS[optimizer]
    with jax.enable_x64(True):
        problem = plane("float64")
        run = train(ALL_POLICIES[policy](), optimizer=make(), problem=problem, updates=60, eval_every=60)
        assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(run.params))
        assert relative_error(run.params, replay_reference(run.trace, problem, make())) <= 1e-10


LANES = [ALL_POLICIES[name]() for name in ("bsp", "ssp", "k_async", "k_batch_async", "asp")]


@pytest.mark.parametrize("policy", [*LANES, dml.ssp(2, weight=1.0)], ids=str)
def test_lanes_equal_single_runs(policy):
    """Seeds and learning rates side by side under vmap are the runs one by one."""
    problem = plane()
    rates = [0.05, 0.1, 0.2]
    traces = [dml.simulate(policy, MIXED, seconds=3.0, seed=seed) for seed in range(3)]
    lanes = dml.replay_lanes(
        traces, problem, [optax.sgd(rate, momentum=0.5) for rate in rates], eval_every=40
    )
    for trace, rate, lane in zip(traces, rates, lanes, strict=True):
        alone = dml.replay(trace, problem, optax.sgd(rate, momentum=0.5), eval_every=40)
        assert relative_error(lane.params, alone.params) < 1e-5
        np.testing.assert_allclose(lane.history["loss"], alone.history["loss"], rtol=1e-4)
        assert (lane.history["time"] == alone.history["time"]).all()


def test_a_lane_without_updates_stays_at_the_start():
    problem = plane()
    traces = [dml.simulate(dml.asp(), MIXED, seconds=1e-6), dml.simulate(dml.asp(), MIXED, updates=20)]
    still, moved = dml.replay_lanes(traces, problem, [optax.sgd(0.1)] * 2)
    assert same_bits(still.params, problem.init(run_key(0, INIT)))
    assert list(still.history["update"]) == [0]
    assert moved.history["update"].iloc[-1] == 20


@pytest.mark.parametrize("policy", ["bsp", "ssp", "k_async"])
def test_where_evaluations_fall_changes_no_bit(policy):
    often, once = (train(ALL_POLICIES[policy](), eval_every=every) for every in (7, 200))
    assert same_bits(often.params, once.params)


@pytest.mark.parametrize("policy", ["asp", "bsp", "ssp", "k_sync", "k_batch_async"])
def test_where_rows_are_divided_changes_no_bit(policy, monkeypatch):
    """Samples are drawn, and rows put on the device, for so many tasks at a time."""
    whole = train(ALL_POLICIES[policy](), eval_every=7)
    trace, sgd, problem = whole.trace, optax.sgd(0.1), plane()
    alone = [dml.replay(trace, problem, optax.sgd(rate), eval_every=7).params for rate in (0.1, 0.2)]
    monkeypatch.setattr(replay, "MANY_TASKS", 16)
    parts = train(ALL_POLICIES[policy](), eval_every=7)
    assert same_bits(whole.params, parts.params)
    assert whole.history.equals(parts.history)
    lanes = dml.replay_lanes([trace, trace], problem, [sgd, optax.sgd(0.2)], eval_every=7)  # in step
    for lane, one in zip(lanes, alone, strict=True):
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), lane.params, one)
    driver = replay.Replay([trace], problem, [sgd])
    driver.advance(45)
    again = replay.Replay([trace], problem, [sgd])
    again.restore(45, jax.tree.map(np.array, driver.state()))
    for each in (driver, again):
        each.advance(len(trace.updates))
    assert same_bits(driver.params(), again.params())


def test_replay_of_a_saved_trace_gives_the_same_bits(tmp_path):
    run = train(dml.ssp(3))
    run.trace.save(tmp_path / "trace.parquet")
    again = dml.replay(dml.Trace.load(tmp_path / "trace.parquet"), plane(), optax.sgd(0.1))
    assert same_bits(run.params, again.params)


def test_same_seed_same_bits_in_two_processes(environment, optimised):
    """In this one, which has compiled much else, and in a new one."""
    code = """
import hashlib, jax, optax, numpy as np, dmlcore as dml
from engine_runs import plane
from scipy import stats
cluster = dml.Cluster.uniform(4, jitter=stats.expon()).with_stragglers(3)
run = dml.train(plane(), cluster, dml.ssp(2), optax.adam(1e-3), updates=200, seed=11)
content = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(run.params))
digest = hashlib.sha256(content).hexdigest()
"""
    here = {}
    exec(code, here)
    command = [sys.executable, "-c", code + "print(digest)"]
    own = environment | optimised
    there = subprocess.run(command, env=own, capture_output=True, text=True, check=True).stdout
    assert there.strip() == here["digest"]
    assert len(here["digest"]) == 64
