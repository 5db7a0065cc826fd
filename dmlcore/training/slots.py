"""Slots for the versions and copies that later rows still read: register allocation, segment by segment.

A version gets a slot when it is made, if a later row reads it, and gives it back after the last such row. So
memory is O(live versions), at most one for each task in flight or held, and not O(staleness).
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

NONE = -1


class Slots:
    """Which slot holds which version. Version 0 is in the first.

    Attributes:
        count: of slots, as many as were ever needed at once.
        held: slot of each version that rows after the last segment read.
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
            update: of each row, ascending, (R,).
            version: that each row reads, (R,).
            copy_from: row of the segment whose gradient moved the copy that the row reads instead, or NONE.
            last: whether the row ends its update, (R,).
            live: versions that rows after this segment read.

        Returns:
            For each row the slot that it reads, the one for the version that its update makes, and the one
            for the copy that its gradient moves; NONE where nothing reads these.
        """
        num_rows = len(update)
        if not num_rows:
            return (np.zeros(0, np.int64),) * 3
        pulled, own = np.flatnonzero(copy_from < 0), np.flatnonzero(copy_from >= 0)
        old = int(min(version.min(), update[0], *self.held))  # versions are numbered from here
        last_reader = np.full(int(update[-1]) + 2 - old, NONE)
        last_reader[version[pulled] - old] = pulled  # rows ascend, so the last one stays
        last_reader[[v - old for v in live if v - old < len(last_reader)]] = num_rows
        before = {v: slot for v, slot in self.held.items() if last_reader[v - old] >= 0}
        made = np.flatnonzero(last)
        made = made[last_reader[update[made] + 1 - old] >= 0]  # rows whose update's version is read

        # What needs a slot, in the order of births: made by row `born` and last read by row `dies`.
        born, dies = np.append(made, copy_from[own]), np.append(last_reader[update[made] + 1 - old], own)
        order = np.argsort(born, kind="stable")
        # What gives one back: free slots, then by the row that reads them last. First come, first served: the
        # n-th to be born takes over from the n-th of these. A row reads before it writes, so a slot that it
        # frees is there for what it makes.
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
        source = np.empty(len(born), np.int64)  # from which of the givers each takes over; NONE: a new slot
        source[order] = taken
        slot[known + order[:missing]] = np.arange(self.count, self.count + missing)
        while (unknown := np.flatnonzero(slot[known:] == NONE)).size:
            # Those that a chain leads back to one that is known; each round the chains are half as long.
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
