"""What nothing refers to any more is freed: no cache of this package's or of JAX's keeps a user's data."""

import gc
import weakref

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dmlcore as dml
from dmlcore import calls
from dmlcore.types import Aggregate

CLUSTER = dml.Cluster.uniform(2)
OPTIMIZER = optax.sgd(0.1)


def own_problem() -> dml.Problem:
    data = {"x": np.linspace(0, 1, 8, dtype=np.float32)}
    return dml.Problem(
        "own",
        init=lambda key: jnp.zeros(()),
        data=data,
        evaluate=lambda params, data: {"loss": params**2},
        eval_data=None,
        losses=lambda params, batch: (batch["x"] - params) ** 2,
    )


def train(problem, **how):
    return dml.train(problem, CLUSTER, dml.asp(), OPTIMIZER, updates=2, batch_size=2, **how)


@pytest.mark.parametrize(
    "use",
    [
        train,
        lambda problem: train(problem, engine="threads"),
        lambda problem: train(problem, engine="devices"),
        lambda problem: train(problem.sharded([0, 1] * 4), local=dml.local_steps(2, OPTIMIZER)),
    ],
    ids=["simulate", "threads", "devices", "variants"],
)
def test_a_trained_problem_is_freed(use):
    problem = own_problem()
    gone = [weakref.ref(each) for each in (problem, problem.data["x"], problem.losses)]
    assert use(problem).params is not None
    del problem
    gc.collect()
    assert [each() for each in gone] == [None] * 3


def test_factories_keep_the_last_few_only(monkeypatch):
    """And the same object, for as long as something refers to it, however many they have made since."""

    @calls.memoised()
    def made(number):
        return Aggregate("") if number is None else {number}

    one, two = made(1), weakref.ref(made(2))
    others = [made(number) for number in range(3, 4 + calls.KEPT)]
    assert made(1) is one
    assert made(3 + calls.KEPT) is others[-1]
    assert two() is None
    assert made(None) is made(None)  # a tuple, to which there are no weak references


def test_variants_of_a_problem_are_few():
    problem = own_problem()
    first = weakref.ref(problem.sharded([0, 1] * 4))
    assert problem.sharded([0, 1] * 4) is first()
    for number in range(calls.KEPT):
        problem.sharded([0, 1, *map(int, f"{number:06b}")])
    assert first() is None
