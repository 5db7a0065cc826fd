"""The front door: stopping rules, history, comparisons, and one clear message for each wrong argument."""

import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, MIXED
from scipy import stats

import dmlcore as dml
from dmlcore.replayer.loop import compilations


@pytest.fixture(scope="module")
def problem():
    return dml.problems.digits_mlp()


def test_history_is_tidy(problem):
    run = dml.train(problem, EXPONENTIAL, dml.bsp(), optax.sgd(0.5), updates=100, eval_every=30)
    assert list(run.history["update"]) == [0, 30, 60, 90, 100]
    assert list(run.history.columns[:4]) == ["update", "time", "samples", "loss"]
    assert list(run.history["samples"]) == [0, 3840, 7680, 11520, 12800]
    assert run.history["time"].iloc[-1] == run.trace.updates["time"].iloc[-1]
    assert run.history["loss"].iloc[-1] < 0.5 * run.history["loss"].iloc[0]
    assert run.trace.metadata["problem"] == problem.name
    assert "bsp()" in repr(run)
    assert "100 updates" in repr(run.trace)


def test_stopping_rules(problem):
    by_seconds = dml.train(problem, EXPONENTIAL, dml.asp(), optax.sgd(0.1), seconds=0.5)
    assert by_seconds.trace.end_time == 0.5
    assert by_seconds.trace.updates["time"].iloc[-1] <= 0.5
    by_samples = dml.train(problem, EXPONENTIAL, dml.k_sync(2), optax.sgd(0.1), samples=1000)
    assert by_samples.history["samples"].iloc[-1] == 1024
    nothing = dml.train(problem, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), seconds=1e-6)
    assert list(nothing.history["update"]) == [0]


def test_until_stops_at_the_first_evaluation_that_reaches_it(problem):
    options = {"updates": 600, "eval_every": 20}
    full = dml.train(problem, EXPONENTIAL, dml.asp(), optax.sgd(0.1), **options)
    run = dml.train(problem, EXPONENTIAL, dml.asp(), optax.sgd(0.1), until={"loss": 1.0}, **options)
    reached = full.history[full.history["loss"] <= 1.0].iloc[0]
    assert run.history["update"].iloc[-1] == reached["update"] == len(run.trace.updates)
    assert run.trace.end_time == reached["time"]
    accurate = dml.train(problem, EXPONENTIAL, dml.asp(), optax.sgd(0.1), until={"accuracy": 0.6}, **options)
    assert accurate.history["accuracy"].iloc[-1] >= 0.6 > accurate.history["accuracy"].iloc[-2]


def test_compare_is_train_for_every_method_and_seed(problem):
    methods = {"BSP": dml.bsp(), "ASP": dml.asp(), "Adam": dml.Method(dml.ssp(2), optimizer=optax.adam(1e-3))}
    runs = dml.compare(methods, problem, MIXED, optax.sgd(0.1), seeds=[3, 7], updates=40, eval_every=20)
    assert list(runs.columns[:5]) == ["method", "seed", "update", "time", "samples"]
    assert len(runs) == 3 * 2 * 3
    alone = dml.train(problem, MIXED, dml.ssp(2), optax.adam(1e-3), updates=40, eval_every=20, seed=7)
    rows = (
        runs.query("method == 'Adam' and seed == 7").drop(columns=["method", "seed"]).reset_index(drop=True)
    )
    assert rows.equals(alone.history)


def test_sweep_shares_timelines(problem):
    runs = dml.sweep({"BSP": dml.bsp()}, problem, MIXED, optax.sgd, [0.1, 0.3], seeds=[0, 1], updates=20)
    assert (
        runs.groupby("seed")["time"].nunique().tolist()
        == runs.groupby(["seed", "learning_rate"])["time"].nunique().groupby("seed").first().tolist()
    )
    final = runs.groupby(["learning_rate", "seed"])["loss"].last()
    assert (final[0.3] < final[0.1]).all()


def test_nothing_compiles_twice(problem):
    """A second seed, staleness, learning rate, decay, cluster or length of run finds its loop compiled."""

    def train(policy, rate, seed, cluster, updates=200):
        optimizer = optax.sgd(optax.exponential_decay(rate, 50, 0.9), momentum=rate)
        dml.train(problem, cluster, policy, optimizer, updates=updates, seed=seed, eval_every=100)

    other = dml.Cluster.from_speeds([10, 20, 30, 40], jitter=stats.gamma(2, scale=0.5), latency=0.1)
    for first, second in (
        (dml.ssp(1), dml.ssp(7)),
        (dml.bsp(), dml.bsp()),
        (dml.asp(), dml.asp(weight=0.5)),
        (dml.essp(1), dml.essp(3)),
    ):
        train(first, 0.1, 0, MIXED)
        before = compilations()
        train(second, 0.1, 0, MIXED)
        train(second, 0.037, 0, MIXED)
        train(second, 0.1, 1, MIXED)
        train(second, 0.1, 0, other)
        train(second, 0.2, 5, other, updates=180)
        assert compilations() == before


def test_memory_is_live_versions():
    """Slots: at most one for each worker and the spill, in powers of two, however stale the reads are."""
    from dmlcore.replayer.schedule import compile_trace

    for workers in (2, 8, 64):
        cluster = dml.Cluster.uniform(workers, jitter=stats.lognorm(1.5, scale=np.exp(-1.125)))
        for policy in (dml.asp(), dml.ssp(3), dml.ssp(50), dml.essp(8), dml.k_async(2)):
            schedule = compile_trace(dml.simulate(policy, cluster, updates=20 * workers, seed=0))
            assert schedule.num_slots <= workers + 1
    assert compile_trace(dml.simulate(dml.bsp(), cluster, updates=20)).num_slots == 0


WRONG = {
    "staleness": lambda p: dml.ssp(staleness=-1),
    "k": lambda p: dml.train(p, EXPONENTIAL, dml.k_sync(5), optax.sgd(0.1), updates=1),
    "samples_per_second": lambda p: dml.Cluster.from_speeds([1.0, float("nan")]),
    "num_workers": lambda p: dml.Cluster.uniform(0),
    "jitter": lambda p: dml.Cluster.uniform(2, jitter=stats.expon(scale=2)),
    "latency": lambda p: dml.Cluster.uniform(2, latency=-1),
    "bandwidth": lambda p: dml.Cluster.uniform(2, bandwidth=0),
    "slowdown": lambda p: dml.Cluster.uniform(2).with_stragglers(0.5),
    "mean_tasks": lambda p: dml.Cluster.uniform(2).with_stragglers(2, fraction=0.99),
    "workers": lambda p: dml.Cluster.uniform(2).with_stragglers(2, workers=[2]),
    "updates, seconds": lambda p: dml.train(
        p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, seconds=1.0
    ),
    "updates, seconds, samples": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1)),
    "updates": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=0),
    "seconds": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), seconds=float("nan")),
    "samples": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), samples=1.5),
    "until": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, until={"los": 1}),
    "eval_every": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, eval_every=0),
    "batch_size": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, batch_size=0),
    "seed": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, seed=-1),
    "engine": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, engine="simulat"),
    "load": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, load="equl"),
    "transport": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, transport=3),
    "policy": lambda p: dml.train(p, EXPONENTIAL, dml.bsp, optax.sgd(0.1), updates=1),
    "optimizer": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), 0.1, updates=1),
    "problem": lambda p: dml.train("digits", EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1),
    "cluster": lambda p: dml.train(p, 8, dml.bsp(), optax.sgd(0.1), updates=1),
    "weight": lambda p: dml.asp(weight=0),
    "upper": lambda p: dml.dssp(3, 2),
    "methods['BSP']": lambda p: dml.compare({"BSP": "bsp"}, p, EXPONENTIAL, optax.sgd(0.1), updates=1),
    "methods": lambda p: dml.compare({}, p, EXPONENTIAL, optax.sgd(0.1), updates=1),
    "learning_rates": lambda p: dml.sweep({"BSP": dml.bsp()}, p, EXPONENTIAL, optax.sgd, [0.0], updates=1),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(problem, name):
    with pytest.raises(ValueError, match="allowed is") as error:
        WRONG[name](problem)
    assert str(error.value).startswith(f"{name}:")
    assert "got" in str(error.value)


def test_a_trace_of_another_problem_is_refused(problem):
    run = dml.train(problem, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=2)
    with pytest.raises(ValueError, match="problem: got"):
        dml.replay(run.trace, dml.problems.linear_regression(), optax.sgd(0.1))


def test_a_policy_that_deadlocks_says_so():
    never = dml.Policy("never()", lambda num_workers: None, lambda state, push: (state, dml.types.Decision()))
    with pytest.raises(RuntimeError, match=r"never.*deadlocks"):
        dml.simulate(never, EXPONENTIAL, updates=5)
