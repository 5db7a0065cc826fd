"""Runs on threads and their replays, of every kind of contribution, layer, dtype and optimizer; a program.

XLA chooses its instructions once in a process: `XLA_FLAGS=--xla_cpu_max_isa=AVX2 python every_bit.py` makes
those of another processor. Arguments are numbers of rows in `ROWS`; prints those whose bits differ, as JSON.
"""

import functools
import itertools
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import dmlcore as dml
from dmlcore.types import Load

WIDTH = 12  # of the models
LAYERS = {
    "dense": lambda make: nnx.Sequential(make(nnx.Linear, 16, WIDTH), nnx.relu, make(nnx.Linear, WIDTH, 4)),
    "convolution": lambda make: nnx.Sequential(
        lambda x: x.reshape(-1, 4, 4, 1),
        make(nnx.Conv, 1, 6, (3, 3)),
        nnx.relu,
        make(nnx.Conv, 6, 4, (3, 3), strides=2),
        lambda x: x.mean((1, 2)),
    ),
    "attention": lambda make: nnx.Sequential(
        lambda x: x.reshape(-1, 4, 4),
        make(nnx.MultiHeadAttention, num_heads=2, in_features=4, decode=False),
        lambda x: x.mean(1),
    ),
    "embedding": lambda make: nnx.Sequential(
        make(nnx.Embed, 17, 8), lambda x: jnp.tanh(x.mean(1)), make(nnx.Linear, 8, 4)
    ),
    "normalisation": lambda make: nnx.Sequential(
        make(nnx.Linear, 16, WIDTH), make(nnx.LayerNorm, WIDTH), make(nnx.Linear, WIDTH, 4)
    ),
}
LAYERS["dropout"] = lambda make: make(nnx.Linear, 16, 4)  # its losses have random keys


def data():
    """400 samples of 16 whole numbers below 17, and 4 classes."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 17, (400, 16)), rng.integers(0, 4, 400)


def size(params, data):
    """Instead of a loss, since nothing here is about evaluations, and those of a network compile for long."""
    return {"loss": sum(abs(leaf).sum() for leaf in jax.tree.leaves(params))}


@functools.cache
def network(layer, dtype):
    """A problem of a small network; "dropout" has random keys, "normalisation" also sees its whole batch."""
    numbers, labels = data()
    rows = {
        "x": numbers if layer == "embedding" else np.asarray(jnp.asarray(numbers / 8 - 1, dtype)),
        "y": labels,
    }

    def split(rngs):
        own = {"rngs": rngs, "dtype": dtype, "param_dtype": dtype}
        return nnx.split(
            LAYERS[layer](lambda kind, *args, **more: kind(*args, **own, **more)), nnx.Param, ...
        )

    graph, shapes, rest = nnx.eval_shape(lambda: split(nnx.Rngs(0)))

    def init(key):
        """Not at random, which takes long to compile."""
        rng = np.random.default_rng(1)
        return jax.tree.map(
            lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) / 4, dtype), nnx.to_pure_dict(shapes)
        )

    def plain(params, batch):
        scores = nnx.merge(graph, params, rest)(batch["x"]).astype(jnp.promote_types(dtype, "float32"))
        return optax.softmax_cross_entropy_with_integer_labels(scores, batch["y"])

    def dropped(params, batch, keys):
        stays = jax.vmap(lambda key, row: jax.random.bernoulli(key, 0.8, row.shape))(keys, batch["x"])
        return plain(params, batch | {"x": jnp.where(stays, batch["x"] / 0.8, 0).astype(dtype)})

    def contrasted(params, batch):
        found = plain(params, batch)
        return found * jax.nn.softmax(found)

    losses = {"dropout": dropped, "normalisation": contrasted}.get(layer, plain)
    first = {name: column[:20] for name, column in rows.items()}
    return dml.Problem(
        f"{layer} in {dtype}",
        init,
        rows,
        size,
        first,
        losses=losses,
        coupled=losses is contrasted,
    )


@functools.cache
def regression(kind, dtype):
    """Least squares, by a product of a matrix and a vector, or without any product of matrices."""
    rng = np.random.default_rng(0)
    rows = {"x": rng.normal(size=(300, 24)).astype(dtype), "y": rng.normal(size=300).astype(dtype)}

    def losses(params, batch):
        x, w = batch["x"], params["w"]
        found = x @ w if kind == "vector" else (x * w).sum(-1) + (w**2).sum() / 100
        return (found - batch["y"]) ** 2 / 2

    def init(key):
        return {"w": jnp.asarray(np.random.default_rng(1).normal(size=24), dtype)}

    return dml.Problem(f"{kind} in {dtype}", init, rows, size, rows, losses=losses)


def sizes(*each):
    """A load that gives each worker a batch size of its own."""
    return Load(f"sizes{each}", lambda *_: None, lambda state, worker: each[worker % len(each)])


VECTOR = functools.partial(regression, "vector")
INNER = optax.adamw(3e-3)
# What a task contributes: a problem by dtype, and the rest of the method.
CONTRIBUTIONS = {
    **{layer: (functools.partial(network, layer), {"load": sizes(8, 5)}) for layer in LAYERS},
    "vector": (VECTOR, {"load": sizes(8, 5)}),
    "elementwise": (functools.partial(regression, "elementwise"), {"load": sizes(8, 5)}),
    "local steps": (VECTOR, {"local": dml.local_steps(3, INNER, keep_state=True)}),
    "control variates": (VECTOR, {"local": dml.local_steps(3, INNER, prox=0.1, control_variates=True)}),
    "additive": (
        lambda dtype: dml.problems.lasso(num_samples=40, num_features=60, num_nonzeros=5, dtype=dtype),
        {},
    ),
    "affine": (VECTOR, {"transport": "coded(push=affine(bits=8))"}),
    "one bit": (
        VECTOR,
        {"transport": "coded(pull=difference(affine(bits=8)), push=error_feedback(one_bit()))"},
    ),
    "clipped": (VECTOR, {"aggregate": "clipped(0.5)"}),
    "median": (VECTOR, {"aggregate": "median()"}),
    "compensated": (VECTOR, {"compensation": 0.5}),
    "sparse": (
        VECTOR,
        {"transport": "coded(error_feedback(top_k(0.1)), difference(random_k(0.5, unbiased=False)))"},
    ),
    "low rank": (functools.partial(network, "dense"), {"transport": "coded(error_feedback(power_sgd(2)))"}),
    "fragments": (VECTOR, {"local": dml.local_steps(3, INNER, keep_state=True, fragments=3, mixing=0.3)}),
    "dynamic": (VECTOR, {"local": dml.local_steps(3, INNER, prox=0.1, dynamic=True)}),
}
# They need policies whose tasks all pull.
PULLING = {"affine", "one bit", "compensated", "sparse", "low rank"}
POLICIES = {
    "asp": dml.asp(weight=0.3),
    "ssp": dml.ssp(2),
    "k_batch_async": dml.k_batch_async(3),
    "bsp": dml.bsp(),
    "whole": dml.asp(),  # additive updates have no weights
}
DTYPES = ("float32", "float64", "bfloat16")
OPTIMIZERS = {"sgd": optax.sgd(0.05), "momentum": optax.sgd(0.02, 0.9), "adam": optax.adam(1e-3)}
ADD = optax.identity()


def rows():
    """Every contribution in every dtype; policies and optimizers take turns."""
    policies, optimizers = itertools.cycle([*POLICIES][:4]), itertools.cycle([*OPTIMIZERS, "sgd", "momentum"])
    for contribution, dtype in itertools.product(CONTRIBUTIONS, DTYPES):
        policy, optimizer = next(policies), next(optimizers)
        if contribution == "additive":
            policy, optimizer = "whole", "add"
            dtype = dtype.replace("bfloat16", "float32")  # this problem has none in bfloat16
        elif contribution == "fragments" or (contribution in PULLING and policy == "ssp"):
            policy = "bsp"
        yield contribution, dtype, policy, optimizer


ROWS = [*rows()]


def equal(contribution, dtype, policy, optimizer, updates=12):
    """Whether a run on threads and its replay have the same parameters, to the last bit."""
    make, options = CONTRIBUTIONS[contribution]
    rule = OPTIMIZERS.get(optimizer, ADD)
    cluster, engine = dml.Cluster.uniform(4), dml.engines.threads(time_scale=0)
    with jax.enable_x64(dtype == "float64"):
        problem = make(dtype)
        problem.checked.update(("float32", "float64"))  # the check compiles, too; it is for test_malformed
        own = {"updates": updates, "eval_every": updates, "engine": engine, "batch_size": 8} | options
        run = dml.train(problem, cluster, POLICIES[policy], rule, **own)
        same = {"local": own.get("local"), "fuse": False, "eval_every": updates}
        again = dml.replay(run.trace, problem, rule, **same)
        pairs = zip(*map(jax.tree.leaves, (run.params, again.params)), strict=True)
        return all(np.asarray(one).tobytes() == np.asarray(two).tobytes() for one, two in pairs)


if __name__ == "__main__":
    chosen = [ROWS[int(number)] for number in sys.argv[1:]] or ROWS
    print(json.dumps([row for row in chosen if not equal(*row)]))
