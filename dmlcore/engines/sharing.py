"""A server's link that its transfers share equally: processor sharing, on the virtual clock.

How long a transfer takes depends on the ones that join it, so each is two events of the virtual clock: it
joins a link, and it is through. Where links are first come, first served, neither is one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Any

from dmlcore.cluster.draws import SERVED_PULL, SERVED_PUSH, Draws
from dmlcore.engines.service import Service


class SharedLink:
    """One direction of a link: each of n transfers under way goes on at 1 / n of its speed.

    Transfers are ordered by how much each will have got when it is through, and all get the same: so a
    transfer joins, and is through, in O(log n).

    >>> link = SharedLink()
    >>> link.join(0.0, 2.0, "a"), link.join(1.0, 0.5, "b")
    (None, None)
    >>> link.due, link.leave()
    (2.0, ('b', 0.5))
    >>> link.due, link.leave()
    (2.5, ('a', 0.5))
    """

    def __init__(self) -> None:
        self.changes, self._serial = 0, itertools.count()
        self.reset()

    def reset(self) -> None:
        """Loses what is under way."""
        self.changes += 1
        # What it will have got when it is through, serial number, when it joined, seconds alone, transfer.
        self._under_way: list[tuple[float, int, float, float, Any]] = []
        self._time = self._got = 0.0  # how much each transfer has got since the link was last idle, seconds

    @property
    def due(self) -> float:
        """When the next transfer is through, if no other joins."""
        under_way = self._under_way
        if not under_way:
            return math.inf
        return self._time + max(under_way[0][0] - self._got, 0.0) * len(under_way)

    def join(self, time: float, seconds: float, transfer: Any) -> None:
        """A transfer, of so many seconds alone, joins at `time`, or when the last one did or left."""
        time = max(time, self._time)
        if self._under_way:
            self._got += (time - self._time) / len(self._under_way)
        else:
            self._got = 0.0
        self._time = time
        self.changes += 1
        heappush(self._under_way, (self._got + seconds, next(self._serial), time, seconds, transfer))

    def leave(self) -> tuple[Any, float]:
        """Returns the transfer that is through when it is `due`, and how much longer it took than alone."""
        self._time = self.due
        self._got, _, joined, seconds, transfer = heappop(self._under_way)
        self.changes += 1
        return transfer, max(self._time - joined - seconds, 0.0)


class FairService(Service):
    """A server with links that are shared equally; its processor is first come, first served.

    `take` is for pushes that are through the link to it; what `answer` answers has still to cross the other.
    """

    __slots__ = ("_link_in", "_link_out", "into", "out")

    def __init__(self, seconds: Mapping[str, float], draws: Draws | None):
        self.into, self.out = SharedLink(), SharedLink()
        super().__init__({**seconds, "link_in": 0.0, "link_out": 0.0}, draws)
        self._link_in, self._link_out, self.pulls_take = seconds["link_in"], seconds["link_out"], True

    def reset(self, now: float = 0.0) -> None:
        """Empties all queues, and loses what is under way."""
        super().reset(now)
        self.into.reset()
        self.out.reset()

    def push_seconds(self, worker: int, clock: int) -> float:
        """Returns how long a push takes on the link to the server, alone."""
        return self._link_in * self._factor(SERVED_PUSH, worker, clock)

    def pull_seconds(self, worker: int, clock: int) -> float:
        """Returns how long the copy for a task takes on the link back, alone."""
        return self._link_out * self._factor(SERVED_PULL, worker, clock)

    def _factor(self, stream: int, worker: int, clock: int) -> float:
        return 1.0 if self._draws is None else self._draws.multiplier(stream, worker, clock)


# Handlers of the virtual clock, which a run with such links has besides its own.


def handle_push_joins(clock: Any, event: Any) -> bool:
    """A push has come over its worker's link to the server's."""
    now, _, _, order, *_ = event
    if clock.sending[order.worker] is not event:
        return clock.handle_push(event)  # cancelled, lost or put off
    join(clock, clock.service.into, now, order, event)
    return False


def handle_copy_joins(clock: Any, event: Any) -> bool:
    """The server has answered a pull, and the copy joins the link back."""
    now, _, _, order = event
    join(clock, clock.service.out, now, order, order)
    return False


def handle_through(clock: Any, event: Any) -> bool:
    """A transfer is through, if none has joined since that was planned."""
    now, _, _, link, changes = event
    if link.changes != changes:
        return False
    (order, transfer), waited = link.leave()
    plan(clock, link)
    if link is clock.service.out:
        clock.copy_is_through(order, now, waited)
    elif transfer is not None and clock.sending[order.worker] is transfer:
        clock.push_is_through(transfer, now, waited)
    else:  # the server has to read it, and it does not count
        clock.service.take(order.worker, order.clock, now)
    return False


def join(clock: Any, link: SharedLink, now: float, order: Any, transfer: Any) -> None:
    """Lets a task's push or copy join a link."""
    service = clock.service
    alone = service.push_seconds if link is service.into else service.pull_seconds
    link.join(now, alone(order.worker, order.clock), (order, transfer))
    plan(clock, link)


def plan(clock: Any, link: SharedLink) -> None:
    """Notes when the next transfer of a link is through."""
    if link.due < math.inf:
        clock.at(link.due, handle_through, link, link.changes)
