"""Problems that would train silently wrong are refused before training; sound ones of all kinds pass."""

import contextlib
import copy
import dataclasses
import itertools
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import dmlcore as dml
from dmlcore.data import Labelled
from dmlcore.experiments import runs
from dmlcore.problems import classification, networks, validation
from dmlcore.problems.validation import RESERVED, check_problem

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(10, 3)).astype(np.float32), np.arange(10, dtype=np.float32)
CLUSTER = dml.Cluster.uniform(2)
COUNTER = itertools.count()


def init(key):
    return {"w": 0.1 * jax.random.normal(key, (3,)), "b": jnp.zeros(())}


def losses(params, batch):
    return (batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2


def evaluate(params, data):
    return {"loss": losses(params, data).mean()}


def problem(**changes):
    data = changes.get("data", {"x": X, "y": Y})
    given = {
        "init": init,
        "data": data,
        "evaluate": evaluate,
        "eval_data": {"x": X, "y": Y},
        "losses": losses,
    }
    return dml.Problem(**{"name": "mine"} | given | changes)


def metrics(**values):
    return {"evaluate": lambda params, data: evaluate(params, data) | values}


def raises(*args):
    raise KeyError("weights")


def raises_backwards(params, batch):
    @jax.custom_vjp
    def same(x):
        return x

    same.defvjp(lambda x: (x, None), raises)
    return same(losses(params, batch))


def additive(update=lambda view, batch, key: view, start=lambda key: jnp.zeros(3), **given):
    return {"update": update, "losses": None, "init": start, "evaluate": lambda p, _: {"loss": 0.0}} | given


def standardised(params, batch):
    x = batch["x"]
    return losses(params, batch | {"x": (x - x.mean(0)) / (x.std(0) + 1e-3)})


def first_is_special(params, batch):
    return losses(params, batch) * jnp.arange(1, len(batch["y"]) + 1)


MALFORMED = {
    # The problem and its data
    "a factory": (
        lambda: dml.problems.digits_mlp,
        r"problem: expected a Problem, got <function.*; try calling it: digits_mlp",
    ),
    "a number as name": ({"name": 3}, r"problem\.name: expected a str.*, got 3"),
    "other rows": (
        {"data": {"x": X, "y": Y[:9]}},
        r"data\['y'\]: expected 10 rows, as in data\['x'\].*, got 9",
    ),
    "no data": ({"data": {}}, r"data: expected a pytree with at least one array.*, got \{\}"),
    "no samples": (
        {"data": {"x": X[:0], "y": Y[:0]}},
        r"data\['x'\]: expected at least one sample.*, got 0 rows",
    ),
    "a scalar": (
        {"data": {"x": X, "y": np.float32(1)}},
        r"data\['y'\]: expected .* row for each sample, got float32\[\]",
    ),
    "objects": (
        {"data": {"x": X, "y": Y.astype(object)}},
        r"data\['y'\]: expected .* of numbers.*, got object\[10\]",
    ),
    "text": ({"data": {"x": X, "y": Y.astype(str)}}, r"data\['y'\]: expected .* of numbers.*, got <U"),
    "lists": ({"data": [[1.0, 2.0]]}, r"data\[0\]\[0\]: expected a NumPy or JAX array.*, got 1\.0"),
    "text to evaluate on": (
        {"eval_data": "test.npz"},
        r"eval_data: expected a NumPy or JAX array, or a.*, got 'test\.npz'",
    ),
    # Where it begins
    "whole numbers as parameters": (
        {"init": lambda key: {"w": jnp.zeros(3, int), "b": jnp.zeros(())}},
        r"init\['w'\]: expected floating parameters \(tasks are gradients\), got int32\[3\]",
    ),
    "complex parameters": (
        {"init": lambda key: jnp.zeros(3, complex)},
        r"init: expected floating.*, got complex64\[3\]",
    ),
    "a number as parameter": (
        {"init": lambda key: {"w": jnp.zeros(3), "b": 0.0}},
        r"init\['b'\]: expected arrays.*, got 0\.0",
    ),
    "no parameters": (
        {"init": lambda key: {}},
        r"init: expected a pytree with at least one array.*, got \{\}",
    ),
    "nothing returned": ({"init": lambda key: None}, r"init: expected a pytree with.*, got None"),
    "hidden randomness": (
        {"init": lambda key: {"w": np.full(3, next(COUNTER), np.float32), "b": jnp.zeros(())}},
        r"init: expected a function of the random key alone.*, got other parameters at its second call",
    ),
    "init raises": ({"init": raises}, r"init: the function raised KeyError: 'weights'"),
    "init is none": ({"init": None}, r"init: expected a function.*, got None"),
    # Losses
    "the mean": (
        {"losses": lambda p, b: losses(p, b).mean()},
        r"losses: expected .* shape \(4,\), one for.*, got float32\[\]",
    ),
    "a column": (
        {"losses": lambda p, b: losses(p, b)[:, None]},
        r"losses: expected .* one for each of 4.*, got float32\[4,1\]",
    ),
    "whole losses": (
        {"losses": lambda p, b: jnp.zeros(4, int)},
        r"losses: expected floating numbers.*, got int32\[4\]",
    ),
    "a pair": (
        {"losses": lambda p, b: (losses(p, b), {})},
        r"losses: expected an array of shape \(4,\).*, got a tuple",
    ),
    "losses raise": ({"losses": raises}, r"losses: the function raised KeyError: 'weights'"),
    "their gradient raises": (
        {"losses": raises_backwards},
        r"losses, its gradient: the function raised KeyError: 'weights'",
    ),
    "logarithms of zero": (
        {"losses": lambda p, b: losses(p, b) + jnp.log(p["b"])},
        r"losses: expected finite.*, got \[-inf",
    ),
    "a sample that is NaN": (
        {"data": {"x": np.where(np.arange(10)[:, None] == 7, np.nan, X), "y": Y}},
        r"losses: expected finite losses of samples \[0, 3, 6, 7\].*, got \[.*, nan\]",
    ),
    "a NaN behind a mask, whose gradient is NaN": (
        {
            "data": {"x": np.where(np.arange(10)[:, None] == 7, np.nan, X), "y": Y},
            "losses": lambda p, b: jnp.where(jnp.isnan(b["x"][:, 0]), 0, losses(p, b)),
        },
        r"losses: expected a finite gradient.*, got one that is not finite in parameter \['b'\]",
    ),
    "a norm at zero": (
        {"losses": lambda p, b: losses(p, b) + jnp.sqrt(p["b"] ** 2)},
        r"losses: expected a finite gradient.*, got one that is not finite in parameter \['b'\]",
    ),
    "the mean for all": (
        {"losses": lambda p, b: losses(p, b).mean() * jnp.ones_like(b["y"])},
        r"own row alone",
    ),
    "divided by the batch": (
        {"losses": lambda p, b: losses(p, b) / len(b["y"])},
        r"losses: expected .*, got .* in a batch of 4, .* in one of 2",
    ),
    "batch statistics": ({"losses": standardised}, r"own row alone, got .*; try coupled=True"),
    "places": ({"losses": first_is_special}, r"losses: expected .*own row alone"),
    "only batches of four": (
        {"losses": lambda p, b: losses(p, b) * jnp.ones(4)},
        r"losses: the function raised TypeError: .*shapes[^$]*, on a batch of 2 samples",
    ),
    # Metrics
    "no loss": (
        {"evaluate": lambda p, d: {"accuracy": 1.0}},
        r"evaluate: expected .* 'loss'.*, got \['accuracy'\]",
    ),
    "a metric named time": (
        metrics(time=1.0),
        r"evaluate: expected a metric with a name other than.*, got 'time'",
    ),
    "a metric named seed": (
        metrics(seed=1.0),
        r"evaluate: expected .*'seed', 'time', 'update'.*, got 'seed'",
    ),
    "a number as a metric's name": (
        {"evaluate": lambda p, d: {"loss": 0.0, 3: 1.0}},
        r"evaluate: expected a string.*, got 3",
    ),
    "a metric of each class": (
        metrics(recall=jnp.zeros(3)),
        r"evaluate\['recall'\]: expected a real number.*, got float32\[3\]",
    ),
    "a metric in words": (
        metrics(verdict="good"),
        r"evaluate\['verdict'\]: expected a real number.*, got <U4\[\]",
    ),
    "a bare loss": (
        {"evaluate": lambda p, d: losses(p, d).mean()},
        r"evaluate: expected a dict of metrics",
    ),
    "evaluate raises": ({"evaluate": raises}, r"evaluate: the function raised KeyError: 'weights'"),
    # Updates
    "another shape": (
        additive(lambda view, *_: view[:2]),
        r"update: expected float32\[3\], like.*, got float32\[2\]",
    ),
    "another type": (
        additive(lambda view, *_: jnp.zeros(3, int)),
        r"update: expected float32\[3\].*, got int32\[3\]",
    ),
    "another tree": (
        additive(lambda view, *_: {"w": view}),
        r"update: expected a tree like the parameters that it sees.*, got PyTreeDef",
    ),
    "update raises": (additive(raises), r"update: the function raised KeyError: 'weights'"),
    "a local parameter of another length": (
        additive(start=lambda key: {"w": jnp.zeros(3)}, local=("w",)),
        r"local: expected names of parameters in a dict, with a row for each of 10 samples.*, got 'w'",
    ),
}


@pytest.fixture
def untrained(monkeypatch):
    """No run is begun."""

    def begun(*args, **kwargs):
        raise AssertionError("a run has begun")

    monkeypatch.setattr(runs, "run", begun)


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(name, untrained):
    """One ValueError names the field, what was found and what is allowed; what was raised is its cause."""
    changes, message = MALFORMED[name]
    given = changes() if callable(changes) else problem(**changes)
    optimizer = optax.identity() if getattr(given, "additive", False) else optax.sgd(0.1)
    for _ in range(2):  # what was refused is not taken for checked
        with pytest.raises(ValueError, match=message) as caught:
            dml.train(given, CLUSTER, dml.asp(), optimizer, updates=1, batch_size=2)
    if "raise" in name:
        assert isinstance(caught.value.__cause__, KeyError)
    if isinstance(given, dml.Problem):
        assert re.match("problem('mine'|.name)", str(caught.value).replace("problem 'mine'", "problem'mine'"))


def test_everything_that_trains_checks_first():
    wrong, sgd = problem(losses=standardised), optax.sgd(0.1)
    trace = dml.simulate(dml.asp(), CLUSTER, updates=1)
    calls = [
        lambda: dml.compare({"A": dml.asp()}, wrong, CLUSTER, sgd, updates=1),
        lambda: dml.sweep({"A": dml.asp()}, wrong, CLUSTER, optax.sgd, [0.1], updates=1),
        lambda: dml.study({"A": dml.asp()}, wrong, CLUSTER, {"loss": 1.0}, budget=3),
        lambda: dml.replay(trace, wrong, sgd),
        lambda: dml.replay_lanes([trace], wrong, [sgd]),
        lambda: dml.train(wrong, CLUSTER, dml.asp(), sgd, updates=1, engine="threads"),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="own row alone"):
            call()


def test_a_problem_is_checked_once_in_each_float_mode(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr("dmlcore.files.cache", lambda: tmp_path)
    monkeypatch.setattr(validation, "_check_data", lambda given: calls.append(given))
    given = problem()
    for _ in range(2):
        dml.train(given, CLUSTER, dml.asp(), optax.sgd(0.1), updates=1)
    dml.compare({"A": dml.asp()}, given, CLUSTER, optax.sgd(0.1), updates=1, seeds=[0, 1])
    assert len(calls) == 1
    with jax.enable_x64(True):
        check_problem(given)
    assert calls == [given] * 2
    check_problem(copy.copy(given))  # as it is sent to other processes
    assert len(calls) == 2


def test_a_check_is_remembered_across_processes(monkeypatch, tmp_path):
    """An equal problem is not checked again; another one is, and one that failed."""
    calls = []
    monkeypatch.setattr("dmlcore.files.cache", lambda: tmp_path)
    monkeypatch.setattr(validation, "_check_data", lambda given: calls.append(given.name))

    def trained(name, **changes):
        with contextlib.suppress(ValueError):
            given = dataclasses.replace(problem(**changes), name=name)
            dml.train(given, CLUSTER, dml.asp(), optax.sgd(0.1), updates=1)

    of_one = {"losses": lambda params, batch: losses(params, batch) * len(batch["y"])}
    for _ in range(2):
        trained("mine")
        trained("another", data={"x": X, "y": Y + 1})
        trained("wrong", **of_one)
    assert calls == ["mine", "another", "wrong", "wrong"]
    assert {path.stat().st_size for path in (tmp_path / "checked").iterdir()} == {0}


def test_no_metric_can_have_the_name_of_a_column():
    cluster = CLUSTER.with_server(seconds_per_push=0.01)
    table = dml.sweep({"A": dml.asp()}, problem(), cluster, optax.sgd, [0.1], updates=1, seeds=[0])
    assert {*table} == RESERVED | {"loss"}


# What is sound


def of_module(module):
    """A problem of a flax.linen module, whose parameters are a nested dict."""

    def apply(params, batch):
        return (module.apply(params, batch["x"])[:, 0] - batch["y"]) ** 2

    return {
        "init": lambda key: module.init(key, X),
        "losses": apply,
        "evaluate": lambda params, data: {"loss": apply(params, data).mean()},
    }


def of_nnx():
    graph, _ = nnx.split(nnx.eval_shape(lambda: nnx.Linear(3, 1, rngs=nnx.Rngs(0))))

    def apply(params, batch):
        return (nnx.merge(graph, params)(batch["x"])[:, 0] - batch["y"]) ** 2

    return {
        "init": lambda key: nnx.to_pure_dict(nnx.state(nnx.Linear(3, 1, rngs=nnx.Rngs(key)))),
        "losses": apply,
        "evaluate": lambda params, data: {"loss": apply(params, data).mean()},
    }


def of_type(dtype):
    return {"init": lambda key: jax.tree.map(lambda leaf: leaf.astype(dtype), init(key))}


def nested(key):
    return [{"w": (jnp.zeros(3), [jnp.ones(2), jnp.ones((1, 1))])}, jnp.zeros(())]


def all_at_zero(params, batch):
    """Softmax regression: before training the losses of all rows are equal."""
    return optax.softmax_cross_entropy_with_integer_labels(batch["x"] @ params, batch["y"])


LABELS = {"x": X, "y": np.arange(10) % 2}
SOUND = {
    "plain": {},
    "jax arrays": {"data": {"x": jnp.asarray(X), "y": jnp.asarray(Y)}},
    "bfloat16": of_type(jnp.bfloat16),
    "float16": of_type(jnp.float16),
    "bfloat16 within": {
        "losses": lambda p, b: losses(jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), p), b),
    },
    "a NaN that means missing": {
        "data": {"x": np.where(np.arange(10)[:, None] == 7, np.nan, X), "y": Y},
        "losses": lambda p, b: losses(p, b | {"x": jnp.nan_to_num(b["x"])}),
    },
    "one sample": {"data": {"x": X[:1], "y": Y[:1]}},
    "no data to evaluate on": {"eval_data": (), "evaluate": lambda p, _: {"loss": p["b"]}},
    "numbers to evaluate on": {"eval_data": (3, 0.5), "evaluate": lambda p, d: {"loss": p["b"] * d[1]}},
    "more metrics": metrics(norm=0, right=jnp.bool_(1), time_s=1.0),
    "nested": {
        "init": nested,
        "losses": lambda p, b: b["x"] @ p[0]["w"][0] + p[1] - b["y"] * p[0]["w"][1][1].sum(),
        "evaluate": lambda p, _: {"loss": p[1]},
    },
    "labels": {
        "data": LABELS,
        "init": lambda key: jnp.zeros((3, 2)),
        "losses": all_at_zero,
        "eval_data": LABELS,
        "evaluate": lambda p, d: {"loss": all_at_zero(p, d).mean()},
    },
    "linen": of_module(linen.Dense(1)),
    "nnx": of_nnx(),
    "batch statistics, declared": {"losses": standardised, "coupled": True},
}


def needs_float16():
    """Skips where XLA itself cannot round to float16: it lacks a routine for processors without F16C."""
    try:
        jax.block_until_ready(jnp.ones(3).astype(jnp.float16))
    except jax.errors.JaxRuntimeError as error:
        pytest.skip(f"XLA has no conversion to float16 for this processor: {error}")


@pytest.mark.parametrize("name", SOUND)
def test_sound(name):
    if name == "float16":
        needs_float16()
    run = dml.train(problem(**SOUND[name]), CLUSTER, dml.asp(), optax.sgd(0.01), updates=1, batch_size=2)
    assert len(run.trace.updates) == 1


def test_sound_in_64_bits():
    with jax.enable_x64(True):
        check_problem(problem(**of_type(np.float64)))
        check_problem(dml.problems.digits_mlp(dtype="float64"))


SMALLER = {"language_model": {"context": 8, "width": 8, "layers": 1}}  # of the same layers


@pytest.mark.parametrize(
    "name", [name for name in dml.problems.PROBLEMS if not name.startswith(("mnist", "cifar10"))]
)
def test_our_own_problems_are_sound(name):
    check_problem(dml.problems.PROBLEMS[name](**SMALLER.get(name, {})))


@pytest.mark.parametrize(
    ("network", "shape"),
    [
        (networks.lenet, (28, 28)),
        pytest.param(partial(networks.lenet, colour=True), (32, 32, 3), marks=pytest.mark.full),
        pytest.param(networks.three_convolutions, (32, 32, 3), marks=pytest.mark.full),
    ],
)
def test_networks_of_images_are_sound(network, shape):
    """Those whose data are fetched, on data of their shape."""
    inputs, labels = RNG.integers(0, 256, size=(6, *shape), dtype=np.uint8), np.arange(6)
    data = Labelled(inputs, labels, inputs, labels)
    check_problem(classification.classification("images", *network("float32"), data, dtype="uint8"))


def test_sizes_that_cannot_fit_say_what_they_would_need():
    wide = problem(data={"x": np.zeros((1, 10**6), np.float32)})
    with pytest.raises(ValueError, match=r"batch_size: expected .*needs 8,000,008 GiB.*, got 2147483647"):
        runs.run_spec(wide, dml.asp(), CLUSTER, updates=1, batch_size=2**31 - 1)
    huge = problem(init=lambda key: {"w": jnp.zeros((10**6, 10**7))})
    with pytest.raises(
        ValueError, match=r"init, bytes of parameters: expected .*37,253 GiB.*, got 40000000000000"
    ):
        check_problem(huge)
