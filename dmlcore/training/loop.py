"""The compiled loop: trains along the rows of a schedule, at the speed of plain SGD.

Axes: S lanes (runs side by side), R rows, K tasks of a row, B samples of a row.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dmlcore.problems.problem import Problem
from dmlcore.training import coding
from dmlcore.training.additive import moved, rows_of, update_of, whole_update
from dmlcore.training.batches import Source, task_samples
from dmlcore.training.coding import Coding
from dmlcore.training.hoist import Program
from dmlcore.training.steps import add, compensate, mean_gradient, optimizer_step, weigh


class GradientShape(NamedTuple):
    """What the gradients of a loop depend on, apart from array shapes."""

    widths: tuple[int, ...]  # samples that tasks are filled up to, ascending
    weighs: bool  # some weight is not 1


class Shape(NamedTuple):
    """What a compiled loop depends on, apart from array shapes."""

    gradient: GradientShape
    reads_newest: bool
    accumulates: bool
    keeps_copies: bool
    compensates: bool = False
    coding: Coding | None = None


class Rows(NamedTuple):
    """The part of a `Schedule` that one call of the loop works off, padded; slots are never NONE."""

    batch_size: Any
    weight: Any
    compensation: Any
    read: Any
    write: Any
    keep: Any
    last: Any
    worker: Any = ()  # these two where codecs need them
    clock: Any = ()


class Carry(NamedTuple):
    """State of a replay: what the server has, the update it gathers, versions still needed, what is local."""

    params: Any
    optimizer_state: Any
    gathered: Any
    slots: Any
    memory: Any = ()
    local: Any = ()  # additive ones: a `Local` of what is not among the parameters above


def draw(num_samples: int, width: int, source: Source, worker: Any, clock: Any) -> Any:
    """Returns the samples of tasks, (tasks, B), from their workers and clocks.

    For additive updates it is those and their random keys, (tasks, 1). Not part of the loop: many at once are
    cheap, and are drawn while those before them are worked off. However many tasks are a row, about as many
    are drawn, just as many where these numbers are powers of two: so it need not be compiled again.
    """

    def of_task(worker: Any, clock: Any) -> Any:
        return task_samples(source, worker, clock, width, num_samples)

    return jax.vmap(of_task)(worker, clock)


def by_row(samples: Any, num_rows: int) -> Any:
    """Returns what `draw` drew row by row, (R, K B)."""
    return jax.tree.map(lambda leaf: leaf.reshape(num_rows, -1), samples)


def initial(
    shape: Shape, num_slots: int, params: Any, optimizer_state: Any, memory: Any = (), local: Any = ()
) -> Carry:
    """Returns the state before the first row, with version 0 in every slot."""
    gathered = jax.tree.map(jnp.zeros_like, params) if shape.accumulates else ()
    slots: Any = ()
    if not shape.reads_newest:
        version = (params, optimizer_state) if shape.keeps_copies else params
        slots = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_slots, *jnp.shape(x))), version)
    # Every leaf its own buffer, since the carry is donated.
    params, optimizer_state, memory, local = jax.tree.map(jnp.array, (params, optimizer_state, memory, local))
    return Carry(params, optimizer_state, gathered, slots, memory, local)


# In `at` and `store` not `slots[slot]` and `slots.at[slot].set(value)`: those check bounds at every step.
def at(slots: Any, slot: Any) -> Any:
    """Returns what is in one of the slots."""
    return jax.tree.map(lambda s: jax.lax.dynamic_index_in_dim(s, slot, keepdims=False), slots)


def load(shape: Shape, carry: Carry, slot: Any) -> tuple[Any, Any]:
    """Returns the view in a slot: its parameters, and the optimizer state where copies need it."""
    if shape.reads_newest:
        return carry.params, carry.optimizer_state
    held = at(carry.slots, slot)
    return held if shape.keeps_copies else (held, None)


def store(slots: Any, slot: Any, value: Any) -> Any:
    """Returns the slots with `value` in one of them."""
    return jax.tree.map(lambda s, x: jax.lax.dynamic_update_index_in_dim(s, x, slot, 0), slots, value)


def contribution(
    problem: Problem, shape: GradientShape, view: Any, samples: Any, batch_size: Any, weight: Any, data: Any
) -> Any:
    """Returns what K tasks that read one view put into an update: the weighted sum of their gradients.

    One task's gradient is computed, rounded and then weighed: bit by bit what a worker and a server do.
    Several are one gradient, of their weighed samples. Of an additive problem it is one task's update, or
    nothing where its weight is 0.

    Args:
        problem: what is trained.
        shape: of the gradients.
        view: parameters.
        samples: of the tasks, from `draw`, (K B,).
        batch_size: of each task, (K,); the samples beyond it do not count.
        weight: of each task in the update, (K,).
        data: the problem's training data on the device.
    """
    if problem.additive:
        return whole_update(problem, view, samples, data, weight[0])
    batch = rows_of(data, samples)
    if len(weight) > 1:
        share = weight / batch_size.astype(weight.dtype)
        counted = jnp.arange(shape.widths[-1]) < batch_size[:, None]
        shares = jnp.where(counted, share[:, None], 0).ravel()
        return jax.grad(lambda p: jnp.dot(shares, problem.losses(p, batch)))(view)

    def filled_up(width: int) -> Any:
        return lambda: mean_gradient(
            problem, view, jax.tree.map(lambda column: column[:width], batch), batch_size[0]
        )

    if len(shape.widths) == 1:
        gradient = filled_up(shape.widths[0])()
    else:
        index = jnp.searchsorted(jnp.array(shape.widths), batch_size[0])
        gradient = jax.lax.switch(index, [filled_up(width) for width in shape.widths])
    if shape.weighs:
        # The branch keeps the product from being fused into the sum after it, where it would not be rounded;
        # an `optimization_barrier` does not in every release of JAX.
        one = weight[0]
        return jax.lax.cond(one == 1, lambda: gradient, lambda: weigh(one, gradient))
    return gradient


def take_in(
    program: Program,
    constants: Any,
    shape: Shape,
    carry: Carry,
    held: tuple[Any, Any],
    gradient: Any,
    rows: Rows,
    i: Any,
) -> Carry:
    """Returns the state after row `i`: the worker's copy moved, its gradient gathered, its update applied.

    Args:
        program: the optimizer's update, its numbers hoisted.
        constants: the optimizer's numbers.
        shape: of the loop.
        carry: state before.
        held: what the row's gradient was taken on, from `load`.
        gradient: of the row.
        rows: what to do.
        i: which of them.
    """
    step = functools.partial(optimizer_step, program, constants)
    params, optimizer_state, gathered, slots, memory, local = carry
    if shape.compensates:
        gradient = compensate(rows.compensation[i], gradient, params, held[0])
    if shape.keeps_copies:
        slots = store(slots, rows.keep[i], step(gradient, held))
    if shape.accumulates:
        total = add(gathered, gradient)
        gathered, params, optimizer_state = jax.lax.cond(
            rows.last[i],
            lambda: (jax.tree.map(jnp.zeros_like, total), *step(total, (params, optimizer_state))),
            lambda: (total, params, optimizer_state),
        )
    else:
        params, optimizer_state = step(gradient, (params, optimizer_state))
    if not shape.reads_newest:
        slots = store(slots, rows.write[i], (params, optimizer_state) if shape.keeps_copies else params)
    return Carry(params, optimizer_state, gathered, slots, memory, local)


def advance(
    problem: Problem,
    program: Program,
    shape: Shape,
    carry: Carry,
    rows: Rows,
    count: Any,
    samples: Any,
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
        samples: that `draw` drew for as many rows.
        first: of which of them those of the first row are, traced likewise.
        data: the problem's training data on the device.
        constants: the optimizer's numbers.

    Returns:
        The state after.
    """
    samples = by_row(samples, len(rows.read))

    def work_off(i: Any, carry: Carry) -> Carry:
        held = load(shape, carry, rows.read[i])
        own = jax.tree.map(lambda drawn: drawn[first + i], samples)
        batch_size, weight = rows.batch_size[i], rows.weight[i]
        if problem.additive:
            # Of local rows there is one version: a task that counts has seen what its worker did to them.
            change, steps = update_of(problem, held[0], carry.local.rows, own, data, weight[0])
            carry = carry._replace(local=moved(carry.local, own[0], steps))
            return take_in(program, constants, shape, carry, held, change, rows, i)
        gradient_on = functools.partial(
            contribution, problem, samples=own, batch_size=batch_size, weight=weight, data=data
        )
        if shape.coding is None:
            gradient = gradient_on(shape.gradient, held[0])
            return take_in(program, constants, shape, carry, held, gradient, rows, i)
        worker, clock = rows.worker[i], rows.clock[i]
        part = coding.of(carry.memory, worker)
        view, part = coding.received(shape.coding, part, worker, clock, held[0])
        gradient = gradient_on(shape.gradient._replace(weighs=False), view)
        step = lambda g, p: optimizer_step(program, constants, g, (p, carry.optimizer_state))[0]  # noqa: E731
        gradient, part = coding.sent(shape.coding, part, worker, clock, gradient, view, step)
        carry = carry._replace(memory=coding.put(carry.memory, worker, part))
        return take_in(program, constants, shape, carry, (view, None), weigh(weight[0], gradient), rows, i)

    return jax.lax.fori_loop(0, count, work_off, carry)


@functools.partial(jax.jit, static_argnames=("num_samples", "width"))
def draw_one(num_samples, width, source, worker, clock):
    """`draw`, compiled."""
    return draw(num_samples, width, source, worker, clock)


@functools.partial(jax.jit, static_argnames=("num_samples", "width"))
def draw_lanes(num_samples, width, source, worker, clock):
    """`draw`, compiled, for S lanes at once."""
    return jax.vmap(functools.partial(draw, num_samples, width))(source, worker, clock)


@functools.partial(jax.jit, static_argnames=("problem", "program", "shape"), donate_argnames=("carry",))
def advance_one(problem, program, shape, carry, rows, count, samples, first, data, constants):
    """`advance`, compiled."""
    return advance(problem, program, shape, carry, rows, count, samples, first, data, constants)


@functools.partial(jax.jit, static_argnames=("problem", "program", "shape"), donate_argnames=("carry",))
def advance_lanes(problem, program, shape, carry, rows, count, samples, first, data, constants):
    """`advance`, compiled, for S lanes at once; `count` and `data` are shared."""
    one = functools.partial(advance, problem, program, shape)
    return jax.vmap(one, in_axes=(0, 0, None, 0, 0, None, 0))(
        carry, rows, count, samples, first, data, constants
    )


def compilations() -> int:
    """How many loops were compiled so far.

    A new seed, learning rate, cluster of the same size or staleness adds none, but for the limits of the
    latter: at s = 0 a loop needs no slots, at infinity ESSP never gathers and SSP never waits.
    """
    loops: Any = (advance_one, advance_lanes)
    return sum(loop._cache_size() for loop in loops)
