"""The queues of a server that takes time: first come, first served."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
