"""Slots for the versions and copies that later rows read: register allocation, segment by segment.

A version gets a slot when it is made, if a later row reads it; the slot is free again after the last such
row. So memory is O(live versions), at most one per task in flight or held, and not O(staleness).
"""

from collections.abc import Collection

import numpy as np

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
