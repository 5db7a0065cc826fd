"""Simulated averages against closed forms, within 2%."""

import math

import numpy as np
import pytest
from scipy import stats

import dmlcore as dml
from dmlcore.trace import metrics


def harmonic(n):
    return sum(1 / i for i in range(1, n + 1))


LONG = ((50, 10), (200, 20), (200, 180))


def exponential(num_workers, rate=4.0):
    """Tasks of one sample take Exp(rate) seconds."""
    return dml.Cluster.uniform(num_workers, samples_per_second=rate, jitter=stats.expon())


@pytest.mark.parametrize(
    ("num_workers", "k"),
    [(8, 1), (8, 4), (8, 8), (50, 40), *(pytest.param(*each, marks=pytest.mark.full) for each in LONG)],
)
def test_k_sync_round(num_workers, k):
    """Mean round (H_P - H_{P-K}) / rate, Dutta et al. 2018."""
    rounds = max(2000, 30_000 // k)
    trace = dml.simulate(dml.k_sync(k), exponential(num_workers), updates=rounds, batch_size=1, seed=1)
    expected = (harmonic(num_workers) - harmonic(num_workers - k)) / 4.0
    assert trace.end_time / rounds == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("policy", [dml.k_batch_sync, dml.k_batch_async])
@pytest.mark.parametrize(("num_workers", "k"), [(8, 3), (8, 20), (50, 10), (200, 50)])
def test_k_batch_round(policy, num_workers, k):
    """Mean time of an update K / (P rate)."""
    updates = 30_000 // k
    trace = dml.simulate(policy(k), exponential(num_workers), updates=updates, batch_size=1, seed=2)
    assert trace.end_time / updates == pytest.approx(k / (num_workers * 4.0), rel=0.02)


@pytest.mark.parametrize("speeds", [[100] * 8, [100] * 4 + [25] * 4, [10, 20, 30, 40, 300]])
def test_asp_mean_staleness(speeds):
    """P - 1 over gradients, whatever the speeds."""
    cluster = dml.Cluster.from_speeds(speeds, jitter=stats.expon())
    trace = dml.simulate(dml.asp(), cluster, updates=20_000, seed=3)
    assert metrics.staleness(trace).mean() == pytest.approx(len(speeds) - 1, rel=0.02)


@pytest.mark.parametrize("policy", [dml.ssp, dml.essp])
def test_a_persistent_straggler_leaves_nothing_to_gain(policy):
    """With one worker three times slower, the makespan of the same work is the same for every s."""
    cluster = dml.Cluster.uniform(8, samples_per_second=320).with_stragglers(3, fraction=1, workers=[0])
    clocks = 300
    makespans = []
    for staleness in (0, 1, 3, 8, 32):
        trace = dml.simulate(policy(staleness), cluster, seconds=clocks * 0.3, seed=0)
        done = trace.tasks[trace.tasks["push_end"].notna()].groupby(["worker", "clock"])["push_end"].first()
        makespans.append(max(done[worker, clocks - 1] for worker in range(8)))
    np.testing.assert_allclose(makespans, clocks * 0.3, rtol=1e-9)


def test_transient_stragglers_leave_much_to_gain():
    """Compute time 0.5 + Exp(1) / 2 a task: the makespan falls with s."""
    cluster = dml.Cluster.uniform(8, samples_per_second=64, overhead=0.5, jitter=stats.expon())
    makespans = []
    for staleness in (0, 1, 3, 8):
        trace = dml.simulate(dml.ssp(staleness), cluster, seconds=1000, seed=0)
        done = trace.tasks[trace.tasks["push_end"].notna() & (trace.tasks["clock"] == 399)]
        assert len(done) == 8
        makespans.append(done["push_end"].max())
    assert (np.diff(makespans) < 0).all()
    expected_bsp = 400 * (0.5 + 0.5 * harmonic(8))
    assert makespans[0] == pytest.approx(expected_bsp, rel=0.02)


def test_fetches_of_the_slowest_and_of_the_fastest():
    """The slowest worker fetches every s + 1 clocks, the fastest nearly every clock, once it is ahead."""
    cluster = dml.Cluster.from_speeds([100.0] * 7 + [50.0])
    for staleness in (0, 1, 3, 8):
        trace = dml.simulate(dml.ssp(staleness), cluster, seconds=400 * 0.64 + 1e-9, seed=0)
        fetches = metrics.fetches(trace)
        assert fetches[7] == pytest.approx(400 / (staleness + 1), abs=2)
        assert fetches[0] >= 400 - 2 * (staleness + 1)


def test_slow_episodes_have_the_stated_share_and_length():
    cluster = dml.Cluster.uniform(50, samples_per_second=32).with_stragglers(5, fraction=0.2, mean_tasks=8)
    tasks = dml.simulate(dml.asp(), cluster, updates=100_000, seed=0).tasks
    tasks = tasks[tasks["push_end"].notna()].sort_values(["worker", "clock"])
    slow = (tasks["compute_end"] - tasks["compute_start"]) > 3
    # By clock, not by time: keep the clocks that all workers have done.
    common = tasks.groupby("worker")["clock"].max().min()
    slow = slow[tasks["clock"] <= common]
    assert slow.mean() == pytest.approx(0.2, rel=0.05)
    entered = (slow & ~slow.shift(fill_value=False)).sum()
    assert slow.sum() / entered == pytest.approx(8, rel=0.05)


def test_task_time_is_the_stated_sum():
    cluster = dml.Cluster.uniform(1, samples_per_second=100, overhead=0.5, latency=0.25, bandwidth=1000)
    trace = dml.simulate(dml.asp(), cluster, updates=1, batch_size=50, parameter_bytes=125)
    task = trace.tasks.iloc[0]
    assert task["compute_start"] == pytest.approx(0.25 + 0.125)
    assert task["compute_end"] - task["compute_start"] == pytest.approx(0.5 + 0.5)
    assert task["push_end"] - task["compute_end"] == pytest.approx(0.25 + 0.125)


@pytest.mark.parametrize("think", [0.0, 0.1, 3.0])
@pytest.mark.parametrize("workers", [1, 2, 7, 40])
def test_mean_value_analysis_is_the_machine_repairman(workers, think):
    """The closed form of the same network: with z the time away, the server is idle with probability
    1 / sum over k of n! / (n - k)! (service / z)^k.
    """
    service = 0.05
    found = dml.theory.mean_value_analysis(workers, service, think)
    assert found.shape == (workers,)
    if think == 0:
        np.testing.assert_allclose(found, 1 / service)
        return
    for n, throughput in enumerate(found, 1):
        idle = 1 / math.fsum(math.perm(n, k) * (service / think) ** k for k in range(n + 1))
        assert throughput == pytest.approx((1 - idle) / service, rel=1e-12)


@pytest.mark.parametrize("wrong", [{"num_workers": 0}, {"service": 0}, {"think": -1}])
def test_mean_value_analysis_names_what_is_wrong(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name}: expected"):
        dml.theory.mean_value_analysis(**{"num_workers": 2, "service": 1.0, "think": 1.0} | wrong)
