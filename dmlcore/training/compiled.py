"""The compiled replay: feeds traces to the loop, one run or several lanes at a time."""

from __future__ import annotations

import functools
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pooch

from dmlcore import checks
from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace
from dmlcore.training import coding
from dmlcore.training.additive import Local, factor
from dmlcore.training.batches import INIT, run_key, source_of
from dmlcore.training.hoist import fingerprint, hoist
from dmlcore.training.loop import (
    Carry,
    GradientShape,
    Rows,
    Shape,
    advance_lanes,
    advance_one,
    draw_lanes,
    draw_one,
    initial,
)
from dmlcore.training.schedule import NONE, Schedule, compile_trace, padded, power_of_two
from dmlcore.training.turns import whole

if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
    # A user's own setting stands; ours is in the user's own folder, since a cache can carry code.
    jax.config.update("jax_compilation_cache_dir", str(pooch.os_cache("dmlcore") / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

MANY_TASKS = 2048  # of one call of the loop, and of one drawing of samples; up to a power of two of rows

_on_device: WeakKeyDictionary[Problem, tuple[Any, Any]] = WeakKeyDictionary()


def device_data(problem: Problem) -> tuple[Any, Any]:
    """Returns the problem's training and evaluation data as device arrays, put there once."""
    if problem not in _on_device:
        _on_device[problem] = jax.tree.map(jnp.asarray, (problem.data, problem.eval_data))
    return _on_device[problem]


@functools.partial(jax.jit, static_argnames=("problem",))
def evaluate(problem: Problem, params: Any, eval_data: Any) -> dict[str, jax.Array]:
    """Metrics of the parameters as scalars."""
    return dict(problem.evaluate(params, eval_data))


class Replay:
    """Trains one or more runs (lanes) along their traces, side by side under `vmap` where there are several.

    Guarantee: the parameters are those of `replay_reference`, up to rounding.

    Args:
        traces: one for each lane; clusters and policies may differ.
        problem: what is trained.
        optimizers: one for each lane, which may differ in numbers (a learning rate) only.
        fuse: whether all tasks of an update that read the same version become one gradient.
    """

    def __init__(
        self,
        traces: Sequence[Trace],
        problem: Problem,
        optimizers: Sequence[optax.GradientTransformation],
        fuse: bool = True,
    ):
        self.problem = problem
        self.lanes = len(traces)
        codings = [coding.coding_of(trace) for trace in traces]
        if any(each != codings[0] for each in codings):
            names = sorted({str(trace.metadata.get("transport")) for trace in traces})
            checks.fail("traces", names, "those of one transport, side by side")
        traces = [whole(trace, problem) for trace in traces]
        merge = fuse and codings[0] is None and not problem.additive
        schedules = [compile_trace(trace, merge=merge) for trace in traces]
        merge &= len({s.worker.shape[1] for s in schedules}) == 1
        merge &= self.lanes == 1 or all(len(s.stretches) == 1 for s in schedules)
        slots = not all(s.reads_newest for s in schedules)
        if not merge or (slots and any(s.reads_newest for s in schedules)):
            schedules = [compile_trace(trace, merge=merge, slots=slots) for trace in traces]
        self._schedules = schedules
        in_step = all(np.array_equal(s.first_row, schedules[0].first_row) for s in schedules)
        # A window makes workers wait in some runs and not in others: its loop always gathers, so that another
        # staleness compiles nothing.
        windowed = slots and any(trace.metadata.get("staleness") is not None for trace in traces)
        # Lanes out of step have rows that fill up, of weight 0.
        self._in_step = in_step
        self._stretches = [stretch.start for stretch in schedules[0].stretches]
        self._shape = Shape(
            GradientShape((1,), weighs=True),  # until the first stretch begins
            reads_newest=all(s.reads_newest for s in schedules),
            accumulates=windowed or not in_step or any(s.accumulates for s in schedules),
            keeps_copies=any(s.keeps_copies for s in schedules),
            compensates=any(s.compensation.any() for s in schedules),
            coding=codings[0],
        )
        if not self._shape.reads_newest:
            most = max(max(s.num_slots for s in schedules), max(trace.num_workers for trace in traces) + 1)
            # One more slot takes what nobody reads. Powers of two: another staleness compiles nothing.
            self._spill = power_of_two(most + 1) - 1
        else:
            self._spill = 0
        seeds = [int(trace.metadata["seed"]) for trace in traces]
        sources = [source_of(problem, s, t.num_workers) for s, t in zip(seeds, traces, strict=True)]
        self._source = _stack(sources)
        states, programs, constants = [], [], []
        self._num_workers = power_of_two(max(trace.num_workers for trace in traces))
        for seed, optimizer in zip(seeds, optimizers, strict=True):
            params, local = problem.apart(problem.init(run_key(seed, INIT)))
            state = optimizer.init(params)
            program, numbers = hoist(optimizer.update, params, state, params)
            memory = coding.start(codings[0], seed, self._num_workers, params) if codings[0] else ()
            own = Local(local, jnp.asarray(factor(problem, optimizer))) if problem.additive else ()
            states.append(initial(self._shape, self._spill + 1, params, state, memory, own))
            programs.append(program)
            constants.append(numbers)
        if any(program != programs[0] for program in programs):
            raise ValueError("optimizers: got different kinds, allowed are those that differ in numbers only")
        self._program = programs[0]
        self._constants = _stack(constants)
        self._state: Carry = _stack(states)
        self._row = [0] * self.lanes  # that comes next, of each lane
        self._samples: Any = None
        self._begin_stretch()

    def advance(self, update: int) -> None:
        """Trains up to version `update` (lanes whose trace is shorter, to their end)."""
        ends = [
            int(schedule.first_row[min(update, len(schedule.first_row) - 1)]) for schedule in self._schedules
        ]
        data, _ = device_data(self.problem)
        call = advance_one if self.lanes == 1 else advance_lanes
        while self._row != ends:
            if self._row[0] >= self._last:
                self._begin_stretch()
            if max(row - drawn for row, drawn in zip(self._row, self._drawn, strict=True)) == self._size:
                self._draw()
            first = [row - drawn for row, drawn in zip(self._row, self._drawn, strict=True)]
            most = self._size - max(first)
            stops = [min(row + most, end, self._last) for row, end in zip(self._row, ends, strict=True)]
            spans = list(zip(self._schedules, self._row, stops, strict=True))
            self._state = call(
                self.problem,
                self._program,
                self._shape,
                self._state,
                _stack([self._rows(*span) for span in spans], np.stack),
                max(stop - row for _, row, stop in spans),
                self._samples,
                _stack(first, np.stack),
                data,
                self._constants,
            )
            self._row = stops

    def _rows(self, schedule: Schedule, start: int, stop: int) -> Rows:
        rows = cut_rows(schedule, start, stop, self._size, self._spill, self._width)
        if self._shape.coding is None:
            return rows
        worker, clock = (
            pad(column[start:stop, 0], self._size, np.int32, fill)
            for column, fill in ((schedule.worker, self._num_workers), (schedule.clock, 0))
        )
        return rows._replace(worker=worker, clock=clock)

    def _begin_stretch(self) -> None:
        """Gets ready for the rows of the stretch that the next row is in; lanes have but one."""
        index = bisect_right(self._stretches, self._row[0]) - 1
        start, self._width, samples = self._schedules[0].stretches[index]
        self._last = self._stretches[index + 1] if index + 1 < len(self._stretches) else sys.maxsize
        span = slice(start, self._last)
        sizes, weights = (
            [getattr(s, name)[span, : self._width] for s in self._schedules]
            for name in ("batch_size", "weight")
        )
        weighs = not self._in_step or any((weight != 1).any() for weight in weights)
        shape = gradient_shape(self.problem, sizes, weighs, samples)
        if self.lanes > 1:  # side by side all branches of a switch are computed
            shape = shape._replace(widths=shape.widths[-1:])
        self._shape = self._shape._replace(gradient=shape)
        self._size = power_of_two(max(1, MANY_TASKS // self._width))
        self._drawn = [
            row - self._size for row in self._row
        ]  # from where the samples of `_size` rows are drawn

    def _draw(self) -> None:
        """Draws the samples of every lane's next `_size` rows."""
        spans = [(slice(row, row + self._size), slice(0, self._width)) for row in self._row]
        tasks = [
            tuple(pad(table[span], self._size, np.int32).ravel() for table in (s.worker, s.clock))
            for s, span in zip(self._schedules, spans, strict=True)
        ]
        call = draw_one if self.lanes == 1 else draw_lanes
        width = self._shape.gradient.widths[-1]
        self._samples = call(self.problem.num_samples, width, self._source, *_stack(tasks, np.stack))
        self._drawn = self._row

    def state(self) -> Any:
        """Returns all that what follows depends on, a pytree of arrays."""
        return self._state

    def restore(self, update: int, state: Any) -> None:
        """Goes on from a state that was taken at version `update`."""
        self._state = jax.tree.map(jnp.array, state)
        self._row = [int(schedule.first_row[update]) for schedule in self._schedules]
        self._begin_stretch()

    def fingerprint(self) -> str:
        """Returns a hash of the optimizer's program and numbers."""
        return fingerprint(self._program, self._constants)

    def params(self, lane: int = 0) -> Any:
        """Returns a lane's current parameters."""
        if self.lanes == 1:
            return jax.tree.map(jnp.array, self._whole)
        return jax.tree.map(lambda leaf: leaf[lane], self._whole)

    @property
    def _whole(self) -> Any:
        if not self.problem.additive:
            return self._state.params
        return self.problem.together(self._state.params, self._state.local.rows)

    def evaluate(self) -> list[dict[str, jax.Array]]:
        """Returns the metrics of every lane's current parameters."""
        _, eval_data = device_data(self.problem)
        every = [self._whole] if self.lanes == 1 else [self.params(lane) for lane in range(self.lanes)]
        return [evaluate(self.problem, params, eval_data) for params in every]


def gradient_shape(
    problem: Problem, batch_sizes: Sequence[np.ndarray], weighs: bool, least: int = 1
) -> GradientShape:
    """Returns the shape of gradients of tasks of these sizes, (R, K) each.

    One task is filled up as its worker does it. Tasks that become one gradient have one size, a power of two
    where theirs differ: another run of the kind compiles nothing.
    """
    sizes = np.concatenate([each.ravel() for each in batch_sizes])
    most = int(sizes.max(initial=least))
    if batch_sizes[0].shape[1] == 1 and not problem.additive:
        return GradientShape(
            tuple(sorted({padded(size) for size in np.unique(sizes).tolist() or [most]})), weighs
        )
    if (sizes != most).any():
        most = padded(most)
    return GradientShape((most,), weighs)


def cut_rows(schedule: Schedule, start: int, stop: int, size: int, spill: int, width: int) -> Rows:
    """Returns rows start..stop, padded to `size` with rows of weight 0 that read slot 0 and end no update.

    Args:
        schedule: whose rows.
        start: the first.
        stop: the one after the last.
        size: how many to return.
        spill: slot that takes what nobody reads.
        width: tasks of a row, its first.
    """
    span = slice(start, stop)
    real = jax.dtypes.canonicalize_dtype(np.float64)
    write, keep = (pad(slots[span], size, np.int32, NONE) for slots in (schedule.write, schedule.keep))
    return Rows(
        pad(schedule.batch_size[span, :width], size, np.int32),
        pad(schedule.weight[span, :width], size, real),
        pad(schedule.compensation[span], size, real),
        pad(schedule.read[span], size, np.int32),
        np.where(write == NONE, spill, write),
        np.where(keep == NONE, spill, keep),
        pad(schedule.last[span], size, np.bool_),
    )


def pad(values: np.ndarray, size: int, dtype: Any, fill: int = 0) -> np.ndarray:
    """Returns `values`, filled up to `size` entries."""
    padded = np.full((size, *values.shape[1:]), fill, dtype)
    padded[: len(values)] = values
    return padded


def _stack(trees: Sequence[Any], stack: Callable[[Any], Any] = jnp.stack) -> Any:
    if len(trees) == 1:
        return trees[0]
    return jax.tree.map(lambda *leaves: stack(leaves), *trees)
