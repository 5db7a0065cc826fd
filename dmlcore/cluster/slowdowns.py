"""Causes of slow tasks: random slow episodes, and changes of speed at known tasks or times.

`Pace` integrates the changes at known times exactly over each task.
"""

import functools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dmlcore import checks

LEAST, MOST = 1e-300, 1e300  # bounds of the product of overlapping slowdowns


@dataclass(frozen=True)
class Cause:
    """A cause of slow tasks."""

    def describe(self) -> dict[str, Any]:
        """Returns the cause as plain JSON values."""
        values = asdict(self).items()
        return {
            name: None if value == math.inf else [*value] if isinstance(value, tuple) else value
            for name, value in values
        }


@dataclass(frozen=True)
class Stragglers(Cause):
    """Slow episodes of `Cluster.with_stragglers`: a Markov chain over a worker's tasks, normal or slow.

    Args:
        slowdown: factor on the time of a slow task.
        fraction: long-run share of tasks that are slow.
        mean_tasks: mean length of an episode in tasks.
        workers: numbers of the workers that have episodes. None: all workers.
    """

    slowdown: float
    fraction: float
    mean_tasks: float
    workers: tuple[int, ...] | None

    def __str__(self) -> str:
        return f"{self.slowdown:g}x slow on {self.fraction:.0%} of tasks{_of(self.workers)}"


@dataclass(frozen=True)
class SpeedChange(Cause):
    """A change of `Cluster.with_speed_change` that begins at a task.

    Args:
        slowdown: factor on the compute time.
        clock: first task that is affected.
        until: first task that is no longer affected; `math.inf`: the change lasts.
        workers: numbers of the workers whose speed changes. None: all workers.
    """

    slowdown: float
    clock: int
    until: float
    workers: tuple[int, ...] | None

    def __str__(self) -> str:
        until = "" if self.until == math.inf else f" to {self.until}"
        return f"{self.slowdown:g}x as long from task {self.clock}{until}{_of(self.workers)}"


@dataclass(frozen=True)
class TimedChange(Cause):
    """A change of `Cluster.with_speed_change` that begins at a time.

    Args:
        slowdown: factor on the compute time.
        at: when the change begins, seconds.
        until: when the change ends, seconds; `math.inf`: it lasts.
        workers: numbers of the workers whose speed changes. None: all workers.
    """

    slowdown: float
    at: float
    until: float
    workers: tuple[int, ...] | None

    def __str__(self) -> str:
        until = "" if self.until == math.inf else f" to {self.until:g} s"
        return f"{self.slowdown:g}x as long from {self.at:g} s{until}{_of(self.workers)}"


def speed_change(
    slowdown: Any, clock: Any, at: Any, until: Any, workers: Any, num_workers: int
) -> SpeedChange | TimedChange:
    """Returns the change that the arguments of `Cluster.with_speed_change` describe, checked."""
    slowdown = checks.real("slowdown", slowdown, above=0, high=1e300)
    if (clock is None) == (at is None):
        given = "neither" if clock is None else "both"
        checks.reject("clock, at", given, "exactly one of clock (a number of tasks) and at (seconds)")
    among = check_workers(workers, num_workers)
    if at is None:
        clock = checks.integer("clock", clock, low=0)
        last = math.inf if until is None else checks.integer("until", until, low=clock + 1)
        return SpeedChange(slowdown, clock, last, among)
    at = checks.not_negative("at", at)
    end = math.inf if until is None else checks.real("until", until, above=at)
    return TimedChange(slowdown, at, end, among)


def check_workers(workers: Sequence[int] | None, num_workers: int) -> tuple[int, ...] | None:
    """Returns numbers of workers, checked; None means all workers."""
    if workers is None:
        return None
    one = functools.partial(checks.integer, low=0, high=num_workers - 1, why="workers count from 0")
    return tuple(checks.several("workers", workers, one))


def _of(workers: tuple[int, ...] | None) -> str:
    return "" if workers is None else f" of {len(workers)} worker" + "s" * (len(workers) > 1)


class Pace:
    """The slowdown of each worker as a piecewise constant function of time, slowdown(t).

    Guarantee: a task that takes w seconds without changes and begins at time b ends at the time e for which
    the integral of dt / slowdown(t) from b to e is w. If no change falls into the task, e is b + w to the
    last bit.

    Args:
        cluster: the cluster, whose changes at a time are used.

    >>> from dmlcore.cluster import Cluster
    >>> pace = Pace(Cluster.uniform(2).with_speed_change(2, at=10.0, until=14.0, workers=[1]))
    >>> pace.finish(0, 9.0, 3.0), pace.finish(1, 9.0, 2.0), pace.finish(1, 9.0, 4.0)
    (12.0, 12.0, 15.0)
    """

    def __init__(self, cluster: Any):
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
