"""Causes of slow tasks: random slow episodes, and changes of speed at known tasks or times."""

import functools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dmlcore import checks


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
