"""A server's link that its transfers share equally: processor sharing, on the virtual clock.

How long a transfer takes depends on the ones that join it, so the virtual clock has to see each join a link,
and be through. Where links are first come, first served, it has to see neither.
"""

from __future__ import annotations

import itertools
import math
from bisect import insort
from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

from dmlcore.cluster.draws import SERVED_PULL, SERVED_PUSH, Draws
from dmlcore.engines.service import Service

GOT = itemgetter(0)


class SharedLink:
    """One direction of a link: each of n transfers under way goes on at 1 / n of its speed.

    Transfers are ordered by how much each will have got when it is through, and all get the same: so a
    transfer joins, and is through, in O(log n); in O(1) where all take equally long alone, as they are then
    through in the order in which they joined, but for rounding.

    Args:
        seconds: that a transfer takes alone, on average.
        draws: of the cluster and seed, where they vary; None: they do not.
        stream: of these draws.

    >>> link = SharedLink(2.0)
    >>> link.join(0.0, "a", "data"), link.join(1.0, "b")
    (None, None)
    >>> link.due, link.leave()
    (3.0, ('a', 'data', 1.0))
    >>> link.due, link.leave()
    (4.0, ('b', None, 1.0))
    """

    __slots__ = ("_draws", "_got", "_seconds", "_serial", "_stream", "_time", "_under_way", "due")

    def __init__(self, seconds: float, draws: Draws | None = None, stream: int = SERVED_PUSH):
        self._seconds, self._draws, self._stream = seconds, draws, stream
        self._serial = itertools.count()
        # What it will have got when it is through, serial number, when it joined, seconds alone, task, data:
        # sorted, where all take equally long; else a heap.
        self._under_way: Any = deque() if draws is None else []
        self.reset()

    def reset(self) -> None:
        """Loses what is under way."""
        self._under_way.clear()
        self._time = self._got = 0.0  # how much each transfer has got since the link was last idle, seconds
        self.due = math.inf  # when the next transfer is through, if no other joins

    def join(self, time: float, task: Any, data: Any = None) -> None:
        """What a task transfers joins at `time`, or when the last did or left; `data` comes out with it."""
        under_way, seconds, last, got = self._under_way, self._seconds, self._time, 0.0
        if time < last:
            time = last
        if under_way:
            got = self._got + (time - last) / len(under_way)
        self._got, self._time = got, time
        if self._draws is None:
            each = got + seconds, 0, time, seconds, task, data
            if under_way and each[0] < under_way[-1][0]:  # by rounding: it joins when another is through
                insort(under_way, each, key=GOT)
            else:
                under_way.append(each)
        else:
            seconds *= self._draws.multiplier(self._stream, task.worker, task.clock)
            heappush(under_way, (got + seconds, next(self._serial), time, seconds, task, data))
        left = under_way[0][0] - got
        self.due = time + left * len(under_way) if left > 0 else time

    def leave(self) -> tuple[Any, Any, float]:
        """Returns what is through when it is `due`: task, data, and how much longer it took than alone."""
        under_way, now = self._under_way, self.due
        first = under_way.popleft() if self._draws is None else heappop(under_way)
        got, _, joined, seconds, task, data = first
        self._got, self._time = got, now
        self.due = now + (under_way[0][0] - got) * len(under_way) if under_way else math.inf
        waited = now - joined - seconds
        return task, data, waited if waited > 0 else 0.0


class FairService(Service):
    """A server with links that are shared equally; its processor is first come, first served.

    `take` is for pushes that are through the link to it; what `answer` answers has still to cross the other.

    Attributes:
        into, out: the link to the server, and the link back.
    """

    __slots__ = ("into", "out")

    def __init__(self, seconds: Mapping[str, float], draws: Draws | None):
        self.into = SharedLink(seconds["link_in"], draws, SERVED_PUSH)
        self.out = SharedLink(seconds["link_out"], draws, SERVED_PULL)
        super().__init__({**seconds, "link_in": 0.0, "link_out": 0.0}, draws)
        self.pulls_take = True

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
        """Returns what is through next: when, task, data, and how much longer it took than alone."""
        into, out = self.into, self.out
        link = out if out.due < into.due else into
        time = link.due
        return time, *link.leave()


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
        self._add(time, self._service.into.join, arrival, None)

    def copy(self, time: float, order: Any, answer: Any) -> None:
        """The answer to a pull leaves the server's processor at `time`."""
        self._add(time, self._service.out.join, order, answer)

    def _add(self, time: float, join: Callable[..., None], task: Any, answer: Any) -> None:
        heappush(self._joining, (time, next(self._serial), join, task, answer))

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
                time, _, join, task, answer = heappop(self._joining)
                join(time, task, answer)
            else:
                return self._service.leave()
        return None
