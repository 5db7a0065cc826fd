"""Identities that hold to the last bit."""

import functools
import math
import subprocess
import sys

import jax
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, MIXED
from engine_runs import plane, same_bits

import dmlcore as dml
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.training import replay
from dmlcore.training.batches import INIT, run_key

pytestmark = pytest.mark.usefixtures("optimised")

OPTIMIZERS = {
    "sgd": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.02, momentum=0.9),
    "adam": lambda: optax.adam(1e-3),
}


def train(policy, cluster=MIXED, optimizer=None, problem=None, **options):
    options = {"updates": 200, "seed": 4, "eval_every": 100} | options
    problem = problem or plane()
    return dml.train(problem, cluster, policy, optimizer or optax.sgd(0.1), **options)


FULL = pytest.mark.full  # the other rows with dssp and n_softsync have their code


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("one", "two"),
    [
        (dml.ssp(0), dml.bsp()),
        (dml.essp(0), dml.bsp()),
        (dml.k_sync(4), dml.bsp()),
        (dml.deadline(math.inf), dml.bsp()),
        (dml.dssp(2, 2), dml.essp(2)),
        pytest.param(dml.dssp(0, 0), dml.bsp(), marks=FULL),
        (dml.k_async(1), dml.asp()),
        (dml.k_batch_async(1), dml.asp()),
        pytest.param(dml.n_softsync(4), dml.asp(), marks=FULL),
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
