"""What makes a cluster's tasks take longer than its speeds say: slow episodes, by chance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
