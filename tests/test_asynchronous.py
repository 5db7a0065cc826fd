"""Asynchronous updates whose size follows the gradient's samples and age, and n-softsync."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, GROWING, MIXED

import dmlcore as dml
from dmlcore.types import Push

AGES = {
    "none": lambda tau: 1.0,
    "inverse": lambda tau: 1 / (tau + 1),
    "reciprocal": lambda tau: 1 / tau if tau else 1,
}


def oracle(trace, scaling, damping):
    """Weights of asynchronous updates, looked up in the whole history for each."""
    applied = trace.tasks[trace.tasks["update"] >= 0].sort_values("update")
    for row, task in enumerate(applied.itertuples()):
        last = applied.iloc[: row + 1].groupby("worker")["batch_size"].last()
        scale = task.batch_size / last.mean() if scaling == "samples" else 1.0
        yield scale * AGES[damping](task.update - task.version_read)


@pytest.mark.parametrize("damping", AGES)
@pytest.mark.parametrize("scaling", ["none", "samples"])
def test_weights_follow_samples_and_age(scaling, damping):
    policy = dml.asp(scaling=scaling, damping=damping)
    trace = dml.simulate(policy, MIXED, updates=80, load=GROWING, seed=1)
    plain = dml.simulate(dml.asp(), MIXED, updates=80, load=GROWING, seed=1)
    weights = trace.tasks[trace.tasks["update"] >= 0].sort_values("update")["weight"]
    np.testing.assert_allclose(weights, [*oracle(trace, scaling, damping)])
    assert trace.tasks.drop(columns="weight").equals(plain.tasks.drop(columns="weight")), "times are the same"


def test_mean_batch_is_over_those_who_are_there():
    policy = dml.asp(scaling="samples")
    state = policy.init(3)

    def weight(worker, clock, version, samples):
        nonlocal state
        push = Push(worker, clock, version, time=1.0, compute_seconds=1.0, samples=samples)
        state, decision = policy.on_push(state, push)
        return decision.apply[0][2]

    assert weight(0, 0, 0, 10) == 1, "nothing is known of the others"
    assert weight(1, 0, 0, 30) == 30 / 20
    assert weight(0, 1, 1, 20) == 20 / 25, "its newest batch counts, not its first"
    state, _ = policy.on_leave(state, 1, 2.0)
    assert weight(0, 2, 3, 20) == 1
    state, _ = policy.on_leave(state, 2, 2.5)  # who never pushed
    state, _ = policy.on_join(state, 1, 3.0)
    assert weight(0, 3, 4, 40) == 1, "who is back has not pushed yet"
    assert weight(1, 4, 5, 60) == 60 / 50


def test_damped_asp_trains_as_its_formula_says():
    """Plain SGD by hand, with each gradient taken where its worker read, and eta / (1 + tau)."""
    problem, rate = dml.problems.linear_regression(standardize=True), 0.02
    run = dml.train(
        problem, EXPONENTIAL, dml.asp(damping="inverse"), optax.sgd(rate), updates=40, eval_every=40
    )
    assert run.history["loss"].iloc[-1] < 0.6 * run.history["loss"].iloc[0]
    ages = dml.metrics.staleness(run.trace)
    assert ages.max() > 3
    undamped = run.trace.tasks.assign(weight=1.0)
    scale = ages.groupby(run.trace.tasks["update"]).first().sort_index().to_numpy()
    schedule = optax.sgd(lambda count: rate / (1 + jax.numpy.asarray(scale)[count]))
    again = dml.replay(dataclasses.replace(run.trace, tasks=undamped), problem, schedule, eval_every=40)
    for one, two in zip(*map(jax.tree.leaves, (run.params, again.params)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)


@pytest.mark.parametrize("damping", AGES)
def test_n_softsync_of_all_workers_is_asp(damping):
    traces = [
        dml.simulate(policy, MIXED, updates=80, load=GROWING)
        for policy in (dml.n_softsync(4, damping=damping), dml.asp(damping=damping))
    ]
    assert traces[0].tasks.equals(traces[1].tasks)


@pytest.mark.parametrize("seed", range(3))
def test_four_averages_of_staleness_at_constant_speeds(seed):
    """Worker i: t_i R - 1, R = sum 1 / t. Batches that follow speeds lower the mean over nodes, not that over
    gradients."""
    workers, rng = 8, np.random.default_rng(seed)
    speeds = rng.uniform(500, 2000, workers)
    means = {}
    for load in ("equal", "speed_proportional"):
        cluster = dml.Cluster.from_speeds(speeds.tolist())
        trace = dml.simulate(dml.asp(), cluster, updates=6000, batch_size=256, load=load)
        ages = dml.metrics.staleness(trace)[trace.tasks["update"] >= 100]
        means[load] = ages.groupby(trace.tasks["worker"]).mean()
        assert ages.mean() == pytest.approx(workers - 1, rel=0.01)
    form = (1 / speeds) * speeds.sum() - 1
    np.testing.assert_allclose(means["equal"], form, rtol=0.02)
    np.testing.assert_allclose(means["speed_proportional"], workers - 1, rtol=0.02)


@pytest.mark.parametrize("n", [1, 3, 15, 30])
def test_staleness_of_n_softsync(n):
    """Zhang et al.: 30 learners, tau is about n on average and rarely beyond 2 n. While a task runs, P - 1
    others arrive, of which c make an update."""
    cluster = dml.Cluster.uniform(30, jitter=lambda u: 0.9 + 0.2 * u)
    trace = dml.simulate(dml.n_softsync(n), cluster, updates=40 * n)
    ages = dml.metrics.staleness(trace)[trace.tasks["update"] >= 5 * n]
    assert ages.mean() == pytest.approx(29 / (30 // n), rel=0.03)
    assert (ages <= 2 * n).mean() > 0.99


def test_wrong_arguments():
    for wrong, named in [
        (lambda: dml.asp(damping="half"), "damping"),
        (lambda: dml.asp(scaling="size"), "scaling"),
        (lambda: dml.n_softsync(0), "n"),
        (lambda: dml.n_softsync(2, damping="half"), "damping"),
        (lambda: dml.n_softsync(5).init(4), "number of workers"),
    ]:
        with pytest.raises(ValueError, match=named):
            wrong()
