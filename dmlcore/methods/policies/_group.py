"""A group of workers behind a barrier; when it opens, their gradients are applied as one weighted mean."""

from dataclasses import dataclass, field

from dmlcore.types import Decision, Push, Start

Task = tuple[int, int, float]  # worker, clock, weight


@dataclass
class Group:
    """The workers that wait behind the barrier, and their pushes.

    >>> group = Group()
    >>> group.add(Push(2, 7, version_read=0, time=1.0, compute_seconds=1.0, samples=32), share=3)
    >>> group.add(Push(0, 5, version_read=0, time=2.0, compute_seconds=1.0, samples=32), share=1)
    >>> group.open()
    ([(0, 5, 0.25), (2, 7, 0.75)], {0, 2})
    """

    pushes: list[Task] = field(default_factory=list)  # worker, clock, unnormalised share of the mean
    waiting: set[int] = field(default_factory=set)  # workers present that wait
    passed: int = 0  # pushes of any worker since the group's first push

    def __bool__(self) -> bool:
        return bool(self.pushes)

    def add(self, push: Push, share: float) -> None:
        """Adds a push; its worker waits from now on."""
        self.pushes.append((push.worker, push.clock, share))
        self.waiting.add(push.worker)

    def open(self) -> tuple[list[Task], set[int]]:
        """Empties the group and returns its weighted tasks, and the workers that may start again."""
        total = sum(share for _, _, share in self.pushes)
        apply = sorted((worker, clock, share / total) for worker, clock, share in self.pushes)
        start, self.pushes, self.waiting, self.passed = self.waiting, [], set(), 0
        return apply, start

    def leave(self, worker: int, *known: set[int]) -> None:
        """Removes a worker from the group and from the sets `known`; its gradient stays in the mean."""
        for workers in (self.waiting, *known):
            workers.discard(worker)


def join(worker: int, present: set[int], counts: list[int]) -> None:
    """Adds a worker to `present`; its count becomes at least the smallest count of the other workers."""
    counts[worker] = max(counts[worker], min((counts[w] for w in present), default=0))
    present.add(worker)


def answer(apply: list[Task], start: set[int]) -> Decision:
    """Returns the decision that applies these tasks and then starts these workers."""
    return Decision(apply, start=[Start(worker) for worker in sorted(start)])
