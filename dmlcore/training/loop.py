"""The compiled loops over steps, of one run and of lanes.

Axes: S lanes (runs side by side), R rows.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import jax
import jax.numpy as jnp

from dmlcore.training.compiling import compiled
from dmlcore.training.evaluation import metrics, reached
from dmlcore.training.program import Rows
from dmlcore.training.step import Info, Inputs, Plan, State, at, step


def steps(
    plan: Plan,
    inputs: Inputs,
    state: State,
    rows: Rows,
    count: Any,
    first: Any = 0,
    drawn: Any = 0,
    pushed: Any = None,
) -> tuple[State, Any]:
    """Works off `count` of R rows from number `first` on; both are traced. See `step`.

    The rows hold the samples of R rows; those of the first are number `drawn`, traced likewise.

    Returns:
        The state after, and the steps' info, (R, ...).
    """
    num_rows = len(rows.read)
    samples = jax.tree.map(lambda leaf: leaf.reshape(num_rows, -1), rows.samples)
    rows = rows._replace(samples=())

    def work_off(i: Any, carried: tuple[State, Any]) -> tuple[State, Any]:
        state, seen = carried
        row = at(rows, first + i)._replace(samples=at(samples, drawn + i))
        state, info = step(plan, inputs, state, row, None if pushed is None else at(pushed, i))
        return state, jax.tree.map(lambda column, value: column.at[i].set(value), seen, info)

    seen = Info(jnp.zeros(num_rows), jnp.zeros(num_rows)) if plan.watches else ()
    return jax.lax.fori_loop(0, count, work_off, (state, seen))


@compiled(static_argnames=("plan",), donate_argnames=("state",))
def advance_to_marks(plan, inputs, state, rows, first, ends, looks, count, eval_data, until):
    """Works off rows up to each of `count` marks, and evaluates the parameters there.

    It goes no further where a metric has come to its target in `until`, see `limits`.

    Args:
        plan, inputs, state: of `step`.
        rows: R rows, with their samples; the first to work off is number `first`.
        ends: number of the row behind each of M marks, (M,).
        looks: whether there is anything to evaluate at each mark, (M,).
        count: of the marks that there are, at most M.
        eval_data: of the problem.
        until: metric -> target.

    Returns:
        The state after; every metric at each mark, each (M,); at how many marks it has been; and whether it
        has stopped at a target.
    """
    problem = plan.contribution.problem
    samples = jax.tree.map(lambda leaf: leaf.reshape(len(rows.read), -1), rows.samples)
    rows = rows._replace(samples=samples)

    def look(state: State) -> dict[str, Any]:
        return metrics(problem, plan.contribution.whole(state.params, state.local), eval_data)

    def to_mark(carried: Any) -> Any:
        number, row, state, found, _ = carried
        end = ends[number]
        state = jax.lax.fori_loop(row, end, lambda i, state: step(plan, inputs, state, at(rows, i))[0], state)
        nothing = jax.tree.map(lambda column: jnp.zeros((), column.dtype), found)
        seen = jax.lax.cond(looks[number], look, lambda _: nothing, state)
        found = {name: column.at[number].set(seen[name]) for name, column in found.items()}
        return number + 1, end, state, found, looks[number] & reached(seen, until)

    found = {name: jnp.zeros(len(ends), value.dtype) for name, value in jax.eval_shape(look, state).items()}
    begun = 0, first, state, found, False
    number, _, state, found, over = jax.lax.while_loop(
        lambda carried: (carried[0] < count) & ~carried[4], to_mark, begun
    )
    return state, found, number, over


@compiled(static_argnames=("plan",), donate_argnames=("state",))
def advance_one(plan, inputs, state, rows, count, first, drawn):
    """`steps`, compiled."""
    return steps(plan, inputs, state, rows, count, first, drawn)


@compiled(static_argnames=("plan",), donate_argnames=("state",))
def advance_lanes(plan, inputs, state, rows, count, first, drawn):
    """`steps`, compiled, for S lanes at once; `count` and the data are shared."""
    axes: Any = (Inputs(None, cast(Any, 0)), 0, 0, None, 0, 0)
    return jax.vmap(functools.partial(steps, plan), in_axes=axes)(inputs, state, rows, count, first, drawn)


def compilations() -> int:
    """How many loops were compiled so far.

    A new seed, learning rate, cluster of the same size or staleness adds none, but for the limits of the
    latter: at s = 0 a loop needs no slots, at infinity ESSP never gathers and SSP never waits.
    """
    return sum(loop.programs() for loop in (advance_to_marks, advance_one, advance_lanes))
