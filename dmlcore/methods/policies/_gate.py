"""The gate: the state of policies that bound how far a worker may lead the slowest one."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from dmlcore.types import NOTHING_YET, Decision, Policy, Push, Start

WORKER = itemgetter(0)
new = tuple.__new__  # costs half as much as the constructor of a named tuple; every push runs this


@dataclass
class Gate:
    """State of a policy that gates on clocks. It finds the slowest worker in amortised O(1) per push.

    >>> gate = Gate(2, max_lead=0)
    >>> gate.advance(0), gate.slowest
    (1, 0)
    >>> gate.advance(1), gate.slowest
    (1, 1)
    """

    num_workers: int  # of the cluster
    max_lead: float  # clocks by which a worker that joins may lead the slowest
    weight: float | None = None  # weight of one push in an update. None: 1 / number of workers present
    # True: every update is a round of all workers. If `weight` is None, pushes are then weighted by their
    # samples: with equal samples that is exactly 1 / number of workers.
    rounds: bool = False

    slowest: int = 0  # clocks that the slowest worker present has finished
    # By worker, the answer to its last pull: the slowest worker's count, and the weight of its pushes.
    copies: dict[int, tuple[int, float]] = field(default_factory=dict)
    # Count that the slowest worker must reach -> starts of the workers that wait for it.
    waiting: defaultdict[float, list[Start]] = field(default_factory=lambda: defaultdict(list))
    # Pushes of waiting workers that are not yet applied: worker, clock, samples.
    held: list[tuple[int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.finished = [0] * self.num_workers  # finished clocks of each worker
        self.present = set(range(self.num_workers))
        self.go = [(Start(worker),) for worker in range(self.num_workers)]  # made once, not at every push
        self.next_release: float = math.inf  # the smallest key of `waiting`
        self.look()

    def look(self) -> None:
        """Recomputes the slowest worker; `advance` calls it once for each clock that all have finished."""
        finished = self.finished
        if len(self.present) < len(finished):
            finished = [finished[worker] for worker in self.present] or [self.slowest]
        self.slowest = min(finished)
        self._at_slowest = finished.count(self.slowest)
        self.share = 1.0 / max(len(self.present), 1) if self.weight is None else self.weight
        self.news = self.slowest, self.share  # the answer to a pull

    def advance(self, worker: int) -> int:
        """Counts one more finished clock of a worker and returns its new count."""
        count = self.finished[worker] = self.finished[worker] + 1
        if count == self.slowest + 1:
            self._at_slowest -= 1
            if not self._at_slowest:
                self.look()
        return count

    def wait(self, push: Push, until: float) -> Decision:
        """Holds a push, and its worker waits until the slowest worker has finished `until` clocks."""
        worker, clock, _, _, _, samples, _ = push
        self.waiting[until].append(self.go[worker][0])
        if until < self.next_release:
            self.next_release = until
        self.held.append((worker, clock, samples))
        return NOTHING_YET

    def proceed(self, push: Push) -> Decision:
        """Applies a push and the held pushes, and starts the workers that may go on.

        These are the workers whose wait has ended, and the push's own worker unless it kept its cached copy
        and has already started.
        """
        worker, clock, _, _, _, _, keeps_copy = push
        start: tuple[Start, ...]
        if keeps_copy:
            # The weight with which the worker has added its own update to its copy.
            start, weight = (), self.copies[worker][1]
        else:
            start, weight = self.go[worker], self.share
        if not self.held and self.slowest < self.next_release:
            return new(Decision, ([(worker, clock, weight)], (), (), start, None))
        apply = self._take_held(push)
        if keeps_copy and weight != apply[0][2]:
            apply = [(w, c, weight if w == worker else share) for w, c, share in apply]
        if self.slowest >= self.next_release:
            start = (*sorted([*start, *self._release()], key=WORKER),)
        return new(Decision, (apply, (), (), start, None))

    def tell(self, worker: int) -> tuple[int, float]:
        """Returns and records the answer to a pull: the slowest worker's count, and the weight of a push."""
        told = self.copies[worker] = self.news
        return told

    def leave(self, worker: int) -> Decision:
        """Removes a worker. Workers that waited only for it start, and held pushes are then applied."""
        self.present.remove(worker)
        self.look()
        for until, starts in [*self.waiting.items()]:
            self.waiting[until] = [start for start in starts if start.worker != worker]
            if not self.waiting[until]:
                del self.waiting[until]
        start = sorted(self._release())
        return Decision(self._take_held() if start else (), start=start)

    def join(self, worker: int) -> Decision:
        """Adds a worker at the larger of its own clock and the slowest one's; it waits if too far ahead."""
        self.look()
        clock = self.finished[worker] = max(self.finished[worker], self.slowest)
        self.present.add(worker)
        self.look()
        if self.slowest < clock - self.max_lead:
            self._wait(clock - self.max_lead, Start(worker, clock=clock))
            return NOTHING_YET
        return Decision(start=[Start(worker, clock=clock)])

    def _release(self) -> list[Start]:
        """Removes and returns the starts of the workers that the slowest worker's clock releases."""
        if self.slowest < self.next_release:
            return []
        due = [until for until in self.waiting if until <= self.slowest]
        free = [start for until in due for start in self.waiting.pop(until)]
        self.next_release = min(self.waiting, default=math.inf)
        return free

    def _wait(self, until: float, start: Start) -> None:
        self.waiting[until].append(start)
        if until < self.next_release:
            self.next_release = until

    def _take_held(self, push: Push | None = None) -> list[tuple[int, int, float]]:
        """Returns the tasks of the next update, `push` and all held pushes, ordered by (worker, clock)."""
        if push is not None:
            if not self.held:
                return [(push.worker, push.clock, self.share)]
            self.held.append((push.worker, push.clock, push.samples))
        tasks, self.held = sorted(self.held), []
        if self.weight is None and self.rounds:
            total = sum(samples for _, _, samples in tasks)
            return [(worker, clock, samples / total) for worker, clock, samples in tasks]
        # The weights of a mean sum to at most 1, even if a worker has left after its push.
        share = min(self.share, 1.0 / max(len(tasks), 1)) if self.weight is None else self.weight
        return [(worker, clock, share) for worker, clock, _ in tasks]


def gated(
    on_push: Callable[[Any, Push], tuple[Any, Decision]],
    max_lead: float,  # clocks by which a worker may lead the slowest; 0: every update is a round
    weight: float | None = None,
    *,
    state: type[Gate] = Gate,
    keep_copy: Callable[[int, int], bool] | None = None,
) -> Policy:
    """Returns the policy with a fixed `max_lead` that handles pushes by `on_push`."""

    def init(num_workers: int) -> Gate:
        return state(num_workers, max_lead, weight, max_lead == 0)

    def on_leave(gate: Gate, worker: int, time: float) -> tuple[Gate, Decision]:
        return gate, gate.leave(worker)

    def on_join(gate: Gate, worker: int, time: float) -> tuple[Gate, Decision]:
        return gate, gate.join(worker)

    on_pull = None if keep_copy is None else Gate.tell
    return Policy("", init, on_push, max_lead, on_leave, on_join, on_pull=on_pull, keep_copy=keep_copy)
