"""The queues of a server that takes time: first come, first served."""

from __future__ import annotations

from collections.abc import Mapping

from dmlcore.cluster.draws import SERVED_PULL, SERVED_PUSH, Draws


class Service:
    """When a server takes each push and when its answers are through, as far as they have come.

    Three queues, each served one message at a time in the order in which they come: the link to the server,
    its processor, and the link back. A server that is split into shards works on all parts of a message at
    the same time, and is done with the largest.

    Args:
        seconds: mean ones of what it does, as `ParameterServer.seconds` gives them.
        draws: of the cluster and seed, where they vary; None: they do not.
    """

    __slots__ = ("_draws", "_pull", "_push", "_update", "processor", "pulls_take", "way_in", "way_out")

    def __init__(self, seconds: Mapping[str, float], draws: Draws | None):
        self._push = seconds["link_in"], seconds["push"]
        self._pull = seconds["pull"], seconds["link_out"]
        self._update, self._draws = seconds["update"], draws
        self.pulls_take = max(self._pull) > 0  # time; else answers leave at once
        self.reset()

    def reset(self, now: float = 0.0) -> None:
        """Empties all queues: the server starts, or starts again."""
        self.way_in = self.processor = self.way_out = now  # from when each is free

    def take(self, worker: int, clock: int, time: float) -> tuple[float, float]:
        """Takes a push that has come over its worker's link at `time`.

        Returns:
            When the server has read it, and how long it has waited in queues, seconds.
        """
        link, work = self._push
        if self._draws is not None:
            factor = self._draws.multiplier(SERVED_PUSH, worker, clock)
            link, work = factor * link, factor * work
        here, free = time, self.processor
        if link:
            here = self.way_in = (time if time > self.way_in else self.way_in) + link
        taken = self.processor = (here if here > free else free) + work
        return taken, taken - time - link - work

    def answer(self, worker: int, clock: int, time: float) -> tuple[float, float]:
        """Answers the pull before a task, which was let begin at `time`.

        Returns:
            When the copy is through the server's link, and how long that has waited, seconds.
        """
        work, link = self._pull
        if self._draws is not None:
            factor = self._draws.multiplier(SERVED_PULL, worker, clock)
            link, work = factor * link, factor * work
        free = self.processor
        sent = self.processor = (time if time > free else free) + work
        if link:
            sent = self.way_out = (sent if sent > self.way_out else self.way_out) + link
        return sent, sent - time - link - work

    def update(self, time: float) -> None:
        """Makes an update that was decided at `time`."""
        self.processor = max(self.processor, time) + self._update
