"""The identity of a computation: hashes of problems, optimizers, timelines and code, the same in any process.

Functions are distinguished by the programs that JAX traces from them. So a regularisation strength in a
closure, or an initial state, is part of the identity, as the data are.
"""

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import files
from dmlcore.collecting import paused
from dmlcore.problems.problem import Problem
from dmlcore.problems.validation import check_problem
from dmlcore.trace import Trace
from dmlcore.training.optimizer import fingerprint, hoist_update, plain, settings, traced
from dmlcore.training.scaling import WeighedGradients

_of_problems: WeakKeyDictionary[Problem, dict[str, Any]] = WeakKeyDictionary()


def of_optimizer(optimizer: Any, params: Any, name: str = "optimizer") -> str:
    """Returns a hash of an optimizer's initial state and update, for parameters of such shapes.

    Raises:
        ValueError: another optimizer could have the same hash; see `fingerprint`.
    """
    state = jax.eval_shape(optimizer.init, params)
    # The update is hashed as it is trained with, which was traced once.
    update = fingerprint(*hoist_update(optimizer, params, state), name)
    kind = "gradients" if isinstance(optimizer, WeighedGradients) else ""
    return _of(name, optimizer.init, params) + update + kind


def of_training(problem: Problem, optimizer: Any) -> dict[str, Any]:
    """Returns hashes that identify the problem and the optimizer, as JSON values."""
    return {
        "problem_sha256": of_problem(problem),
        "optimizer_sha256": of_optimizer(optimizer, problem.shapes),
        **of_code(),
    }


def of_eval_params(eval_params: Any, optimizer: Any, params: Any) -> dict[str, str]:
    """Returns a hash of what makes evaluated parameters, as a JSON value; {} if nothing does."""
    if eval_params is None:
        return {}
    state = jax.eval_shape(optimizer.init, params)
    return {"eval_params": _of("eval_params", eval_params, state, params)}


def of_code() -> dict[str, Any]:
    """Returns a hash of this package's code, and JAX's settings on which numbers depend, as JSON values."""
    return {"code": _code(), "settings": settings()}


@functools.cache
def _code() -> str:
    root = Path(files.__file__).parent
    found = files.digests(sorted(root.rglob("*.py")), root)
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def of_timeline(trace: Trace) -> str:
    """Returns a hash of a timeline: which worker computed which task at which time."""
    content = hashlib.sha256()
    for frame in (trace.tasks, trace.updates):
        for name, column in frame.items():
            content.update(f"{name}\n".encode() + column.to_numpy().tobytes())
    return content.hexdigest()


def told(problem: Problem) -> dict[str, str]:
    """Returns the metadata of a trace that identify the problem: its name, and a hash of its training data.

    The hash depends on numbers only, so that it is the same with every release of JAX.
    """
    return {
        "problem": problem.name,
        "data_sha256": once(problem, "data", lambda problem: _of_arrays((problem.data, problem.owner))),
    }


def of_problem(problem: Problem) -> str:
    """Returns a hash of a problem: its data, initial parameters, tasks and evaluation.

    Raises:
        ValueError: another problem could have the same hash; see `fingerprint`.

    >>> from dmlcore.problems import logistic_regression
    >>> of_problem(logistic_regression(l2=0.1)) == of_problem(logistic_regression(l2=0.2))
    False
    """
    found: str = once(problem, str(settings()), _of_whole)
    return found


def check_once(problem: Any) -> None:
    """As `check_problem`, unless an equal problem has passed in an earlier process.

    The user's cache folder has an empty file for each problem that has passed, next to the compiled programs.
    Its name is a hash of what the check depends on, except the memory of the machine: the problem, this
    package, JAX, its backend and settings. A problem whose identity cannot be told is always checked.
    """
    real, passed = str(jax.dtypes.canonicalize_dtype(float)), None
    if isinstance(problem, Problem) and real not in problem.checked:
        # Exceptions of a faulty problem: the check says more about it.
        with contextlib.suppress(Exception), paused():
            content = of_problem(problem), of_code(), jax.__version__, jax.default_backend(), np.__version__
            passed = files.cache() / "checked" / hashlib.sha256(repr(content).encode()).hexdigest()
            if passed.exists():
                problem.checked.add(real)
    check_problem(problem)
    if passed is not None:
        with contextlib.suppress(OSError):  # such as a folder that may not be written to
            passed.parent.mkdir(parents=True, exist_ok=True)
            passed.touch()


def once(problem: Problem, name: str, make: Callable[[Problem], Any]) -> Any:
    """Returns `make(problem)`, which is made once as long as the problem exists."""
    kept = _of_problems.setdefault(problem, {})
    if name not in kept:
        kept[name] = make(problem)
    return kept[name]


def _of_arrays(tree: Any) -> str:
    content = hashlib.sha256()
    for leaf in jax.tree.leaves(tree):
        array = plain(leaf)
        content.update(f"{array.dtype} {array.shape}".encode())
        content.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return content.hexdigest()


def _of_whole(problem: Problem) -> str:
    own = problem.metrics, problem.coupled, problem.local, _of_arrays(problem.eval_data)
    content = hashlib.sha256(repr((told(problem), *own)).encode())
    batch = jax.tree.map(_some_rows, problem.data)
    for text in (
        _of("problem, init", problem.init, jax.random.key(0)),
        _of("problem, evaluate", problem.evaluate, problem.shapes, problem.eval_data),
        _of_task(problem, batch),
    ):
        content.update(text.encode())
    return content.hexdigest()


ROWS = 13  # of a traced task. A smaller number, such as 2, may also stand in the program itself


def _some_rows(column: Any) -> jax.ShapeDtypeStruct:
    """Returns the shape of some rows of a column, with the type that it has in JAX: int64 is int32 there."""
    dtype = jax.dtypes.canonicalize_dtype(column.dtype, allow_extended_dtype=True)
    return jax.ShapeDtypeStruct((ROWS, *column.shape[1:]), dtype)


def _of_task(problem: Problem, batch: Any) -> str:
    if problem.additive:
        shared, local = problem.apart(problem.shapes)
        params = problem.together(shared, jax.tree.map(_some_rows, local))
        return _of("problem, update", problem.update, params, batch, jax.random.key(0))

    def loss(params: Any, *given: Any) -> Any:
        return jnp.mean(problem.losses(params, *given))

    keys = (jax.random.split(jax.random.key(0), ROWS),) if problem.keyed else ()
    # Of the gradient, too, which a user may define.
    return _of("problem, losses", jax.value_and_grad(loss), problem.shapes, batch, *keys)


def _of(name: str, function: Callable[..., Any], *args: Any) -> str:
    return fingerprint(*traced(function, *args), name)
