"""The gate of the policies that bound how far a worker may lead the slowest one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dmlcore.types import Decision, Policy, Push, Start

new = tuple.__new__  # half the cost of a named tuple's own constructor, on the path of every push
NOTHING = Decision()


class ClockTable:
    """Clocks finished by every worker, with the slowest of those present known in O(1) a push.

    >>> table = ClockTable(2)
    >>> table.advance(0), table.slowest
    (1, 0)
    >>> table.advance(1), table.slowest
    (1, 1)
    """

    def __init__(self, num_workers: int):
        self.finished = [0] * num_workers
        self.present = set(range(num_workers))
        self.slowest = 0
        self._workers_at = {0: num_workers}

    def advance(self, worker: int) -> int:
        """Counts one more finished clock of `worker` and returns its new count."""
        before = self.finished[worker]
        count = self.finished[worker] = before + 1
        at = self._workers_at
        at[count] = at.get(count, 0) + 1
        at[before] -= 1
        if not at[before]:
            del at[before]
            if before == self.slowest:
                self.slowest = count
        return count

    def leave(self, worker: int) -> None:
        """Leaves `worker` out of the minimum from now on."""
        count, at = self.finished[worker], self._workers_at
        self.present.remove(worker)
        at[count] -= 1
        if not at[count]:
            del at[count]
            self.slowest = min(at, default=self.slowest)

    def join(self, worker: int) -> int:
        """Adds `worker` again, at the slowest worker's clock or its own larger one; returns its count."""
        count = self.finished[worker] = max(self.finished[worker], self.slowest)
        if not self.present:
            self.slowest = count
        self.present.add(worker)
        self._workers_at[count] = self._workers_at.get(count, 0) + 1
        return count


@dataclass
class Gate:
    """State of a policy that gates on clocks."""

    clocks: ClockTable  # finished clocks of every worker
    max_lead: float  # clocks by which a worker that joins may lead the slowest
    weight: float | None = None  # of one push in an update. None: 1 / number of workers present
    # every update is a round of all workers. Where `weight` is None, pushes are then weighted by their
    # samples: with equal samples that is 1 / number of workers, to the last bit
    rounds: bool = False
    # per worker, the slowest worker's count at its last pull; empty where every task pulls
    copy_clock: list[int] = field(default_factory=list)
    # count that the slowest worker must reach -> workers that wait for it
    waiting: dict[int, list[int]] = field(default_factory=dict)
    # (worker, clock, samples) of the pushes of waiting workers; they are in the next update
    held: list[tuple[int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.count_present()

    def count_present(self) -> None:
        """Sets the weight of a push for the workers that are present now."""
        self.share = 1.0 / max(len(self.clocks.present), 1) if self.weight is None else self.weight

    def wait(self, push: Push, until: float) -> Decision:
        """Holds a push: its worker waits until the slowest worker has finished `until` clocks."""
        self.waiting.setdefault(int(until), []).append(push.worker)
        self.held.append((push.worker, push.clock, push.samples))
        return NOTHING

    def proceed(self, push: Push, pull: bool = True) -> Decision:
        """Applies a push and all held ones; its worker and the workers that waited for it start."""
        worker = push.worker
        start = [new(Start, (worker, None, pull, None))]
        if self.waiting or self.held:
            return self._decide(self._take_held(push), sorted(start + self._release()))
        if pull and self.copy_clock:
            self.copy_clock[worker] = self.clocks.slowest
        return new(Decision, ([(worker, push.clock, self.share)], (), (), start))

    def leave(self, worker: int) -> Decision:
        """Removes a worker; workers that waited for it alone start, and held pushes are applied."""
        self.clocks.leave(worker)
        self.count_present()
        self.waiting = {
            until: rest
            for until, workers in self.waiting.items()
            if (rest := [each for each in workers if each != worker])
        }
        start = self._release()
        return self._decide(self._take_held() if start else [], start)

    def join(self, worker: int) -> Decision:
        """Adds a worker, which starts at once unless it is too far ahead."""
        clock = self.clocks.join(worker)
        self.count_present()
        if self.clocks.slowest < clock - self.max_lead:
            self.waiting.setdefault(int(clock - self.max_lead), []).append(worker)
            return NOTHING
        return self._decide([], [Start(worker, clock=clock)])

    def _release(self) -> list[Start]:
        """Returns the starts of the waiting workers that the slowest one lets go, in worker order."""
        slowest, finished = self.clocks.slowest, self.clocks.finished
        due = [until for until in self.waiting if until <= slowest]
        free = [worker for until in due for worker in self.waiting.pop(until)]
        return [Start(worker, clock=finished[worker]) for worker in sorted(free)]

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

    def _decide(self, apply: list[tuple[int, int, float]], start: list[Start]) -> Decision:
        if self.copy_clock:
            for each in start:
                if each.pull:
                    self.copy_clock[each.worker] = self.clocks.slowest
        return new(Decision, (apply, (), (), start))


def gated(
    on_push: Callable[[Any, Push], tuple[Any, Decision]],
    max_lead: float,
    weight: float | None = None,
    *,
    cached: bool = False,
) -> Policy:
    """Returns the policy of a gate with a fixed window, and a rule for pushes.

    Args:
        on_push: gate, push -> gate, decision.
        max_lead: clocks by which a worker may lead the slowest; 0 makes every update a round.
        weight: of one push in an update, as of `Gate`.
        cached: workers keep a copy of the parameters.
    """

    def init(num_workers: int) -> Gate:
        copy_clock = [0] * num_workers if cached else []
        return Gate(ClockTable(num_workers), max_lead, weight, max_lead == 0, copy_clock)

    def on_leave(gate: Gate, worker: int, time: float) -> tuple[Gate, Decision]:
        return gate, gate.leave(worker)

    def on_join(gate: Gate, worker: int, time: float) -> tuple[Gate, Decision]:
        return gate, gate.join(worker)

    return Policy("", init, on_push, max_lead, on_leave, on_join)
