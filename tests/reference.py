"""The reference replay: readable code that processes one task at a time; tests compare the compiled one."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace
from dmlcore.training.aggregation import aggregate_of
from dmlcore.training.batches import (
    BATCHES,
    INIT,
    LOSSES,
    UPDATES,
    owned_indices,
    run_key,
    sample_keys,
    task_indices,
    task_key,
)
from dmlcore.training.coding import coding_of, of, put, received, sent, start
from dmlcore.training.compiling import isolated
from dmlcore.training.program import ONE, padded
from dmlcore.training.scaling import scale_free
from dmlcore.training.turns import whole
from dmlcore.types import Aggregate


def replay_reference(
    trace: Trace,
    problem: Problem,
    optimizer: optax.GradientTransformation,
    aggregate: Aggregate | None = None,
) -> Any:
    """Trains along a trace, one task at a time, and keeps every version; returns the final parameters.

    A worker that continues on its cached copy applies its own gradient to the copy, with the optimizer state
    that it pulled with the copy. For plain SGD this is Ho et al.'s "snapshot plus own updates". `aggregate`
    combines the pushes of an update; None: the aggregate of the trace.
    """
    trace = whole(trace, problem)
    seed = trace.metadata["seed"]
    params = problem.init(run_key(seed, INIT))
    versions = [(params, optimizer.init(params))]
    copies: dict[int, Any] = {}  # by worker: parameters and optimizer state, including its own updates
    data = jax.tree.map(jnp.asarray, problem.data)

    scales = not problem.additive and scale_free(optimizer, params)

    @functools.partial(jax.jit, static_argnums=2)
    def step(state: tuple[Any, Any], gradient: Any, whole: float = 1.0) -> tuple[Any, Any]:
        params, optimizer_state = state
        if not scales or abs(whole - 1) < ONE:
            whole = 1.0
        gradient = jax.tree.map(lambda g: g / (whole or 1.0), gradient)
        updates, optimizer_state = optimizer.update(gradient, optimizer_state, params)
        return optax.apply_updates(params, jax.tree.map(lambda u: whole * u, updates)), optimizer_state

    @jax.jit
    def batch_gradient(params: Any, indices: jax.Array, shares: jax.Array, *keys: jax.Array) -> Any:
        def gradient(params: Any, batch: Any, shares: jax.Array, keys: Any) -> Any:
            return jax.grad(lambda p: jnp.dot(shares, problem.losses(p, batch, *keys)))(params)

        batch = jax.tree.map(lambda column: column[indices], data)
        return isolated(shares[0] > 0, gradient, params, batch, shares, keys)

    @jax.jit
    def batch_update(params: Any, indices: jax.Array, key: jax.Array) -> Any:
        batch = jax.tree.map(lambda column: column[indices], data)
        shared, local = problem.apart(params)
        own = {name: rows[indices] for name, rows in local.items()}
        change, moved = problem.apart(problem.update(problem.together(shared, own), batch, key))
        moved = {name: jnp.zeros_like(local[name]).at[indices].add(rows) for name, rows in moved.items()}
        return problem.together(change, moved)

    def contribution(params: Any, task: Any) -> Any:
        who, size = (task.worker, task.clock), (task.batch_size, problem.num_samples)
        if problem.additive:
            indices = owned_indices(trace.num_workers, *who, *size)
            return batch_update(params, indices, task_key(run_key(seed, UPDATES), *who))
        # As on every engine: padded to a power of two of samples, of which only the first ones count.
        own = np.arange(problem.num_samples)
        if problem.owner is not None:
            own = np.flatnonzero(problem.owner == task.worker)
        if problem.inner is not None:
            return local_steps(params, task, own)
        width = task.batch_size if problem.coupled else padded(task.batch_size)
        indices = own[task_indices(run_key(seed, BATCHES), *who, width, len(own))]
        shares = jnp.where(jnp.arange(width) < task.batch_size, 1 / task.batch_size, 0.0)
        keys = [sample_keys(run_key(seed, LOSSES), *who, width)] if problem.keyed else []
        return batch_gradient(params, indices, shares, *keys)

    states: dict[int, Any] = {}  # by worker: state of its local optimizer
    nothing = jax.tree.map(jnp.zeros_like, params)
    own_controls: dict[int, Any] = {}  # by worker: its control variate; in FedDyn its gradient
    controls = [nothing]  # of each version: the server's control variate; in FedDyn the paper's h

    fragments = 1 if problem.inner is None else problem.inner.rule.fragments
    flat, shaped = ravel_pytree(params)
    outer_states = [optimizer.init(params)] * fragments  # each of a whole optimizer, for its fragment only
    own_params: dict[int, Any] = {}  # by worker, if they keep them

    @functools.partial(jax.jit, static_argnums=0)
    def joined(first: int, one: Any, two: Any) -> Any:
        part = slice(flat.size * first // fragments, flat.size * (first + 1) // fragments)
        one, two = (ravel_pytree(tree)[0] for tree in (one, two))
        return shaped(two.at[part].set(one[part]))

    def only(number: int, one: Any, two: Any) -> Any:
        """A fragment of one tree, and the rest of another one."""
        return joined(number % fragments, one, two)

    @jax.jit
    def inner_step(gradient: Any, state: Any, reached: Any, params: Any, control: Any, before: Any) -> Any:
        inner = problem.inner
        assert inner is not None
        going = nothing if inner.rule.dynamic else control
        gradient = jax.tree.map(lambda g, c, c_i: g + (c - c_i), gradient, going, before)
        gradient = jax.tree.map(lambda g, w, w_0: g + inner.rule.prox * (w - w_0), gradient, reached, params)
        updates, state = inner.rule.optimizer.update(gradient, state, reached)
        return optax.apply_updates(reached, updates), state

    def begins(params: Any, task: Any) -> Any:
        inner = problem.inner
        if not inner.delay:
            return params
        mine, answers = own_params.get(task.worker, params), task.clock - inner.delay
        if answers < 0:
            return mine
        mixed = jax.tree.map(lambda x, w: inner.rule.mixing * x + (1 - inner.rule.mixing) * w, mine, params)
        return only(answers, mixed, mine)

    def local_steps(params: Any, task: Any, own: Any) -> Any:
        inner, reached = problem.inner, begins(params, task)
        assert inner is not None
        state = states.get(task.worker) if inner.rule.keep_state else None
        state = inner.rule.optimizer.init(params) if state is None else state
        width = 1 << (task.batch_size - 1).bit_length()
        who = task.worker, task.clock
        drawn = own[task_indices(run_key(seed, BATCHES), *who, width, len(own))]
        keys = [sample_keys(run_key(seed, LOSSES), *who, width)] if problem.keyed else []
        control, before = controls[task.version_read], own_controls.get(task.worker, nothing)
        slopes: list[Any] = []
        for first in range(0, task.batch_size, inner.batch_size):
            part = slice(first, min(first + inner.batch_size, task.batch_size))
            shares = jnp.full(part.stop - first, 1 / (part.stop - first))
            gradient = batch_gradient(reached, drawn[part], shares, *(each[part] for each in keys))
            slopes.append(gradient)
            reached, state = inner_step(gradient, state, reached, params, control, before)
        states[task.worker] = state
        if inner.rule.control_variates:
            own_controls[task.worker] = jax.tree.map(lambda *each: sum(each) / len(each), *slopes)
        if inner.rule.dynamic:
            own_controls[task.worker] = jax.tree.map(
                lambda c, w, w_0: c - inner.rule.prox * (w - w_0), before, reached, params
            )
        if inner.rule.control_variates or inner.rule.dynamic:
            controls[-1] = jax.tree.map(
                lambda c, new, old: c + (new - old) / trace.num_workers,
                controls[-1],
                own_controls[task.worker],
                before,
            )
        own_params[task.worker] = reached
        return only(task.clock, jax.tree.map(jnp.subtract, params, reached), nothing)

    @jax.jit
    def weigh(weight: float, gradient: Any) -> Any:
        return jax.tree.map(lambda g: jnp.asarray(weight, g.dtype) * g, gradient)

    aggregate = aggregate_of(trace, aggregate)
    each = jax.jit(aggregate.each or (lambda push: push))

    @jax.jit
    def reduce(pushes: list[Any]) -> Any:
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *pushes)
        assert aggregate.reduce is not None
        return aggregate.reduce(stacked, jnp.ones(len(pushes), bool))

    def together(weights: list[float], pushes: list[Any], parts: list[Any]) -> Any:
        if aggregate.reduce is None:
            return jax.tree.map(lambda *leaves: sum(leaves), *parts)
        votes = [push for weight, push in zip(weights, pushes, strict=True) if weight]
        whole = functools.reduce(jnp.add, [jnp.asarray(weight, float) for weight in weights])
        return weigh(whole, reduce(votes)) if votes else jax.tree.map(jnp.zeros_like, pushes[0])

    strength = trace.metadata.get("compensation", 0.0)

    @jax.jit
    def compensated(gradient: Any, weight: float, now: Any, then: Any) -> Any:
        def correct(g: Any, w: Any, w_read: Any) -> Any:
            return g + strength / weight * g * g * (w - w_read)

        return jax.tree.map(correct, gradient, now, then)

    coding = coding_of(trace)
    memory = start(coding, seed, trace.num_workers, params)
    receive = jax.jit(functools.partial(received, coding))

    @jax.jit
    def send(part: Any, worker: int, clock: int, gradient: Any, view: Any, optimizer_state: Any) -> Any:
        def one_step(gradient: Any, params: Any) -> Any:
            return step((params, optimizer_state), each(gradient))[0]

        return sent(coding, part, worker, clock, gradient, view, one_step)

    lost = [
        (incident["time"], incident["worker"])
        for incident in trace.metadata.get("incidents", ())
        if incident["kind"] in ("down", "died") or (incident["kind"] == "join" and incident.get("forgets"))
    ]
    since: dict[int, float] = {}  # by worker: when its last task was released

    def released(task: Any) -> float:
        return task.compute_start if math.isnan(task.pull_start) else task.pull_start

    applied = trace.tasks[trace.tasks["update"] >= 0].sort_values(["update", "worker", "clock"])
    for _, tasks in applied.groupby("update"):
        weights, pushes, parts = [], [], []
        controls.append(controls[-1])
        rows: Any = tasks.itertuples()
        for task in rows:
            kept = math.isnan(task.pull_start)
            view = copies[task.worker] if kept else versions[task.version_read]
            who = task.worker, task.clock
            before, since[task.worker] = since.get(task.worker, -1.0), released(task)
            if any(before < time <= released(task) and worker in (-1, task.worker) for time, worker in lost):
                states.pop(task.worker, None)
                own_controls.pop(task.worker, None)
                if coding:
                    fresh = start(coding, seed, 0, versions[0][0])
                    memory = put(memory, task.worker, of(fresh, 0))
            if coding:
                arrived, part = receive(of(memory, task.worker), *who, view[0])
                view = arrived, versions[-1][1]
            gradient = contribution(view[0], task)
            if coding:
                gradient, part = send(part, *who, gradient, *view)
                memory = put(memory, task.worker, part)
            if strength and not aggregate.plain:  # it receives gradients before they are weighted
                gradient = compensated(gradient, 1.0, versions[-1][0], view[0])
            push = each(gradient)
            gradient = weigh(task.weight, push)
            if strength and aggregate.plain:
                gradient = compensated(gradient, task.weight, versions[-1][0], view[0])
            copies[task.worker] = step(view, gradient, task.weight)
            weights.append(task.weight)
            pushes.append(push)
            parts.append(gradient)
        number, total = len(versions) - 1, together(weights, pushes, parts)
        if problem.inner is not None and problem.inner.rule.dynamic:
            total = jax.tree.map(lambda d, h: d + h / problem.inner.rule.prox, total, controls[-1])
        if fragments == 1:
            versions.append(step(versions[-1], total, sum(weights)))
            continue
        given = versions[-1][0], outer_states[number % fragments]
        after, outer_states[number % fragments] = step(given, total, sum(weights))
        versions.append((only(number, after, versions[-1][0]), versions[-1][1]))
    return versions[-1][0]
