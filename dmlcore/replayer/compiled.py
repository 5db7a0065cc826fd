"""The compiled replay: feeds traces to the loop, one run or several lanes at a time."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pooch

from dmlcore.problems.problem import Problem
from dmlcore.replayer.batches import BATCHES, INIT, run_key
from dmlcore.replayer.hoist import hoist
from dmlcore.replayer.loop import BLOCK, Carry, Rows, Shape, advance_lanes, advance_one
from dmlcore.replayer.schedule import NONE, Schedule, compile_trace
from dmlcore.trace import Trace

if jax.config.jax_compilation_cache_dir is None:
    # A user's own setting stands; ours is in the user's own folder, since a cache can carry code.
    jax.config.update("jax_compilation_cache_dir", str(pooch.os_cache("dmlcore") / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

MAX_ROWS, MAX_TASKS = 2048, 16384  # of one call, which stops at the rows that there are

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
    """

    def __init__(
        self, traces: Sequence[Trace], problem: Problem, optimizers: Sequence[optax.GradientTransformation]
    ):
        self.problem = problem
        self.lanes = len(traces)
        schedules = [compile_trace(trace) for trace in traces]
        merge = len({s.worker.shape[1] for s in schedules}) == 1
        slots = not all(s.reads_newest for s in schedules)
        if not merge or (slots and any(s.reads_newest for s in schedules)):
            schedules = [compile_trace(trace, merge=merge, slots=slots) for trace in traces]
        self._schedules = schedules
        row_counts = {tuple(s.first_row) for s in schedules}
        # A window makes workers wait in some runs and not in others: its loop always gathers, so that another
        # staleness compiles nothing.
        windowed = slots and any(trace.metadata.get("staleness") is not None for trace in traces)
        self._shape = Shape(
            samples_per_task=max(int(s.batch_size.max(initial=1)) for s in schedules),
            reads_newest=all(s.reads_newest for s in schedules),
            accumulates=windowed or len(row_counts) > 1 or any(s.accumulates for s in schedules),
            keeps_copies=any(s.keeps_copies for s in schedules),
        )
        if not self._shape.reads_newest:
            most = max(max(s.num_slots for s in schedules), max(trace.num_workers for trace in traces) + 1)
            # One more slot takes what nobody reads. Powers of two: another staleness compiles nothing.
            self._spill = _power_of_two(most + 1) - 1
        else:
            self._spill = 0
        seeds = [int(trace.metadata["seed"]) for trace in traces]
        self._key = _stack([run_key(seed, BATCHES) for seed in seeds])
        states, programs, constants = [], [], []
        for seed, optimizer in zip(seeds, optimizers, strict=True):
            params = problem.init(run_key(seed, INIT))
            state = optimizer.init(params)
            program, numbers = hoist(optimizer.update, params, state, params)
            states.append(self._carry(params, state))
            programs.append(program)
            constants.append(numbers)
        if any(program != programs[0] for program in programs):
            raise ValueError("optimizers: got different kinds, allowed are those that differ in numbers only")
        self._program = programs[0]
        self._constants = _stack(constants)
        self._state: Carry = _stack(states)
        self._update = 0

    def _carry(self, params: Any, optimizer_state: Any) -> Carry:
        gathered = jax.tree.map(jnp.zeros_like, params) if self._shape.accumulates else ()
        slots: Any = ()
        if not self._shape.reads_newest:
            initial = (params, optimizer_state) if self._shape.keeps_copies else params

            def slotted(leaf: Any) -> Any:
                leaf = jnp.asarray(leaf)
                return jnp.zeros((self._spill + 1, *leaf.shape), leaf.dtype).at[0].set(leaf)

            slots = jax.tree.map(slotted, initial)
        # Every leaf its own buffer, since the carry is donated.
        return Carry(
            jax.tree.map(jnp.array, params), jax.tree.map(jnp.array, optimizer_state), gathered, slots
        )

    def advance(self, update: int) -> None:
        """Trains up to version `update` (lanes whose trace is shorter, to their end)."""
        last = [len(s.first_row) - 1 for s in self._schedules]
        spans = [
            (int(s.first_row[min(self._update, u)]), int(s.first_row[min(update, u)]))
            for s, u in zip(self._schedules, last, strict=True)
        ]
        self._update = update
        data, _ = device_data(self.problem)
        call = advance_one if self.lanes == 1 else advance_lanes
        total = max(end - start for start, end in spans)
        width = self._schedules[0].worker.shape[1]
        size = max(BLOCK, min(MAX_ROWS, _power_of_two(MAX_TASKS // width)))
        for done in range(0, total, size):
            count = min(size, total - done)
            pieces = [
                self._piece(schedule, min(start + done, end), min(start + done + count, end), size)
                for schedule, (start, end) in zip(self._schedules, spans, strict=True)
            ]
            rows = pieces[0] if self.lanes == 1 else Rows(*map(np.stack, zip(*pieces, strict=True)))
            self._state = call(
                self.problem,
                self._program,
                self._shape,
                self._state,
                rows,
                count,
                self._key,
                data,
                self._constants,
            )

    def _piece(self, schedule: Schedule, start: int, end: int, size: int) -> Rows:
        """Rows start..end, padded to `size` with rows of weight 0 that read slot 0 and end no update."""

        def cut(values: np.ndarray, dtype: Any, fill: int = 0) -> np.ndarray:
            padded = np.full((size, *values.shape[1:]), fill, dtype)
            padded[: end - start] = values[start:end]
            return padded

        def slot(values: np.ndarray) -> np.ndarray:
            padded = cut(values, np.int32, NONE)
            return np.where(padded == NONE, self._spill, padded)

        return Rows(
            cut(schedule.worker, np.int32),
            cut(schedule.clock, np.int32),
            cut(schedule.batch_size, np.int32, 1),
            cut(schedule.weight, np.float64 if jax.config.jax_enable_x64 else np.float32),
            cut(schedule.read, np.int32),
            slot(schedule.write),
            slot(schedule.keep),
            cut(schedule.last, np.bool_),
        )

    def params(self, lane: int = 0) -> Any:
        """Returns a lane's current parameters."""
        if self.lanes == 1:
            return jax.tree.map(jnp.array, self._state.params)
        return jax.tree.map(lambda leaf: leaf[lane], self._state.params)

    def evaluate(self) -> list[dict[str, jax.Array]]:
        """Returns the metrics of every lane's current parameters."""
        _, eval_data = device_data(self.problem)
        return [evaluate(self.problem, self.params(lane), eval_data) for lane in range(self.lanes)]


def _stack(trees: Sequence[Any]) -> Any:
    if len(trees) == 1:
        return trees[0]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
