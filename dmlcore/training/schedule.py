"""A trace as a program: rows of gradients to compute, and the slots that hold the versions they still need.

Axes: R rows, K tasks of a row, U updates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dmlcore.trace import Trace, predecessors

NONE = -1
LEAST_SAMPLES = 8  # fewer are not sooner computed
LEAST_STRETCH = 32  # rows on average; a change of shape costs a call of the loop, and may compile it


class Stretch(NamedTuple):
    """Rows whose gradients have one shape.

    Args:
        start: the first.
        tasks: K that they need, at most that of the schedule.
        samples: of a task that they need, at most those of the largest.
    """

    start: int
    tasks: int
    samples: int


class Schedule(NamedTuple):
    """What replay does, row by row. A row is one gradient: of one task, or of all tasks of an update.

    Where updates have fewer than K tasks, tasks of weight 0 fill up.

    Args:
        worker: of each task, (R, K).
        clock: of each task, (R, K).
        batch_size: of each task, (R, K).
        weight: of each task in its update, (R, K).
        compensation: lambda over the weight, of rows whose view is not the newest version; else 0, (R,).
        read: slot that holds the view on which the row's gradient is taken, (R,).
        write: slot for the version that the row's update makes, NONE where nobody reads it, (R,).
        keep: slot for the worker's own copy, moved by its own gradient; NONE where it pulls next, (R,).
        last: whether the row ends its update, (R,).
        first_row: of each update, and R at the end, (U + 1,).
        num_slots: versions and copies alive at once, at most.
        reads_newest: every view is the server's current version, so that no slot is needed.
        accumulates: some update has more than one row.
        keeps_copies: some worker goes on with its own copy.
        stretches: of rows, in their order.
    """

    worker: np.ndarray
    clock: np.ndarray
    batch_size: np.ndarray
    weight: np.ndarray
    compensation: np.ndarray
    read: np.ndarray
    write: np.ndarray
    keep: np.ndarray
    last: np.ndarray
    first_row: np.ndarray
    num_slots: int
    reads_newest: bool
    accumulates: bool
    keeps_copies: bool
    stretches: tuple[Stretch, ...]


def compile_trace(trace: Trace, *, merge: bool = True, slots: bool = False) -> Schedule:
    """Turns a valid trace into a schedule.

    Tasks of one update that read the same version are one row with per-sample weights, where all updates
    are like that; where their numbers or sizes change now and then, so do the shapes of rows. Slots are
    assigned as registers are: a version gets one when it is made, if a later row reads it, and gives it back
    after the last such row. So memory is O(live versions), which is at most one for each task in flight or
    held, and not O(staleness).

    Args:
        trace: what to replay.
        merge: False keeps one task a row.
        slots: True assigns slots even where every view is the newest version.

    Returns:
        The schedule.
    """
    tasks, num_updates = trace.tasks, len(trace.updates)
    cached = tasks["pull_start"].isna().to_numpy()
    update = tasks["update"].to_numpy()
    applied = np.flatnonzero(update >= 0)
    order = applied[
        np.lexsort((tasks["clock"].to_numpy()[applied], tasks["worker"].to_numpy()[applied], update[applied]))
    ]

    update, version = update[order], tasks["version_read"].to_numpy()[order]
    # The row whose gradient moved the copy that this row reads.
    copy_from = np.full(len(order), NONE)
    if cached.any():
        row_of = np.full(len(tasks), NONE)
        row_of[order] = np.arange(len(order))
        copy_from = np.where(cached[order], row_of[predecessors(tasks)[order]], NONE)
    row, place = np.arange(len(order)), np.zeros(len(order), np.int64)
    strength = trace.metadata.get("compensation", 0.0)
    stale = (version != update).any()
    if merge and num_updates and not cached[order].any() and not (strength and stale):
        same_version = (version[1:] == version[:-1]) | (update[1:] != update[:-1])
        if same_version.all():
            row, place = update, np.arange(len(order)) - np.searchsorted(update, update)
    first, width = np.flatnonzero(place == 0), int(place.max(initial=0)) + 1
    counts = np.diff(np.append(first, len(order)))
    if (counts < width).any():  # another run of the kind may have fewer at most
        width = power_of_two(width, max(width, trace.num_workers))
    columns = {}
    for name, fill in (("worker", 0), ("clock", 0), ("batch_size", 1), ("weight", 0)):
        values = tasks[name].to_numpy()[order]
        columns[name] = np.full((len(first), width), fill, values.dtype)
        columns[name][row, place] = values
    update, version, copy_from = update[first], version[first], copy_from[first]
    compensation = compensations(strength, columns["weight"][:, 0], version != update)
    first_row = np.searchsorted(update, np.arange(num_updates + 1))
    last = np.append(update[1:] != update[:-1], [True] * (len(update) > 0))
    reads_newest = not slots and bool((version == update).all()) and not (copy_from >= 0).any()
    if reads_newest or not len(update):
        nothing = np.full(len(update), NONE)
        read, write, keep, num_slots = np.zeros(len(update), np.int64), nothing, nothing, 0
    else:
        read, write, keep, num_slots = _assign_slots(update, version, copy_from, last)
    return Schedule(
        **columns,
        compensation=compensation,
        read=read,
        write=write,
        keep=keep,
        last=last,
        first_row=first_row,
        num_slots=num_slots,
        reads_newest=reads_newest,
        accumulates=len(update) != num_updates,
        keeps_copies=bool((copy_from >= 0).any()),
        stretches=_stretches(counts, columns["batch_size"]),
    )


def compensations(strength: float, weight: np.ndarray, stale: np.ndarray) -> np.ndarray:
    """Returns lambda over the weight of each row that is stale and counts, else 0."""
    return np.divide(strength, weight, out=np.zeros(len(weight)), where=stale & (weight > 0))


def _stretches(counts: np.ndarray, batch_size: np.ndarray) -> tuple[Stretch, ...]:
    """Cuts rows where their shape changes, if that is seldom."""
    num_rows, width = batch_size.shape
    whole = (Stretch(0, width, int(batch_size.max(initial=1))),)
    if width == 1:
        return whole
    shapes = np.array(
        [
            row_shape(*row, width, whole[0].samples)
            for row in zip(counts.tolist(), batch_size.max(1).tolist(), strict=True)
        ]
    )
    starts = np.append(0, np.flatnonzero((shapes[1:] != shapes[:-1]).any(1)) + 1)
    if len(starts) == 1 or num_rows < LEAST_STRETCH * len(starts):
        return whole
    return tuple(Stretch(int(start), *map(int, shapes[start])) for start in starts)


def row_shape(tasks: int, samples: int, most_tasks: int, most_samples: int) -> tuple[int, int]:
    """Returns how many tasks and samples of each a row is filled up to, so that there are few shapes."""
    return power_of_two(tasks, most_tasks), min(padded(samples), most_samples)


def padded(samples: int) -> int:
    """Returns what a task of so many samples is filled up to, where sizes change: a power of two.

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


def _assign_slots(
    update: np.ndarray, version: np.ndarray, copy_from: np.ndarray, last: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Register allocation over the rows: returns read, write and keep slots and how many slots there are."""
    num_rows = len(update)
    own = np.flatnonzero(copy_from >= 0)  # rows that read their worker's copy; the others read a version
    pulled = np.flatnonzero(copy_from < 0)
    last_reader = np.full(int(update[-1]) + 2, NONE)
    last_reader[version[pulled]] = pulled  # rows ascend, so the last one stays
    made_by = np.concatenate([[NONE], np.flatnonzero(last)])  # row whose update makes version v
    versions = np.flatnonzero(last_reader >= 0)

    # What needs a slot: versions, then copies; made after row `born`, and last read by row `dies`.
    born = np.concatenate([made_by[versions], copy_from[own]])
    dies = np.concatenate([last_reader[versions], own])
    order = np.argsort(born, kind="stable")
    deaths = np.argsort(dies)
    # A row reads before it writes, so a slot that it frees is there for what it makes.
    given_back = np.searchsorted(dies[deaths], born[order], side="right")
    count = np.arange(len(order))
    num_slots = int((count + 1 - given_back).max())
    # First come, first served: the n-th to be born takes over from the one that died as number n - num_slots.
    # Following these links to one of the first, who had nobody to take over from, gives its slot.
    rank = np.empty_like(order)
    rank[order] = count
    link = count.copy()
    link[num_slots:] = rank[deaths[: len(order) - num_slots]]
    while (link >= num_slots).any():
        link = link[link]
    slot = link[rank]

    version_slot = np.full(len(last_reader), NONE)
    version_slot[versions] = slot[: len(versions)]
    read, write, keep = np.full((3, num_rows), NONE)
    read[pulled] = version_slot[version[pulled]]
    read[own] = keep[copy_from[own]] = slot[len(versions) :]
    write[last] = version_slot[update[last] + 1]
    return read, write, keep, num_slots
