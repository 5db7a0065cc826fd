"""The combination of the pushes of one update by an aggregate, in compiled loops and on real servers.

Axes: M places for the pushes of an update.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks
from dmlcore.methods.aggregate import resolve
from dmlcore.trace import Trace
from dmlcore.training.compiling import isolated
from dmlcore.training.optimizer import Hoisted, fingerprint, hoist
from dmlcore.training.program import Program, power_of_two
from dmlcore.types import Aggregate


class Aggregation(NamedTuple):
    """A traced aggregate (not the plain sum), with its numbers as inputs; a static argument of loops."""

    each: Hoisted | None
    reduce: Hoisted | None
    places: int  # M; 0 without `reduce`


class Gathered(NamedTuple):
    """The pushes of the current update, for an aggregate that reduces them."""

    pushes: Any  # trees like the parameters, (M, ...)
    weight: Any  # sum of their weights
    count: Any  # number of pushes; they are in the first places


def aggregate_of(trace: Trace, given: Aggregate | None = None) -> Aggregate:
    """Returns the aggregate of a replay: the given one, or else that of the trace.

    Raises:
        ValueError: none is given, and the aggregate of the trace is not of this package.
    """
    if given is not None:
        return given
    name = trace.metadata.get("aggregate")
    try:
        return resolve(name)
    except ValueError:
        hint = "passing aggregate=, since dmlcore has none of this name"
        return checks.fail("aggregate", None, f"{name}, as in the trace", hint)


def traced(aggregate: Aggregate, params: Any, places: int) -> tuple[Aggregation | None, tuple[Any, Any]]:
    """Returns a traced aggregate for pushes like `params`, and its numbers; None if it is the plain sum."""
    if aggregate.plain:
        return None, ((), ())
    push, gathered = _examples(params, places)
    nothing: tuple[None, Any] = None, ()
    each, numbers = nothing if aggregate.each is None else hoist(aggregate.each, push)
    reduce, others = nothing if aggregate.reduce is None else hoist(aggregate.reduce, *gathered)
    return Aggregation(each, reduce, places if reduce else 0), (numbers, others)


def _examples(params: Any, places: int) -> tuple[Any, tuple[Any, Any]]:
    """Returns the shapes and types of a push, and of the arguments of `reduce`."""
    push = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), params)
    pushes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((places, *leaf.shape), leaf.dtype), push)
    return push, (pushes, jax.ShapeDtypeStruct((places,), bool))


def check_aggregate(aggregate: Aggregate, params: Any) -> None:
    """Raises ValueError unless an aggregate turns pushes like `params` into a tree like one of them."""
    push, gathered = _examples(params, 2)
    for name, function, given in (("each", aggregate.each, (push,)), ("reduce", aggregate.reduce, gathered)):
        if function is None:
            continue
        expected = f"an Aggregate whose `{name}` returns a tree like one push"
        try:
            found = jax.eval_shape(function, *given)
        except Exception as error:  # any exception of a user's function
            cause = f"{type(error).__name__}: {error}".partition("\n")[0]
            raised = f"{aggregate!r}, whose `{name}` raised {cause}"
            raise ValueError(checks.message("aggregate", raised, expected)) from error
        if (wrong := _described(found)) != (wanted := _described(push)):
            checks.reject("aggregate", f"{aggregate!r}, which returns {wrong}", f"{expected}, {wanted}")


def _described(tree: Any) -> str:
    return str(jax.tree.map(lambda leaf: f"{leaf.dtype}{[*leaf.shape]}", tree))


def places_for(programs: Sequence[Program], traces: Sequence[Trace]) -> int:
    """Returns M, the largest number of pushes in an update, for programs of lanes with one task per row.

    If some updates have fewer pushes, M is rounded up to a power of two or to the number of workers, so that
    a similar run with slightly more or fewer pushes compiles nothing.
    """
    counts = np.concatenate([[1], *(np.diff(program.first_row) for program in programs)])[1:]
    most, workers = int(counts.max(initial=1)), max(trace.num_workers for trace in traces)
    return power_of_two(most, max(most, workers)) if (counts < most).any() else most


def digest(aggregation: Aggregation | None, numbers: Any) -> str:
    """Returns a hash of an aggregate's functions and numbers; "" for the plain sum."""
    functions = () if aggregation is None else aggregation[:2]
    pairs = zip(functions, numbers, strict=False)
    return "".join(fingerprint(function, own, "aggregate") for function, own in pairs if function is not None)


def nothing_gathered(aggregation: Aggregation, params: Any) -> Gathered:
    """Returns the empty places of an update."""
    empty = jax.tree.map(lambda leaf: jnp.zeros((aggregation.places, *jnp.shape(leaf)), leaf.dtype), params)
    return Gathered(empty, jnp.zeros((), jax.dtypes.canonicalize_dtype(float)), jnp.zeros((), jnp.int32))


@functools.partial(jax.jit, static_argnames=("aggregation",))
def counted(aggregation: Aggregation, numbers: Any, weight: Any, push: Any) -> Any:
    """Applies `each` of the aggregate to a push; returns 0 if its weight is 0."""
    each = aggregation.each
    return push if each is None else isolated(weight != 0, each, numbers[0], push)


@functools.partial(jax.jit, static_argnames=("aggregation",))
def of_all(aggregation: Aggregation, numbers: Any, pushes: Any, count: Any) -> Any:
    """Applies `reduce` of the aggregate to the first `count` of M pushes; returns 0 if there are none."""

    def reduced(numbers: Any, pushes: Any, count: Any) -> Any:
        assert aggregation.reduce is not None
        present = jnp.arange(aggregation.places) < count

        def clean(leaf: Any) -> Any:  # other places may hold pushes of earlier updates
            return jnp.where(present.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, 0)

        return aggregation.reduce(numbers, jax.tree.map(clean, pushes), present)

    return isolated(count > 0, reduced, numbers[1], pushes, count)


def stacked(pushes: Sequence[Any], places: int) -> Any:
    """Stacks pushes along a new first axis and pads them to M places."""
    empty = [jax.tree.map(jnp.zeros_like, pushes[0])] * (places - len(pushes))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *pushes, *empty)
