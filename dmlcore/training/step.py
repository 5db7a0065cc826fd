"""One step of training, for every driver: one run, lanes side by side, a mesh, and segments.

Axes: K tasks of a row.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dmlcore.training import coding
from dmlcore.training.batches import INIT, Source, run_key, source_of
from dmlcore.training.coding import Coding
from dmlcore.training.contribution import Contribution
from dmlcore.training.optimizer import Hoisted, hoist
from dmlcore.training.program import Rows


class Plan(NamedTuple):
    """What a step is compiled for, apart from array shapes.

    Args:
        contribution: what tasks compute.
        optimizer: the optimizer's update, its numbers taken out.
        reads_newest: every view is the server's current version.
        accumulates: some update has more than one row.
        keeps_copies: some worker goes on with its own copy.
        compensates: delays are compensated.
        weighs: a row is one task, and some weight is not 1.
        watches: a step tells what there is to see of its gradients.
        coding: what happens to values on their way; None: nothing.
    """

    contribution: Contribution
    optimizer: Hoisted
    reads_newest: bool
    accumulates: bool
    keeps_copies: bool
    compensates: bool
    weighs: bool = True
    watches: bool = False
    coding: Coding | None = None


class Inputs(NamedTuple):
    """What every step looks up: the problem's data on the device, and the optimizer's numbers."""

    data: Any
    numbers: Any


class State(NamedTuple):
    """What a step carries on; fields are () where a plan does not need them.

    Args:
        params: the server's, as far as they travel.
        optimizer_state: the server's.
        gathered: weighted sum of the contributions to the update in hand.
        slots: versions and copies that are still read.
        memory: of codecs.
        local: what stays with the workers.
        before: weighted sum of contributions of the last update.
    """

    params: Any
    optimizer_state: Any
    gathered: Any
    slots: Any
    memory: Any
    local: Any
    before: Any


class Info(NamedTuple):
    """What there is to see of the update in hand: |g|^2 of its sum g so far, and g . g' with the last."""

    squared_norm: Any
    product: Any


class Beginning(NamedTuple):
    """Where a run starts, and what its arithmetic needs.

    Args:
        params: as far as they travel.
        optimizer_state: of the server.
        local: what stays with the workers.
        optimizer: the optimizer's update, its numbers taken out.
        numbers: of the optimizer.
        source: of the tasks' samples.
    """

    params: Any
    optimizer_state: Any
    local: Any
    optimizer: Hoisted
    numbers: Any
    source: Source


def beginning(
    contribution: Contribution, optimizer: optax.GradientTransformation, seed: int, num_workers: int
) -> Beginning:
    """Returns where a run starts."""
    problem = contribution.problem
    params, local = contribution.begin(problem.init(run_key(seed, INIT)), optimizer)
    state = optimizer.init(params)
    update, numbers = hoist(optimizer.update, params, state, params)
    return Beginning(params, state, local, update, numbers, source_of(problem, seed, num_workers))


def initial(plan: Plan, num_slots: int, start: Beginning, memory: Any = ()) -> State:
    """Returns the state before the first row, with version 0 in every slot."""
    params, optimizer_state = start.params, start.optimizer_state
    slots: Any = ()
    if not plan.reads_newest:
        version = (params, optimizer_state) if plan.keeps_copies else params
        slots = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_slots, *jnp.shape(x))), version)
    gathered, before = (
        jax.tree.map(jnp.zeros_like, params) if needed else () for needed in (plan.accumulates, plan.watches)
    )
    state = State(params, optimizer_state, gathered, slots, memory, start.local, before)
    return jax.tree.map(jnp.array, state)  # every leaf its own buffer, since the state is donated


def step(plan: Plan, inputs: Inputs, state: State, row: Rows, pushed: Any = None) -> tuple[State, Any]:
    """Works off a row: its contribution computed, gathered, and its update applied if the row ends it.

    Args:
        plan: what to do.
        inputs: data and numbers.
        state: before.
        row: one of `Rows`, with its samples.
        pushed: the row's contribution where it has been computed already; see `Contribution.of`.

    Returns:
        The state after, and `Info` where the plan watches, else ().
    """
    optimize = functools.partial(optimizer_step, plan.optimizer, inputs.numbers)
    held = load(plan, state, row.read)
    view, part = received(plan.coding, state.memory, held[0], row)
    if pushed is None:
        pushed = contributed(plan.contribution, inputs.data, view, state.local, row)
    gradient, change = pushed
    local, memory = plan.contribution.applied(state.local, row.samples, change), state.memory
    if plan.coding is not None:

        def own_step(gradient: Any, params: Any) -> Any:
            return optimize(gradient, (params, state.optimizer_state))[0]

        who = row.worker[0], row.clock[0]
        gradient, part = coding.sent(plan.coding, part, *who, gradient, view, own_step)
        memory = coding.put(memory, who[0], part)
    if plan.weighs:
        gradient = weighed(row.weight[0], gradient)
    params, optimizer_state, gathered, slots, _, _, before = state
    if plan.compensates:
        gradient = compensate(row.compensation, gradient, params, view)
    if plan.keeps_copies:
        spilled = jax.tree.leaves(slots)[0].shape[0] - 1  # the slot that takes what nothing reads
        copy = jax.lax.cond(row.keep < spilled, lambda: optimize(gradient, held), lambda: held)
        slots = store(slots, row.keep, copy)
    total = add(gathered, gradient) if plan.accumulates else gradient
    info: Any = ()
    if plan.watches:
        info = Info(inner(total, total), inner(total, before))
        before = jax.tree.map(functools.partial(jnp.where, row.last), total, before)
    if plan.accumulates or plan.weighs or not plan.optimizer.only_scales:
        # A branch also where every row ends its update: the optimizer's step is compiled by itself, as on a
        # server. Compiled with what is before and after it, its products and sums may be rounded otherwise.
        # A gradient that is only scaled and added leaves no choice, and saves the branch.
        gathered, params, optimizer_state = jax.lax.cond(
            row.last,
            lambda: (jax.tree.map(jnp.zeros_like, gathered), *optimize(total, (params, optimizer_state))),
            lambda: (total if plan.accumulates else (), params, optimizer_state),
        )
    else:
        params, optimizer_state = optimize(total, (params, optimizer_state))
    if not plan.reads_newest:
        slots = store(slots, row.write, (params, optimizer_state) if plan.keeps_copies else params)
    return State(params, optimizer_state, gathered, slots, memory, local, before), info


def received(code: Coding | None, memory: Any, params: Any, row: Rows) -> tuple[Any, Any]:
    """Returns what a row's worker computes on when it is sent `params`, and its part of codecs' memory."""
    if code is None:
        return params, ()
    who = row.worker[0], row.clock[0]
    return coding.received(code, coding.of(memory, who[0]), *who, params)


def contributed(kind: Contribution, data: Any, view: Any, local: Any, row: Rows) -> Any:
    """Returns a row's contribution, see `Contribution.of`."""
    return kind.of(view, local, row.samples, row.batch_size, row.weight, data)


# In `at` and `store` not `slots[slot]` and `slots.at[slot].set(value)`: those check bounds at every step.
def at(tree: Any, index: Any) -> Any:
    """Returns one entry of every leaf."""
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), tree)


def store(slots: Any, slot: Any, value: Any) -> Any:
    """Returns the slots with `value` in one of them."""
    return jax.tree.map(lambda s, x: jax.lax.dynamic_update_index_in_dim(s, x, slot, 0), slots, value)


def load(plan: Plan, state: State, slot: Any) -> tuple[Any, Any]:
    """Returns the view in a slot: its parameters, and the optimizer state where copies need it."""
    if plan.reads_newest:
        return state.params, state.optimizer_state
    held = at(state.slots, slot)
    return held if plan.keeps_copies else (held, None)


def weighed(weight: Any, gradient: Any) -> Any:
    """Returns `weight * gradient`, rounded as on a server.

    The branch keeps the product from being fused into the sum after it, where it would not be rounded; an
    `optimization_barrier` does not in every release of JAX.
    """
    return jax.lax.cond(weight == 1, lambda: gradient, lambda: weigh(weight, gradient))


@jax.jit
def weigh(weight: Any, gradient: Any) -> Any:
    """Returns `weight * gradient`."""
    return jax.tree.map(lambda g: jnp.asarray(weight, g.dtype) * g, gradient)


@jax.jit
def add(total: Any, gradient: Any) -> Any:
    """Returns the sum of two gradients."""
    return jax.tree.map(jnp.add, total, gradient)


def inner(one: Any, two: Any) -> Any:
    """Returns the inner product of two pytrees."""
    return sum(jnp.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (one, two)), strict=True))


@jax.jit
def compensate(strength: Any, gradient: Any, params: Any, view: Any) -> Any:
    """Returns a weighed gradient, corrected for how far the parameters have moved since it was taken.

    With g = p / weight it is weight * (g + lambda g * g * (params - view)).

    Args:
        strength: lambda / weight.
        gradient: p, weighed.
        params: what the server has now.
        view: what the gradient was taken on.

    Reference: Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay compensation", eq. 10.
    """
    correct = lambda p, now, then: p + jnp.asarray(strength, p.dtype) * p * p * (now - then)  # noqa: E731
    return jax.tree.map(correct, gradient, params, view)


@functools.partial(jax.jit, static_argnames=("optimizer",))
def optimizer_step(
    optimizer: Hoisted, numbers: Any, gradient: Any, state: tuple[Any, Any]
) -> tuple[Any, Any]:
    """Returns parameters and optimizer state after one step."""
    params, optimizer_state = state
    updates, optimizer_state = optimizer(numbers, gradient, optimizer_state, params)
    return optax.apply_updates(params, updates), optimizer_state
