"""The problem's data on the device, and its metrics."""

import functools
import operator
from collections.abc import Hashable, Mapping
from typing import Any
from weakref import ref

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks
from dmlcore.problems.problem import Problem
from dmlcore.training.compiling import compiled
from dmlcore.training.identity import once


def device_data(problem: Problem) -> tuple[Any, Any]:
    """Returns the problem's training and evaluation data as device arrays; they are transferred once."""
    # Copies: an array of NumPy that a user changes later would else be the same memory.
    return once(problem, "on device", lambda own: jax.tree.map(jnp.array, (own.data, own.eval_data)))


def metrics(problem: Problem, params: Any, eval_data: Any) -> dict[str, jax.Array]:
    """Returns the metrics of the parameters as scalars."""
    real = jax.dtypes.canonicalize_dtype(np.float64)
    with checks.noting(f"evaluate of problem {problem.name!r}"):
        traced_once = isinstance(problem.evaluate, Hashable)
        found = (jax.jit(problem.evaluate) if traced_once else problem.evaluate)(params, eval_data)
    return {name: jnp.asarray(value, real) for name, value in found.items()}


def evaluate(problem: Problem, params: Any, eval_data: Any) -> dict[str, jax.Array]:
    """`metrics`, compiled."""
    return _evaluate(ref(problem), params, eval_data)


@compiled(static_argnames=("of_problem",))
def _evaluate(of_problem, params, eval_data):  # a weak reference, because JAX never releases static arguments
    return metrics(of_problem(), params, eval_data)


def limits(problem: Problem, until: Mapping[str, float]) -> dict[str, float]:
    """Returns the target of every metric; NaN, which is never reached, for metrics without a target.

    A target is rounded so that a 32-bit metric reaches it exactly if it reaches the given target.
    """
    real = np.dtype(jax.dtypes.canonicalize_dtype(np.float64))

    def rounded(name: str) -> float:
        rises, target = is_accuracy(name), until.get(name, np.nan)
        with np.errstate(over="ignore"):
            near = real.type(target)
            if float(near) < target if rises else float(near) > target:
                near = np.nextafter(near, real.type(np.inf if rises else -np.inf))
        return float(near)

    return {name: rounded(name) for name in problem.metrics}


def reached(found: Mapping[str, Any], until: Mapping[str, Any]) -> Any:
    """Returns whether some metric has reached its target: an accuracy from below, others from above."""
    return functools.reduce(
        operator.or_,
        (found[name] >= goal if is_accuracy(name) else found[name] <= goal for name, goal in until.items()),
        False,
    )


def is_accuracy(name: str) -> bool:
    """Returns whether a metric is an accuracy, for which large values are good; small values otherwise.

    >>> is_accuracy("test_accuracy"), is_accuracy("loss")
    (True, False)
    """
    return name.endswith("accuracy")
