"""Aggregates: their formulas, what they withstand, and the same gradients on every way of training."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, MIXED, UNEQUAL
from engine_runs import plane, relative_error, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import replay_reference

import dmlcore as dml
from dmlcore.methods.aggregate import Aggregate, clipped, mean, median, resolve, trimmed_mean
from dmlcore.training.loop import compilations
from dmlcore.training.replay import Replay
from dmlcore.training.stepper import Stepper

PLANE = plane()
SGD = optax.sgd(0.1)
THREADS = dml.engines.threads(time_scale=0.05)
PLACES = 7
REDUCING = {"median": median(), "trimmed": trimmed_mean(0.2), "trimmed more": trimmed_mean(0.45)}
CUT = {"trimmed": 0.2, "trimmed more": 0.45}
reduced = jax.jit(lambda rule, *given: rule.reduce(*given), static_argnums=0)


def in_places(pushes, places=PLACES):
    """Pushes in the first places, as `Aggregate.reduce` is given them; and which are present."""
    filled = np.zeros((places, *pushes.shape[1:]), pushes.dtype)
    filled[: len(pushes)] = pushes
    return {"w": jnp.asarray(filled)}, jnp.arange(places) < len(pushes)


def oracle(name, pushes):
    if name == "median":
        return np.median(pushes, axis=0)
    cut = math.floor(CUT[name] * len(pushes) + 1e-9)
    return np.sort(pushes, axis=0)[cut : len(pushes) - cut].mean(0)


@pytest.mark.parametrize("name", REDUCING)
@settings(max_examples=25)
@given(count=st.integers(1, PLACES), seed=st.integers(0, 10**6))
def test_formulas_and_permutations(name, count, seed):
    rng = np.random.default_rng(seed)
    pushes = rng.normal(size=(count, 3, 2)).astype(np.float32).round(1)  # with ties
    found = reduced(REDUCING[name], *in_places(pushes))["w"]
    np.testing.assert_allclose(found, oracle(name, pushes), rtol=1e-5, atol=1e-6)
    again = reduced(REDUCING[name], *in_places(rng.permutation(pushes)))["w"]
    assert np.array_equal(found, again)
    in_more = reduced(REDUCING[name], *in_places(pushes, 2 * PLACES))["w"]
    assert np.array_equal(found, in_more), "the bits do not depend on the number of places"


@pytest.mark.parametrize("name", ["median", "trimmed"])
@pytest.mark.parametrize("wrong", [math.inf, -math.inf, math.nan, 1e30])
def test_a_minority_stays_without_effect(name, wrong):
    """Every number is between two that others pushed, whatever a fifth of the pushes is."""
    pushes = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    pushes[2] = wrong
    found = reduced(REDUCING[name], *in_places(pushes))["w"]
    others = np.delete(pushes, 2, axis=0)
    assert (found >= others.min(0)).all()
    assert (found <= others.max(0)).all()


@settings(max_examples=25)
@given(c=st.floats(1e-3, 1e3), size=st.floats(1e-3, 1e30), seed=st.integers(0, 10**6))
def test_clipping(c, size, seed):
    rng = np.random.default_rng(seed)
    push = {name: (size * rng.normal(size=n)).astype(np.float32) for name, n in (("a", 5), ("b", 9))}
    found, norm = clipped(c).each(push), length(push)
    assert length(found) <= c * (1 + 1e-5)
    if norm < c * (1 - 1e-5):
        assert same_bits(found, push)
    elif norm > c * (1 + 1e-5):
        assert relative_error(found, jax.tree.map(lambda leaf: leaf.astype(float) * (c / norm), push)) < 1e-5


def test_clipping_makes_nothing_finite():
    for wrong in (math.inf, math.nan):
        assert not np.isfinite(clipped(1.0).each({"a": jnp.array([1.0, wrong])})["a"]).all()
    assert same_bits(clipped(1.0).each({"a": jnp.zeros(3)}), {"a": np.zeros(3)})


def length(tree):
    return math.sqrt(sum(float((np.asarray(leaf, float) ** 2).sum()) for leaf in jax.tree.leaves(tree)))


def train(policy, aggregate=None, optimizer=SGD, problem=PLANE, cluster=EXPONENTIAL, **options):
    options = {"updates": 20, "eval_every": 20, "aggregate": aggregate} | options
    return dml.train(problem, cluster, policy, optimizer, **options)


def lengths_of_updates(trace, aggregate=None, rate=1.0):
    """How far each update moves the parameters, over the learning rate."""
    driver = Replay([trace], PLANE, [optax.sgd(rate)], aggregate=aggregate)
    found, before = [], driver.params()
    for update in range(len(trace.updates)):
        driver.advance(update + 1)
        after = driver.params()
        found.append(length(jax.tree.map(jnp.subtract, after, before)) / rate)
        before = after
    return np.array(found)


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_of_one_push_the_median_is_the_push(weight):
    one, plain = (train(dml.asp(weight=weight), rule) for rule in (median(), None))
    assert same_bits(one.params, plain.params)


def test_without_trimming_it_is_the_mean_where_weights_are_equal():
    with jax.enable_x64(True):
        problem = plane("float64")
        untrimmed, plain = (train(dml.bsp(), rule, problem=problem) for rule in (trimmed_mean(0), None))
    assert relative_error(untrimmed.params, plain.params) < 1e-12


def test_a_bound_that_nothing_reaches_changes_no_bit():
    """Where nothing is fused; and with an infinite one it is the mean, also where updates are."""
    wide, plain = (train(dml.ssp(2), rule) for rule in (clipped(1e30), None))
    assert same_bits(wide.params, plain.params)
    assert clipped(math.inf) is mean()
    assert "aggregate" not in train(dml.bsp(), clipped(math.inf), updates=1).trace.metadata


@pytest.mark.parametrize("policy", [dml.asp(), dml.fedbuff(3)], ids=str)
def test_updates_are_no_longer_than_the_bound(policy):
    c = 0.4
    trace = train(policy, clipped(c), updates=30).trace
    applied = trace.tasks[trace.tasks["update"] >= 0]
    weights = applied.groupby("update")["weight"].sum().to_numpy()
    assert (lengths_of_updates(trace) <= c * weights * (1 + 1e-4)).all()
    assert (lengths_of_updates(trace, mean()) > c * weights).any(), "it does something"


@pytest.fixture(scope="module")
def corrupted():
    """Digits shared out over five workers; the gradients of the first come multiplied by -100."""
    digits = dml.problems.digits_mlp()
    owner = np.arange(digits.num_samples) % 5
    data = digits.data | {"factor": np.where(owner == 0, -100, 1).astype(np.float32)}

    def losses(params, batch):
        return batch["factor"] * digits.losses(params, batch)

    return dataclasses.replace(digits, name="corrupted", data=data, losses=losses).sharded(owner)


@pytest.mark.full  # the medians themselves are compared with NumPy's
@pytest.mark.parametrize("policy", [dml.bsp(), dml.k_batch_async(5)], ids=str)
def test_a_byzantine_worker_ruins_the_mean_and_not_the_median(corrupted, policy):
    cluster = dml.Cluster.uniform(5, samples_per_second=1000)
    options = {"problem": corrupted, "cluster": cluster, "optimizer": optax.sgd(0.5), "updates": 60}
    rules = {"median": median(), "trimmed": trimmed_mean(0.2)}
    runs = {name: train(policy, rule, **options) for name, rule in rules.items()}
    with pytest.warns(UserWarning, match="training diverged"):
        runs["mean"] = train(policy, None, **options)
    start = runs["mean"].history["loss"].iloc[0]
    ends = {name: run.history["loss"].iloc[-1] for name, run in runs.items()}
    assert not ends["mean"] < 10 * start
    assert ends["median"] < start / 4
    assert ends["trimmed"] < start / 4


CASES = [
    (median(), dml.bsp()),
    (median(), dml.fedbuff(3)),
    (trimmed_mean(0.3), dml.ssp(2)),
    (clipped(0.5), dml.ssp(2)),
]


@pytest.mark.parametrize("engine", ["simulate", THREADS], ids=str)
@pytest.mark.parametrize(("rule", "policy"), CASES, ids=str)
def test_engines_and_replay_have_the_bits_of_the_reference(rule, policy, engine):
    run = train(policy, rule, engine=engine)
    assert run.trace.metadata["aggregate"] == rule.name
    assert same_bits(run.params, replay_reference(run.trace, PLANE, SGD))
    assert same_bits(run.params, dml.replay(run.trace, PLANE, SGD).params)


@pytest.mark.parametrize("engine", ["simulate", THREADS], ids=str)
def test_compensation_comes_before_the_aggregate(engine):
    """And momentum after it; the clipped push is what a stale gradient was corrected to."""
    options = {"compensation": 50.0, "engine": engine, "optimizer": optax.sgd(0.02, 0.9)}
    run = train(dml.k_batch_async(2), median()._replace(name="both", each=clipped(0.3).each), **options)
    both = median()._replace(each=clipped(0.3).each)
    assert same_bits(run.params, replay_reference(run.trace, PLANE, options["optimizer"], both))


COMBINED = {
    "local steps": {"local": dml.local_steps(3, optax.sgd(0.1, 0.5), keep_state=True)},
    "codec": {"transport": "coded(push=affine(bits=8))"},
    "own steps": {"transport": "pipelined(own_steps=True)"},
    "unequal loads": {"load": UNEQUAL},
}


@pytest.mark.parametrize(
    ("name", "rule"),
    [(name, median()) for name in ("local steps", "unequal loads")]
    + [(name, clipped(0.1)) for name in ("codec", "own steps")]
    # gradients are coupled, and shards owned, before an aggregate has them: test_coupled and test_shards
    + [pytest.param("coupled shards", median(), marks=pytest.mark.full)]
    + [pytest.param("local steps", clipped(0.1), marks=pytest.mark.full)],
    ids=str,
)
def test_with_the_other_parts_of_a_method(name, rule):
    with jax.enable_x64(True):
        problem = plane("float64")
        if name == "coupled shards":
            problem = dataclasses.replace(problem, coupled=True).sharded(dml.shards.dirichlet(4, 0.1))
        options = {"problem": problem, "cluster": MIXED, "updates": 8} | COMBINED.get(name, {})
        run = train(dml.k_batch_async(3), rule, **options)
        known = problem.with_steps(options.get("local"), 32)
        assert relative_error(run.params, replay_reference(run.trace, known, SGD)) <= 1e-10


def test_lanes_that_differ_in_numbers_and_are_out_of_step():
    rules, rates = [trimmed_mean(0.1), trimmed_mean(0.45)], [optax.sgd(0.1), optax.sgd(0.2)]
    traces = [
        dml.simulate(dml.Method(dml.ssp(2), aggregate=rule), MIXED, updates=8 + 5 * seed, seed=seed)
        for seed, rule in enumerate(rules)
    ]
    lanes = dml.replay_lanes(traces, PLANE, rates)
    for lane, trace, rate in zip(lanes, traces, rates, strict=True):
        assert relative_error(lane.params, dml.replay(trace, PLANE, rate).params) < 1e-5


def test_a_watching_policy_sees_what_was_made_of_its_pushes():
    """With more pushes in an update than workers, for which the segments make room."""
    seen = []
    policy = dml.k_batch_async(9)
    watching = policy._replace(on_observation=lambda state, found: (seen.append(found), state)[1])
    run = train(watching, median(), optimizer=optax.sgd(1e-3), updates=9)
    wanted = lengths_of_updates(run.trace, rate=1e-3) ** 2
    # A step of 0.001 is small beside the parameters that it is told from.
    found = [norm for each in seen for norm in each.squared_norms]
    np.testing.assert_allclose(found, wanted[:-1], rtol=0.01)  # after the last there is no look


def without(worker):
    """BSP, in whose updates the push of a worker has weight 0; in the third all have."""
    policy = dml.bsp()

    def on_push(state, push):
        state, decision = policy.on_push(state, push)
        apply = [(w, c, 0.0 if w == worker or c == 2 else weight) for w, c, weight in decision.apply]
        return state, decision._replace(apply=apply)

    return policy._replace(name="without", on_push=on_push)


@pytest.mark.parametrize("engine", ["simulate", THREADS], ids=str)
def test_a_push_of_weight_0_has_no_vote(engine):
    run = train(without(0), median(), engine=engine, updates=4)
    assert same_bits(run.params, replay_reference(run.trace, PLANE, SGD))
    lengths = lengths_of_updates(run.trace)
    assert lengths[2] == 0
    assert (np.delete(lengths, 2) > 0).all()


def test_a_push_of_weight_0_is_nothing_to_a_server_even_if_it_is_not_finite():
    problem = plane()
    server = Stepper(problem, optax.sgd(0.1), 0, num_workers=2, aggregate=clipped(1.0))
    whole = jax.tree.map(jnp.ones_like, server.start()[0])
    broken = jax.tree.map(lambda leaf: jnp.nan * leaf, whole)
    push = (1.0, whole, None)
    assert same_bits(server.update([push]), server.update([(0.0, broken, None), push]))


def test_numbers_compile_nothing_and_the_mean_keeps_its_program():
    train(dml.k_batch_async(3), trimmed_mean(0.1))
    train(dml.asp(weight=0.9), clipped(1.0))
    before = compilations()
    train(dml.k_batch_async(3), trimmed_mean(0.4), optimizer=optax.sgd(0.3), seed=1)
    train(dml.asp(weight=0.8), clipped(0.01), optimizer=optax.sgd(0.3), seed=1)
    assert compilations() == before
    trace = dml.simulate(dml.k_batch_async(3), EXPONENTIAL, updates=3)
    shapes = [
        [
            leaf.shape
            for leaf in jax.tree.leaves(Replay([trace], PLANE, [SGD], aggregate=rule).state().gathered)
        ]
        for rule in (mean(), clipped(1.0), median())
    ]
    assert shapes[0] == shapes[1] == [leaf.shape for leaf in jax.tree.leaves(PLANE.shapes)]
    assert shapes[2] == [*((3, *shape) for shape in shapes[0]), (), ()]


def test_a_comparison_and_a_sweep_of_methods():
    methods = {
        "mean": dml.bsp(),
        "median": dml.Method(dml.bsp(), aggregate="median()"),
        "clipped": dml.Method(dml.bsp(), aggregate=clipped(0.1)),
    }
    assert "aggregate=clipped(0.1)" in repr(methods["clipped"])
    options = {"seeds": [0], "updates": 10, "eval_every": 10}
    last = dml.compare(methods, PLANE, EXPONENTIAL, SGD, **options).query("update == 10").set_index("method")
    for name, rule in {"mean": None, "median": "median", "clipped": "clipped(0.1)"}.items():
        alone = train(dml.bsp(), rule, updates=10, eval_every=10)
        assert last["loss"][name] == alone.history["loss"].iloc[-1]
    assert last["loss"].nunique() == 3
    rates = dml.sweep(methods, PLANE, EXPONENTIAL, optax.sgd, [0.1, 0.2], **options)
    at = rates.query("update == 10").set_index(["learning_rate", "method"])["loss"]
    assert at[0.1].to_dict() == last["loss"].to_dict()


def test_replay_takes_the_aggregate_of_the_trace_or_another_one(tmp_path):
    run = train(dml.k_batch_async(3), median())
    run.trace.save(tmp_path / "run.parquet")
    trace = dml.Trace.load(tmp_path / "run.parquet")
    assert same_bits(dml.replay(trace, PLANE, SGD).params, run.params)
    plain = dml.replay(trace, PLANE, SGD, aggregate="mean()")
    assert same_bits(plain.params, train(dml.k_batch_async(3)).params)
    assert "aggregate" not in plain.trace.metadata
    assert dml.replay(plain.trace, PLANE, SGD, aggregate=median()).trace.metadata["aggregate"] == "median()"


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    options = {"updates": 10, "eval_every": 5, "checkpoint": tmp_path / "run"}
    first, again = (train(dml.bsp(), median(), **options) for _ in range(2))
    assert same_bits(first.params, again.params)
    mine = [Aggregate("mine()", each=lambda p, by=by: jax.tree.map(lambda x: by * x, p)) for by in (0.5, 0.7)]
    options["checkpoint"] = tmp_path / "mine"
    train(dml.bsp(), mine[0], **options)
    for other in (mine[1], median()):
        with pytest.raises(ValueError, match="checkpoint"):
            train(dml.bsp(), other, **options)


MINE = Aggregate("mine()", each=lambda push: jax.tree.map(lambda leaf: leaf / 2, push))
BSP_TRACE = dml.simulate(dml.bsp(), EXPONENTIAL, updates=2)
WRONG = {
    "fraction: expected a number >= 0 and < 0.5, got 0.5": lambda: trimmed_mean(0.5),
    "fraction: expected a number >= 0 and < 0.5, got -0.1": lambda: trimmed_mean(-0.1),
    "fraction: expected a number >= 0 and < 0.5, got nan": lambda: trimmed_mean(math.nan),
    "fraction: expected a number >= 0 and < 0.5, got '0.1'": lambda: trimmed_mean("0.1"),
    "c: expected a number > 0, got 0": lambda: clipped(0),
    "c: expected a number > 0, got -1": lambda: clipped(-1),
    "c: expected a number > 0, got nan": lambda: clipped(math.nan),
    "c: expected a number > 0, got 0.0": lambda: train(dml.bsp(), "clipped(0.0)"),
    "aggregate: expected a call of one of mean, median, trimmed_mean, clipped, got 'medean()'": lambda: train(
        dml.bsp(), "medean()"
    ),
    "aggregate: expected an Aggregate, or a call as text of one of mean, median": lambda: train(dml.bsp(), 3),
    "aggregate: expected an Aggregate, or a call as text of one of mean": lambda: train(dml.bsp(), median),
    "aggregate: expected mean() for the additive updates of lasso (which are added,": lambda: train(
        dml.bsp(), median(), problem=dml.problems.lasso(), optimizer=optax.identity(), batch_size=1
    ),
    "aggregate: expected an Aggregate whose `each` returns a tree like one push": lambda: train(
        dml.bsp(), Aggregate("odd()", each=lambda push: jax.tree.leaves(push))
    ),
    "aggregate: expected an Aggregate whose `reduce` returns a tree like one push": lambda: train(
        dml.bsp(), Aggregate("odd()", reduce=lambda pushes, present: pushes)
    ),
    "aggregate: expected an Aggregate whose `reduce` returns a tree like one push, got odd(), w": (
        lambda: train(dml.bsp(), Aggregate("odd()", reduce=lambda pushes: pushes))
    ),
    "methods['B'], c: expected a number > 0, got -1": lambda: dml.compare(
        {"A": dml.bsp(), "B": dml.Method(dml.bsp(), aggregate="clipped(-1)")},
        PLANE,
        EXPONENTIAL,
        SGD,
        updates=1,
    ),
    "aggregate: expected mine(), as in the trace, got None; try passing aggregate=": lambda: dml.replay(
        dml.simulate(dml.Method(dml.bsp(), aggregate=MINE), EXPONENTIAL, updates=2), PLANE, SGD
    ),
    "traces: expected traces with one kind of aggregate (to train": lambda: dml.replay_lanes(
        [BSP_TRACE, dml.simulate(dml.Method(dml.bsp(), aggregate="median"), EXPONENTIAL, updates=2)],
        PLANE,
        [SGD] * 2,
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_named(message):
    with pytest.raises(ValueError, match="got") as error:
        WRONG[message]()
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("rule", [mean(), median(), trimmed_mean(0.25), clipped(2)], ids=str)
def test_names_are_read_again(rule):
    for number in range(1, 50):
        trimmed_mean(number / 200), clipped(100 + number)
    assert resolve(rule.name) is rule, "however many others were made since"


def test_an_aggregate_of_ones_own():
    run = train(dml.bsp(), MINE)
    halved = train(dml.bsp(), optimizer=optax.sgd(0.05))
    assert relative_error(run.params, halved.params) < 1e-5
    assert same_bits(dml.replay(run.trace, PLANE, SGD, aggregate=MINE).params, run.params)
