"""The queues of a server that takes time: first come, first served."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dmlcore.cluster.draws import SERVED_PULL, SERVED_PUSH, Draws

# Worker, clock, when its message comes -> when it is through, and how long it has waited in queues, seconds.
Queue = Callable[[int, int, float], tuple[float, float]]


class Service:
    """When a server takes each push and when its answers are through, as far as they have come.

    Three queues, each served one message at a time in the order in which they come: the link to the server,
    its processor, and the link back. A server that is split into shards works on all parts of a message at
    the same time, and is done with the largest.

    Args:
        seconds: mean ones of what it does, as `ParameterServer.seconds` gives them.
        draws: of the cluster and seed, where they vary; None: they do not.

    Attributes:
        take: takes a push that has come over its worker's link at a time; it is through when it is read.
        answer: answers the pull before a task, which was let begin at a time; the copy is through when it has
            crossed the server's link.
        update: makes an update that was decided at a time.
        pulls_take: whether answers take time; else they leave at once.
    """

    __slots__ = ("_draws", "_empty", "answer", "pulls_take", "take", "update")

    def __init__(self, seconds: Mapping[str, float], draws: Draws | None):
        push, pull = (seconds["link_in"], seconds["push"]), (seconds["pull"], seconds["link_out"])
        self._draws, self.pulls_take = draws, max(pull) > 0
        take, answer, self.update, self._empty = _queues(push, pull, seconds["update"])
        self.take = self._varied(take, SERVED_PUSH, *push)
        self.answer = self._varied(answer, SERVED_PULL, *pull)

    def reset(self, now: float = 0.0) -> None:
        """Empties all queues: the server starts again."""
        self._empty(now)

    def _varied(
        self, queue: Callable[..., tuple[float, float]], stream: int, first: float, second: float
    ) -> Queue:
        """Returns a queue whose two stages take so long on average, and vary where there are draws."""
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
    """Returns what takes pushes, answers pulls, makes updates and empties the queues of one server.

    Closures over when each queue is free, since they are asked for every task of a run.
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
