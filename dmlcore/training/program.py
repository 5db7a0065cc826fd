"""A trace as a program: rows of gradients to compute, and slots for the versions that later rows read.

Axes: N applied tasks, R rows, K tasks of a row, U updates. A version gets a slot when it is made, if a later
row reads it; the slot is free again after the last such row. So memory is O(live versions), at most one per
task in flight or held, and not O(staleness).
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dmlcore.cluster.faults import loses_memory
from dmlcore.trace import Trace, predecessors, starts
from dmlcore.training.pacing import progress

NONE = -1


class Slots:
    """The assignment of versions to slots. Version 0 is in the first slot.

    Attributes:
        count: number of slots, the largest number needed at the same time so far.
        held: version -> slot, for versions that rows after the last segment read.
    """

    def __init__(self) -> None:
        self.count = 1
        self.held = {0: 0}

    def allot(
        self,
        update: np.ndarray,
        version: np.ndarray,
        copy_from: np.ndarray,
        last: np.ndarray,
        live: Collection[int] = (),
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Assigns slots to the rows of the next segment.

        Args:
            update: update of each row, ascending, (R,).
            version: version that each row reads, (R,).
            copy_from: row of the segment whose gradient last changed the cached copy that the row reads
                instead, or NONE, (R,).
            last: whether the row ends its update, (R,).
            live: versions that rows after this segment read.

        Returns:
            By row, (R,) each: the slot that it reads, the slot for the version that its update makes, and the
            slot for the copy that its gradient changes; NONE if nothing reads these.
        """
        num_rows = len(update)
        if not num_rows:
            return (np.zeros(0, np.int64),) * 3
        pulled, own = np.flatnonzero(copy_from < 0), np.flatnonzero(copy_from >= 0)
        old = int(min(version.min(), update[0], *self.held))  # versions are counted from this one
        last_reader = np.full(int(update[-1]) + 2 - old, NONE)
        last_reader[version[pulled] - old] = pulled  # rows ascend, so the last reader remains
        last_reader[[v - old for v in live if v - old < len(last_reader)]] = num_rows
        before = {v: slot for v, slot in self.held.items() if last_reader[v - old] >= 0}
        made = np.flatnonzero(last)
        made = made[last_reader[update[made] + 1 - old] >= 0]  # rows that make a version which is read

        # Values that need a slot, in the order of creation: row `born` makes it, row `dies` reads it last.
        born, dies = np.append(made, copy_from[own]), np.append(last_reader[update[made] + 1 - old], own)
        order = np.argsort(born, kind="stable")
        # Slots become available in this order: free ones first, then by the row that reads them last. The
        # n-th value takes the n-th available slot. A row reads before it writes, so it can reuse a slot that
        # it frees.
        free = sorted({*range(self.count)} - {*before.values()})
        reader = [int(last_reader[v - old]) for v in before]
        givers = np.concatenate([np.arange(self.count)[free], [*before.values()], np.arange(len(born))])
        gone = np.concatenate([np.full(len(free), NONE), reader, dies])
        gives = np.argsort(gone, kind="stable")
        gives = gives[gone[gives] < num_rows]
        there = np.searchsorted(gone[gives], born[order], side="right")
        missing = max(0, int((np.arange(1, len(born) + 1) - there).max(initial=0)))
        known = len(free) + len(before)
        slot = np.concatenate([givers[:known], np.full(len(born), NONE)]).astype(np.int64)
        taken = np.concatenate([np.full(missing, NONE), gives])[: len(born)]
        source = np.empty(len(born), np.int64)  # index into `givers` of its slot; NONE: a new one
        source[order] = taken
        slot[known + order[:missing]] = np.arange(self.count, self.count + missing)
        while (unknown := np.flatnonzero(slot[known:] == NONE)).size:
            # Follow chains back to values with a known slot; each round halves the length of the chains.
            slot[known + unknown] = slot[source[unknown]]
            chained = unknown[(slot[known + unknown] == NONE)]
            source[chained] = source[source[chained] - known]
        self.count += missing

        version_slot = np.full(len(last_reader), NONE)
        version_slot[[v - old for v in before]] = [*before.values()]
        version_slot[update[made] + 1 - old] = slot[known : known + len(made)]
        read, write, keep = np.full((3, num_rows), NONE)
        read[pulled] = version_slot[version[pulled] - old]
        read[own] = keep[copy_from[own]] = slot[known + len(made) :]
        write[last] = version_slot[update[last] + 1 - old]
        self.held = {int(v) + old: int(version_slot[v]) for v in np.flatnonzero(last_reader == num_rows)}
        return read, write, keep


LEAST_SAMPLES = 8  # smallest padded batch; fewer samples take equally long
ONE = 1e-5  # weights sum to 1 if they do up to this rounding error
LEAST_STRETCH = 32  # smallest mean length of stretches, in rows; each needs a call of the loop


class Tasks(NamedTuple):
    """The applied tasks in the order of replay: by update, worker and clock; columns as in a trace, (N,)."""

    update: np.ndarray
    worker: np.ndarray
    clock: np.ndarray
    batch_size: np.ndarray
    version: np.ndarray
    weight: np.ndarray
    copy_from: np.ndarray  # task whose gradient last changed the cached copy that is read; NONE: it pulled
    anew: np.ndarray  # whether its worker's memory begins anew, see `Losses`


class Rows(NamedTuple):
    """The rows of the compiled loop; each is one contribution, of one task or of all tasks of an update.

    An update with fewer than K tasks is padded with tasks of weight 0.
    """

    worker: Any  # of each task, (R, K), as are the next three
    clock: Any
    batch_size: Any
    weight: Any  # of the task in its update
    whole: Any  # sum of the weights of the row's update, (R,)
    # Lambda / weight for rows whose view is not the newest version, else 0, (R,). Lambda itself if an
    # aggregate receives contributions before they are weighted.
    compensation: Any
    read: Any  # slot of the view on which the row's gradient is computed, (R,)
    write: Any  # slot for the version that the row's update makes; NONE: nothing reads it, (R,)
    keep: Any  # slot for the worker's cached copy, changed by its own gradient; NONE: it pulls next, (R,)
    last: Any  # whether the row ends its update, (R,)
    progress: Any  # of the version that the row's update changes, for optimizers that read it, (R, 2)
    pulled: Any  # of the version that the worker pulled, likewise, (R, 2)
    memory: Any  # the worker whose memory the row reads; NONE: one that begins anew, (R,)
    samples: Any = ()  # of the tasks, only in the compiled loop, (R, K B)


class Stretch(NamedTuple):
    """Successive rows whose gradients have one shape."""

    start: int  # index of the first row
    tasks: int  # tasks per row that they need, at most K of the program
    samples: int  # samples per task that they need, at most those of the largest task


class Program(NamedTuple):
    """The program of replay for a trace."""

    rows: Rows
    first_row: np.ndarray  # first row of each update, and R at the end, (U + 1,)
    num_slots: int  # versions and copies needed at the same time; 0: every view is the newest version
    stretches: tuple[Stretch, ...]  # of rows, in their order

    @property
    def accumulates(self) -> bool:
        """Whether some update has more than one row."""
        return not self.rows.last.all()

    @property
    def scales(self) -> bool:
        """Whether the weights of some update, or of an update of a cached copy, do not sum to 1."""
        own = self.rows.weight if self.keeps_copies else ()
        return bool((np.abs(np.append(self.rows.whole, own) - 1) > ONE).any())

    @property
    def keeps_copies(self) -> bool:
        """Whether some worker continues on its cached copy."""
        return bool((self.rows.keep != NONE).any())


def compile_trace(trace: Trace, *, fuse: bool = True, slots: bool = False, weighed: bool = True) -> Program:
    """Compiles a valid trace to a program.

    With `fuse`, the tasks of an update become one row, if in every update all tasks read the same version.
    `slots` assigns slots even if every view is the newest version; `weighed` is as for `lay_out`.
    """
    tasks, strength = _applied_tasks(trace), trace.metadata.get("compensation", 0.0)
    update, copies, stale = tasks.update, tasks.copy_from >= 0, tasks.version != tasks.update
    fuse = fuse and not copies.any() and not (strength and stale.any())
    fuse = fuse and bool(((np.diff(tasks.version) == 0) | (np.diff(update) != 0)).all())
    first = _first_tasks(update, fuse)
    counts = np.diff(np.append(first, len(update)))
    width = int(counts.max(initial=1))
    if (counts < width).any():  # a similar run may have another maximum
        width = power_of_two(width, max(width, trace.num_workers))
    allocation = Slots() if slots or stale.any() or copies.any() else None
    made = trace.updates
    versions = np.pad(np.column_stack([made["samples"].cumsum(), made["time"]]), [(1, 0), (0, 0)])
    rows = lay_out(tasks, fuse, width, strength, allocation, versions, weighed=weighed)
    first_row = np.searchsorted(update[first], np.arange(len(trace.updates) + 1))
    return Program(
        rows, first_row, allocation.count if allocation else 0, _stretches(counts, rows.batch_size)
    )


class Losses:
    """Finds the tasks before which their workers have lost what they remember of earlier tasks.

    A worker loses it in a crash, unless the fault says otherwise, and whenever the server goes back to a
    checkpoint. What a task has changed that was lost or cancelled is undone in any case, so memories depend
    only on tasks in updates.
    """

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  # losses of each worker before its last task so far

    def before(self, worker: np.ndarray, released: np.ndarray, incidents: Sequence[Any]) -> np.ndarray:
        """Returns for the next tasks, (N,), of each worker by clock, whether memory was lost before them.

        `released`: when each was released, in seconds; `incidents`: those of the run so far.
        """
        found, losses = np.zeros(len(worker), bool), defaultdict(list)
        for each in incidents:
            if loses_memory(each):
                losses[each["worker"]].append(each["time"])
        order = np.argsort(worker, kind="stable") if losses else np.zeros(0, int)
        for own in np.split(order, np.flatnonzero(np.diff(worker[order])) + 1) if len(order) else ():
            each = int(worker[own[0]])
            times = sorted(losses[each] + losses[-1])  # -1 is the server
            counts = np.searchsorted(times, released[own], side="right")
            found[own] = np.diff(counts, prepend=self._counts.get(each, 0)) > 0
            self._counts[each] = int(counts[-1])
        return found


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
    released, incidents = starts(tasks).to_numpy()[order], trace.metadata.get("incidents", ())
    anew = Losses().before(worker[order], released, incidents)
    return Tasks._make([*(column[order] for column in columns), copy_from, anew])


def _first_tasks(update: np.ndarray, fuse: bool) -> np.ndarray:
    """Returns the index of the first task of each row, for tasks in the order of replay: see `lay_out`."""
    return np.flatnonzero(np.diff(update, prepend=NONE)) if fuse else np.arange(len(update))


def lay_out(
    tasks: Tasks,
    fuse: bool,
    width: int,
    strength: float,
    slots: Slots | None,
    versions: np.ndarray,
    live: Any = (),
    weighed: bool = True,
) -> Rows:
    """Arranges the tasks of complete updates in rows.

    Args:
        tasks: N applied tasks, in the order of replay.
        fuse: True: all tasks of an update are one row. False: each task is a row.
        width: K, tasks per row.
        strength: lambda of delay compensation.
        slots: the slots of versions, which it updates. None: all tasks read the newest version.
        versions: samples and seconds of each version, (U + 1, 2).
        live: versions that later tasks read.
        weighed: True: contributions are weighted and then compensated. False: the reverse order.
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
    # Lambda / weight if contributions are weighted before, for views that are not the newest version.
    corrects, over = (version != update) & (weight[:, 0] > 0), weight[:, 0] if weighed else 1.0
    compensation = np.divide(strength, over, out=np.zeros(len(first)), where=corrects)
    read, write, keep = np.zeros(len(first), np.int64), *np.full((2, len(first)), NONE)
    if slots is not None:
        read, write, keep = slots.allot(update, version, copy_from, last, live)
    whole = np.repeat(*totals(tasks.update, tasks.weight))[first] if len(first) else np.ones(0)
    memory = np.where(tasks.anew[first], NONE, worker[:, 0])
    own = progress(versions[update]), progress(versions[version]), memory
    return Rows(worker, clock, batch_size, weight, whole, compensation, read, write, keep, last, *own)


def totals(update: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sum of the weights of each update, whose tasks follow each other, and their number."""
    first = np.flatnonzero(np.diff(update, prepend=NONE))
    return np.add.reduceat(weight, first), np.diff(np.append(first, len(update)))


def cut(
    rows: Rows, span: slice, size: int, width: int, spill: int, filler: int = 0, paced: bool = False
) -> Rows:
    """Returns a span of rows, padded to `size` with rows of weight 0 that read slot 0 and end no update.

    Rows have their first `width` tasks. Values that nothing reads go to the slot `spill`. Padding tasks
    belong to the worker `filler`, which is not in the cluster; the memory of `filler + 1` never changes.
    `paced` says whether the optimizer reads progress.
    """
    real = jax.dtypes.canonicalize_dtype(np.float64)
    write, keep = (pad(slots[span], size, np.int32, NONE) for slots in (rows.write, rows.keep))
    worker, clock, batch_size, weight = (table[span, :width] for table in rows[:4])
    memory = rows.memory[span]
    return Rows(
        pad(worker, size, np.int32, filler),
        pad(clock, size, np.int32),
        pad(batch_size, size, np.int32),
        pad(weight, size, real),
        pad(rows.whole[span], size, real, 1),
        pad(rows.compensation[span], size, real),
        pad(rows.read[span], size, np.int32),
        np.where(write == NONE, spill, write),
        np.where(keep == NONE, spill, keep),
        pad(rows.last[span], size, np.bool_),
        pad(rows.progress[span], size, real) if paced else (),
        pad(rows.pulled[span], size, real) if paced else (),
        pad(np.where(memory == NONE, filler + 1, memory), size, np.int32, filler),
    )


def pad(values: np.ndarray, size: int, dtype: Any, fill: int = 0) -> np.ndarray:
    """Returns `values`, padded to `size` entries."""
    filled = np.full((size, *values.shape[1:]), fill, dtype)
    filled[: len(values)] = values
    return filled


def wavefronts(program: Program, *, once: bool = False) -> np.ndarray:
    """Divides rows into wavefronts, whose gradients can be computed at the same time.

    No row reads a version or a copy that its own wavefront makes.

    Guarantees: every row is in one wavefront, in the order of the program, and each wavefront is as long as
    possible. All views of a wavefront can be loaded before any of its updates is stored: no earlier row of
    the wavefront writes to the slot that a row reads, because the row would then read what that row makes.
    Rows store to slots in their order.

    Args:
        program: with one task per row, and slots.
        once: whether a worker may have only one row in a wavefront, because its tasks depend on its earlier
            messages.

    Returns:
        The first row of each of F wavefronts, and R at the end, (F + 1,).
    """
    rows, starts = program.rows, [0]
    written = np.full(program.num_slots, NONE)  # the last row that wrote each slot
    seen = np.full(int(rows.worker.max(initial=0)) + 1, NONE)  # the last row of each worker
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
    """Cuts rows into stretches where their shape changes, if changes are rare."""
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
    """Returns the padded number of tasks of a row, and of samples per task, so that there are few shapes."""
    return power_of_two(tasks, most_tasks), min(padded(samples), most_samples)


def padded(samples: int) -> int:
    """Returns the number of samples to which a task is padded: a power of two.

    >>> padded(3), padded(32), padded(33)
    (8, 32, 64)
    """
    return power_of_two(max(samples, LEAST_SAMPLES))


def power_of_two(number: int, most: int | None = None) -> int:
    """Returns the smallest power of two that is >= `number`, or `most` if that is smaller.

    >>> [power_of_two(n, most=50) for n in (1, 3, 16, 17, 33)]
    [1, 4, 16, 32, 50]
    """
    power = 1 << (number - 1).bit_length()
    return power if most is None else min(power, most)
