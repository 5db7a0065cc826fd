"""What the pushes of one update become together, in compiled loops and on servers with a real clock.

Axes: M places for the pushes of an update.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks
from dmlcore.methods.aggregate import resolve
from dmlcore.trace import Trace
from dmlcore.training.optimizer import Hoisted, fingerprint, hoist
from dmlcore.training.program import Program, power_of_two
from dmlcore.types import Aggregate


class Aggregation(NamedTuple):
    """An aggregate that is not plain, traced, its numbers taken out; hashable: a loop is compiled for it."""

    each: Hoisted | None
    reduce: Hoisted | None
    places: int  # M; 0 without `reduce`


class Gathered(NamedTuple):
    """The pushes to the update in hand, where an aggregate reduces them."""

    pushes: Any  # like the parameters, (M, ...)
    weight: Any  # the sum of their weights
    count: Any  # how many there are, in the first places


def aggregate_of(trace: Trace, given: Aggregate | None = None) -> Aggregate:
    """Returns the aggregate of a replay: the one given, else the trace's.

    Raises:
        ValueError: none is given, and that of the trace is none of this package's.
    """
    if given is not None:
        return given
    name = trace.metadata.get("aggregate")
    try:
        return resolve(name)
    except ValueError:
        return checks.fail("aggregate", None, f"{name}, as in the trace, which this package does not have")


def traced(aggregate: Aggregate, params: Any, places: int) -> tuple[Aggregation | None, tuple[Any, Any]]:
    """Returns an aggregate for pushes like `params`, and its numbers; None where it is plain."""
    if aggregate.plain:
        return None, ((), ())
    push, gathered = _examples(params, places)
    nothing: tuple[None, Any] = None, ()
    each, numbers = nothing if aggregate.each is None else hoist(aggregate.each, push)
    reduce, others = nothing if aggregate.reduce is None else hoist(aggregate.reduce, *gathered)
    return Aggregation(each, reduce, places if reduce else 0), (numbers, others)


def _examples(params: Any, places: int) -> tuple[Any, tuple[Any, Any]]:
    """Returns shapes and types of a push, and of what `reduce` is given."""
    push = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), params)
    pushes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((places, *leaf.shape), leaf.dtype), push)
    return push, (pushes, jax.ShapeDtypeStruct((places,), bool))


def check_aggregate(aggregate: Aggregate, params: Any) -> None:
    """Raises ValueError unless an aggregate makes of pushes like `params` a tree like one of them."""
    push, gathered = _examples(params, 2)
    for name, function, given in (("each", aggregate.each, (push,)), ("reduce", aggregate.reduce, gathered)):
        if function is None:
            continue
        allowed = f"one whose `{name}` returns a tree like one push"
        try:
            found = jax.eval_shape(function, *given)
        except Exception as error:  # whatever a function of one's own raises
            cause = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise ValueError(f"aggregate: got {aggregate!r}, allowed is {allowed}; {cause}") from error
        if (wrong := _described(found)) != (wanted := _described(push)):
            checks.fail("aggregate", aggregate, f"{allowed}, {wanted}; it returns {wrong}")


def _described(tree: Any) -> str:
    return str(jax.tree.map(lambda leaf: f"{leaf.dtype}{[*leaf.shape]}", tree))


def places_for(programs: Sequence[Program], traces: Sequence[Trace]) -> int:
    """Returns M: the most pushes of an update, of programs side by side with one task a row.

    Where some updates have fewer it is a power of two, or the number of workers: another run of the kind may
    have a few less, or more, and then compiles nothing.
    """
    counts = np.concatenate([[1], *(np.diff(program.first_row) for program in programs)])[1:]
    most, workers = int(counts.max(initial=1)), max(trace.num_workers for trace in traces)
    return power_of_two(most, max(most, workers)) if (counts < most).any() else most


def digest(aggregation: Aggregation | None, numbers: Any) -> str:
    """Returns a hash of an aggregate's functions and numbers; "" where it is plain."""
    functions = () if aggregation is None else aggregation[:2]
    pairs = zip(functions, numbers, strict=False)
    return "".join(fingerprint(function, own) for function, own in pairs if function is not None)


def nothing_gathered(aggregation: Aggregation, params: Any) -> Gathered:
    """Returns the places of an update, empty."""
    empty = jax.tree.map(lambda leaf: jnp.zeros((aggregation.places, *jnp.shape(leaf)), leaf.dtype), params)
    return Gathered(empty, jnp.zeros((), jax.dtypes.canonicalize_dtype(float)), jnp.zeros((), jnp.int32))


def counted(aggregation: Aggregation, numbers: Any, weight: Any, push: Any) -> Any:
    """Returns what counts of a push, in a compiled loop; 0 where its weight is 0.

    A branch, so that it is not compiled together with what is before and after it: a server's has been
    rounded.
    """
    if aggregation.each is None:
        return push
    nothing = lambda: jax.tree.map(jnp.zeros_like, push)  # noqa: E731
    return jax.lax.cond(weight != 0, lambda: of_one(aggregation, numbers, push), nothing)


def gather(gathered: Gathered, weight: Any, push: Any) -> Gathered:
    """Returns the places with a further push; one of weight 0 has no vote, and the next takes its place."""
    pushes, total, count = gathered

    def put(places: Any, leaf: Any) -> Any:
        return jax.lax.dynamic_update_index_in_dim(places, leaf, count, 0)

    return Gathered(jax.tree.map(put, pushes, push), total + weight, count + (weight != 0))


@functools.partial(jax.jit, static_argnames=("aggregation",))
def of_one(aggregation: Aggregation, numbers: Any, push: Any) -> Any:
    """Returns what counts of a push."""
    assert aggregation.each is not None
    return aggregation.each(numbers[0], push)


@functools.partial(jax.jit, static_argnames=("aggregation",))
def of_all(aggregation: Aggregation, numbers: Any, pushes: Any, count: Any) -> Any:
    """Returns what the first `count` of M pushes are reduced to; 0 where there is none."""
    assert aggregation.reduce is not None
    present = jnp.arange(aggregation.places) < count

    def clean(leaf: Any) -> Any:  # other places may hold pushes of updates before
        return jnp.where(present.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, 0)

    found = aggregation.reduce(numbers[1], jax.tree.map(clean, pushes), present)
    return jax.tree.map(lambda leaf: jnp.where(count > 0, leaf, 0), found)


def stacked(pushes: Sequence[Any], places: int) -> Any:
    """Returns pushes with an axis in front, filled up to M places."""
    empty = [jax.tree.map(jnp.zeros_like, pushes[0])] * (places - len(pushes))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *pushes, *empty)
