"""What tells one computation from another in any process: hashes of problems and optimizers.

Functions are told apart by what JAX traces of them, so that a regularisation strength that a closure holds,
or an initial state, counts as much as the data do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore.problems.problem import Problem
from dmlcore.training.optimizer import fingerprint, traced

_of_problems: WeakKeyDictionary[Problem, dict[str, str]] = WeakKeyDictionary()


def of_optimizer(optimizer: Any, params: Any) -> str:
    """Returns a hash of an optimizer's initial state and update, for parameters of such shapes."""
    state = jax.eval_shape(optimizer.init, params)
    return _of(optimizer.init, params) + _of(optimizer.update, params, state, params)


def of_training(problem: Problem, optimizer: Any) -> dict[str, str]:
    """Returns hashes that tell what is trained, and how, from all else: JSON values."""
    return {
        "problem_sha256": of_problem(problem),
        "optimizer_sha256": of_optimizer(optimizer, problem.shapes),
    }


def of_problem(problem: Problem) -> str:
    """Returns a hash of a problem: its data, how it begins, what tasks compute and how it is judged.

    >>> from dmlcore.problems import logistic_regression
    >>> of_problem(logistic_regression(l2=0.1)) == of_problem(logistic_regression(l2=0.2))
    False
    """
    kept = _of_problems.setdefault(problem, {})
    real = str(jax.dtypes.canonicalize_dtype(float))  # types of parameters may follow from it
    if real not in kept:
        kept[real] = _hash_of(problem)
    return kept[real]


def _hash_of(problem: Problem) -> str:
    told = problem.name, problem.metrics, problem.coupled, problem.local
    content = hashlib.sha256(repr(told).encode())
    for leaf in jax.tree.leaves((problem.data, problem.eval_data, problem.owner)):
        array = np.asarray(leaf)
        content.update(f"{array.dtype} {array.shape}".encode())
        content.update(np.ascontiguousarray(array).data)
    batch = jax.tree.map(lambda rows: jax.ShapeDtypeStruct((2, *rows.shape[1:]), rows.dtype), problem.data)
    for text in (
        _of(problem.init, jax.random.key(0)),
        _of(problem.evaluate, problem.shapes, problem.eval_data),
        _of_task(problem, batch),
    ):
        content.update(text.encode())
    return content.hexdigest()


def _of_task(problem: Problem, batch: Any) -> str:
    if problem.additive:
        shared, local = problem.apart(problem.shapes)
        rows = {name: jax.ShapeDtypeStruct((2, *leaf.shape[1:]), leaf.dtype) for name, leaf in local.items()}
        return _of(problem.update, problem.together(shared, rows), batch, jax.random.key(0))

    def loss(params: Any, *given: Any) -> Any:
        return jnp.mean(problem.losses(params, *given))

    keys = (jax.random.split(jax.random.key(0), 2),) if problem.keyed else ()
    return _of(jax.value_and_grad(loss), problem.shapes, batch, *keys)  # a gradient may be of one's own


def _of(function: Callable[..., Any], *args: Any) -> str:
    return fingerprint(*traced(function, *args))
