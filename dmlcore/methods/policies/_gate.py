"""The gate of the policies that bound how far a worker may lead the slowest one."""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from dmlcore.types import NOTHING_YET, Decision, Policy, Push, Start

WORKER = itemgetter(0)
new = tuple.__new__  # half the cost of a named tuple's own constructor, on the path of every push


@dataclass
class Gate:
    """State of a policy that gates on clocks; it knows the slowest worker in O(1) a push, amortised.

    >>> gate = Gate(2, max_lead=0)
    >>> gate.advance(0), gate.slowest
    (1, 0)
    >>> gate.advance(1), gate.slowest
    (1, 1)
    """

    num_workers: int  # of the cluster
    max_lead: float  # clocks by which a worker that joins may lead the slowest
    weight: float | None = None  # of one push in an update. None: 1 / number of workers present
    # Every update is a round of all workers. Where `weight` is None, pushes are then weighted by their
    # samples: with equal samples that is 1 / number of workers, to the last bit.
    rounds: bool = False

    slowest: int = 0  # clocks that the slowest worker present has finished
    # What each worker was told at its last pull: the slowest worker's count, and the weight of its pushes.
    copies: dict[int, tuple[int, float]] = field(default_factory=dict)
    # Slowest count needed -> starts of the workers that wait for it.
    waiting: defaultdict[float, list[Start]] = field(default_factory=lambda: defaultdict(list))
    held: list[tuple[int, int, int]] = field(default_factory=list)  # their pushes: worker, clock, samples

    def __post_init__(self) -> None:
        self.finished = [0] * self.num_workers  # clocks, of each worker
        self.present = set(range(self.num_workers))
        self.go = [(Start(worker),) for worker in range(self.num_workers)]  # made once, not at every push
        self.next_release: float = math.inf  # slowest count at which a worker that waits may go on
        self.look()

    def look(self) -> None:
        """Looks at every worker: while clocks advance, once for each that all workers have finished."""
        finished = self.finished
        if len(self.present) < len(finished):
            finished = [finished[worker] for worker in self.present] or [self.slowest]
        self.slowest = min(finished)
        self._at_slowest = finished.count(self.slowest)
        self.share = 1.0 / max(len(self.present), 1) if self.weight is None else self.weight
        self.news = self.slowest, self.share  # what a worker that pulls is told

    def advance(self, worker: int) -> int:
        """Counts one more finished clock of a worker and returns its new count."""
        count = self.finished[worker] = self.finished[worker] + 1
        if count == self.slowest + 1:
            self._at_slowest -= 1
            if not self._at_slowest:
                self.look()
        return count

    def wait(self, push: Push, until: float) -> Decision:
        """Holds a push: its worker waits until the slowest worker has finished `until` clocks."""
        worker, clock, _, _, _, samples, _ = push
        self.waiting[until].append(self.go[worker][0])
        if until < self.next_release:
            self.next_release = until
        self.held.append((worker, clock, samples))
        return NOTHING_YET

    def proceed(self, push: Push) -> Decision:
        """Applies a push and held ones; its worker, unless it went on by itself, and waiting ones start."""
        worker, clock, _, _, _, _, keeps_copy = push
        start: tuple[Start, ...]
        if keeps_copy:
            start, weight = (), self.copies[worker][1]  # as it was told, and has added its own update with
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
        """Returns what a worker that pulls is told of its copy, and notes it."""
        told = self.copies[worker] = self.news
        return told

    def leave(self, worker: int) -> Decision:
        """Removes a worker; workers that waited for it alone start, and held pushes are applied."""
        self.present.remove(worker)
        self.look()
        for until, starts in [*self.waiting.items()]:
            self.waiting[until] = [start for start in starts if start.worker != worker]
            if not self.waiting[until]:
                del self.waiting[until]
        start = sorted(self._release())
        return Decision(self._take_held() if start else (), start=start)

    def join(self, worker: int) -> Decision:
        """Adds a worker at the slowest one's clock, or its own larger one; it waits if too far ahead."""
        self.look()
        clock = self.finished[worker] = max(self.finished[worker], self.slowest)
        self.present.add(worker)
        self.look()
        if self.slowest < clock - self.max_lead:
            self._wait(clock - self.max_lead, Start(worker, clock=clock))
            return NOTHING_YET
        return Decision(start=[Start(worker, clock=clock)])

    def _release(self) -> list[Start]:
        """Returns the starts of the waiting workers that the slowest one lets go."""
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
        """Returns the pushes of the next update, `push` and all held ones, in (worker, clock) order."""
        if push is not None:
            if not self.held:
                return [(push.worker, push.clock, self.share)]
            self.held.append((push.worker, push.clock, push.samples))
        tasks, self.held = sorted(self.held), []
        if self.weight is None and self.rounds:
            total = sum(samples for _, _, samples in tasks)
            return [(worker, clock, samples / total) for worker, clock, samples in tasks]
        # The weights of a mean sum to 1 even where a worker has left after its push.
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
    """Returns the policy of a gate with a fixed window, and a rule for pushes."""

    def init(num_workers: int) -> Gate:
        return state(num_workers, max_lead, weight, max_lead == 0)

    def on_leave(gate: Gate, worker: int, time: float) -> tuple[Gate, Decision]:
        return gate, gate.leave(worker)

    def on_join(gate: Gate, worker: int, time: float) -> tuple[Gate, Decision]:
        return gate, gate.join(worker)

    on_pull = None if keep_copy is None else Gate.tell
    return Policy("", init, on_push, max_lead, on_leave, on_join, on_pull=on_pull, keep_copy=keep_copy)
