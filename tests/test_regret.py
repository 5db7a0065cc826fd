"""Theorem 1 and lemma 1 of Ho et al. 2013, on traces."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from test_ssp import explore, schedules

import dmlcore as dml
from dmlcore import theory
from dmlcore.methods.policies import essp, ssp
from dmlcore.trace import metrics

CLUSTER = {"samples_per_second": 1000, "latency": 0.01, "jitter": stats.expon()}


def targets(seed, number, dimensions=3):
    """Points of the unit ball, which is sqrt(2) * sqrt(2) wide: F = sqrt(2)."""
    points = np.random.default_rng(seed).normal(size=(number, dimensions))
    return points / np.linalg.norm(points, axis=1, keepdims=True).clip(min=1)


def distance_to(points):
    """f_t(x) = |x - c_t|: convex, with L = 1."""

    def function(t, x):
        length = math.sqrt((x - points[t]) @ (x - points[t]))
        return length, (x - points[t]) / max(length, 1e-300)

    return function


@pytest.mark.parametrize("policy", [ssp, essp])
@pytest.mark.parametrize("staleness", [0, 1, 3])
@pytest.mark.parametrize("num_workers", [2, 8])
def test_regret_is_within_the_bound(policy, staleness, num_workers):
    """Where the bound says something, T > 16 (s + 1) P, and the distance that it presumes is kept."""
    clocks = 20 * (staleness + 1)
    steps = clocks * num_workers
    cluster = dml.Cluster.uniform(num_workers, **CLUSTER).with_stragglers(4, fraction=0.1, mean_tasks=5)
    trace = dml.simulate(policy(staleness), cluster, samples=32 * num_workers * (clocks + staleness), seed=1)
    points = targets(1, steps)
    least = optimize.minimize(lambda x: np.linalg.norm(x - points, axis=1).sum(), np.zeros(3))
    arguments = (math.sqrt(2), 1.0, staleness, num_workers, steps)
    walk = metrics.walk(trace, distance_to(points), np.eye(3)[0], theory.regret_rates(*arguments))
    bound = theory.regret_bound(*arguments)
    assert bound < math.sqrt(2) * math.sqrt(2) * steps, "no vacuous bound"
    assert walk.distance(least.x) <= 2
    assert 0 < walk.regret(least.fun) <= bound


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(0, 3), st.sampled_from([ssp, essp]), schedules)
def test_reads_are_the_start_plus_what_was_seen(num_workers, staleness, policy, choices):
    """Every read again, as the sum of all steps that its version holds and of its worker's own."""
    trace = explore(policy(staleness), num_workers, choices)
    applied = trace.tasks[trace.tasks["update"] >= 0]
    clocks = int(applied.groupby("worker").size().reindex(range(num_workers), fill_value=0).min())
    if not clocks:
        return
    points = targets(0, clocks * num_workers)
    seen = {}

    def function(t, x):
        seen[t] = x
        return distance_to(points)(t, x)

    start, rates = np.ones(3), theory.regret_rates(1, 1, staleness, num_workers, len(points))
    walk = metrics.walk(trace, function, start, rates)
    steps = np.diff(walk.iterates, axis=0)
    tasks = applied[applied["clock"] < clocks]
    number = (tasks["clock"] * num_workers + tasks["worker"]).to_numpy()
    for t, task in zip(number, tasks.itertuples(), strict=True):
        own = (tasks["worker"] == task.worker) & (tasks["clock"] < task.clock)
        others = (tasks["worker"] != task.worker) & (tasks["update"] < task.version_read)
        np.testing.assert_allclose(seen[t], start + steps[number[own | others]].sum(axis=0), atol=1e-12)
        np.testing.assert_allclose(walk.losses[t], np.linalg.norm(seen[t] - points[t]))


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(0, 4), st.sampled_from([ssp, essp]), schedules)
def test_updates_out_of_turn_are_within_lemma_1(num_workers, staleness, policy, choices):
    trace = explore(policy(staleness), num_workers, choices)
    counted = metrics.out_of_turn(trace)
    assert counted.sum(axis=1).max() <= theory.most_out_of_turn(staleness, num_workers)
    landed = {(t.worker, t.clock): t.update for t in trace.tasks.itertuples() if t.update >= 0}
    for task, row in zip(trace.tasks.itertuples(), counted.itertuples(), strict=True):
        before = {
            (worker, clock)
            for worker in range(num_workers)
            for clock in range(task.clock + (worker < task.worker))
        }
        saw = {who for who, update in landed.items() if update < task.version_read}
        if math.isnan(task.pull_start):
            saw |= {(task.worker, clock) for clock in range(task.clock)}
        assert (row.missing, row.extra) == (len(before - saw), len(saw - before))


def test_lemma_1_leaves_out_bsp():
    """Its 2 s (P - 1) would be 0: but reads of BSP lack what comes before them in their own round."""
    trace = dml.simulate(dml.bsp(), dml.Cluster.uniform(4), updates=3)
    assert metrics.out_of_turn(trace)["missing"].max() == theory.most_out_of_turn(0, 4) == 3


def test_what_the_counts_cannot_say_is_refused():
    trace = dml.simulate(dml.k_sync(2), dml.Cluster.uniform(4, jitter=stats.expon()), updates=9)
    with pytest.raises(ValueError, match="trace: expected"):
        metrics.out_of_turn(trace)
    with pytest.raises(ValueError, match=r"rates: expected a multiple of 4 .*, got 6"):
        metrics.walk(trace, distance_to(np.ones((9, 3))), np.zeros(3), np.ones(6))
    with pytest.raises(ValueError, match=r"rates: expected .*, got 400"):
        metrics.walk(trace, distance_to(np.ones((400, 3))), np.zeros(3), np.ones(400))


def test_orthogonal_features_are_independent_and_equal_ones_are_not():
    assert theory.parallel_coordinates(np.eye(12)[:, :7]) == 7
    assert theory.parallel_coordinates(np.full((4, 9), 0.5)) == pytest.approx(1)
    rng = np.random.default_rng(0)
    for shape in ((40, 100), (100, 40)):
        x = rng.normal(size=shape)
        x /= np.linalg.norm(x, axis=0)
        expected = shape[1] / np.linalg.norm(x, 2) ** 2
        assert theory.parallel_coordinates(x) == pytest.approx(expected)
    with pytest.raises(ValueError, match="features: expected"):
        theory.parallel_coordinates(2 * np.eye(3))
