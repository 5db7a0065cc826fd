"""The compiled replay: one loop on the device, which trains along a schedule at the speed of plain SGD.

Axes: S lanes (runs side by side), R rows, K tasks of a row, B samples of a row.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pooch

from dmlcore.problems.problem import Problem
from dmlcore.replayer.batches import BATCHES, INIT, run_key, task_indices
from dmlcore.replayer.hoist import Program, hoist
from dmlcore.replayer.schedule import NONE, Schedule, compile_trace
from dmlcore.trace import Trace

if jax.config.jax_compilation_cache_dir is None:
    # A user's own setting stands; ours is in the user's own folder, since a cache can carry code.
    jax.config.update("jax_compilation_cache_dir", str(pooch.os_cache("dmlcore") / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

MAX_ROWS = 2048  # of one call: bounds the memory for sample numbers
MIN_ROWS = 64

_on_device: WeakKeyDictionary[Problem, tuple[Any, Any]] = WeakKeyDictionary()


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


def device_data(problem: Problem) -> tuple[Any, Any]:
    """Returns the problem's training and evaluation data as device arrays, put there once."""
    if problem not in _on_device:
        _on_device[problem] = jax.tree.map(jnp.asarray, (problem.data, problem.eval_data))
    return _on_device[problem]


@functools.partial(jax.jit, static_argnames=("problem",))
def evaluate(problem: Problem, params: Any, eval_data: Any) -> dict[str, jax.Array]:
    """Metrics of the parameters as scalars."""
    return dict(problem.evaluate(params, eval_data))


def _advance(
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
    """Works off the first `count` rows."""
    offsets = jnp.arange(shape.samples_per_task)
    dtype = jnp.result_type(*jax.tree.leaves(carry.params))

    def samples(worker: Any, clock: Any) -> Any:
        return task_indices(key, worker, clock, shape.samples_per_task, problem.num_samples)

    num_rows = rows.worker.shape[0]
    indices = jax.vmap(jax.vmap(samples))(rows.worker, rows.clock).reshape(num_rows, -1)
    sizes = rows.batch_size[..., None]
    weights = (
        jnp.where(offsets < sizes, rows.weight[..., None] / sizes, 0).astype(dtype).reshape(num_rows, -1)
    )

    def step(gradient: Any, optimizer_state: Any, params: Any) -> tuple[Any, Any]:
        updates, optimizer_state = program(constants, gradient, optimizer_state, params)
        return optax.apply_updates(params, updates), optimizer_state

    def work_off(i: Any, carry: Carry) -> Carry:
        params, optimizer_state, gathered, slots = carry
        view: Any = params
        view_state = None
        if not shape.reads_newest:
            held = jax.tree.map(lambda slot: slot[rows.read[i]], slots)
            view, view_state = held if shape.keeps_copies else (held, None)
        batch = jax.tree.map(lambda column: column[indices[i]], data)
        gradient = jax.grad(lambda p: jnp.dot(weights[i], problem.losses(p, batch)))(view)
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
            new = (params, optimizer_state) if shape.keeps_copies else params
            slots = store(slots, rows.write[i], new)
        return Carry(params, optimizer_state, gathered, slots)

    def store(slots: Any, slot: Any, value: Any) -> Any:
        return jax.tree.map(lambda s, x: s.at[slot].set(x), slots, value)

    return jax.lax.fori_loop(0, count, work_off, carry)


@functools.partial(jax.jit, static_argnames=("problem", "program", "shape"), donate_argnames=("carry",))
def _advance_one(problem, program, shape, carry, rows, count, key, data, constants):
    return _advance(problem, program, shape, carry, rows, count, key, data, constants)


@functools.partial(jax.jit, static_argnames=("problem", "program", "shape"), donate_argnames=("carry",))
def _advance_lanes(problem, program, shape, carry, rows, count, key, data, constants):
    one = functools.partial(_advance, problem, program, shape)
    return jax.vmap(one, in_axes=(0, 0, None, 0, None, 0))(carry, rows, count, key, data, constants)


def compilations() -> int:
    """How many loops were compiled so far; a new seed, staleness, learning rate or cluster adds none."""
    return _advance_one._cache_size() + _advance_lanes._cache_size()


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
        self._shape = Shape(
            samples_per_task=max(int(s.batch_size.max(initial=1)) for s in schedules),
            reads_newest=all(s.reads_newest for s in schedules),
            accumulates=any(s.accumulates for s in schedules) or len(row_counts) > 1,
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
        call = _advance_one if self.lanes == 1 else _advance_lanes
        total = max(end - start for start, end in spans)
        for done in range(0, total, MAX_ROWS):
            count = min(MAX_ROWS, total - done)
            size = max(MIN_ROWS, _power_of_two(count))
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
