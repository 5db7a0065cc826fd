"""The compiled loops over steps, for one run and for lanes.

Axes: S traces and O optimizers of lanes (runs side by side), R rows, M marks.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from dmlcore.training.compiling import Compiled, compiled
from dmlcore.training.contribution import Contribution
from dmlcore.training.evaluation import metrics, reached
from dmlcore.training.program import Rows
from dmlcore.training.step import Info, Inputs, Plan, State, at, step, step_if

TRACES, OPTIMIZERS = "traces", "optimizers"  # axes of lanes


EvalParams = Callable[[Any, Any], Any]  # state of the optimizer, parameters -> parameters to evaluate


class Course(NamedTuple):
    """The way in which a loop processes rows; a static argument, as the plan is."""

    axes: tuple[str, ...] = ()  # axes of lanes, outermost first: TRACES, OPTIMIZERS, both; (): one lane
    unroll: int = 1  # steps per iteration of the loop
    judged: int = 1  # number of lanes evaluated at once
    eval_params: EvalParams | None = None  # what is evaluated; None: the parameters


def steps(
    plan: Plan, inputs: Inputs, state: State, rows: Rows, count: Any, pushed: Any = None
) -> tuple[State, Any]:
    """Processes the first `count` of R rows by `step`, inside a compiled function.

    The rows include their samples. `pushed` has their contributions, (R, ...), if they are already computed.

    Returns:
        The new state, and the steps' info, (R, ...).
    """
    rows = rows._replace(samples=by_row(rows))

    def work_off(i: Any, carried: tuple[State, Any]) -> tuple[State, Any]:
        state, seen = carried
        state, info = step(plan, inputs, state, at(rows, i), None if pushed is None else at(pushed, i))
        return state, jax.tree.map(lambda column, value: column.at[i].set(value), seen, info)

    num_rows = len(rows.read)
    seen = Info(jnp.zeros(num_rows), jnp.zeros(num_rows)) if plan.watches else ()
    return jax.lax.fori_loop(0, count, work_off, (state, seen))


def by_row(rows: Rows) -> Any:
    """Returns the samples of R rows as (R, ...); of several traces as (S, R, ...)."""
    return jax.tree.map(lambda leaf: leaf.reshape(*rows.read.shape, -1), rows.samples)


def repeat(unroll: int, first: Any, end: Any, turn: Callable[[Any, Any], Any], carried: Any) -> Any:
    """As `jax.lax.fori_loop` with traced bounds, with `unroll` iterations compiled as one."""
    if unroll > 1:

        def several(number: Any, carried: Any) -> Any:
            for place in range(unroll):
                carried = turn(first + unroll * number + place, carried)
            return carried

        whole = jnp.maximum(end - first, 0) // unroll
        carried = jax.lax.fori_loop(0, whole, several, carried)
        first = first + unroll * whole
    return jax.lax.fori_loop(first, end, turn, carried)


@compiled(static_argnames=("plan", "course"), donate_argnames=("state",))
def advance_to_marks(plan, course, inputs, state, over, rows, first, ends, looks, count, eval_data, until):
    """Processes rows up to each of `count` marks, and evaluates the parameters at the marks.

    A lane stops when a metric reaches its target in `until`, see `limits`; the loop ends when all lanes have
    stopped. Lanes go to their k-th marks together, and lanes that are there wait for the others. Arguments
    and results of lanes have the axes of the course first; `rows` to `looks` have only the axis of traces.

    Args:
        plan: for `step`.
        course: the way in which the loop processes rows.
        inputs, state: for `step`; the data are shared.
        over: whether a lane has stopped before.
        rows: R rows, with their samples. With lanes, the last row is a padding row, see `cut`.
        first: index of the first row to process.
        ends: index of the row after each of M marks, (M,).
        looks: whether to evaluate at each mark, (M,).
        count: number of marks, at most M.
        eval_data: of the problem.
        until: metric -> target.

    Returns:
        The new state; every metric at each mark, (M,) each; the number of marks until the lane stopped; and
        whether it stopped at a target.
    """
    rows = rows._replace(samples=by_row(rows))
    look = functools.partial(evaluated, plan.contribution, course, eval_data)

    def work_off(state: State, over: Any, row: Any, end: Any) -> State:
        if course.axes:
            return lanes_to(plan, course, inputs, rows, state, over, row, end)
        turn = lambda i, state: step(plan, inputs, state, at(rows, i))[0]  # noqa: E731
        return repeat(course.unroll, row, end, turn, state)

    def to_mark(carried: Any) -> Any:
        number, row, state, found, over, done = carried
        end, wanted = ends[..., number], looks[..., number]
        state = work_off(state, over, row, end)
        nothing = jax.tree.map(lambda column: jnp.zeros(jnp.shape(over), column.dtype), found)
        seen = jax.lax.cond(wanted.any(), look, lambda _: nothing, state)
        found = {name: column.at[..., number].set(seen[name]) for name, column in found.items()}
        done = jnp.where(over, done, number + 1)
        return number + 1, end, state, found, over | (of_lanes(course, wanted) & reached(seen, until)), done

    kinds = jax.eval_shape(look, state).items()
    found = {name: jnp.zeros((*value.shape, ends.shape[-1]), value.dtype) for name, value in kinds}
    begun = 0, first, state, found, over, jnp.zeros_like(over, int)
    _, _, state, found, over, done = jax.lax.while_loop(
        lambda carried: (carried[0] < count) & ~carried[4].all(), to_mark, begun
    )
    return state, found, done, over


def lanes_to(
    plan: Plan, course: Course, inputs: Inputs, rows: Rows, state: State, over: Any, row: Any, end: Any
) -> State:
    """Processes rows of lanes from `row` up to `end`, with as many iterations as the lane with the most rows.

    A lane with fewer rows, or one that has stopped, does not change. Lanes of one trace read a row once.
    """

    def one(inputs: Inputs, state: State, rows: Rows, place: Any, active: Any) -> State:
        return step_if(active, plan, inputs, state, at(rows, place))

    for axis in reversed(course.axes):
        shared: Any = 0 if axis == TRACES else None
        one = jax.vmap(one, in_axes=(Inputs(None, cast(Any, 0)), 0, shared, shared, 0))
    fills_up = rows.last.shape[-1] - 1

    def turn(i: Any, state: State) -> State:
        going = row + i < end
        place = jnp.where(going, row + i, fills_up)
        return one(inputs, state, rows, place, of_lanes(course, going) & ~over)

    return repeat(course.unroll, 0, (end - row).max(), turn, state)


def evaluated(kind: Contribution, course: Course, eval_data: Any, state: State) -> dict[str, Any]:
    """Returns the metrics of every lane's parameters, for `course.judged` lanes at once."""

    def judge(own: tuple[Any, Any, Any]) -> dict[str, Any]:
        params, local, optimizer_state = own
        params = kind.whole(params, local)
        if course.eval_params is not None:
            params = course.eval_params(optimizer_state, params)
        return metrics(kind.problem, params, eval_data)

    kept = () if course.eval_params is None else state.optimizer_state
    own, depth = (state.params, state.local, kept), len(course.axes)
    if not depth:
        return judge(own)
    shape = jax.tree.leaves(state.params)[0].shape[:depth]
    lanes = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[depth:]), own)
    found = jax.lax.map(judge, lanes, batch_size=course.judged)
    return {name: value.reshape(shape) for name, value in found.items()}


def of_lanes(course: Course, value: Any) -> Any:
    """Returns a value of every trace in a shape that broadcasts with values of every lane."""
    return value[..., None] if OPTIMIZERS in course.axes else value


advance_one = Compiled(steps, static_argnames=("plan",), donate_argnames=("state",))


def compilations() -> int:
    """Returns the number of loops compiled so far.

    A new seed, learning rate or staleness, or another cluster of the same size, adds none. The exceptions are
    the limits of the staleness: with s = 0 a loop needs no slots, and with infinity ESSP never gathers pushes
    and SSP never waits.
    """
    return sum(loop.programs() for loop in (advance_to_marks, advance_one))
