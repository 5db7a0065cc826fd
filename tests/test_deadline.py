"""Deadline-based rounds: closed forms, the policies that they are in the limit, and their rule by hand."""

import math

import numpy as np
import optax
import pytest
from clusters import CLUSTERS, CONTENDED, EXPONENTIAL, LOCK_STEP, MIXED
from engine_runs import check_counts, check_replay, plane, same_timeline
from scipy import integrate, stats
from watched import RandomWatch

import dmlcore as dml
from dmlcore.trace import metrics

SGD = optax.sgd(0.1)


@pytest.mark.parametrize(("num_workers", "deadline"), [(2, 0.3), (4, 1.0), (16, 0.5), (200, 1.5)])
def test_pushes_and_length_of_a_round(num_workers, deadline):
    """P (1 - exp(-d / m)) pushes by the deadline, and one m / P later where there is none; within 2%."""
    mean = 0.25
    cluster = dml.Cluster.uniform(num_workers, samples_per_second=1 / mean, jitter=stats.expon())
    due, rounds = deadline * mean, max(500, 40_000 // num_workers)
    trace = dml.simulate(dml.deadline(due), cluster, updates=rounds, batch_size=1, seed=1)
    none = math.exp(-num_workers * deadline)
    pushes = num_workers * (1 - math.exp(-deadline)) + none
    length, _ = integrate.quad(lambda t: 1 - (1 - math.exp(-t / mean)) ** num_workers, 0, due)
    length += none * mean / num_workers
    assert trace.updates["num_tasks"].mean() == pytest.approx(pushes, rel=0.02)
    assert trace.end_time / rounds == pytest.approx(length, rel=0.02)
    arrived = trace.tasks["push_end"].notna().sum()
    assert arrived / trace.end_time == pytest.approx(pushes / length, rel=0.02)
    assert (metrics.staleness(trace) == 0).all()


@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
def test_limits(cluster):
    """No deadline is BSP, and one that passes at once K-sync or K-async: row by row."""
    pairs = [(dml.deadline(math.inf), dml.bsp()), (dml.deadline(1e9, late="apply"), dml.bsp())]
    for k in (1, 3):
        pairs += [(dml.deadline(1e-9, at_least=k), dml.k_sync(k))]
        if cluster is not LOCK_STEP:  # where all arrive at once, before it passes
            pairs += [(dml.deadline(1e-9, at_least=k, late="apply"), dml.k_async(k))]
    for one, two in pairs:
        assert same_timeline(*(dml.simulate(policy, cluster, updates=100, seed=2) for policy in (one, two)))


@pytest.mark.parametrize("late", ["cancel", "apply"])
@pytest.mark.parametrize("seconds", [0.032, 0.04])
def test_equal_workers_are_all_in_time(late, seconds):
    """Pushes that arrive just at the deadline count."""
    policies = dml.deadline(seconds, late=late), dml.bsp()
    assert same_timeline(*(dml.simulate(policy, LOCK_STEP, updates=60) for policy in policies))


def test_rounds_by_hand():
    """Tasks of 1, 2, 3 and 7 s, deadline 2.5 s: cancelled, or in the round in which they arrive."""
    cluster = dml.Cluster.from_speeds([42, 21, 14, 6])
    options = {"updates": 4, "batch_size": 42}

    def rounds(trace):
        applied = trace.tasks[trace.tasks["update"] >= 0].groupby("update")
        workers = applied["worker"].apply(sorted).tolist()
        return [*zip(trace.updates["time"], workers, strict=True)]

    cancelled = dml.simulate(dml.deadline(2.5), cluster, **options)
    assert rounds(cancelled) == [(2.5 * (k + 1), [0, 1]) for k in range(4)]
    three = dml.simulate(dml.deadline(2.5, at_least=3), cluster, **options)
    assert rounds(three) == [(3.0 * (k + 1), [0, 1, 2]) for k in range(4)]
    applied = dml.simulate(dml.deadline(2.5, late="apply"), cluster, **options)
    # Worker 2 needs 3 s, and starts at 0, 5 and 7.5 or later; worker 3 has computed at 7 s.
    assert rounds(applied) == [(2.5, [0, 1]), (5.0, [0, 1, 2]), (7.5, [0, 1, 3]), (10.0, [0, 1, 2])]
    assert metrics.staleness(applied).max() == 2
    np.testing.assert_allclose(applied.tasks[applied.tasks["update"] == 1]["weight"], 1 / 3)


def test_a_round_waits_for_its_first_push():
    trace = dml.simulate(dml.deadline(0.01), LOCK_STEP, updates=10)
    np.testing.assert_allclose(trace.updates["time"], 0.032 * np.arange(1, 11))
    assert (trace.updates["num_tasks"] == 1).all(), "the first is enough once the deadline has passed"


def test_means_are_over_samples():
    load = dml.loads.speed_proportional()
    trace = dml.simulate(dml.deadline(0.04), MIXED, updates=100, load=load)
    applied = trace.tasks[trace.tasks["update"] >= 0]
    total = trace.updates["samples"].to_numpy()[applied["update"]]
    np.testing.assert_allclose(applied["weight"], applied["batch_size"] / total)
    assert applied["batch_size"].nunique() > 1


@pytest.mark.parametrize("late", ["cancel", "apply"])
def test_a_run_on_threads_replays_to_the_same_bits(late):
    problem, engine = plane(), dml.engines.threads(time_scale=0.2)
    policy = dml.deadline(0.04, late=late)
    run = dml.train(problem, EXPONENTIAL, policy, SGD, updates=100, engine=engine, eval_every=10**6)
    check_replay(run, problem, SGD)
    pushes = run.trace.updates["num_tasks"]
    assert pushes.min() < 4
    # A round that was not complete has had its time.
    begun = np.append(0.0, run.trace.updates["time"][:-1])
    assert ((run.trace.updates["time"] - begun)[(pushes > 1) & (pushes < 4)] >= 0.04 - 1e-9).all()


def test_it_may_watch_its_training():
    seen = []
    policy = dml.deadline(0.03)._replace(on_observation=lambda state, each: seen.append(each.update) or state)
    plain = dml.simulate(dml.deadline(0.03), MIXED, updates=60)
    assert same_timeline(plain, dml.simulate(policy, MIXED, updates=60, watch=RandomWatch(0)))
    assert seen[:4] == [0, 1, 2, 3]
    run = dml.train(plane(), MIXED, policy, SGD, updates=60)
    assert run.trace.tasks["update"].equals(
        dml.train(plane(), MIXED, dml.deadline(0.03), SGD, updates=60).trace.tasks["update"]
    )


@pytest.mark.parametrize("transport", ["pipelined()", "coded(push=qsgd(levels=4))"])
def test_transports(transport):
    for cluster in (MIXED, CONTENDED):
        for late in ("cancel", "apply"):
            policy = dml.deadline(0.04, late=late)
            check_counts(dml.simulate(policy, cluster, updates=200, transport=transport), updates=200)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dml.deadline(0), "seconds: expected .*, got 0"),
        (lambda: dml.deadline(math.nan), "seconds: expected .*, got nan"),
        (lambda: dml.deadline(1.0, at_least=0), "at_least: expected .*, got 0"),
        (lambda: dml.deadline(1.0, late="drop"), "late: expected one of 'cancel', 'apply'.*, got 'drop'"),
        (
            lambda: dml.deadline(1.0, at_least=5).init(4),
            r"at_least: expected .*\(the number of workers\).*, got 5",
        ),
    ],
)
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
