"""The compiled loops over steps, of one run and of lanes.

Axes: S lanes (runs side by side), R rows.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import jax
import jax.numpy as jnp

from dmlcore.training.compiling import compiled
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
    return advance_one.programs() + advance_lanes.programs()
