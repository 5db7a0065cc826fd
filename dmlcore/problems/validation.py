"""Checks a problem, once per object, and rejects one that would train incorrectly without an error."""

import functools
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks
from dmlcore.problems.problem import Batch, Params, Problem

HISTORY = ("update", "time", "samples", "assigned_samples", "uplinks", "downlinks", "bytes")
BUSY = tuple(f"{part}_utilisation" for part in ("processor", "link_in", "link_out"))
SERVER = ("utilisation", "mean_queue", *BUSY)  # columns of a history if the server takes time
COMPARISON = ("method", "seed", "learning_rate")
RESERVED = frozenset((*HISTORY, *SERVER, *COMPARISON))
"""Columns of histories and comparisons: no metric can have one of these names."""

ARRAY = "a NumPy or JAX array"
QUICK = {"xla_backend_optimization_level": 0}  # for XLA: this program runs once, so compile it quickly
ONE_CHECKS = threading.RLock()  # held while a problem is checked, so that no other thread checks it, too
PROBE = 4  # samples in the batch of the test; the test also computes its two halves separately


def check_problem(problem: Any) -> None:
    """Raises ValueError unless `problem` is a `Problem` with valid fields, as `Problem` describes them.

    The message names the field, the value found and the values allowed. A problem is checked once with 32-bit
    and once with 64-bit floats. The check traces `init` and calls it twice. It compiles `losses` and its
    gradient for a batch of four samples, and runs them on the initial parameters and on others near them. It
    only traces all other functions. If a sample has a NaN or an infinity in its data, the first such sample
    is one of the four. To find out whether a loss depends on other rows, the check also computes it in a
    batch of two, at another position. The two losses may differ by the square root of the rounding error of
    the least precise type used in the computation.

    Args:
        problem: the problem to check.

    Raises:
        ValueError: it is not a `Problem`, or one of its fields is not valid.

    >>> import dataclasses
    >>> from dmlcore.problems import linear_regression
    >>> problem = linear_regression(num_samples=20, num_features=3)
    >>> check_problem(problem)
    >>> check_problem(dataclasses.replace(problem, losses=lambda p, b: problem.losses(p, b).mean()))
    Traceback (most recent call last):
    ValueError: problem 'linear_regression', losses: expected floating numbers of shape ..., got float32[]
    """
    checks.check_kind("problem", problem, Problem)
    real = str(jax.dtypes.canonicalize_dtype(float))
    with ONE_CHECKS:
        if real not in problem.checked:
            _check(problem)
            problem.checked.add(real)


def _check(problem: Problem) -> None:
    """`check_problem`, each time that it is called."""
    checks.check_kind("problem.name", problem.name, str)
    try:
        _check_data(problem)
        params = _initial(problem)
        _check_evaluate(problem, params)
        if problem.additive:
            _check_update(problem, params)
        else:
            # Accelerators round matrix products to 10 bits by default, and differently for other shapes.
            with jax.default_matmul_precision("highest"):
                _check_losses(problem, params)
    except ValueError as error:
        raise ValueError(f"problem {problem.name!r}, {error}") from error.__cause__ or error


def _called(name: str, function: Any, *args: Any, on: str = "") -> Any:
    """Calls a function of the user; an exception that it raises is chained to a ValueError."""
    checks.function(name, function)
    try:
        return function(*args)
    except Exception as error:
        raise ValueError(f"{name}: the function raised {type(error).__name__}: {error}{on}") from error


def _described(leaf: Any) -> str:
    """Returns the type and shape of a leaf for a message, or the value if it is not an array."""
    if not _is_array(leaf):
        return repr(leaf)
    return f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)


def _is_real(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _leaves(name: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """Yields the leaves of a pytree, each with its name for messages."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        yield name + jax.tree_util.keystr(path), leaf


def _check_arrays(name: str, tree: Any, kinds: str, other: type | tuple[type, ...] = ()) -> None:
    """Raises ValueError unless every leaf is an array of a type that JAX supports, or an `other`."""
    for where, leaf in _leaves(name, tree):
        if _is_array(leaf) and not isinstance(leaf, jax.Array):
            try:
                jax.eval_shape(lambda array: array, leaf)
            except TypeError:
                checks.reject(where, _described(leaf), f"{kinds} of numbers or bools")
        elif not _is_array(leaf) and not isinstance(leaf, other):
            checks.fail(where, leaf, kinds)


def _check_data(problem: Problem) -> None:
    """Checks that training samples have the same first axis, and evaluation data types that JAX supports."""
    check_rows("data", problem.data)
    numbers = (bool, int, float, complex)
    _check_arrays("eval_data", problem.eval_data, f"{ARRAY}, or a number", numbers)


def check_rows(name: str, data: Any) -> None:
    """Raises ValueError unless these are arrays with the same first axis, one row for each sample."""
    _check_arrays(name, data, ARRAY)
    found = dict(_leaves(name, data))
    if not found:
        checks.fail(name, data, "a pytree with at least one array")
    first = next(iter(found))
    for where, leaf in found.items():
        if leaf.ndim == 0:
            checks.reject(where, _described(leaf), "an array with a row for each sample")
        if len(leaf) != len(found[first]):
            checks.reject(
                where, f"{len(leaf)}", f"{len(found[first])} rows, as in {first}, one for each sample"
            )
        if not len(leaf):
            checks.reject(where, "0 rows", "at least one sample")


def _initial(problem: Problem) -> Params:
    """Checks `init` and returns the initial parameters of key 0."""
    if callable(problem.init):
        shapes = jax.tree.leaves(_called("init", jax.eval_shape, problem.init, jax.random.key(0)))
        nbytes = sum(each.size * each.dtype.itemsize for each in shapes)
        checks.check_memory("init, bytes of parameters", nbytes, nbytes)
    params, again = (_called("init", problem.init, jax.random.key(0)) for _ in range(2))
    _check_arrays("init", params, "arrays as parameters")
    found = dict(_leaves("init", params))
    if not found:
        checks.fail("init", params, "a pytree with at least one array")
    for name, leaf in found.items():
        if not problem.additive and not _is_real(leaf):
            expected = "floating parameters (tasks are gradients)"
            hint = "keeping numbers that are not trained in data"
            checks.reject(name, _described(leaf), expected, hint)
    one, two = (
        [(name, _described(leaf), np.asarray(leaf).tobytes()) for name, leaf in _leaves("init", tree)]
        for tree in (params, again)
    )
    if one != two:
        checks.reject("init", "other parameters at its second call", "a function of the random key alone")
    if problem.local:
        _ = problem.shapes  # raises ValueError if a local parameter is not valid
    return jax.tree.map(jnp.asarray, params)


def _check_evaluate(problem: Problem, params: Params) -> None:
    """Checks that the metrics are scalars by name, and that one of them is the loss."""

    def evaluated(params: Params, eval_data: Any) -> None:
        metrics = _called("evaluate", problem.evaluate, params, eval_data)
        if not isinstance(metrics, Mapping):
            checks.fail("evaluate", metrics, "a dict of metrics by name")
        for name, value in metrics.items():
            if not isinstance(name, str):
                checks.fail("evaluate", name, "a string as the name of each metric")
            if name in RESERVED:
                others = ", ".join(map(repr, sorted(RESERVED)))
                checks.fail("evaluate", name, f"a metric with a name other than {others}")
            array = value if _is_array(value) else np.asarray(value)
            numeric = jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool
            if array.shape or not numeric or jnp.issubdtype(array.dtype, jnp.complexfloating):
                checks.reject(f"evaluate[{name!r}]", _described(array), "a real number, of shape ()")
        if "loss" not in metrics:
            checks.fail("evaluate", [*metrics], "metrics that include 'loss'")

    jax.eval_shape(evaluated, params, problem.eval_data)


def _rows(problem: Problem, numbers: np.ndarray) -> Batch:
    return jax.tree.map(lambda leaf: leaf[numbers], problem.data)


def _probed(problem: Problem) -> np.ndarray:
    """Returns the indices (PROBE,) of the test's samples: evenly spaced, and one that is not finite."""
    numbers = np.linspace(0, problem.num_samples - 1, PROBE).astype(int)
    sound = np.ones(problem.num_samples, bool)
    for leaf in jax.tree.leaves(problem.data):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            sound &= np.isfinite(np.asarray(leaf)).reshape(len(leaf), -1).all(1)
    if not sound.all():
        numbers[-1] = sound.argmin()
    return numbers


def _check_update(problem: Problem, params: Params) -> None:
    """Checks that an update has the structure and shapes of the parameters that the worker sees."""
    numbers = np.arange(min(2, problem.num_samples))
    shared, local = problem.apart(params)
    view = problem.together(shared, jax.tree.map(lambda leaf: np.asarray(leaf)[numbers], local))

    def updated(view: Params, batch: Batch, key: jax.Array) -> None:
        update = _called("update", problem.update, view, batch, key)
        expected = dict(_leaves("update", view))
        tree: Any = jax.tree.structure(view)
        found: Any = jax.tree.structure(update)
        if found != tree:
            checks.fail("update", found, f"a tree like the parameters that it sees, {tree}")
        for name, leaf in _leaves("update", update):
            leaf = leaf if _is_array(leaf) else np.asarray(leaf)
            if _described(leaf) != _described(expected[name]):
                checks.reject(
                    name, _described(leaf), f"{_described(expected[name])}, like the parameters that it sees"
                )

    jax.eval_shape(updated, view, _rows(problem, numbers), jax.random.key(0))


def _check_losses(problem: Problem, params: Params) -> None:
    """Checks that `losses` returns one finite loss per sample that depends on that sample alone."""

    def losses(params: Params, *drawn: Any) -> Any:
        size = len(jax.tree.leaves(drawn[0])[0])
        found = _called("losses", problem.losses, params, *drawn, on=f", on a batch of {size} samples")
        if not _is_array(found):
            checks.reject("losses", f"a {type(found).__name__}", f"an array of shape ({size},)")
        if found.shape != (size,) or not _is_real(found):
            expected = f"floating numbers of shape ({size},), one for each of {size} samples"
            checks.reject("losses", _described(found), expected)
        return found

    numbers = _probed(problem)
    batch = _rows(problem, numbers)
    drawn: tuple[Any, ...] = (batch,)
    if problem.keyed:
        drawn = batch, jax.random.split(jax.random.key(0), PROBE)
    half, order = PROBE // 2, np.array([3, 1, 2, 0])  # some samples keep their position within a half
    trace, apart = jax.make_jaxpr(losses)(params, *drawn), not problem.coupled
    if apart:
        jax.eval_shape(losses, params, *jax.tree.map(lambda leaf: leaf[:half], drawn))

    @functools.partial(jax.jit, compiler_options=QUICK)
    def tried(params: Params, drawn: Any) -> Any:
        halves = jax.tree.map(lambda leaf: leaf[order].reshape(2, half, *leaf.shape[1:]), drawn)

        def mean(params: Params) -> Any:
            found = losses(params, *drawn)
            return found.mean(), found

        def each(params: Params) -> Any:
            (_, whole), gradient = jax.value_and_grad(mean, has_aux=True)(params)
            joined = jax.lax.map(lambda half: losses(params, *half), halves).ravel() if apart else whole
            return whole, joined, gradient

        # With parameters of zero the losses of all samples may be equal: also test parameters near them.
        return jax.lax.map(each, jax.tree.map(lambda leaf: jnp.stack([leaf, _moved(leaf)]), params))

    found = _called("losses, its gradient", tried, params, drawn)
    whole, joined = (np.asarray(part, np.float64) for part in found[:2])
    if not np.isfinite(whole[0]).all():
        expected = f"finite losses of samples {numbers.tolist()} on the parameters that init returns"
        checks.fail("losses", whole[0].tolist(), expected)
    for name, leaf in _leaves("", found[2]):
        if not np.isfinite(np.asarray(leaf[0], np.float64)).all():
            wrong = f"one that is not finite in parameter {name or 'init'}"
            checks.reject("losses", wrong, "a finite gradient on the parameters that init returns")
    if not apart:
        return
    whole = whole[:, order]
    sound = np.isfinite(whole) & np.isfinite(joined)
    scale = np.where(sound, np.maximum(abs(whole), abs(joined)), 0).max(1, keepdims=True)
    wrong = sound & (abs(whole - joined) > _coarsest(trace) ** 0.5 * scale)
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        checks.reject(
            "losses",
            f"{whole[at]:g} of a sample in a batch of {PROBE}, {joined[at]:g} in one of {half}",
            "a loss that depends on its own row alone",
            "coupled=True, if it is to depend on its batch",
        )


def _moved(leaf: jax.Array) -> jax.Array:
    """Returns parameters that differ slightly from those given."""
    waves = jnp.cos(1.0 + jnp.arange(leaf.size)).reshape(leaf.shape)
    return (leaf + 0.01 * (1 + abs(leaf)) * waves).astype(leaf.dtype)


def _coarsest(trace: Any) -> float:
    """Returns the eps of the least precise float type in a traced function, at least that of float32."""

    def types(jaxpr: Any) -> Iterator[Any]:
        for equation in jaxpr.eqns:
            yield from (each.aval.dtype for each in equation.outvars if hasattr(each.aval, "dtype"))
            for inner in jax.tree.leaves([*equation.params.values()], is_leaf=_has_equations):
                if _has_equations(inner):
                    yield from types(inner)

    real = [each for each in types(trace) if jnp.issubdtype(each, jnp.floating)]
    return max([float(jnp.finfo(each).eps) for each in real], default=float(jnp.finfo(jnp.float32).eps))


def _has_equations(value: Any) -> bool:
    return hasattr(value, "eqns")
