"""Messages that cross a server's shared links, on the virtual clock.

How long a transfer takes depends on the ones that join it, so the clock has to see each join a link, and be
through: a run with such links has a loop of its own, since one of these comes before most arrivals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any

from dmlcore.engines.server import Order
from dmlcore.engines.sharing import FairService


class Crossing:
    """The shared links of one run.

    Args:
        clock: the `VirtualClock` of the run.
        service: whose links they are.
    """

    def __init__(self, clock: Any, service: FairService):
        self.clock, self.service = clock, service
        # Copies that each worker will get, in order, and how long they have waited before; attempt -> when
        # one was through, and how long it waited on the link.
        self.coming: list[list[tuple[Order, float]]] = [[] for _ in range(clock.spec.cluster.num_workers)]
        self.came: dict[int, tuple[float, float]] = {}
        # Copies that leave the server's processor, in that order: when, serial number, task.
        self.leaving: deque[tuple[float, int, Order]] = deque()

    @property
    def due(self) -> float:
        """When the next transfer is through, or the next copy joins the link back."""
        return min(self.service.due, self.leaving[0][0] if self.leaving else inf)

    def run(self) -> None:
        """Handles all that happens, to the end of the run."""
        clock, service = self.clock, self.service
        heap, timed, sending, end, timers = clock.heap, clock.timed, clock.sending, clock.end, clock.timers
        into, out, take, handle_arrival = service.into, service.out, service.take, clock.handle_arrival
        over, timer, leaving = clock.server.over, inf, self.leaving
        while not over:
            arrival, read = heap[0], clock.read
            taken = read[1] if read is not None and read[0] is arrival else arrival[0]
            first, link, leaves = timed[0][0] if timed else inf, None, False
            if leaving and (first == inf or leaving[0] < timed[0]):
                first, leaves = leaving[0][0], True
            if into.due < first:
                first, link = into.due, into
            if out.due < first:
                first, link = out.due, out
            if timers:
                timer = clock.timer()
            if (first <= taken and first < inf) or timer < taken:
                if first > end and timer > end:
                    return
                if timer < first:
                    over = clock.carry_out(clock.server.wake(timer), timer)
                elif link is None and leaves:
                    service.out.join(first, leaving.popleft()[2])
                elif link is None:
                    event = heappop(timed)
                    over = event[2](clock, event)
                else:
                    order, push, waited = link.leave()
                    if link is out:
                        self.copy_is_through(order, first, waited)
                    else:
                        self.push_is_through(order, push, first, waited)
                continue
            if taken > end:
                return
            if arrival[2] is handle_arrival and sending[arrival[3][0]] is arrival:
                if read is None or read[0] is not arrival:
                    worker, number = arrival[3][:2]
                    taken, waited = take(worker, number, taken)
                    clock.read = read = arrival, taken, arrival[8] + waited
                    if first <= taken or timer < taken or taken > end:
                        continue
                over = clock.is_read(*read)
            else:
                over = arrival[2](clock, arrival)
            if heap[0] is arrival:
                heappop(heap)

    def send_copies(self, start: Sequence[Order], now: float) -> list[Order]:
        """Sends the copies that tasks pull which begin now; returns the tasks of workers that keep theirs."""
        clock, service, kept = self.clock, self.service, []
        for order in start:
            if not order.pull:
                kept.append(order)
                continue
            sent, queued = service.answer(order.worker, order.clock, order.time)
            self.coming[order.worker].append((order, queued))
            if sent > now:
                self.leaving.append((sent, next(clock.serial), order))
            else:
                service.out.join(now, order)
        return kept

    def push_is_through(self, order: Order, push: Any, now: float, waited: float) -> None:
        """The server's processor may take a push; None: one that does not count."""
        clock = self.clock
        if push is None or clock.sending[order.worker] is not push:  # the server has to read it nevertheless
            self.service.take(order.worker, order.clock, now)
            if push is not None and clock.failures is not None:
                clock.failures.ignore(order, now)
            return
        _, serial, _, _, begun, computed, departs, queued, before = push
        handler, waited = clock.handle_arrival, before + waited
        clock.sending[order.worker] = arrived = (
            now, serial, handler, order, begun, computed, departs, queued, waited
        )  # fmt: skip
        heappush(clock.heap, arrived)

    def copy_is_through(self, order: Order, now: float, waited: float) -> None:
        """A worker gets its copy, and computes; copies of one worker arrive in order."""
        clock, links, coming = self.clock, self.clock.links, self.coming[order[0]]
        if coming[0][0] is not order:  # it waits for the copies before it
            self.came[order.attempt] = now, waited
            return
        through = now
        while True:
            worker, number, size, _, _, _, attempt, _ = order
            _, queued = coming.pop(0)
            if order in clock.server.flight[worker]:  # else it was cancelled or lost
                begun = now + links.pull_seconds(worker, number) if links.pulls_take else now
                end = begun + links.compute_seconds(worker, number, size)
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
        """Returns how long a pull whose copy is under way waited before; 0 where it is forgotten."""
        return next((queued for each, queued in self.coming[order.worker] if each is order), 0.0)

    def forget(self) -> None:
        """Loses all copies that are under way."""
        self.came.clear()
        self.leaving.clear()
        for copies in self.coming:
            copies.clear()


# A handler of the virtual clock, which a run with such links has besides its own.


def handle_push_joins(clock: Any, event: Any) -> bool:
    """A push has come over its worker's link to the server's."""
    order = event[3]
    if clock.sending[order[0]] is not event:
        return clock.miss(order, event[0])  # cancelled, lost or put off
    clock.service.into.join(event[0], order, event)
    return False
