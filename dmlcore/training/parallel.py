"""The halves of a wavefront: gradients side by side on a mesh of devices, then updates one after the other.

Axes: M devices, L tasks, D parameters, B samples of a task.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from dmlcore.problems.problem import Problem
from dmlcore.training.batches import Source
from dmlcore.training.hoist import Program
from dmlcore.training.loop import Carry, GradientShape, Rows, Shape, at, contribution, draw, load, take_in

WORKERS = "workers"  # the axis of the mesh


class Tasks(NamedTuple):
    """Tasks whose gradients are computed at the same time, each field (L,)."""

    worker: Any
    clock: Any
    batch_size: Any
    weight: Any
    read: Any  # slot of its view


@functools.partial(jax.jit, static_argnames=("problem", "mesh", "shape", "in_lock_step"))
def gradients(
    problem: Problem,
    mesh: Mesh,
    shape: GradientShape,
    in_lock_step: bool,
    views: Any,
    source: Source,
    tasks: Tasks,
    data: Any,
) -> Any:
    """Returns the weighted gradients, or additive updates, of L tasks, of which each device computes L / M.

    Args:
        problem: what is trained.
        mesh: the devices.
        shape: of the gradients.
        in_lock_step: whether all tasks have the same view and are one update.
        views: slots with parameters; in lock-step the parameters that all read.
        source: of the tasks' samples.
        tasks: L of them, a multiple of M.
        data: the problem's training data, on every device.

    Returns:
        In lock-step their sum, (1, D), on every device; else each one, (L, D), sharded over the devices.
    """

    def samples(source: Source, tasks: Tasks) -> Any:
        return draw(problem.num_samples, shape.widths[-1], source, tasks.worker, tasks.clock)

    def total(views: Any, source: Source, tasks: Tasks, data: Any) -> Any:
        drawn = samples(source, tasks).ravel()
        own = contribution(problem, shape, views, drawn, tasks.batch_size, tasks.weight, data)
        return jax.tree.map(lambda leaf: jax.lax.psum(leaf, WORKERS)[None], own)

    def each(views: Any, source: Source, tasks: Tasks, data: Any) -> Any:
        def one(task_and_samples: tuple[Tasks, Any]) -> Any:
            task, drawn = task_and_samples
            batch_size, weight = task.batch_size[None], task.weight[None]
            return contribution(problem, shape, at(views, task.read), drawn, batch_size, weight, data)

        # Not `vmap`: a task is the same arithmetic whatever else its device computes.
        return jax.lax.map(one, (tasks, samples(source, tasks)))

    # Without the check of what varies over devices a gradient stays the device's own until it is summed here,
    # and losses may have loops that the check would refuse.
    function, out = (total, P()) if in_lock_step else (each, P(WORKERS))
    specs = (P(), P(), P(WORKERS), P())
    return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)(
        views, source, tasks, data
    )


@functools.partial(jax.jit, static_argnames=("program", "mesh", "shape"), donate_argnames=("carry",))
def apply(
    program: Program,
    mesh: Mesh,
    shape: Shape,
    carry: Carry,
    rows: Rows,
    count: Any,
    computed: Any,
    constants: Any,
) -> Carry:
    """Takes in the first `count` of the gradients, row by row, the same on every device.

    Args:
        program: the optimizer's update, its numbers hoisted.
        mesh: the devices.
        shape: what the schedule needs.
        carry: state before.
        rows: what to do with each gradient.
        count: how many rows count, traced.
        computed: what `gradients` returned.
        constants: the optimizer's numbers.

    Returns:
        The state after.
    """
    computed = jax.lax.with_sharding_constraint(computed, NamedSharding(mesh, P()))

    def work_off(i: Any, carry: Carry) -> Carry:
        # The slot still holds the view: the wavefront's rows before this one have not written there.
        held = load(shape, carry, rows.read[i])
        return take_in(program, constants, shape, carry, held, at(computed, i), rows, i)

    return jax.lax.fori_loop(0, count, work_off, carry)
