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
    """State of Ringmaster ASGD with `stop`: the version on which each task in flight began."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.newest = [0] * self.num_workers  # version on which each worker's last task began
        # (version, worker) of every task, in the order in which they began. Finished tasks stay in the queue.
        self.begun = deque((0, worker) for worker in range(self.num_workers))

    def begin(self, worker: int) -> None:
        """Records that a worker begins a task on the newest version."""
        self.newest[worker] = self.version
        self.begun.append((self.version, worker))

    def too_old(self, r: float) -> list[int]:
        """Returns the workers present whose task has missed `r` updates; each task is returned once."""
        found = set()
        while self.begun and self.begun[0][0] <= self.version - r:
            version, worker = self.begun.popleft()
            if worker in self.present and self.newest[worker] == version:
                found.add(worker)
        return sorted(found)


@named(r=at_least(1, infinite=True), stop=boolean)
def ringmaster(r: float, stop: bool = False) -> Policy:
    """Ringmaster ASGD: every push is an update, but gradients of staleness `r` or more are dropped.

    The worker of a dropped gradient starts again from the newest version, as after an update. With `stop` the
    server cancels a task as soon as it has missed `r` updates, and its worker starts again, so that no worker
    finishes a task whose gradient would be dropped.

    Guarantees: no worker waits, and the staleness of applied gradients is at most r - 1. With task times as
    for `rennala`, any r successive updates take at most the time that is stated there for one update of
    `rennala(r)`, however many slow workers there are. `ringmaster(math.inf)` is `asp()`.

    Args:
        r: the paper's R, in updates, a whole number >= 1 or `math.inf`. The theory uses
            max(1, ceil(sigma^2 / eps)), where sigma^2 is the variance of a gradient and eps the target for
            the squared norm of its mean, with the learning rate min(1 / (2 r L), eps / (4 L sigma^2)) for
            the smoothness L.
        stop: True: the server cancels tasks that are too old (the paper's Algorithm 5). False: it drops their
            gradients when they arrive (Algorithm 4). In a pipeline the staleness of a worker's newest task
            decides.

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
