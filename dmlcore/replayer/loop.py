"""The compiled loop: trains along the rows of a schedule, at the speed of plain SGD.

Axes: S lanes (runs side by side), R rows, K tasks of a row, B samples of a row.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dmlcore.problems.problem import Problem
from dmlcore.replayer.batches import task_indices
from dmlcore.replayer.hoist import Program


class Shape(NamedTuple):
    """What a compiled loop depends on, apart from array shapes."""

    samples_per_task: int
    reads_newest: bool
    accumulates: bool
    keeps_copies: bool


class Rows(NamedTuple):
    """The part of a `Schedule` that one call of the loop works off, padded; slots are never NONE."""

    batch_size: Any
    share: Any  # weight of one of the task's samples
    read: Any
    write: Any
    keep: Any
    last: Any


class Carry(NamedTuple):
    """State of a replay: what the server has, the update it gathers, the versions still needed."""

    params: Any
    optimizer_state: Any
    gathered: Any
    slots: Any


def draw(num_samples: int, width: int, key: Any, worker: Any, clock: Any) -> Any:
    """Returns the samples of R rows, (R, K B), from the workers and clocks of their K tasks, each (R, K).

    Not part of the loop: many rows at once are cheap, and are drawn while those before them are worked off.
    """

    def of_task(worker: Any, clock: Any) -> Any:
        return task_indices(key, worker, clock, width, num_samples)

    return jax.vmap(jax.vmap(of_task))(worker, clock).reshape(len(worker), -1)


def advance(
    problem: Problem,
    program: Program,
    shape: Shape,
    carry: Carry,
    rows: Rows,
    count: Any,
    indices: Any,
    first: Any,
    data: Any,
    constants: Any,
) -> Carry:
    """Works off the first `count` of R rows.

    Args:
        problem: what is trained.
        program: the optimizer's update, its numbers hoisted.
        shape: which parts the loop needs.
        carry: state before.
        rows: what to do.
        count: how many rows count, traced: another length compiles nothing.
        indices: samples that `draw` drew.
        first: where in `indices` those of the first row are, traced likewise.
        data: the problem's training data on the device.
        constants: the optimizer's numbers.

    Returns:
        The state after.
    """
    offsets = jnp.arange(shape.samples_per_task)

    def step(gradient: Any, optimizer_state: Any, params: Any) -> tuple[Any, Any]:
        updates, optimizer_state = program(constants, gradient, optimizer_state, params)
        return optax.apply_updates(params, updates), optimizer_state

    # Not `slots[slot]` and `slots.at[slot].set(value)`: those check bounds at every step.
    def load(slots: Any, slot: Any) -> Any:
        return jax.tree.map(lambda s: jax.lax.dynamic_index_in_dim(s, slot, keepdims=False), slots)

    def store(slots: Any, slot: Any, value: Any) -> Any:
        return jax.tree.map(lambda s, x: jax.lax.dynamic_update_index_in_dim(s, x, slot, 0), slots, value)

    def work_off(i: Any, carry: Carry) -> Carry:
        params, optimizer_state, gathered, slots = carry
        view, view_state = params, optimizer_state
        if not shape.reads_newest:
            held = load(slots, rows.read[i])
            view, view_state = held if shape.keeps_copies else (held, None)
        batch = jax.tree.map(lambda column: column.at[indices[first + i]].get(mode="promise_in_bounds"), data)
        counted = offsets < rows.batch_size[i][:, None]
        weights = jnp.where(counted, rows.share[i][:, None], 0).ravel()
        gradient = jax.grad(lambda p: jnp.dot(weights, problem.losses(p, batch)))(view)
        if shape.keeps_copies:
            slots = store(slots, rows.keep[i], step(gradient, view_state, view))
        if shape.accumulates:
            total = jax.tree.map(jnp.add, gathered, gradient)
            gathered, params, optimizer_state = jax.lax.cond(
                rows.last[i],
                lambda: (jax.tree.map(jnp.zeros_like, total), *step(total, optimizer_state, params)),
                lambda: (total, params, optimizer_state),
            )
        else:
            params, optimizer_state = step(gradient, optimizer_state, params)
        if not shape.reads_newest:
            slots = store(slots, rows.write[i], (params, optimizer_state) if shape.keeps_copies else params)
        return Carry(params, optimizer_state, gathered, slots)

    return jax.lax.fori_loop(0, count, work_off, carry)


@functools.partial(jax.jit, static_argnames=("num_samples", "width"))
def draw_one(num_samples, width, key, worker, clock):
    """`draw`, compiled."""
    return draw(num_samples, width, key, worker, clock)


@functools.partial(jax.jit, static_argnames=("num_samples", "width"))
def draw_lanes(num_samples, width, key, worker, clock):
    """`draw`, compiled, for S lanes at once."""
    return jax.vmap(functools.partial(draw, num_samples, width))(key, worker, clock)


@functools.partial(jax.jit, static_argnames=("problem", "program", "shape"), donate_argnames=("carry",))
def advance_one(problem, program, shape, carry, rows, count, indices, first, data, constants):
    """`advance`, compiled."""
    return advance(problem, program, shape, carry, rows, count, indices, first, data, constants)


@functools.partial(jax.jit, static_argnames=("problem", "program", "shape"), donate_argnames=("carry",))
def advance_lanes(problem, program, shape, carry, rows, count, indices, first, data, constants):
    """`advance`, compiled, for S lanes at once; `count` and `data` are shared."""
    one = functools.partial(advance, problem, program, shape)
    return jax.vmap(one, in_axes=(0, 0, None, 0, 0, None, 0))(
        carry, rows, count, indices, first, data, constants
    )


def compilations() -> int:
    """How many loops were compiled so far.

    A new seed, learning rate, cluster of the same size or staleness adds none, but for the limits of the
    latter: at s = 0 a loop needs no slots, at infinity ESSP never gathers and SSP never waits.
    """
    loops: Any = (advance_one, advance_lanes)
    return sum(loop._cache_size() for loop in loops)
