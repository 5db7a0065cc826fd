"""The problem's data on the device, and its metrics."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp

from dmlcore.problems.problem import Problem
from dmlcore.training.compiling import compiled

_on_device: WeakKeyDictionary[Problem, tuple[Any, Any]] = WeakKeyDictionary()


def device_data(problem: Problem) -> tuple[Any, Any]:
    """Returns the problem's training and evaluation data as device arrays, put there once."""
    if problem not in _on_device:
        _on_device[problem] = jax.tree.map(jnp.asarray, (problem.data, problem.eval_data))
    return _on_device[problem]


@compiled(static_argnames=("problem",))
def evaluate(problem: Problem, params: Any, eval_data: Any) -> dict[str, jax.Array]:
    """Returns metrics of the parameters as scalars."""
    return dict(problem.evaluate(params, eval_data))
