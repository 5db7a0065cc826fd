"""A server's link that its transfers share equally: processor sharing, on the virtual clock.

How long a transfer takes depends on the ones that join it, so the virtual clock has to see each join a link,
and be through. Where links are first come, first served, it has to see neither.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
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

    Attributes:
        into, out: the link to the server, and the link back.
        send_push, send_copy: let the push of a task join the link in at a time, or its copy the link back;
            what is given besides the task comes out with it.
    """

    __slots__ = ("into", "out", "send_copy", "send_push")

    def __init__(self, seconds: Mapping[str, float], draws: Draws | None):
        self.into, self.out = SharedLink(), SharedLink()
        super().__init__({**seconds, "link_in": 0.0, "link_out": 0.0}, draws)
        self.pulls_take = True
        self.send_push = self._sender(self.into, seconds["link_in"], SERVED_PUSH)
        self.send_copy = self._sender(self.out, seconds["link_out"], SERVED_PULL)

    def _sender(self, link: SharedLink, mean: float, stream: int) -> Callable[..., None]:
        draws = self._draws

        def send(now: float, order: Any, what: Any = None) -> None:
            link.join(now, mean, (order, what))

        def send_varied(now: float, order: Any, what: Any = None) -> None:
            assert draws is not None
            link.join(now, mean * draws.multiplier(stream, order.worker, order.clock), (order, what))

        return send if draws is None else send_varied

    def reset(self, now: float = 0.0) -> None:
        """Empties all queues, and loses what is under way."""
        super().reset(now)
        self.into.reset()
        self.out.reset()

    @property
    def due(self) -> float:
        """When the next transfer is through, if no other joins."""
        return min(self.into.due, self.out.due)

    def leave(self) -> tuple[float, Any, Any, float]:
        """Returns the next transfer that is through: when, its task and what was given with it, and how much
        longer it took than alone."""
        into, out = self.into, self.out
        link = out if out.due < into.due else into
        time = link.due
        (order, what), waited = link.leave()
        return time, order, what, waited


class Crossings:
    """Transfers over shared links on a real clock: which of them are through by now, in that order.

    Args:
        service: whose links they cross.
    """

    def __init__(self, service: FairService):
        self._service = service
        self._joining: list[tuple[float, int, Callable[..., None], Any, Any]] = []
        self._serial = itertools.count()

    def reset(self) -> None:
        """Forgets what has not joined yet."""
        self._joining.clear()

    def push(self, time: float, arrival: Any) -> None:
        """A push comes over its worker's link at `time`."""
        self._add(time, self._service.send_push, arrival, None)

    def copy(self, time: float, order: Any, answer: Any) -> None:
        """The answer to a pull leaves the server's processor at `time`."""
        self._add(time, self._service.send_copy, order, answer)

    def _add(self, time: float, send: Callable[..., None], task: Any, answer: Any) -> None:
        heappush(self._joining, (time, next(self._serial), send, task, answer))

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
                time, _, send, task, answer = heappop(self._joining)
                send(time, task, answer)
            else:
                return self._service.leave()
        return None
