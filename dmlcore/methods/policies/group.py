"""A group of workers behind a barrier, whose gradients become one weighted mean when it opens."""

from __future__ import annotations

from dataclasses import dataclass, field

from dmlcore.types import Push

Task = tuple[int, int, float]  # worker, clock, weight


@dataclass
class Group:
    """Who waits, and with what.

    Args:
        pushes: worker, clock, share of the mean.
        waiting: workers that are there and wait.
        passed: pushes of anybody since the first.

    >>> group = Group()
    >>> group.add(Push(2, 7, version_read=0, time=1.0, compute_seconds=1.0, samples=32), share=3)
    >>> group.add(Push(0, 5, version_read=0, time=2.0, compute_seconds=1.0, samples=32), share=1)
    >>> group.open()
    ([(0, 5, 0.25), (2, 7, 0.75)], {0, 2})
    """

    pushes: list[Task] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    passed: int = 0

    def __bool__(self) -> bool:
        return bool(self.pushes)

    def count(self) -> None:
        """Counts a push of anybody, before it is dealt with."""
        self.passed += bool(self.pushes)

    def add(self, push: Push, share: float) -> None:
        """Lets a worker wait."""
        self.pushes.append((push.worker, push.clock, share))
        self.waiting.add(push.worker)

    def open(self) -> tuple[list[Task], set[int]]:
        """Returns the tasks of the mean and who may go on; nobody is left."""
        total = sum(share for _, _, share in self.pushes)
        apply = sorted((worker, clock, share / total) for worker, clock, share in self.pushes)
        start, self.pushes, self.waiting, self.passed = self.waiting, [], set(), 0
        return apply, start

    def leave(self, worker: int, *known: set[int]) -> None:
        """Takes a worker that has left out of the sets that know it; its gradient stays in the mean."""
        for workers in (self.waiting, *known):
            workers.discard(worker)


def join(worker: int, present: set[int], counts: list[int]) -> None:
    """Lets a worker in that comes, or comes back: its count is at least that of the last of the others."""
    counts[worker] = max(counts[worker], min((counts[w] for w in present), default=0))
    present.add(worker)
