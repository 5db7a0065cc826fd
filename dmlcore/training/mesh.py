"""The driver for a mesh of devices: contributions in parallel, then their updates one after the other.

Axes: M devices, L tasks, D parameters.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace
from dmlcore.training import coding
from dmlcore.training.batches import draw
from dmlcore.training.coding import Coding
from dmlcore.training.contribution import Contribution
from dmlcore.training.driver import Driver, fuses, needs, route_of, sized, spill
from dmlcore.training.evaluation import device_data
from dmlcore.training.local_steps import contribution_of
from dmlcore.training.loop import steps
from dmlcore.training.program import Rows, compile_trace, cut, power_of_two, wavefronts
from dmlcore.training.step import Inputs, Plan, State, at, weighed
from dmlcore.types import Aggregate

WORKERS = "workers"  # the axis of the mesh


@functools.partial(jax.jit, static_argnames=("kind", "code", "mesh", "fuse"))
def contributions(
    kind: Contribution,
    code: Coding | None,
    mesh: Mesh,
    fuse: bool,
    views: Any,
    kept: tuple[Any, Any],
    source: Any,
    tasks: Rows,
    data: Any,
) -> Any:
    """Returns the contributions of L tasks and their samples; each device computes L / M of them.

    Each task is a row, and L is a multiple of M. `views` are slots with parameters; `kept` has the memory of
    the codecs and the local state of the workers. With `fuse`, all tasks have the same view and are one
    update.

    Returns:
        With `fuse` their sum, (1, D), on every device; otherwise (L, D), sharded over the devices.
    """

    def sampled(source: Any, tasks: Rows) -> Rows:
        who = tasks.worker[:, 0], tasks.clock[:, 0]
        return tasks._replace(samples=draw(kind.problem.num_samples, kind.widths[-1], source, *who))

    def total(views: Any, kept: Any, source: Any, tasks: Rows, data: Any) -> Any:
        own = jax.tree.map(jnp.ravel, sampled(source, tasks))
        pushed = kind.of(views, kept[1], own, data)
        if len(own.weight) == 1:
            pushed = weighed(own.weight[0], pushed)
        return jax.tree.map(lambda leaf: jax.lax.psum(leaf, WORKERS)[None], pushed), ()

    def each(views: Any, kept: Any, source: Any, tasks: Rows, data: Any) -> Any:
        memory, local = kept

        def one(row: Rows) -> Any:
            who = row.worker[0], row.clock[0]
            view, _ = coding.received(code, coding.of(memory, row.memory), *who, at(views, row.read))
            return kind.of(view, local, row, data)

        # Not `vmap`, so that the arithmetic of a task does not depend on the other tasks of its device.
        own = sampled(source, tasks)
        return jax.lax.map(one, own), own.samples

    # The check of values that vary over devices is off, so that a gradient stays on its device until the sum
    # here, and losses may have loops that the check would reject.
    function, out = (total, P()) if fuse else (each, P(WORKERS))
    specs = (P(), P(), P(), P(WORKERS), P())
    return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)(
        views, kept, source, tasks, data
    )


@functools.partial(jax.jit, static_argnames=("plan", "mesh"), donate_argnames=("state",))
def apply(plan: Plan, mesh: Mesh, inputs: Inputs, state: State, rows: Rows, count: Any, pushed: Any) -> State:
    """Returns the state, on every device, after the first `count` rows, whose contributions are `pushed`."""
    pushed, samples = jax.lax.with_sharding_constraint(pushed, NamedSharding(mesh, P()))
    # A slot still holds the view, because earlier rows of the wavefront have not written to it.
    return steps(plan, inputs, state, rows._replace(samples=samples), count, pushed=pushed)[0]


class ShardedReplay(Driver):
    """Trains a run along its trace, with its tasks distributed over devices.

    With a lock-step policy, all tasks of an update read the newest version: each device computes a part of
    them, and an all-reduce sums their gradients. Otherwise the contributions of a wavefront are computed in
    parallel, and its updates are applied in their order.

    Guarantees: the parameters are those of `Replay`, up to rounding, on any number of devices.

    Args:
        traces: one trace.
        problem: the problem to train; its data are copied to every device.
        optimizers: one optimizer.
        devices: of the mesh. Default: all devices.
        aggregate: how the pushes of one update are combined. Default: that of the trace.
        eval_params: as for `Replay`.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        problem: Problem,
        optimizers: Sequence[optax.GradientTransformation],
        devices: Sequence[jax.Device] | None = None,
        aggregate: Aggregate | None = None,
        eval_params: Any = None,
    ):
        self.eval_params = eval_params
        (trace,), (optimizer,), self.problem = traces, optimizers, problem
        devices = jax.devices() if devices is None else devices
        self._mesh = jax.make_mesh((len(devices),), (WORKERS,), axis_types=(AxisType.Auto,), devices=devices)
        kind = contribution_of(problem)
        route = route_of(trace, kind, aggregate)
        compiled = functools.partial(compile_trace, route.trace, fuse=False, weighed=route.aggregate.plain)
        program = compiled()
        self._fuse = fuses(kind, *route[1:]) and not program.num_slots
        if not self._fuse:
            program = compiled(slots=True)
        self._program = program
        once = coding.remembers(route.coding) or kind.keeps
        self._fronts = program.first_row if self._fuse else wavefronts(program, once=once)
        self._spill, self._filler = spill(program.num_slots, trace.num_workers), trace.num_workers
        needed = needs([program], [trace], kind) | {"num_slots": self._spill + 1, "filler": self._filler}
        needed["accumulates"] &= not self._fuse
        needed["weighs"] = not self._fuse and kind.weighs  # whatever the weights, for fewer programs
        kind = sized(kind, program.rows.batch_size, single=not self._fuse)
        self._plan, numbers, self._source, state = route.begin(kind, optimizer, **needed)
        self._inputs, self._state = self._everywhere((Inputs(device_data(problem)[0], numbers), state))
        self._row = 0

    def _everywhere(self, tree: Any) -> Any:
        return jax.device_put(tree, NamedSharding(self._mesh, P()))

    def advance(self, update: int) -> None:
        """Trains up to version `update`; cuts a wavefront that goes further, as its parts are wavefronts."""
        first_row, rows = self._program.first_row, self._program.rows
        end, plan = int(first_row[min(update, len(first_row) - 1)]), self._plan
        shape = 1, self._spill, self._filler, plan.paced
        while self._row < end:
            front_end = int(self._fronts[np.searchsorted(self._fronts, self._row, side="right")])
            span = slice(self._row, min(front_end, end))
            count = span.stop - span.start
            size = self._mesh.size * power_of_two(-(-count // self._mesh.size))
            given = tasks = cut(rows, span, size, *shape)  # tasks of weight 0 follow
            if self._fuse:  # the last task ends the update
                given, count = cut(rows, slice(span.stop - 1, span.stop), 1, *shape), 1
            state = self._state
            views = state.params if self._fuse else state.slots[0]
            kept, data = (state.memory, state.local), self._inputs.data
            static = plan.contribution, plan.coding, self._mesh, self._fuse
            pushed = contributions(*static, views, kept, self._source, tasks, data)
            self._wait(pushed)
            self._state = apply(plan, self._mesh, self._inputs, state, given, count, pushed)
            self._wait(self._state)
            self._row = span.stop

    def _wait(self, values: Any) -> None:
        """Waits for the values on virtual devices, so that no other program runs during an all-reduce.

        On a CPU all programs share one pool of threads. If an all-reduce waits there for its other parts,
        another program may block these parts forever.
        """
        if self._mesh.devices.flat[0].platform == "cpu":
            jax.block_until_ready(values)

    def restore(self, update: int, state: Any) -> None:
        """Continues from a state saved at version `update`."""
        self._state = self._everywhere(state)
        self._row = int(self._program.first_row[update])

    def _leaf(self, lane: int, leaf: Any) -> Any:
        return leaf.addressable_data(0)  # on the first device
