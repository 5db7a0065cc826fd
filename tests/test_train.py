"""The front door: stopping rules, history, comparisons, and one clear message for each wrong argument."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, GROWING, LOCK_STEP, MIXED, UNEQUAL
from engine_runs import plane
from reference import replay_reference
from scipy import stats

import dmlcore as dml
from dmlcore.experiments import comparison
from dmlcore.experiments.histories import histories
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.trace import Trace
from dmlcore.training.loop import compilations
from dmlcore.types import Decision, Start


@pytest.fixture(scope="module")
def problem():
    return plane()


def test_history_is_tidy(problem):
    run = dml.train(problem, EXPONENTIAL, dml.bsp(), optax.sgd(0.5), updates=100, eval_every=30)
    assert list(run.history["update"]) == [0, 30, 60, 90, 100]
    costs = ["time", "samples", "assigned_samples", "uplinks", "downlinks", "bytes"]
    assert list(run.history.columns[:8]) == ["update", *costs, "loss"]
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
    with pytest.warns(UserWarning, match="no update within 1e-06 s"):
        nothing = dml.train(problem, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), seconds=1e-6)
    assert list(nothing.history["update"]) == [0]


def test_divergence_warns_with_the_update_from_which_the_loss_is_not_finite():
    problem = dml.problems.linear_regression(num_samples=64, num_features=3)
    given = problem, dml.Cluster.uniform(2), dml.bsp()
    told = r"bsp\(\), seed 0: training diverged, the loss is (inf|nan) at"
    with pytest.warns(UserWarning, match=told) as caught:
        history = dml.train(*given, optax.sgd(100.0), updates=60, eval_every=1).history
    first = history.loc[~np.isfinite(history["loss"]), "update"].iloc[0]
    assert f"at update {first} and" in str(caught[0].message)
    assert first > 1  # it was finite before
    dml.train(*given, optax.sgd(0.01), updates=60)  # warnings are errors


@pytest.mark.parametrize("engine", ["simulate", "threads"])
def test_a_policy_that_applies_nothing_is_told(problem, engine):
    def ignore(state, push):
        return state, Decision(drop=[(push.worker, push.clock)], start=[Start(push.worker)])

    policy = dml.Policy("ignoring()", lambda workers: None, ignore)
    told = r"ignoring\(\), seed 0: no update within 0.5 s.* arrived; none was applied: try decisions"
    with pytest.warns(UserWarning, match=told):
        run = dml.train(problem, EXPONENTIAL, policy, optax.sgd(0.1), seconds=0.5, engine=engine)
    assert list(run.history["update"]) == [0]


def test_until_stops_at_the_first_evaluation_that_reaches_it(problem):
    options = {"updates": 600, "eval_every": 20}
    full = dml.train(problem, EXPONENTIAL, dml.asp(), optax.sgd(0.1), **options)
    run = dml.train(problem, EXPONENTIAL, dml.asp(), optax.sgd(0.1), until={"loss": 1.0}, **options)
    reached = full.history[full.history["loss"] <= 1.0].iloc[0]
    assert run.history["update"].iloc[-1] == reached["update"] == len(run.trace.updates)
    assert run.trace.end_time == reached["time"]

    def evaluate(params, data):
        loss = problem.evaluate(params, data)["loss"]
        return {"loss": loss, "accuracy": 1 - loss}

    rising = dataclasses.replace(problem, evaluate=evaluate)
    accurate = dml.train(rising, EXPONENTIAL, dml.asp(), optax.sgd(0.1), until={"accuracy": 0.2}, **options)
    assert accurate.history["accuracy"].iloc[-1] >= 0.2 > accurate.history["accuracy"].iloc[-2]


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


KINDS = {  # of methods, by what is special about their training
    "plain": dml.ssp(2),
    "load": dml.Method(dml.asp(), load=dml.loads.speed_proportional()),
    "codec": dml.Method(dml.asp(), transport="coded(push=error_feedback(one_bit()))"),
    "pipelined": dml.Method(dml.bsp(), transport="pipelined(plain)"),
    "own steps": dml.Method(dml.bsp(), transport="pipelined(plain, own_steps=True)"),
    "compensated": dml.Method(dml.asp(), compensation=0.5),
    "local steps": dml.Method(dml.bsp(), local=dml.local_steps(3, optax.sgd(0.05))),
    "median": dml.Method(dml.k_sync(3), aggregate="median"),
    "optimizer": dml.Method(dml.ssp(2), optimizer=optax.adam(1e-3)),
    "watching": dml.adaptive_sync(),
    "timers": dml.deadline(0.05),
}


LIKE = ["pipelined", "optimizer"]  # own steps, and the next tests of methods with optimizers


@pytest.mark.parametrize("stops", [False, True], ids=["whole", "until"])
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.full] * (kind in LIKE))
        for kind in [*KINDS, "shards", "additive"]
    ],
)
def test_a_sweep_is_train_for_every_kind_of_method(problem, kind, stops):
    """Metrics are equal to the bit at every evaluation, so the parameters that they look at are, too."""
    method, make, rates = KINDS.get(kind, dml.ssp(2)), optax.sgd, [0.1, 0.4]
    if kind == "shards":
        problem = problem.sharded(dml.shards.by_label(MIXED.num_workers, 3))
    elif kind == "additive":
        problem, make, rates = dml.problems.lasso(), lambda rate: optax.scale(1.0), [1.0]
    options = {"updates": 40, "eval_every": 5}
    alone = {
        (rate, seed): dml.train(problem, MIXED, method, make(rate), seed=seed, **options).history
        for rate in rates
        for seed in (3, 7)
    }
    if stops:
        options["until"] = {"loss": float(alone[rates[0], 3]["loss"].iloc[4])}
        ended = {
            (rate, seed): dml.train(problem, MIXED, method, make(rate), seed=seed, **options).history
            for rate, seed in alone
        }
        assert len(ended[rates[0], 3]) < len(alone[rates[0], 3])
        alone = ended
    table = dml.sweep({kind: method}, problem, MIXED, make, rates, seeds=[3, 7], **options)
    for (rate, seed), rows in table.groupby(["learning_rate", "seed"]):
        own = rows.drop(columns=["method", "learning_rate", "seed"]).reset_index(drop=True)
        assert own.equals(alone.pop((rate, seed))), (rate, seed)
    assert not alone


def test_methods_that_differ_in_their_optimizer_share_timelines(problem, monkeypatch):
    """Of different kinds, too; the runs are those that each method has alone."""
    made, make = [], comparison.timeline
    monkeypatch.setattr(comparison, "timeline", lambda *given: made.append(1) or make(*given))
    policy, options = dml.ssp(2), {"seeds": [0, 1], "updates": 20, "eval_every": 5}
    optimizers = {"one": optax.sgd(0.1), "two": optax.sgd(0.3), "three": optax.adam(1e-3)}
    methods = {name: dml.Method(policy, optimizer=each) for name, each in optimizers.items()}
    other = {"other": dml.Method(dml.asp(), optimizer=optax.sgd(0.1))}
    runs = dml.compare(methods | other, problem, MIXED, None, **options)
    assert len(made) == 4
    for name, method in methods.items():
        alone = dml.compare({name: method}, problem, MIXED, None, **options)
        assert runs[runs["method"] == name].reset_index(drop=True).equals(alone)


def test_sweep_shares_timelines(problem):
    runs = dml.sweep({"BSP": dml.bsp()}, problem, MIXED, optax.sgd, [0.1, 0.3], seeds=[0, 1], updates=20)
    assert (
        runs.groupby("seed")["time"].nunique().tolist()
        == runs.groupby(["seed", "learning_rate"])["time"].nunique().groupby("seed").first().tolist()
    )
    final = runs.groupby(["learning_rate", "seed"])["loss"].last()
    assert (final[0.3] < final[0.1]).all()


def test_sweep_trains_a_method_with_its_own_optimizer_once(problem, monkeypatch):
    """Its rows are there at every rate, for plots side by side, but it is trained once a seed."""
    trained = []

    def counted(traces, *arguments):
        trained.append(traces[0].metadata["seed"])
        return histories(traces, *arguments)

    monkeypatch.setattr("dmlcore.experiments.comparison.histories", counted)
    methods = {"SGD": dml.bsp(), "Adam": dml.Method(dml.bsp(), optimizer=optax.adam(1e-3))}
    runs = dml.sweep(methods, problem, MIXED, optax.sgd, [0.1, 0.3], seeds=[2, 5], updates=4)
    assert sorted(trained) == [2] * 3 + [5] * 3
    one, two = (
        runs[(runs["method"] == "Adam") & (runs["learning_rate"] == rate)]
        .drop(columns="learning_rate")
        .reset_index(drop=True)
        for rate in (0.1, 0.3)
    )
    assert one.equals(two)
    assert sorted(set(one["seed"])) == [2, 5]


def test_compare_keeps_the_settings_of_its_thread():
    """What a context of JAX sets for one thread holds for the pool's threads as well."""
    with jax.enable_x64(True), jax.default_device(jax.devices()[0]):
        problem = plane("float64")
        alone = dml.train(problem, MIXED, dml.ssp(2), optax.sgd(0.1), updates=40, seed=3)
        runs = dml.compare({"SSP": dml.ssp(2)}, problem, MIXED, optax.sgd(0.1), seeds=[3], updates=40)
    assert all(leaf.dtype == np.float64 for leaf in jax.tree.leaves(alone.params))
    assert runs.drop(columns=["method", "seed"]).equals(alone.history)


@pytest.mark.parametrize("load", [UNEQUAL, GROWING], ids=lambda load: load.name)
# test_threads has the sizes of k_async, on a real clock
@pytest.mark.parametrize(
    "policy", [dml.bsp(), dml.ssp(2), pytest.param(dml.k_async(2), marks=pytest.mark.full)], ids=str
)
def test_unequal_batches(problem, policy, load):
    run = dml.train(problem, MIXED, policy, optax.sgd(0.1), updates=30, load=load, seed=4)
    assert set(run.trace.tasks["batch_size"]) == {8, 16, 32, 64}
    if load is UNEQUAL:
        assert (run.trace.tasks["batch_size"] == 8 * 2 ** run.trace.tasks["worker"]).all()
    assert_close(run.params, replay_reference(run.trace, problem, optax.sgd(0.1)))


# One of each kind of update, and those with timers; that who reads what is right for all policies is in
# test_conformance.
TIED = (
    "bsp",
    "ssp",
    "asp",
    "k_sync",
    "k_batch_async",
    "adaptive_sync",
    "deadline",
    "ringleader",
    "mindflayer",
)


@pytest.mark.parametrize("policy", TIED)
def test_tied_times(problem, policy):
    """Without jitter all workers arrive at once; the order of events still decides who read what."""
    run = dml.train(problem, LOCK_STEP, ALL_POLICIES[policy](), optax.sgd(0.1), updates=24, seed=4)
    assert run.trace.tasks["push_end"].duplicated().any()
    assert_close(run.params, replay_reference(run.trace, problem, optax.sgd(0.1)))


def assert_close(one, two):
    one, two = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]) for tree in (one, two))
    assert np.linalg.norm(one - two) <= 1e-5 * np.linalg.norm(two)


def test_nothing_compiles_twice(problem):
    """A second seed, staleness, learning rate, decay, cluster or length of run finds its loop compiled."""

    def train(policy, rate, seed, cluster, updates=100):
        optimizer = optax.sgd(optax.exponential_decay(rate, 50, 0.9), momentum=rate)
        dml.train(problem, cluster, policy, optimizer, updates=updates, seed=seed, eval_every=50)

    other = dml.Cluster.from_speeds([10, 20, 30, 40], jitter=stats.gamma(2, scale=0.5), latency=0.1)
    for first, second in (
        (dml.ssp(1), dml.ssp(7)),
        (dml.bsp(), dml.bsp()),
        (dml.asp(), dml.asp()),
        (dml.asp(weight=0.3), dml.asp(weight=0.5)),
        (dml.essp(1), dml.essp(3)),
    ):
        train(first, 0.1, 0, MIXED)
        before = compilations()
        train(second, 0.1, 0, MIXED)
        train(second, 0.037, 0, MIXED)
        train(second, 0.1, 1, MIXED)
        train(second, 0.1, 0, other)
        train(second, 0.2, 5, other, updates=90)
        assert compilations() == before


def test_memory_is_live_versions():
    """Slots: at most one for each worker and the spill, in powers of two, however stale the reads are."""
    from dmlcore.training.program import compile_trace

    for workers in (2, 8, 64):
        cluster = dml.Cluster.uniform(workers, jitter=stats.lognorm(1.5, scale=np.exp(-1.125)))
        for policy in (dml.asp(), dml.ssp(3), dml.ssp(50), dml.essp(8), dml.k_async(2)):
            schedule = compile_trace(dml.simulate(policy, cluster, updates=20 * workers, seed=0))
            assert schedule.num_slots <= workers + 1
    assert compile_trace(dml.simulate(dml.bsp(), cluster, updates=20)).num_slots == 0


LINE = dml.simulate(dml.bsp(), EXPONENTIAL, updates=1)


def compared(problem, methods=None, cluster=EXPONENTIAL, optimizer=None, **options):
    methods = {"BSP": dml.bsp()} if methods is None else methods
    return dml.compare(methods, problem, cluster, optimizer or optax.sgd(0.1), updates=1, **options)


def swept(problem, methods=None, optimizer=optax.sgd, rates=(0.1,)):
    return dml.sweep(methods or {"BSP": dml.bsp()}, problem, EXPONENTIAL, optimizer, rates, updates=1)


# The argument, then what tells the cases of one argument apart.
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
    "samples_per_second - no list": lambda p: dml.Cluster.from_speeds(5),
    "workers - no list": lambda p: dml.Cluster.uniform(2).with_stragglers(2, workers=1),
    "jitter - not frozen": lambda p: dml.Cluster.uniform(2, jitter=stats.lognorm),
    "jitter - not frozen, without shape": lambda p: dml.Cluster.uniform(2, jitter=stats.expon),
    "seed": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, seed=-1),
    "seed - beyond 32 bits": lambda p: dml.simulate(dml.bsp(), EXPONENTIAL, updates=1, seed=2**32),
    "seed - of another engine": lambda p: dml.train(
        p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, seed=2**32, engine=lambda *_, **__: None
    ),
    "seeds": lambda p: compared(p, seeds=[2**32]),
    "seeds - twice": lambda p: compared(p, seeds=[1, 0, 1]),
    "seeds - no list": lambda p: compared(p, seeds=5),
    "seeds - none": lambda p: compared(p, seeds=[]),
    "engine": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, engine="simulat"),
    "fuse": lambda p: dml.replay(LINE, p, optax.sgd(0.1), fuse="no"),
    "batch_size - beyond a trace": lambda p: dml.simulate(
        dml.bsp(), EXPONENTIAL, updates=1, batch_size=2**31
    ),
    "engine - a type": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, engine=dict),
    "load": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, load="equl"),
    "load - an argument of another": lambda p: dml.train(
        p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, load="speed_proportional(cap=3)"
    ),
    "workers - none": lambda p: EXPONENTIAL.with_speed_change(2, at=1, workers=[]),
    "bsp(), observe_every": lambda p: dml.simulate(
        dml.bsp()._replace(observe_every=0), EXPONENTIAL, updates=1
    ),
    "transport": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, transport=3),
    "policy": lambda p: dml.train(p, EXPONENTIAL, dml.bsp, optax.sgd(0.1), updates=1),
    "policy - of a timeline": lambda p: dml.simulate(dml.bsp, EXPONENTIAL, updates=1),
    "cluster - of a timeline": lambda p: dml.simulate(dml.bsp(), 8, updates=1),
    "trace": lambda p: dml.replay("x.parquet", p, optax.sgd(0.1)),
    "traces": lambda p: dml.replay_lanes([], p, []),
    "optimizers": lambda p: dml.replay_lanes([LINE], p, []),
    "problem - of a replay": lambda p: dml.replay(LINE, "digits", optax.sgd(0.1)),
    "problem - of a comparison": lambda p: compared("digits"),
    "cluster - of a comparison": lambda p: compared(p, cluster=8),
    "optimizer - of a comparison": lambda p: compared(p, optimizer=0.1),
    "methods['BSP'] - a method's own": lambda p: compared(p, methods={"BSP": dml.Method("bsp")}),
    "methods - no mapping": lambda p: compared(p, methods=[dml.bsp()]),
    "optimizer - of a sweep": lambda p: dml.sweep(
        {"BSP": dml.bsp()}, p, EXPONENTIAL, optax.sgd(0.1), [0.1], updates=1
    ),
    "learning_rates - no list": lambda p: dml.sweep(
        {"BSP": dml.bsp()}, p, EXPONENTIAL, optax.sgd, 0.1, updates=1
    ),
    "optimizer": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), 0.1, updates=1),
    "problem": lambda p: dml.train("digits", EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1),
    "cluster": lambda p: dml.train(p, 8, dml.bsp(), optax.sgd(0.1), updates=1),
    "weight": lambda p: dml.asp(weight=0),
    "upper": lambda p: dml.dssp(3, 2),
    "methods['BSP']": lambda p: dml.compare({"BSP": "bsp"}, p, EXPONENTIAL, optax.sgd(0.1), updates=1),
    "methods": lambda p: dml.compare({}, p, EXPONENTIAL, optax.sgd(0.1), updates=1),
    "engine - not called": lambda p: dml.train(
        p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, engine=dml.engines.threads
    ),
    "devices": lambda p: dml.engines.devices(4),
    "address": lambda p: dml.engines.ray(6379),
    "keep": lambda p: dml.engines.ray(keep="no"),
    "argument": lambda p: compared(p, update=3),
    "seeds - in a list": lambda p: compared(p, seeds=[[0]]),
    "methods - a name that is none": lambda p: compared(p, methods={1: dml.bsp()}),
    "methods - a name that is none, of a sweep": lambda p: swept(p, methods={1: dml.bsp()}),
    "methods['B'], k": lambda p: compared(p, methods={"A": dml.bsp(), "B": dml.k_sync(5)}),
    "methods['B'], k - of a sweep": lambda p: swept(p, methods={"A": dml.bsp(), "B": dml.k_sync(5)}),
    "methods['B'], load": lambda p: compared(
        p, methods={"A": dml.bsp(), "B": dml.Method(dml.bsp(), load="equl")}
    ),
    "methods['B'], optimizer": lambda p: compared(
        p, methods={"A": dml.bsp(), "B": dml.Method(dml.bsp(), optimizer=0.1)}
    ),
    "batch_size - of all methods": lambda p: compared(p, batch_size=0),
    "updates, seconds - of all methods": lambda p: compared(p, seconds=1.0),
    "optimizer - of a sweep, without its rate": lambda p: swept(p, optimizer=lambda: 1),
    "optimizer - of a sweep, that makes none": lambda p: swept(p, optimizer=lambda rate: 1),
    "learning_rates - infinite": lambda p: swept(p, rates=[math.inf]),
    "checkpoint": lambda p: dml.train(p, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=1, checkpoint=3),
    "mine(), on_push": lambda p: dml.simulate(
        dml.bsp()._replace(name="mine()", on_push=lambda state, push: None), EXPONENTIAL, updates=1
    ),
    "mine(), on_push - with faults": lambda p: dml.simulate(
        dml.bsp()._replace(name="mine()", on_push=lambda state, push: None),
        EXPONENTIAL.with_faults(dml.faults.DoubledPush(0, 0, 0.1)),
        updates=1,
    ),
    "learning_rates": lambda p: dml.sweep({"BSP": dml.bsp()}, p, EXPONENTIAL, optax.sgd, [0.0], updates=1),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_named(problem, name):
    with pytest.raises(ValueError, match="expected") as error:
        WRONG[name](problem)
    assert str(error.value).startswith(name.split(" - ")[0] + ":")
    assert "got" in str(error.value)


def test_an_unknown_option_is_told_all_that_there_are(problem):
    with pytest.raises(ValueError, match=r"argument: expected .*, got 'update'; try 'updates'") as error:
        compared(problem, update=3)
    words = str(error.value).partition("one of ")[2].partition(", got ")[0]
    told = words.replace("'", "").split(", ")
    assert {*told} == {
        *("seeds", "until", "eval_every", "eval_params", "resolve", "executor", "save", "progress"),
        *("updates", "seconds", "samples", "batch_size"),
        *("load", "transport", "compensation", "engine", "local", "aggregate"),
    }


def test_a_trace_of_another_problem_is_refused():
    five, eight = (dml.problems.linear_regression(num_samples=64, num_features=size) for size in (5, 8))
    run = dml.train(five, EXPONENTIAL, dml.bsp(), optax.sgd(0.1), updates=2)
    with pytest.raises(ValueError, match="problem: expected"):
        dml.replay(run.trace, plane(), optax.sgd(0.1))
    with pytest.raises(ValueError, match=r"problem: expected.*parameter_bytes"):
        dml.replay(run.trace, eight, optax.sgd(0.1))
    metadata = {**run.trace.metadata, "parameter_bytes": 0}
    del metadata["data_sha256"]
    unknown = Trace(run.trace.tasks, run.trace.updates, metadata)
    dml.replay(unknown, eight, optax.sgd(0.1))


def test_a_policy_that_deadlocks_says_so():
    never = dml.Policy("never()", lambda num_workers: None, lambda state, push: (state, dml.types.Decision()))
    with pytest.raises(RuntimeError, match=r"never.*deadlocks"):
        dml.simulate(never, EXPONENTIAL, updates=5)


def test_a_method_may_bring_the_optimizer(problem):
    methods = {"ASP": dml.Method(dml.asp(), optimizer=optax.sgd(0.1))}
    own = dml.compare(methods, problem, LOCK_STEP, None, seeds=[0], updates=10)
    assert own.equals(dml.compare(methods, problem, LOCK_STEP, optax.sgd(9.0), seeds=[0], updates=10))
    with pytest.raises(ValueError, match=r"optimizer: expected .*, got None"):
        dml.compare({**methods, "BSP": dml.bsp()}, problem, LOCK_STEP, None, seeds=[0], updates=10)


def test_a_metric_that_is_no_number_at_the_start_is_told(problem):
    broken = dataclasses.replace(
        problem, evaluate=lambda params, data: {**problem.evaluate(params, data), "score": jnp.nan}
    )
    with pytest.warns(UserWarning, match=r"evaluate: score of the initial parameters is not a number"):
        dml.train(broken, LOCK_STEP, dml.asp(), optax.sgd(0.1), updates=10)


@pytest.mark.parametrize(
    "optimizer",
    [optax.lbfgs(), optax.contrib.reduce_on_plateau(), optax.masked(optax.sgd(0.1), {"of another": True})],
    ids=["a line search", "one that is told the loss", "one of other parameters"],
)
def test_an_optimizer_that_needs_more_than_the_server_has(optimizer, problem):
    message = (
        r"expected an optax optimizer whose update needs only a gradient, its state .*, got one whose update"
    )
    with pytest.raises(ValueError, match=f"^optimizer: {message}"):
        dml.train(problem, MIXED, dml.asp(), optimizer, updates=3)
    trace = dml.train(problem, MIXED, dml.asp(), optax.sgd(0.1), updates=3).trace
    with pytest.raises(ValueError, match=f"^optimizer: {message}"):
        dml.replay(trace, problem, optimizer)
    with pytest.raises(ValueError, match=f"^local, optimizer: {message}"):
        dml.train(problem, MIXED, dml.asp(), optax.sgd(0.1), updates=3, local=dml.local_steps(2, optimizer))
