"""The times of a task's phases, the same on a virtual clock and, injected as sleeps, on a real one."""

import math

from dmlcore.cluster.draws import PULL, PUSH, Draws
from dmlcore.cluster.pace import Pace
from dmlcore.cluster.slowdowns import TimedChange


class Links:
    """Times of pulls, tasks and pushes under one seed.

    Args:
        draws: random times of the cluster and seed.
        pull_bytes: bytes of a pull.
        push_bytes: bytes of a push.
    """

    def __init__(self, draws: Draws, pull_bytes: int, push_bytes: int):
        self._draws, self._bytes = draws, {PULL: pull_bytes, PUSH: push_bytes}
        # Worker, clock, samples -> seconds, without changes of speed at a time.
        self.compute_seconds = draws.compute_seconds
        cluster = draws.cluster
        timed = any(isinstance(change, TimedChange) for change in cluster.changes)
        self.pace = Pace(cluster) if timed else None
        narrow = min(cluster.bandwidth_bytes_per_second) < math.inf
        # Whether pulls and pushes take any time.
        self.pulls_take = any(cluster.pull_latency_seconds or cluster.latency_seconds) or (
            narrow and pull_bytes > 0
        )
        self.pushes_take = any(cluster.latency_seconds) or (narrow and push_bytes > 0)

    def pull_seconds(self, worker: int, clock: int) -> float:
        """Returns the seconds of the pull before a worker's task `clock`."""
        return self._draws.transfer_seconds(PULL, worker, clock, self._bytes[PULL])

    def push_seconds(self, worker: int, clock: int) -> float:
        """Returns the seconds of the push after a worker's task `clock`."""
        return self._draws.transfer_seconds(PUSH, worker, clock, self._bytes[PUSH])

    def finish(self, worker: int, clock: int, samples: int, begun: float) -> float:
        """Returns the end of computing, in seconds, of a task that begins to compute at `begun`."""
        seconds = self.compute_seconds(worker, clock, samples)
        return begun + seconds if self.pace is None else self.pace.finish(worker, begun, seconds)

    def computing(
        self, worker: int, clock: int, samples: int, pull: bool, since: float
    ) -> tuple[float, float]:
        """Returns begin and end of computing, in seconds, of a task that was released at `since`."""
        begun = since + self.pull_seconds(worker, clock) if pull else since
        return begun, self.finish(worker, clock, samples, begun)
