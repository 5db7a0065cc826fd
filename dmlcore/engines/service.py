"""The queues of a server that takes time: first come, first served."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dmlcore.cluster.draws import SERVED_PULL, SERVED_PUSH, Draws

WAY_IN, PROCESSOR, WAY_OUT = range(3)
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
        pulls_take: whether answers take time; else they leave at once.
    """

    __slots__ = ("_draws", "_free", "_update", "answer", "pulls_take", "take")

    def __init__(self, seconds: Mapping[str, float], draws: Draws | None):
        push, pull = (seconds["link_in"], seconds["push"]), (seconds["pull"], seconds["link_out"])
        self._update, self._draws, self.pulls_take = seconds["update"], draws, max(pull) > 0
        self._free = [0.0, 0.0, 0.0]  # from when the way in, the processor and the way out are free
        self.take, self.answer = self._taker(*push), self._answerer(*pull)
        self.reset()

    def reset(self, now: float = 0.0) -> None:
        """Empties all queues: the server starts, or starts again."""
        self._free[:] = now, now, now

    def update(self, time: float) -> None:
        """Makes an update that was decided at `time`."""
        self._free[PROCESSOR] = max(self._free[PROCESSOR], time) + self._update

    # Closures, since they are asked for every task of a run; not over `self`, which refers to them.

    def _taker(self, link: float, work: float) -> Queue:
        free = self._free

        def take(
            worker: int, clock: int, time: float, link: float = link, work: float = work
        ) -> tuple[float, float]:
            here, ready = time, free[PROCESSOR]
            if link:
                here = free[WAY_IN] = (time if time > free[WAY_IN] else free[WAY_IN]) + link
            taken = free[PROCESSOR] = (here if here > ready else ready) + work
            return taken, taken - time - link - work

        return take if self._draws is None else self._varied(take, SERVED_PUSH, link, work)

    def _answerer(self, work: float, link: float) -> Queue:
        free = self._free

        def answer(
            worker: int, clock: int, time: float, work: float = work, link: float = link
        ) -> tuple[float, float]:
            ready = free[PROCESSOR]
            sent = free[PROCESSOR] = (time if time > ready else ready) + work
            if link:
                sent = free[WAY_OUT] = (sent if sent > free[WAY_OUT] else free[WAY_OUT]) + link
            return sent, sent - time - link - work

        return answer if self._draws is None else self._varied(answer, SERVED_PULL, work, link)

    def _varied(
        self, queue: Callable[..., tuple[float, float]], stream: int, first: float, second: float
    ) -> Queue:
        """Returns a queue whose two stages take so long on average."""
        draws = self._draws
        assert draws is not None

        def varied(worker: int, clock: int, time: float) -> tuple[float, float]:
            factor = draws.multiplier(stream, worker, clock)
            return queue(worker, clock, time, factor * first, factor * second)

        return varied
