"""Wavefronts: runs of gradients that can be computed at the same time."""

from __future__ import annotations

import numpy as np

from dmlcore.training.schedule import NONE, Schedule


def wavefronts(schedule: Schedule) -> np.ndarray:
    """Divides rows into wavefronts: none reads a version or a copy that its own wavefront makes.

    Guarantee: every row is in one wavefront, in the order of the schedule, and each wavefront is as long as
    can be. All of its views may be loaded before any of its updates is stored, in the slots of the schedule.

    A slot serves one view after the other, in the order of rows. It still holds, or has ceased to hold, the
    same at the start of a wavefront: a row in it reads a slot that none of the rows before it in the
    wavefront has written, since what they wrote is what it would read. And slots are stored to in the order
    of rows, so after the wavefront they hold what they would have held without it.

    Args:
        schedule: with one task a row, and slots.

    Returns:
        The first row of each of F wavefronts, and R at the end, (F + 1,).
    """
    written = np.full(schedule.num_slots, NONE)  # by which row, each slot
    starts = [0]
    columns = (column.tolist() for column in (schedule.read, schedule.write, schedule.keep))
    for row, (read, *stored) in enumerate(zip(*columns, strict=True)):
        if written[read] >= starts[-1]:
            starts.append(row)
        for slot in stored:
            if slot != NONE:
                written[slot] = row
    return np.array([*starts, len(schedule.read)] if len(schedule.read) else [0])
