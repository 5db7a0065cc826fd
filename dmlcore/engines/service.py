"""The queues of a server that takes time, and links that concurrent transfers share equally.

Queues are first come, first served: the times of a message are known when it arrives. On a shared link
(processor sharing) the time of a transfer depends on those that start while it is in progress, so the clock
needs an event for the start and for the end of each transfer.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Any

from dmlcore.cluster.draws import SERVED_PULL, SERVED_PUSH, Draws

# Worker, clock, arrival of its message -> end of its service, and its wait in queues; times in seconds.
Queue = Callable[[int, int, float], tuple[float, float]]


class Service:
    """The queues of a server: they give the times at which it takes pushes and has sent its replies.

    There are three queues: the link to the server, its processor, and the link back. Each serves one message
    at a time, in the order of arrival. The shards of a server work on all parts of a message at the same
    time; the message is done with its largest part.

    Args:
        seconds: mean seconds of each kind of work, from `ParameterServer.seconds`.
        draws: random times of the cluster and seed, if the server has jitter. None: times are constant.

    Attributes:
        take: takes a push that has crossed its worker's link at a time; it is done when the server has read
            the push.
        answer: replies to the pull of a task that was released at a time; it is done when the copy has
            crossed the server's link.
        update: makes an update that was decided at a time.
        pulls_take: whether replies take time; otherwise they leave immediately.
    """

    __slots__ = ("_draws", "_empty", "answer", "pulls_take", "take", "update")

    def __init__(self, seconds: Mapping[str, float], draws: Draws | None):
        push, pull = (seconds["link_in"], seconds["push"]), (seconds["pull"], seconds["link_out"])
        self._draws, self.pulls_take = draws, max(pull) > 0
        take, answer, self.update, self._empty = _queues(push, pull, seconds["update"])
        self.take = self._varied(take, SERVED_PUSH, *push)
        self.answer = self._varied(answer, SERVED_PULL, *pull)

    def reset(self, now: float = 0.0) -> None:
        """Empties all queues, when the server restarts at `now`."""
        self._empty(now)

    def _varied(
        self, queue: Callable[..., tuple[float, float]], stream: int, first: float, second: float
    ) -> Queue:
        """Returns `queue` with random times of means `first` and `second`, or unchanged without draws."""
        draws = self._draws
        if draws is None:
            return queue

        def varied(worker: int, clock: int, time: float) -> tuple[float, float]:
            factor = draws.multiplier(stream, worker, clock)
            return queue(worker, clock, time, factor * first, factor * second)

        return varied


def _queues(
    push: tuple[float, float], pull: tuple[float, float], update_seconds: float
) -> tuple[Callable[..., Any], Callable[..., Any], Callable[[float], None], Callable[[float], None]]:
    """Returns the functions `take`, `answer`, `update` and `empty` of one server's queues.

    They are closures over the times at which the queues become free, because every task of a run calls them.
    """
    way_in = processor = way_out = 0.0

    def take(
        worker: int, clock: int, time: float, link: float = push[0], work: float = push[1]
    ) -> tuple[float, float]:
        nonlocal way_in, processor
        waited = 0.0
        if link:
            if way_in > time:
                waited, time = way_in - time, way_in
            way_in = time = time + link
        if processor > time:
            waited += processor - time
            time = processor
        processor = time = time + work
        return time, waited

    def answer(
        worker: int, clock: int, time: float, work: float = pull[0], link: float = pull[1]
    ) -> tuple[float, float]:
        nonlocal processor, way_out
        waited = 0.0
        if processor > time:
            waited, time = processor - time, processor
        processor = time = time + work
        if link:
            if way_out > time:
                waited += way_out - time
                time = way_out
            way_out = time = time + link
        return time, waited

    def update(time: float) -> None:
        nonlocal processor
        processor = max(processor, time) + update_seconds

    def empty(now: float) -> None:
        nonlocal way_in, processor, way_out
        way_in = processor = way_out = now

    return take, answer, update, empty


class SharedLink:
    """One direction of a link: each of n concurrent transfers proceeds at 1 / n of the link's speed.

    All transfers receive the same service at any time, so they are sorted by the service that each will have
    received at its end. Starting and ending a transfer then costs O(log n).

    Args:
        seconds: mean time in seconds that a transfer takes alone.
        draws: random times of the cluster and seed, if transfers have jitter. None: times are constant.
        stream: stream of the draws.

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
        # A heap of (service at the end, serial number, start, seconds alone, task, data).
        self._under_way: list[tuple[float, int, float, float, Any, Any]] = []
        self.reset()

    def reset(self) -> None:
        """Discards all transfers in progress."""
        self._under_way.clear()
        self._time = self._got = 0.0  # service that each transfer got since the link was last idle, seconds
        self.due = math.inf  # when the next transfer ends, if no other one starts

    def join(self, time: float, task: Any, data: Any = None) -> None:
        """Starts a transfer at `time`, or at the last start or end if that is later.

        Args:
            time: seconds.
            task: the task whose message is sent.
            data: any object, returned with the transfer when it ends.
        """
        under_way, seconds, last, got = self._under_way, self._seconds, self._time, 0.0
        if time < last:
            time = last
        if under_way:
            got = self._got + (time - last) / len(under_way)
        self._got, self._time = got, time
        if self._draws is not None:
            seconds *= self._draws.multiplier(self._stream, task.worker, task.clock)
        heappush(under_way, (got + seconds, next(self._serial), time, seconds, task, data))
        left = under_way[0][0] - got
        self.due = time + left * len(under_way) if left > 0 else time

    def leave(self) -> tuple[Any, Any, float]:
        """Ends the transfer that is `due`; returns task, data, and the delay by sharing in seconds."""
        under_way, now = self._under_way, self.due
        got, _, joined, seconds, task, data = heappop(under_way)
        self._got, self._time = got, now
        self.due = now + (under_way[0][0] - got) * len(under_way) if under_way else math.inf
        waited = now - joined - seconds
        return task, data, waited if waited > 0 else 0.0


class FairService(Service):
    """The queues of a server whose links are shared equally; its processor is first come, first served.

    `take` is for pushes that have already crossed the link to the server. The copies of `answer` have yet to
    cross the link back.

    Attributes:
        into: the link to the server.
        out: the link back.
    """

    __slots__ = ("into", "out")

    def __init__(self, seconds: Mapping[str, float], draws: Draws | None):
        self.into = SharedLink(seconds["link_in"], draws, SERVED_PUSH)
        self.out = SharedLink(seconds["link_out"], draws, SERVED_PULL)
        super().__init__({**seconds, "link_in": 0.0, "link_out": 0.0}, draws)
        self.pulls_take = True

    def reset(self, now: float = 0.0) -> None:
        """Empties all queues, and discards all transfers in progress."""
        super().reset(now)
        self.into.reset()
        self.out.reset()


class Transfers:
    """Transfers over shared links on a real clock: gives those that have ended, in that order.

    Args:
        service: the server's queues, with the two links.
    """

    def __init__(self, service: FairService):
        self._into, self._out = service.into, service.out
        self._starts: list[tuple[float, int, SharedLink, Any, Any]] = []
        self._serial = itertools.count()

    def reset(self) -> None:
        """Discards the transfers that have not started yet."""
        self._starts.clear()

    def push(self, time: float, arrival: Any) -> None:
        """Schedules a push that reaches the server's link at `time`."""
        heappush(self._starts, (time, next(self._serial), self._into, arrival, None))

    def copy(self, time: float, order: Any, answer: Any) -> None:
        """Schedules the reply to a pull, which leaves the server's processor at `time`."""
        heappush(self._starts, (time, next(self._serial), self._out, order, answer))

    @property
    def due(self) -> float:
        """When the next transfer starts or ends, if nothing else is sent; seconds."""
        return min(self._into.due, self._out.due, self._starts[0][0] if self._starts else math.inf)

    def through(self, now: float) -> tuple[float, Any, Any, float] | None:
        """Returns the next transfer that has ended by `now`, or None.

        A transfer is its end in seconds, the task, the reply to its pull (None for a push), and its delay by
        sharing in seconds.
        """
        while (due := self.due) <= now:
            if self._starts and self._starts[0][0] <= due:
                time, _, link, task, answer = heappop(self._starts)
                link.join(time, task, answer)
            else:
                return due, *(self._into if self._into.due == due else self._out).leave()
        return None
