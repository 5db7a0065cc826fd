"""What makes tasks take another time than a cluster's speeds say: slow episodes by chance, known changes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dmlcore import checks


@dataclass(frozen=True)
class Stragglers:
    """Slow episodes: a Markov chain over a worker's tasks that switches between normal and slow.

    Args:
        slowdown: factor on the time of a task in a slow episode, >= 1.
        fraction: long-run share of tasks that are slow, 0 to 1; 1 is a persistent straggler.
        mean_tasks: mean length of a slow episode, tasks, >= 1.
        workers: which workers have them; None: all.
    """

    slowdown: float
    fraction: float
    mean_tasks: float
    workers: tuple[int, ...] | None

    @classmethod
    def checked(
        cls,
        num_workers: int,
        slowdown: float,
        fraction: float,
        mean_tasks: float,
        workers: Sequence[int] | None,
    ) -> Stragglers:
        """Returns the episodes that these arguments of `Cluster.with_stragglers` ask for."""
        slowdown = checks.real("slowdown", slowdown, low=1, high=1e300)
        fraction = checks.real("fraction", fraction, low=0, high=1)
        mean_tasks = checks.real("mean_tasks", mean_tasks, low=1, high=1e300)
        if fraction < 1 and fraction / (1 - fraction) > mean_tasks:
            least = fraction / (1 - fraction)
            checks.fail(
                "mean_tasks", mean_tasks, f"a number >= {least:g}, for episodes on {fraction:.0%} of tasks"
            )
        return cls(slowdown, fraction, mean_tasks, check_workers(workers, num_workers))

    def __str__(self) -> str:
        return f"{self.slowdown:g}x slow on {self.fraction:.0%} of tasks{_of(self.workers)}"


@dataclass(frozen=True)
class SpeedChange:
    """From a known task on, a worker's tasks take another time.

    Args:
        slowdown: factor on the time of a task meanwhile, > 0; below 1 the worker is faster.
        clock: number of the first task that it holds for.
        until: number of the first task that it holds for no more; infinity: it lasts.
        workers: whose speed changes; None: everybody's.
    """

    slowdown: float
    clock: int
    until: float
    workers: tuple[int, ...] | None

    @classmethod
    def checked(
        cls, num_workers: int, slowdown: float, clock: int, until: float | None, workers: Sequence[int] | None
    ) -> SpeedChange:
        """Returns the change that these arguments of `Cluster.with_speed_change` ask for."""
        slowdown = checks.real("slowdown", slowdown, above=0, high=1e300)
        clock = checks.integer("clock", clock, low=0)
        last = math.inf if until is None else checks.integer("until", until, low=clock + 1)
        return cls(slowdown, clock, last, check_workers(workers, num_workers))

    def describe(self) -> dict[str, Any]:
        """Returns the change as plain JSON values."""
        return dataclasses.asdict(self) | {"until": None if self.until == math.inf else self.until}

    def __str__(self) -> str:
        until = "" if self.until == math.inf else f" to {self.until}"
        return f"{self.slowdown:g}x as long from task {self.clock}{until}{_of(self.workers)}"


def check_workers(workers: Sequence[int] | None, num_workers: int) -> tuple[int, ...] | None:
    """Returns the numbers of some workers; None is all."""
    if workers is None:
        return None
    if not isinstance(workers, Iterable):
        checks.fail("workers", workers, "numbers of workers, such as [0]")
    last = num_workers - 1
    return tuple(checks.integer("workers", w, low=0, high=last, why="the workers") for w in workers)


def _of(workers: tuple[int, ...] | None) -> str:
    return "" if workers is None else f" of {len(workers)} worker" + "s" * (len(workers) > 1)
