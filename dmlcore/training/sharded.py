"""Replay over a mesh of devices: feeds a trace to it, wavefront by wavefront."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from dmlcore import checks
from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace
from dmlcore.training.batches import INIT, run_key, source_of
from dmlcore.training.compiled import cut_rows, device_data, evaluate, gradient_shape, pad
from dmlcore.training.hoist import fingerprint, hoist
from dmlcore.training.loop import Carry, Shape, initial
from dmlcore.training.parallel import WORKERS, Tasks, apply, gradients
from dmlcore.training.schedule import compile_trace, power_of_two
from dmlcore.training.turns import whole
from dmlcore.training.wavefronts import wavefronts


class _Lane:
    """One run of a `ShardedReplay`."""

    def __init__(
        self,
        trace: Trace,
        problem: Problem,
        optimizer: optax.GradientTransformation,
        mesh: Mesh,
        data: Any,
        fuse: bool,
    ):
        self._problem, self._mesh, self._data = problem, mesh, data
        if trace.metadata.get("changes_values"):
            sends = "one that sends values as they are, on several devices"
            checks.fail("transport", trace.metadata["transport"], sends)
        trace = whole(trace, problem)
        schedule = compile_trace(trace)
        in_lock_step = schedule.reads_newest and not schedule.accumulates
        self._in_lock_step = fuse and in_lock_step and not problem.additive
        if not self._in_lock_step:
            schedule = compile_trace(trace, merge=False, slots=True)
        self._schedule = schedule
        self._fronts = schedule.first_row if self._in_lock_step else wavefronts(schedule)
        self._shape = Shape(
            gradient_shape(problem, [schedule.batch_size], weighs=True),  # always: fewer programs
            reads_newest=self._in_lock_step,
            accumulates=schedule.accumulates,
            keeps_copies=schedule.keeps_copies,
            compensates=bool(schedule.compensation.any()),
        )
        # As in `Replay`: one more slot takes what nobody reads, and another staleness compiles nothing.
        self._spill = power_of_two(max(schedule.num_slots, trace.num_workers + 1) + 1) - 1
        seed = int(trace.metadata["seed"])
        self._source = source_of(problem, seed, trace.num_workers)
        params = problem.init(run_key(seed, INIT))
        state = optimizer.init(params)
        self._program, self._constants = hoist(optimizer.update, params, state, params)
        carry = initial(self._shape, self._spill + 1, params, state)
        self.state: Carry = jax.device_put(carry, NamedSharding(mesh, P()))
        self._row = 0

    def advance(self, update: int) -> None:
        """Trains up to version `update`; cuts a wavefront that goes further, whose parts are ones too."""
        schedule, shape = self._schedule, self._shape
        end = int(schedule.first_row[min(update, len(schedule.first_row) - 1)])
        while self._row < end:
            start, self._row = self._row, min(self._front_end(), end)
            tasks = self._tasks(start, self._row)
            size = 1 if self._in_lock_step else len(tasks.worker)
            rows = cut_rows(schedule, start, self._row, size, self._spill, schedule.worker.shape[1])
            rows = rows._replace(batch_size=None, weight=None)  # they are in the gradients
            computed = gradients(
                self._problem,
                self._mesh,
                shape.gradient,
                self._in_lock_step,
                self._views(),
                self._source,
                tasks,
                self._data,
            )
            self._wait(computed)
            self.state = apply(
                self._program,
                self._mesh,
                shape,
                self.state,
                rows,
                self._row - start,
                computed,
                self._constants,
            )
            self._wait(self.state)

    def _wait(self, values: Any) -> None:
        """Lets nothing else run on virtual devices: on a CPU all programs share one pool of threads, and
        where an all-reduce waits in it for its other parts, another program may keep those out for good."""
        if self._mesh.devices.flat[0].platform == "cpu":
            jax.block_until_ready(values)

    def _front_end(self) -> int:
        return int(self._fronts[np.searchsorted(self._fronts, self._row, side="right")])

    def _views(self) -> Any:
        if self._in_lock_step:
            return self.state.params
        return self.state.slots[0] if self._shape.keeps_copies else self.state.slots

    def _tasks(self, start: int, stop: int) -> Tasks:
        """The tasks of rows start..stop, and ones of weight 0 up to L = M times a power of two."""
        s, span = self._schedule, slice(start, stop)
        size = self._mesh.size * power_of_two(-(-s.worker[span].size // self._mesh.size))
        worker, clock, batch_size, read = (
            pad(column[span].ravel(), size, np.int32) for column in (s.worker, s.clock, s.batch_size, s.read)
        )
        weight = pad(s.weight[span].ravel(), size, jax.dtypes.canonicalize_dtype(np.float64))
        return Tasks(worker, clock, batch_size, weight, read)

    def restore(self, update: int, state: Any) -> None:
        """Goes on from a state that was taken at version `update`."""
        self.state = jax.device_put(state, NamedSharding(self._mesh, P()))
        self._row = int(self._schedule.first_row[update])

    def fingerprint(self) -> str:
        """Returns a hash of the optimizer's program and numbers."""
        return fingerprint(self._program, self._constants)

    def params(self) -> Any:
        """A copy of the current parameters on the first device."""
        return jax.tree.map(lambda leaf: jnp.array(leaf.addressable_data(0)), self.state.params)


class ShardedReplay:
    """Trains runs (lanes) along their traces, one after the other, their tasks spread over devices.

    In lock-step, where all tasks of an update read the newest version, each device takes a share of them and
    an all-reduce sums their gradients. Else a wavefront's gradients are computed at once, and its updates
    applied in their order.

    Guarantee: the parameters are those of `Replay`, up to rounding, on any number of devices.

    Args:
        traces: one for each lane.
        problem: what is trained; its data are copied to every device.
        optimizers: one for each lane.
        devices: which take part. Default: all.
        fuse: whether lock-step updates are summed by an all-reduce.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        problem: Problem,
        optimizers: Sequence[optax.GradientTransformation],
        devices: Sequence[jax.Device] | None = None,
        fuse: bool = True,
    ):
        devices = jax.devices() if devices is None else devices
        mesh = jax.make_mesh((len(devices),), (WORKERS,), axis_types=(AxisType.Auto,), devices=devices)
        self.problem = problem
        data = jax.device_put(device_data(problem)[0], NamedSharding(mesh, P()))
        self._lanes = [
            _Lane(trace, problem, optimizer, mesh, data, fuse)
            for trace, optimizer in zip(traces, optimizers, strict=True)
        ]

    def advance(self, update: int) -> None:
        """Trains up to version `update` (lanes whose trace is shorter, to their end)."""
        for lane in self._lanes:
            lane.advance(update)

    def state(self) -> Any:
        """Returns all that what follows depends on, a pytree of arrays."""
        return [lane.state for lane in self._lanes]

    def restore(self, update: int, state: Any) -> None:
        """Goes on from a state that was taken at version `update`."""
        for lane, own in zip(self._lanes, state, strict=True):
            lane.restore(update, own)

    def fingerprint(self) -> str:
        """Returns a hash of the optimizers' programs and numbers."""
        return " ".join(lane.fingerprint() for lane in self._lanes)

    def params(self, lane: int = 0) -> Any:
        """Returns a lane's current parameters."""
        return self._lanes[lane].params()

    def evaluate(self) -> list[dict[str, jax.Array]]:
        """Returns the metrics of every lane's current parameters."""
        _, eval_data = device_data(self.problem)
        return [evaluate(self.problem, lane.params(), eval_data) for lane in self._lanes]
