"""Waves: pushes of many tasks that begin at once, as after a barrier.

They are sorted once, which is several times as fast as passing each through a large heap, and only the first
of them that has not arrived is on the heap of events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappush
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dmlcore.engines.virtual import PushEvent, VirtualClock

FEWEST = 32  # tasks that begin at once of which a wave is made


class Wave:
    """Pushes in order of their arrival, the last first.

    Args:
        handle_arrival: handles a push on the virtual clock.

    Attributes:
        handle: the handler of these pushes: lets the next one follow.
    """

    __slots__ = "handle", "pushes"

    def __init__(self, handle_arrival: Callable[[Any, Any], bool]):
        self.pushes: list[PushEvent] = []
        pushes = self.pushes

        def handle(clock: VirtualClock, event: PushEvent) -> bool:
            over = handle_arrival(clock, event)
            if pushes and clock.event is event:  # it is not waiting to be read
                heappush(clock.heap, pushes.pop())
            return over

        self.handle = handle

    def begin(self, heap: list[Any]) -> None:
        """Sorts the pushes, and places the first of them on the heap."""
        self.pushes.sort(reverse=True)
        heappush(heap, self.pushes.pop())

    def keep(self, sending: Sequence[PushEvent | None]) -> None:
        """Leaves out pushes that were cancelled; `sending`: the next push of each worker."""
        self.pushes[:] = [each for each in self.pushes if sending[each[3][0]] is each]
