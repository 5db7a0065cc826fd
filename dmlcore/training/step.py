"""One step of training, for every driver: one run, lanes, a mesh, and segments.

Axes: K tasks of a row.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from dmlcore.methods.aggregate import mean
from dmlcore.training import aggregation, coding, pacing
from dmlcore.training.aggregation import Aggregation, Gathered
from dmlcore.training.batches import INIT, Source, run_key, source_of
from dmlcore.training.coding import Coding
from dmlcore.training.compiling import isolated
from dmlcore.training.contribution import Contribution
from dmlcore.training.local_steps import Controlled
from dmlcore.training.optimizer import Hoisted, hoist_update
from dmlcore.training.program import ONE, Rows
from dmlcore.training.scaling import HELD, WEIGHTS, say_once, tried
from dmlcore.types import Aggregate


class Plan(NamedTuple):
    """The static arguments of a step: it is compiled for them, and for the shapes of arrays."""

    contribution: Contribution  # the computation of tasks
    optimizer: Hoisted  # update function of the optimizer, with its numbers as inputs
    reads_newest: bool  # every view is the server's current version
    accumulates: bool  # some update has more than one row
    keeps_copies: bool  # some worker continues on its cached copy
    compensates: bool  # delay compensation is on
    weighs: bool = True  # a row is one task, and some weight is not 1
    scales: bool = False  # weights scale the optimizer's updates in place of the gradients
    watches: bool = False  # a step returns `Info` about its gradients
    coding: Coding | None = None  # effect of the transport on values; None: no effect
    aggregation: Aggregation | None = None  # combines the pushes of an update; None: their weighted sum

    @property
    def paced(self) -> bool:
        """Whether the optimizer reads the progress of versions."""
        return bool(self.optimizer.named)

    @property
    def reduces(self) -> bool:
        """Whether the pushes of an update are stored until the update is made."""
        return self.aggregation is not None and self.aggregation.places > 0

    def version(self, params: Any, optimizer_state: Any) -> tuple[Any, ...]:
        """Returns the part of a version or a copy that slots hold."""
        return (params, optimizer_state) if self.keeps_copies else (params,)


class Numbers(NamedTuple):
    """The numbers of hoisted functions, which are inputs of a step."""

    optimizer: Any
    aggregate: Any  # numbers of its `each` and `reduce`


class Inputs(NamedTuple):
    """The inputs that do not change from step to step."""

    data: Any  # data of the problem, on the device
    numbers: Numbers


class State(NamedTuple):
    """The state that steps carry on; fields are () if the plan does not need them."""

    params: Any  # parameters of the server, without local ones
    optimizer_state: Any  # state of the server's optimizer
    gathered: Any  # weighted sum of the contributions to the current update, or `aggregation.Gathered`
    slots: Any  # versions and copies that later rows read
    memory: Any  # memory of the codecs
    local: Any  # state that stays with the workers
    before: Any  # weighted sum of the contributions to the last update


class Info(NamedTuple):
    """Observed values of the current update: |g|^2 of its sum g so far, and g . g' with the last sum g'."""

    squared_norm: Any
    product: Any


def begin(
    contribution: Contribution,
    optimizer: optax.GradientTransformation,
    seed: int,
    num_workers: int,
    num_slots: int,
    filler: int,
    aggregate: Aggregate | None = None,
    places: int = 1,
    scales: bool = False,
    **options: Any,
) -> tuple[Plan, Numbers, Source, State]:
    """Returns the start of a run: the plan, the hoisted numbers, the source of samples, and the state.

    `options` are fields of the plan. Each slot holds version 0. Padding tasks belong to the worker `filler`,
    which is not in the cluster. If an aggregate reduces pushes, an update has at most `places` of them.
    `scales` says whether the weights of some update do not sum to 1.
    """
    problem = contribution.problem
    initial = problem.init(run_key(seed, INIT))
    params, local = contribution.begin(initial, optimizer, filler + 2)
    whole = contribution.optimizer(optimizer, num_workers)
    optimizer_state = whole.init(params)
    update, numbers = hoist_update(whole, params, optimizer_state)
    rule, own = aggregation.traced(aggregate or mean(), params, places)
    limits = rule is not None and rule.each is not None
    free, held = tried(optimizer, initial) if scales or limits else (False, False)
    if scales and free:
        say_once(HELD if held else WEIGHTS)
    if limits and free and not held:
        say_once(f"{aggregate} limits the share of a push in an update of several, and no update")
    scales = scales and free and not held
    plan = Plan(contribution, update, aggregation=rule, scales=scales, **options)
    slots: Any = () if plan.reads_newest else plan.version(params, optimizer_state)
    slots = coding.for_each(num_slots, slots)
    memory = coding.start(plan.coding, seed, filler, params)
    gathered, before = (
        optax.tree.zeros_like(params) if needed else () for needed in (plan.accumulates, plan.watches)
    )
    if rule is not None and rule.places:
        gathered = aggregation.nothing_gathered(rule, params)
    state = State(params, optimizer_state, gathered, slots, memory, local, before)
    # Every leaf has its own buffer, because the state is donated.
    source = source_of(problem, seed, num_workers)
    return plan, Numbers(numbers, own), source, jax.device_put(state, may_alias=False)


def step(plan: Plan, inputs: Inputs, state: State, row: Rows, pushed: Any = None) -> tuple[State, Any]:
    """Processes a row: computes and gathers its contribution, and applies the update if the row ends it.

    `pushed` is the row's contribution if it is already computed; see `Contribution.of`.

    Returns:
        The new state, and `Info` if the plan watches, else ().
    """
    optimize = functools.partial(optimizer_step, plan.optimizer, inputs.numbers.optimizer)
    rule, own = plan.aggregation, inputs.numbers.aggregate
    whole, alone = (row.whole, row.weight[0]) if plan.scales else (None, None)

    def own_step(gradient: Any, params: Any) -> Any:
        pushed = gradient if rule is None else aggregation.counted(rule, own, row.weight[0], gradient)
        return optimize(pushed, (params, state.optimizer_state), progress=row.progress)[0]

    params, optimizer_state, gathered, slots, memory, local, before = state
    held = (params, optimizer_state) if plan.reads_newest else at(slots, row.read)
    who = row.worker[0], row.clock[0]
    view, part = coding.received(plan.coding, coding.of(memory, row.memory), *who, held[0])
    if pushed is None:
        pushed = plan.contribution.of(view, local, row, inputs.data)
    gradient, change = pushed
    local = plan.contribution.applied(local, row.samples, change)
    gradient, part = coding.sent(plan.coding, part, *who, gradient, view, own_step)
    memory = coding.put(memory, who[0], part)
    if rule is not None:  # it applies to pushes, before they are weighted
        if plan.compensates:
            gradient = compensate(row.compensation, gradient, params, view)
        push = gradient = aggregation.counted(rule, own, row.weight[0], gradient)
    if plan.weighs:
        gradient = weighed(row.weight[0], gradient)
    if plan.compensates and rule is None:
        gradient = compensate(row.compensation, gradient, params, view)
    if plan.keeps_copies:
        spilled = jax.tree.leaves(slots)[0].shape[0] - 1  # the spill slot
        changed = functools.partial(optimize, gradient, held, alone, row.pulled)
        copy = jax.lax.cond(row.keep < spilled, changed, lambda: held)
        slots = store(slots, row.keep, copy)
    if plan.reduces:
        gathered = gather(gathered, row.weight[0], push)
        total, gathered = reduced(plan.aggregation, own, gathered, row.last)
    else:
        total = gradient
        if plan.accumulates:
            total = add(gathered, gradient)
            gathered = jax.tree.map(lambda leaf: jnp.where(row.last, 0, leaf), total)
    info: Any = ()
    if plan.watches:
        info = Info(inner(total, total), inner(total, before))
        before = jax.tree.map(functools.partial(jnp.where, row.last), total, before)
    current = params, optimizer_state
    updated = functools.partial(optimize, total, current, whole, row.progress)
    scales = plan.optimizer.only_scales and plan.coding is None
    if plan.reduces or plan.accumulates or plan.weighs or not scales:
        # The branch is there even if every row ends its update, so that the optimizer's step is compiled
        # separately, as on a server. If XLA merged it with other operations, products and sums could be
        # rounded differently. An optimizer that only scales the gradient does not need the branch, unless a
        # codec multiplies values.
        params, optimizer_state = jax.lax.cond(row.last, updated, lambda: current)
    else:
        params, optimizer_state = updated()
    if not plan.reads_newest:
        slots = store(slots, row.write, plan.version(params, optimizer_state))
    return State(params, optimizer_state, gathered, slots, memory, local, before), info


def step_if(active: Any, plan: Plan, inputs: Inputs, state: State, row: Rows) -> State:
    """Returns the state after a row, or the same state if not `active`; for plans that do not watch.

    A lane under `vmap` is not active while it waits for other lanes. Either it is at its mark, and the row is
    a padding row; or it has stopped, and only `params` and `local` of its state are still used. Such a lane
    reads and writes the spill slot, so that slots are written in place without a selection. Each lane then
    has its own indices, so that slots are gathered and scattered. With common indices, XLA would fuse slices
    of the slots into operations that read them after the store, and copy all slots for that.
    """
    if not plan.contribution.weighs:  # a row changes `local` whatever its weight
        row = row._replace(weight=jnp.where(active, row.weight, 0))
    if not plan.reads_newest:
        spilled = jax.tree.leaves(state.slots)[0].shape[0] - 1
        read, write, keep = (jnp.where(active, slot, spilled) for slot in (row.read, row.write, row.keep))
        row = row._replace(read=read, write=write, keep=keep)
    after, _ = step(plan, inputs, state, row)
    names = ["params", "optimizer_state", *([] if plan.reduces else ["gathered"])]
    kept = [getattr(state, name) for name in names], [getattr(after, name) for name in names]
    chosen = jax.tree.map(lambda old, new: jnp.where(active, new, old), *kept)
    return after._replace(**dict(zip(names, chosen, strict=True)))


def gather(gathered: Gathered, weight: Any, push: Any) -> Gathered:
    """Adds a push to the places; the next push overwrites one of weight 0, which does not count."""
    pushes, total, count = gathered
    return Gathered(store(pushes, count, push), total + weight, count + (weight != 0))


def reduced(rule: Any, numbers: Any, gathered: Gathered, last: Any) -> tuple[Any, Gathered]:
    """Returns the reduced gradient, which is 0 before the last push of an update, and the new places."""
    pushes, weight, count = gathered
    total = jax.lax.cond(
        last,
        lambda: weighed(weight, aggregation.of_all(rule, numbers, pushes, count)),
        lambda: jax.tree.map(lambda places: jnp.zeros_like(places[0]), pushes),
    )
    return total, Gathered(pushes, *(jnp.where(last, 0, number) for number in (weight, count)))


# `at` and `store` avoid `slots[slot]` and `slots.at[slot].set(value)`, which check bounds at every step.
def at(tree: Any, index: Any) -> Any:
    """Returns one entry of every leaf."""
    return jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, keepdims=False), tree)


def store(slots: Any, slot: Any, value: Any) -> Any:
    """Returns the slots with `value` in one of them."""
    return jax.tree.map(lambda s, x: jax.lax.dynamic_update_index_in_dim(s, x, slot, 0), slots, value)


def weighed(weight: Any, gradient: Any) -> Any:
    """Returns `weight * gradient`, rounded as on a server.

    The branch keeps XLA from fusing the product into the next sum, where it would not be rounded. An
    `optimization_barrier` does not prevent this in every release of JAX.
    """
    return jax.lax.cond(weight == 1, lambda: gradient, lambda: weigh(weight, gradient))


@jax.jit
def weigh(weight: Any, gradient: Any) -> Any:
    """Returns `weight * gradient`; changes of what workers remember count whole."""
    return of_params(lambda g: jnp.asarray(weight, g.dtype) * g, gradient)


def of_params(function: Any, gradient: Any) -> Any:
    """Returns a gradient with a function of each leaf, but what workers remember as it is."""
    if isinstance(gradient, Controlled):
        return gradient._replace(params=jax.tree.map(function, gradient.params))
    return jax.tree.map(function, gradient)


@jax.jit
def add(total: Any, gradient: Any) -> Any:
    """Returns the sum of two gradients."""
    return jax.tree.map(jnp.add, total, gradient)


def inner(one: Any, two: Any) -> Any:
    """Returns the inner product of two pytrees, without what workers remember."""
    if isinstance(one, Controlled):
        one, two = one.params, two.params
    return sum(jnp.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (one, two)), strict=True))


@jax.jit
def compensate(strength: Any, gradient: Any, params: Any, view: Any) -> Any:
    """Returns a weighted gradient, corrected for the change of the parameters since it was computed.

    With g = p / weight it is weight * (g + lambda g * g * (params - view)). Here `gradient` is the weighted
    gradient p, `strength` is lambda / weight, `params` are the server's current parameters, and `view` those
    on which p was computed.

    Reference: Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay compensation", eq. 10.
    """

    def corrected() -> Any:
        correct = lambda p, now, then: p + jnp.asarray(strength, p.dtype) * p * p * (now - then)  # noqa: E731
        return jax.tree.map(correct, gradient, params, view)

    return jax.lax.cond(strength != 0, corrected, lambda: gradient)


@functools.partial(jax.jit, static_argnames=("optimizer",))
def served(runs: Any, optimizer: Hoisted, *given: Any) -> Any:
    """Returns `optimizer_step` of a real server, apart as in a loop's branch."""
    return isolated(runs, functools.partial(optimizer_step, optimizer), *given)


def optimizer_step(
    optimizer: Hoisted,
    numbers: Any,
    gradient: Any,
    state: tuple[Any, Any],
    whole: Any = None,
    progress: Any = (),
) -> tuple[Any, Any]:
    """Returns parameters and optimizer state after one step.

    If `whole`, the sum of the weights in the gradient, is given, the gradient is divided by it, and the
    update is multiplied by it. `progress` is that of the version which the step changes.
    """
    params, optimizer_state = state
    told = pacing.arguments(optimizer.named, progress)

    def plain() -> tuple[Any, Any]:
        updates, after = optimizer(numbers, gradient, optimizer_state, params, **told)
        return optax.apply_updates(params, updates), after

    def scaled() -> tuple[Any, Any]:
        over = jnp.where(whole == 0, 1, whole)
        mean = of_params(lambda g: g / over.astype(g.dtype), gradient)
        updates, after = optimizer(numbers, mean, optimizer_state, params, **told)
        return optax.apply_updates(params, weigh(whole, updates)), after

    if whole is None:
        return plain()
    return jax.lax.cond(jnp.abs(whole - 1) <= ONE, plain, scaled)
