"""A server's link that its transfers share equally: processor sharing, on the virtual clock.

How long a transfer takes depends on the ones that join it, so the virtual clock has to see each join a link,
and be through. Where links are first come, first served, it has to see neither.
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

    __slots__ = ("_got", "_serial", "_time", "_under_way", "due")

    def __init__(self) -> None:
        self._serial = itertools.count()
        self.reset()

    def reset(self) -> None:
        """Loses what is under way."""
        # What it will have got when it is through, serial number, when it joined, seconds alone, transfer.
        self._under_way: list[tuple[float, int, float, float, Any]] = []
        self._time = self._got = 0.0  # how much each transfer has got since the link was last idle, seconds
        self.due = math.inf  # when the next transfer is through, if no other joins

    def join(self, time: float, seconds: float, transfer: Any) -> None:
        """A transfer, of so many seconds alone, joins at `time`, or when the last did or left."""
        under_way = self._under_way
        if time < self._time:
            time = self._time
        if under_way:
            self._got += (time - self._time) / len(under_way)
        else:
            self._got = 0.0
        self._time = time
        heappush(under_way, (self._got + seconds, next(self._serial), time, seconds, transfer))
        left = under_way[0][0] - self._got
        self.due = time + (left if left > 0 else 0.0) * len(under_way)

    def leave(self) -> tuple[Any, float]:
        """Returns the transfer that is through when it is `due`, and how much longer it took than alone."""
        under_way, now = self._under_way, self.due
        self._got, _, joined, seconds, transfer = heappop(under_way)
        self._time = now
        self.due = now + (under_way[0][0] - self._got) * len(under_way) if under_way else math.inf
        waited = now - joined - seconds
        return transfer, waited if waited > 0 else 0.0


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

    @property
    def due(self) -> float:
        """When the next transfer is through, if no other joins."""
        return min(self.into.due, self.out.due)

    def send(self, link: SharedLink, now: float, order: Any, transfer: Any = None) -> None:
        """Lets the push of a task join the link to the server, or its copy the link back."""
        mean, stream = (self._link_in, SERVED_PUSH) if link is self.into else (self._link_out, SERVED_PULL)
        if self._draws is not None:
            mean *= self._draws.multiplier(stream, order.worker, order.clock)
        link.join(now, mean, (order, transfer))


# Handlers of the virtual clock, which a run with such links has besides its own.


def handle_push_joins(clock: Any, event: Any) -> bool:
    """A push has come over its worker's link to the server's."""
    order = event[3]
    if clock.sending[order[0]] is not event:
        return clock.miss(order, event[0])  # cancelled, lost or put off
    clock.fair.send(clock.fair.into, event[0], order, event)
    return False


def handle_copy_joins(clock: Any, event: Any) -> bool:
    """The server has answered a pull, and the copy joins the link back."""
    clock.fair.send(clock.fair.out, event[0], event[3])
    return False


class Crossings:
    """Transfers over shared links on a real clock: which of them are through by now, in that order.

    Args:
        service: whose links they cross.
    """

    def __init__(self, service: FairService):
        self._service = service
        self._joining: list[tuple[float, int, SharedLink, Any, Any]] = []
        self._serial = itertools.count()

    def reset(self) -> None:
        """Forgets what has not joined yet."""
        self._joining.clear()

    def push(self, time: float, arrival: Any) -> None:
        """A push comes over its worker's link at `time`."""
        self._add(time, self._service.into, arrival, None)

    def copy(self, time: float, order: Any, answer: Any) -> None:
        """The answer to a pull leaves the server's processor at `time`."""
        self._add(time, self._service.out, order, answer)

    def _add(self, time: float, link: SharedLink, task: Any, answer: Any) -> None:
        heappush(self._joining, (time, next(self._serial), link, task, answer))

    @property
    def due(self) -> float:
        """When something happens next, if nothing else is sent."""
        joining = self._joining[0][0] if self._joining else math.inf
        return min(joining, self._service.due)

    def through(self, now: float) -> tuple[float, Any, Any, float] | None:
        """Returns the next transfer that is through by `now`: when, the task, the answer to its pull, or None
        for its push, and how much longer it took than alone. None: none is."""
        while self.due <= now:
            if self._joining and self._joining[0][0] <= self._service.due:
                time, _, link, task, answer = heappop(self._joining)
                self._service.send(link, time, task, answer)
            else:
                into, out, time = self._service.into, self._service.out, self._service.due
                (task, answer), waited = (out if out.due < into.due else into).leave()
                return time, task, answer, waited
        return None
