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

BLOCK = 64  # rows whose samples are drawn at once


class Shape(NamedTuple):
    """What a compiled loop depends on, apart from array shapes."""

    samples_per_task: int
    reads_newest: bool
    accumulates: bool
    keeps_copies: bool


class Rows(NamedTuple):
    """The part of a `Schedule` that one call of the loop works off, padded; slots are never NONE."""

    worker: Any
    clock: Any
    batch_size: Any
    weight: Any
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


def advance(
    problem: Problem,
    program: Program,
    shape: Shape,
    carry: Carry,
    rows: Rows,
    count: Any,
    key: Any,
    data: Any,
    constants: Any,
) -> Carry:
    """Works off the first `count` of R rows; R is a multiple of BLOCK.

    Args:
        problem: what is trained.
        program: the optimizer's update, its numbers hoisted.
        shape: which parts the loop needs.
        carry: state before.
        rows: what to do.
        count: how many rows count, traced: another length compiles nothing.
        key: of the run's batches.
        data: the problem's training data on the device.
        constants: the optimizer's numbers.

    Returns:
        The state after.
    """
    offsets = jnp.arange(shape.samples_per_task)
    dtype = jnp.result_type(*jax.tree.leaves(carry.params))

    def samples(worker: Any, clock: Any) -> Any:
        return task_indices(key, worker, clock, shape.samples_per_task, problem.num_samples)

    def draw(first: Any) -> tuple[Any, Any]:
        """Sample numbers and their weights in the row's gradient, each (BLOCK, B)."""
        tasks = (rows.worker, rows.clock, rows.batch_size, rows.weight)
        worker, clock, size, weight = (jax.lax.dynamic_slice_in_dim(a, first, BLOCK) for a in tasks)
        each = jnp.where(offsets < size[..., None], (weight / size)[..., None], 0).astype(dtype)
        return jax.vmap(jax.vmap(samples))(worker, clock).reshape(BLOCK, -1), each.reshape(BLOCK, -1)

    def step(gradient: Any, optimizer_state: Any, params: Any) -> tuple[Any, Any]:
        updates, optimizer_state = program(constants, gradient, optimizer_state, params)
        return optax.apply_updates(params, updates), optimizer_state

    def load(slots: Any, slot: Any) -> Any:
        return jax.tree.map(lambda s: jax.lax.dynamic_index_in_dim(s, slot, keepdims=False), slots)

    def store(slots: Any, slot: Any, value: Any) -> Any:
        # Not `.at[slot].set`: it would check the slot's bounds at every step.
        return jax.tree.map(
            lambda s, x: jax.lax.dynamic_update_index_in_dim(s, x, slot, axis=0), slots, value
        )

    def work_off(i: Any, indices: Any, weights: Any, carry: Carry) -> Carry:
        params, optimizer_state, gathered, slots = carry
        view, view_state = params, optimizer_state
        if not shape.reads_newest:
            held = load(slots, rows.read[i])
            view, view_state = held if shape.keeps_copies else (held, None)
        batch = jax.tree.map(lambda column: column.at[indices].get(mode="promise_in_bounds"), data)
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

    def work_off_block(block: Any, carry: Carry) -> Carry:
        first = block * BLOCK
        indices, weights = draw(first)
        return jax.lax.fori_loop(
            first,
            jnp.minimum(first + BLOCK, count),
            lambda i, c: work_off(i, indices[i - first], weights[i - first], c),
            carry,
        )

    return jax.lax.fori_loop(0, (count + BLOCK - 1) // BLOCK, work_off_block, carry)


@functools.partial(jax.jit, static_argnames=("problem", "program", "shape"), donate_argnames=("carry",))
def advance_one(problem, program, shape, carry, rows, count, key, data, constants):
    """`advance`, compiled."""
    return advance(problem, program, shape, carry, rows, count, key, data, constants)


@functools.partial(jax.jit, static_argnames=("problem", "program", "shape"), donate_argnames=("carry",))
def advance_lanes(problem, program, shape, carry, rows, count, key, data, constants):
    """`advance`, compiled, for S lanes at once; `count` and `data` are shared."""
    one = functools.partial(advance, problem, program, shape)
    return jax.vmap(one, in_axes=(0, 0, None, 0, None, 0))(carry, rows, count, key, data, constants)


def compilations() -> int:
    """How many loops were compiled so far; a new seed, staleness, learning rate or cluster adds none."""
    loops: Any = (advance_one, advance_lanes)
    return sum(loop._cache_size() for loop in loops)
