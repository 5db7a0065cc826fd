"""Waves: the pushes of many tasks that begin at the same time, as after a barrier.

The pushes of a wave are sorted once, which is several times faster than a large heap. Only the next push to
arrive is on the heap of events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmlcore.engines.virtual import PushEvent, VirtualClock

FEWEST = 32  # least number of tasks of a wave


class Wave:
    """Pushes sorted by arrival, in descending order.

    Args:
        handle_arrival: the virtual clock's handler of a push.

    Attributes:
        handle: the handler of these pushes, which also schedules the next one.
    """

    __slots__ = "handle", "pushes"

    def __init__(self, handle_arrival: Callable[[Any, Any], bool]):
        self.pushes: list[PushEvent] = []
        pushes = self.pushes

        def handle(clock: VirtualClock, event: PushEvent) -> bool:
            over = handle_arrival(clock, event)
            if pushes and clock.event is event:  # otherwise it waits to be read
                heappush(clock.heap, pushes.pop())
            return over

        self.handle = handle

    def begin(self, heap: list[Any]) -> None:
        """Sorts the pushes, and puts the first of them on the heap."""
        self.pushes.sort(reverse=True)
        heappush(heap, self.pushes.pop())

    def keep(self, sending: Sequence[PushEvent | None]) -> None:
        """Removes cancelled pushes; `sending`: the next push of each worker."""
        self.pushes[:] = [each for each in self.pushes if sending[each[3][0]] is each]
