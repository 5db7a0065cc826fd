"""Changes of workers' speeds at known times, integrated exactly over each task."""

import math
from bisect import bisect_right

from dmlcore.cluster.cluster import Cluster
from dmlcore.cluster.slowdowns import TimedChange

LEAST, MOST = 1e-300, 1e300  # bounds of the product of overlapping slowdowns


class Pace:
    """The slowdown of each worker as a piecewise constant function of time, slowdown(t).

    Guarantee: a task that takes w seconds without changes and begins at time b ends at the time e for which
    the integral of dt / slowdown(t) from b to e is w. If no change falls into the task, e is b + w to the
    last bit.

    Args:
        cluster: the cluster, whose changes at a time are used.

    >>> pace = Pace(Cluster.uniform(2).with_speed_change(2, at=10.0, until=14.0, workers=[1]))
    >>> pace.finish(0, 9.0, 3.0), pace.finish(1, 9.0, 2.0), pace.finish(1, 9.0, 4.0)
    (12.0, 12.0, 15.0)
    """

    def __init__(self, cluster: Cluster):
        changes = [change for change in cluster.changes if isinstance(change, TimedChange)]
        # For each worker: the times at which its slowdown changes, and the slowdown from each time on.
        self._stretches = [self._of(worker, changes) for worker in range(cluster.num_workers)]

    @staticmethod
    def _of(worker: int, changes: list[TimedChange]) -> tuple[list[float], list[float]]:
        own = [change for change in changes if change.workers is None or worker in change.workers]
        starts = sorted({0.0, *(change.at for change in own), *(change.until for change in own)} - {math.inf})
        slowdowns = []
        for start in starts:
            factor = math.prod(change.slowdown for change in own if change.at <= start < change.until)
            slowdowns.append(min(max(factor, LEAST), MOST))
        return starts, slowdowns

    def finish(self, worker: int, begun: float, seconds: float) -> float:
        """Returns when a worker finishes work that takes `seconds` without changes and starts at `begun`."""
        starts, slowdowns = self._stretches[worker]
        index = bisect_right(starts, begun) - 1
        for change in range(index + 1, len(starts)):
            end, slowdown = starts[change], slowdowns[change - 1]
            if begun + seconds * slowdown <= end:
                break
            seconds, begun, index = max(seconds - (end - begun) / slowdown, 0.0), end, change
        return begun + seconds * slowdowns[index]

    def work(self, worker: int, begun: float, end: float) -> float:
        """Returns the work that a worker does from `begun` to `end`: its seconds without changes of speed."""
        starts, slowdowns = self._stretches[worker]
        index = bisect_right(starts, begun) - 1
        done = 0.0
        for change in range(index + 1, len(starts)):
            if starts[change] >= end:
                break
            done += (starts[change] - begun) / slowdowns[change - 1]
            begun, index = starts[change], change
        return done + max(end - begun, 0.0) / slowdowns[index]

    def resumed(self, worker: int, end: float, stopped: float, again: float) -> float:
        """Returns when a task ends whose worker pauses for a while. Times are seconds.

        Args:
            worker: number of the worker.
            end: when the task would end without the pause.
            stopped: when the worker pauses, or when the task would begin if that is later.
            again: when the worker continues or begins the task.
        """
        if math.inf in (end, again):
            return math.inf
        return self.finish(worker, again, self.work(worker, stopped, end))
