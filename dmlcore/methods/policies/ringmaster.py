"""Ringmaster ASGD."""

import math
from collections import deque
from dataclasses import dataclass

from dmlcore.calls import named
from dmlcore.checks import at_least, boolean
from dmlcore.methods.policies._each import Each, each_push
from dmlcore.types import Decision, Policy, Push, Start


@dataclass
class Ages(Each):
    """State where tasks that are too old are stopped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.newest = [0] * self.num_workers  # version on which each worker's last task began
        # Version and worker of every task, in the order in which they began; some of them are over.
        self.begun = deque((0, worker) for worker in range(self.num_workers))

    def begin(self, worker: int) -> None:
        """Notes that a worker begins a task on the newest version."""
        self.newest[worker] = self.version
        self.begun.append((self.version, worker))

    def too_old(self, r: float) -> list[int]:
        """Returns the workers present whose task has missed `r` updates; asked once of each task."""
        found = set()
        while self.begun and self.begun[0][0] <= self.version - r:
            version, worker = self.begun.popleft()
            if worker in self.present and self.newest[worker] == version:
                found.add(worker)
        return sorted(found)


@named(r=at_least(1, infinite=True), stop=boolean)
def ringmaster(r: float, stop: bool = False) -> Policy:
    """Ringmaster ASGD: every push is an update, but a gradient that missed `r` updates or more is dropped.

    Its worker begins anew at the newest point, as after an update. With `stop` a task is cancelled as soon as
    it has missed `r` updates, and its worker begins anew, so that none computes in vain to the end.

    Guarantees: no worker waits, and the staleness of what is applied is at most r - 1. With task times as for
    `rennala`, any r updates in a row take at most the time of one update of `rennala(r)` that is stated
    there, however many slow workers there are besides. `ringmaster(math.inf)` is `asp()`.

    Args:
        r: the paper's R, updates, a whole number >= 1 or `math.inf`. In theory max(1, ceil(sigma^2 / eps)),
            with the variance sigma^2 of a gradient, and the squared norm eps of its mean that is to be
            reached; the learning rate that goes with it is min(1 / (2 r L), eps / (4 L sigma^2)), L the
            smoothness.
        stop: whether tasks that are too old are stopped (the paper's Algorithm 5), or only dropped as they
            arrive (Algorithm 4). In a pipeline the age of a worker's newest task decides.

    Returns:
        The policy. Its `max_lead` is infinite: the lead of a worker has no bound.

    Raises:
        ValueError: `r` is neither a whole number >= 1 nor `math.inf`, or `stop` is neither True nor False.

    >>> ringmaster(8), ringmaster(8, stop=True)
    (ringmaster(r=8), ringmaster(r=8, stop=True))

    Reference: Maranjyan, Tyurin and Richtarik 2025, "Ringmaster ASGD: The first asynchronous SGD with optimal
    time complexity" (arXiv 2501.16168), Algorithms 4 and 5.
    """
    stops = stop and r < math.inf

    def factor(ages: Each, push: Push, tau: int) -> float | None:
        return 1.0 if tau < r else None

    plain = each_push(factor, state=Ages if stops else Each)
    if not stops:
        return plain

    def on_push(ages: Ages, push: Push) -> tuple[Ages, Decision]:
        _, made = plain.on_push(ages, push)
        ages.begin(push.worker)
        old = ages.too_old(r) if made.apply else []
        for worker in old:
            ages.begin(worker)
        start = sorted([*made.start, *(Start(worker) for worker in old)])
        return ages, made._replace(cancel=old, start=start)

    def on_join(ages: Ages, worker: int, time: float) -> tuple[Ages, Decision]:
        ages.present.add(worker)
        ages.begin(worker)
        return ages, Decision(start=[Start(worker)])

    return plain._replace(on_push=on_push, on_join=on_join)
