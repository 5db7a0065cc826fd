"""Transfers over the server's links with equal sharing, on the virtual clock.

The time of a transfer depends on those that start while it is in progress. The clock therefore needs an event
for the start and for the end of each transfer.
"""

from collections.abc import Sequence
from heapq import heappush
from typing import Any

from dmlcore.engines.server import Order
from dmlcore.engines.service import FairService


class Crossing:
    """The shared links of one run.

    Args:
        clock: the `VirtualClock` of the run.
        service: the server's queues, with the two links.
    """

    def __init__(self, clock: Any, service: FairService):
        self.clock, self.service = clock, service
        # For each worker the copies that it will get, in order, with their waits before the link in seconds.
        # Then attempt -> end of the transfer, and wait on the link in seconds, of copies that came too early.
        self.coming: list[list[tuple[Order, float]]] = [[] for _ in range(clock.spec.cluster.num_workers)]
        self.came: dict[int, tuple[float, float]] = {}

    def send_copies(self, start: Sequence[Order], now: float) -> list[Order]:
        """Sends the copies for the tasks that begin now, and returns the tasks that use a cached copy."""
        answer, join, coming, kept = self.service.answer, self.service.out.join, self.coming, []
        for order in start:
            worker, number, _, _, pull, since, _, _ = order
            if not pull:
                kept.append(order)
                continue
            sent, queued = answer(worker, number, since)
            coming[worker].append((order, queued))
            if sent > now:
                self.clock.at(sent, handle_copy_joins, order)
            else:
                join(now, order)
        return kept

    def push_is_through(self, now: float, order: Order, push: Any, waited: float) -> None:
        """Passes a push that crossed the link to the processor; `push` is None if it does not count."""
        clock = self.clock
        if push is None or clock.sending[order[0]] is not push:  # the server must read it anyway
            self.service.take(order.worker, order.clock, now)
            if push is not None and clock.failures is not None:
                clock.failures.ignore(order, now)
            return
        _, serial, _, _, begun, computed, departs, queued, before = push
        handler, waited = clock.handle_arrival, before + waited
        arrived = now, serial, handler, order, begun, computed, departs, queued, waited
        clock.sending[order[0]] = arrived
        heappush(clock.heap, arrived)

    def copy_is_through(self, now: float, order: Order, _: Any, waited: float) -> None:
        """Gives a worker its copy, and starts the task; copies of one worker arrive in order."""
        clock, coming, draws = self.clock, self.coming[order[0]], self.clock.draws
        if coming[0][0] is not order:  # it waits for earlier copies
            self.came[order.attempt] = now, waited
            return
        through = now
        while True:
            worker, number, size, _, _, _, attempt, _ = order
            _, queued = coming.pop(0)
            if order in clock.server.flight[worker]:  # otherwise it was cancelled or lost
                begun = now + draws.pull_seconds(worker, number) if draws.pulls_take else now
                end = begun + draws.compute_seconds(worker, number, size)
                queued += waited + now - through
                if clock.plain:
                    event = (end, attempt, handle_push_joins, order, begun, end, end, queued, 0.0)
                    clock.sending[worker] = event
                    heappush(clock.timed, event)
                else:
                    clock.sent(order, attempt, begun, end, now, queued)
            if not coming or coming[0][0].attempt not in self.came:
                return
            order = coming[0][0]
            through, waited = self.came.pop(order.attempt)

    def queued(self, order: Order) -> float:
        """Returns the seconds that a pull waited before its copy was sent; 0 if the server has lost it."""
        return next((queued for each, queued in self.coming[order.worker] if each is order), 0.0)

    def forget(self) -> None:
        """Loses all copies that are being sent."""
        self.came.clear()
        for copies in self.coming:
            copies.clear()


# Further handlers of the virtual clock, for runs with such links.


def handle_push_joins(clock: Any, event: Any) -> bool:
    """Starts a push on the server's link, after it has crossed its worker's link."""
    order = event[3]
    if clock.sending[order[0]] is not event:
        return clock.miss(order, event[0])  # cancelled, lost or postponed
    clock.service.into.join(event[0], order, event)
    return False


def handle_copy_joins(clock: Any, event: Any) -> bool:
    """Starts a copy on the server's link, when it leaves the server's processor."""
    clock.service.out.join(event[0], event[3])
    return False
