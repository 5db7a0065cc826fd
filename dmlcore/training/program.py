"""A trace as a program: rows of gradients to compute, and the slots that hold the versions they still need.

Axes: N applied tasks, R rows, K tasks of a row, U updates.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from dmlcore.trace import Trace, predecessors
from dmlcore.training.slots import NONE, Slots

LEAST_SAMPLES = 8  # fewer take as long to compute
LEAST_STRETCH = 32  # rows on average; a change of shape costs a call of the loop, and may compile it


class Tasks(NamedTuple):
    """Applied tasks in the order of replay: by update, worker and clock; columns as in a trace, (N,)."""

    update: np.ndarray
    worker: np.ndarray
    clock: np.ndarray
    batch_size: np.ndarray
    version: np.ndarray
    weight: np.ndarray
    copy_from: np.ndarray  # the task whose gradient moved the copy that is read; NONE where it has pulled


class Rows(NamedTuple):
    """What the compiled loop does, row by row: one contribution, of a task or of all tasks of an update.

    Where updates have fewer than K tasks, tasks of weight 0 fill up.
    """

    worker: Any  # of each task, (R, K), like the next three
    clock: Any
    batch_size: Any
    weight: Any  # in its update
    # Lambda over the weight, of rows whose view is not the newest version; else 0, (R,). Lambda where an
    # aggregate is told of contributions before they are weighed.
    compensation: Any
    read: Any  # slot that holds the view on which the row's gradient is taken, (R,)
    write: Any  # slot for the version that the row's update makes, NONE where nothing reads it, (R,)
    keep: Any  # slot for the worker's own copy, moved by its own gradient; NONE where it pulls next, (R,)
    last: Any  # whether the row ends its update, (R,)
    samples: Any = ()  # of the tasks, in the compiled loop only, (R, K B)


class Stretch(NamedTuple):
    """Rows whose gradients have one shape."""

    start: int  # the first
    tasks: int  # K that they need, at most that of the program
    samples: int  # of a task that they need, at most those of the largest


class Program(NamedTuple):
    """What replay does along a trace."""

    rows: Rows
    first_row: np.ndarray  # of each update, and R at the end, (U + 1,)
    num_slots: int  # versions and copies alive at once; 0: every view is the newest version
    stretches: tuple[Stretch, ...]  # of rows, in their order

    @property
    def accumulates(self) -> bool:
        """Whether some update has more than one row."""
        return not self.rows.last.all()

    @property
    def keeps_copies(self) -> bool:
        """Whether some worker goes on with its own copy."""
        return bool((self.rows.keep != NONE).any())


def compile_trace(trace: Trace, *, fuse: bool = True, slots: bool = False, weighed: bool = True) -> Program:
    """Turns a valid trace into a program.

    `fuse` makes one row of the tasks of an update, where all updates' tasks read one version each; `slots`
    assigns slots even where every view is the newest version; `weighed` as for `lay_out`.
    """
    tasks, strength = _applied_tasks(trace), trace.metadata.get("compensation", 0.0)
    update, copies, stale = tasks.update, tasks.copy_from >= 0, tasks.version != tasks.update
    fuse = fuse and not copies.any() and not (strength and stale.any())
    fuse = fuse and bool(((np.diff(tasks.version) == 0) | (np.diff(update) != 0)).all())
    first = _first_tasks(update, fuse)
    counts = np.diff(np.append(first, len(update)))
    width = int(counts.max(initial=1))
    if (counts < width).any():  # another run of the kind may have fewer at most
        width = power_of_two(width, max(width, trace.num_workers))
    allocation = Slots() if slots or stale.any() or copies.any() else None
    rows = lay_out(tasks, fuse, width, strength, allocation, weighed=weighed)
    first_row = np.searchsorted(update[first], np.arange(len(trace.updates) + 1))
    return Program(
        rows, first_row, allocation.count if allocation else 0, _stretches(counts, rows.batch_size)
    )


def _applied_tasks(trace: Trace) -> Tasks:
    """Returns a trace's applied tasks in the order of replay."""
    tasks = trace.tasks
    names = ("update", "worker", "clock", "batch_size", "version_read", "weight")
    columns = [tasks[name].to_numpy() for name in names]
    update, worker, clock, *_ = columns
    applied = np.flatnonzero(update >= 0)
    order = applied[np.lexsort((clock[applied], worker[applied], update[applied]))]
    copy_from, cached = np.full(len(order), NONE), tasks["pull_start"].isna().to_numpy()
    if cached.any():
        place = np.full(len(tasks), NONE)
        place[order] = np.arange(len(order))
        copy_from = np.where(cached[order], place[predecessors(tasks)[order]], NONE)
    return Tasks._make([*(column[order] for column in columns), copy_from])


def _first_tasks(update: np.ndarray, fuse: bool) -> np.ndarray:
    """Returns the first task of each row, of tasks in the order of replay: see `lay_out`."""
    return np.flatnonzero(np.diff(update, prepend=NONE)) if fuse else np.arange(len(update))


def lay_out(
    tasks: Tasks,
    fuse: bool,
    width: int,
    strength: float,
    slots: Slots | None,
    live: Any = (),
    weighed: bool = True,
) -> Rows:
    """Lays tasks out in rows.

    They are those of whole updates. `fuse` makes one row of all tasks of an update; else each task is a row.
    A row has `width` tasks, K; `strength` is lambda of delay compensation.

    Args:
        slots: that hold versions; they are those after these rows, afterwards. None: all read the newest.
        live: versions that tasks after these read.
        weighed: whether contributions are weighed before they are compensated, or else afterwards.
    """
    update = tasks.update
    first = _first_tasks(update, fuse)
    row = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(update))))
    place = np.arange(len(update)) - first[row]

    def table(values: np.ndarray, fill: float) -> np.ndarray:
        filled = np.full((len(first), width), fill, values.dtype)
        filled[row, place] = values
        return filled

    columns = tasks.worker, tasks.clock, tasks.batch_size, tasks.weight
    worker, clock, batch_size, weight = map(table, columns, (0, 0, 1, 0))
    update, version, copy_from = update[first], tasks.version[first], tasks.copy_from[first]
    last = np.append(update[1:] != update[:-1], [True] * (len(update) > 0))
    # lambda over the weight that contributions have by then, where the view is not the newest version
    corrects, over = (version != update) & (weight[:, 0] > 0), weight[:, 0] if weighed else 1.0
    compensation = np.divide(strength, over, out=np.zeros(len(first)), where=corrects)
    read, write, keep = np.zeros(len(first), np.int64), *np.full((2, len(first)), NONE)
    if slots is not None:
        read, write, keep = slots.allot(update, version, copy_from, last, live)
    return Rows(worker, clock, batch_size, weight, compensation, read, write, keep, last)


def cut(rows: Rows, span: slice, size: int, width: int, spill: int, filler: int = 0) -> Rows:
    """Returns a span of rows, filled up to `size` with rows of weight 0 that read slot 0 and end no update.

    Rows have their first `width` tasks; slot `spill` takes what nothing reads, and worker `filler`, which
    is none of the cluster, has the tasks that fill up.
    """
    real = jax.dtypes.canonicalize_dtype(np.float64)
    write, keep = (pad(slots[span], size, np.int32, NONE) for slots in (rows.write, rows.keep))
    worker, clock, batch_size, weight = (table[span, :width] for table in rows[:4])
    return Rows(
        pad(worker, size, np.int32, filler),
        pad(clock, size, np.int32),
        pad(batch_size, size, np.int32),
        pad(weight, size, real),
        pad(rows.compensation[span], size, real),
        pad(rows.read[span], size, np.int32),
        np.where(write == NONE, spill, write),
        np.where(keep == NONE, spill, keep),
        pad(rows.last[span], size, np.bool_),
    )


def pad(values: np.ndarray, size: int, dtype: Any, fill: int = 0) -> np.ndarray:
    """Returns `values`, filled up to `size` entries."""
    filled = np.full((size, *values.shape[1:]), fill, dtype)
    filled[: len(values)] = values
    return filled


def wavefronts(program: Program, *, once: bool = False) -> np.ndarray:
    """Divides rows into wavefronts, whose gradients can be computed at the same time.

    No row reads a version or a copy that its own wavefront makes. Guarantee: every row is in one wavefront,
    in the order of the program, and each wavefront is as long as can be. All of its views may be loaded
    before any of its updates is stored: none of the rows before a row in the wavefront has written the slot
    that it reads, since what they write is what it would read; and slots are stored to in the order of rows.

    Args:
        program: with one task a row, and slots.
        once: no worker has two rows in a wavefront, because what it computes on depends on what it has sent.

    Returns:
        The first row of each of F wavefronts, and R at the end, (F + 1,).
    """
    rows, starts = program.rows, [0]
    written = np.full(program.num_slots, NONE)  # by which row, each slot
    seen = np.full(int(rows.worker.max(initial=0)) + 1, NONE)  # in which row, each worker
    columns = (column.tolist() for column in (rows.worker[:, 0], rows.read, rows.write, rows.keep))
    for row, (worker, read, *stored) in enumerate(zip(*columns, strict=True)):
        if written[read] >= starts[-1] or (once and seen[worker] >= starts[-1]):
            starts.append(row)
        seen[worker] = row
        for slot in stored:
            if slot != NONE:
                written[slot] = row
    return np.array([*starts, len(rows.read)] if len(rows.read) else [0])


def _stretches(counts: np.ndarray, batch_size: np.ndarray) -> tuple[Stretch, ...]:
    """Cuts rows where their shape changes, if that is seldom."""
    num_rows, width = batch_size.shape
    whole = (Stretch(0, width, int(batch_size.max(initial=1))),)
    if width == 1:
        return whole
    pairs = zip(counts.tolist(), batch_size.max(1).tolist(), strict=True)
    shapes = np.array([row_shape(*pair, width, whole[0].samples) for pair in pairs])
    starts = np.append(0, np.flatnonzero((shapes[1:] != shapes[:-1]).any(1)) + 1)
    if len(starts) == 1 or num_rows < LEAST_STRETCH * len(starts):
        return whole
    return tuple(Stretch(int(start), *map(int, shapes[start])) for start in starts)


def row_shape(tasks: int, samples: int, most_tasks: int, most_samples: int) -> tuple[int, int]:
    """Returns how many tasks and samples of each a row is filled up to, so that there are few shapes."""
    return power_of_two(tasks, most_tasks), min(padded(samples), most_samples)


def padded(samples: int) -> int:
    """Returns to how many samples a task is filled up: a power of two.

    >>> padded(3), padded(32), padded(33)
    (8, 32, 64)
    """
    return power_of_two(max(samples, LEAST_SAMPLES))


def power_of_two(number: int, most: int | None = None) -> int:
    """Returns the least power of two that is not below `number`, or `most` if that is less.

    >>> [power_of_two(n, most=50) for n in (1, 3, 16, 17, 33)]
    [1, 4, 16, 32, 50]
    """
    power = 1 << (number - 1).bit_length()
    return power if most is None else min(power, most)
