"""Policies that gate on clocks: they bound how far a worker may lead the slowest one.

`Gate` is their state, and `gated` makes a policy of what it does when a push arrives.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from dmlcore import checks
from dmlcore.calls import named
from dmlcore.checks import at_least, or_none, positive
from dmlcore.types import NOTHING_YET, Decision, Policy, Push, Start

WORKER = itemgetter(0)
new: Any = tuple.__new__  # costs half as much as the constructor of a named tuple; every push runs this


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
    rounds: bool | None = None,  # of the gate. None: whether `max_lead` is 0
    keep_copy: Callable[[int, int], bool] | None = None,
) -> Policy:
    """Returns the policy with a fixed `max_lead` that handles pushes by `on_push`."""

    def init(num_workers: int) -> Gate:
        return state(num_workers, max_lead, weight, max_lead == 0 if rounds is None else rounds)

    def on_leave(gate: Gate, worker: int, time: float) -> tuple[Gate, Decision]:
        return gate, gate.leave(worker)

    def on_join(gate: Gate, worker: int, time: float) -> tuple[Gate, Decision]:
        return gate, gate.join(worker)

    on_pull = None if keep_copy is None else Gate.tell
    return Policy("", init, on_push, max_lead, on_leave, on_join, on_pull=on_pull, keep_copy=keep_copy)


def eager(max_lead: float, weight: float | None = None) -> Policy:
    """Returns the policy with a fixed `max_lead` under which every task starts from the newest version."""

    def on_push(gate: Gate, push: Push) -> tuple[Gate, Decision]:
        needed = gate.advance(push.worker) - max_lead
        if gate.slowest < needed:
            return gate, gate.wait(push, until=needed)
        return gate, gate.proceed(push)

    return gated(on_push, max_lead, weight)


@named()
def bsp() -> Policy:
    """Bulk synchronous parallel: every round waits for all workers and applies the mean of their gradients.

    The mean is over samples: a task of b samples has the weight b / sum(b) in its round, which is 1 / number
    of workers if all tasks have the same batch size.

    Guarantees: staleness 0; the parameters after u updates do not depend on task and transfer times. `ssp(0)`
    and `k_sync(num_workers)` are the same policy.

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock.

    >>> bsp()
    bsp()

    Reference: Valiant 1990, "A bridging model for parallel computation".
    """
    return eager(max_lead=0)


@named(staleness=at_least(0, infinite=True), weight=or_none(positive))
def ssp(staleness: int | float, *, weight: float | None = None) -> Policy:
    """Stale synchronous parallel: a worker may lead the slowest by at most `staleness` clocks.

    Guarantees: the clocks that two workers work on differ by at most `staleness`; a task of clock c has seen
    every update of clocks <= c - staleness - 1, and all updates of its own worker. `ssp(0)` is `bsp()`.

    As long as its cached copy is fresh enough, a worker adds its own updates to that copy (read-my-writes)
    and starts its next task without waiting for the server. Otherwise it pulls; if the slowest worker is too
    far behind, it waits before the pull. The server applies a push when it arrives, with one exception: the
    push of a worker that must wait is applied together with the next push after which a worker starts. No
    worker reads in between, so for an optimizer that is linear in the gradient, such as plain SGD, the result
    is the same up to rounding; with momentum or Adam one merged step differs from several. Because of merged
    updates, `updates=` is a different amount of work at different `staleness`: compare by `seconds=` or
    `samples=`. With `staleness=math.inf` no worker waits or pulls; `essp(math.inf)` becomes ASP.

    Args:
        staleness: the paper's s, the largest lead in clocks, a whole number >= 0 or `math.inf`.
        weight: the weight of one push in its update. Default: 1 / number of workers, whatever the number of
            samples in the push, so that one clock of all workers moves the parameters as far as one step of
            BSP; with `staleness=0` a round is weighted by samples, as in `bsp`.

    Returns:
        The policy. Its `max_lead` is `staleness`, and its workers keep cached copies.

    Raises:
        ValueError: `staleness` is negative or not a whole number.

    >>> ssp(staleness=3)
    ssp(staleness=3)

    Reference: Ho et al. 2013, section 2 (conditions 1-4) and section 3 (cache rule).
    """
    max_lead = staleness

    def keep_copy(copy_clock: int, clock: int) -> bool:  # the worker calls this before it begins a clock c
        return copy_clock >= clock - max_lead  # condition 3: the copy has all updates up to c - s - 1

    def on_push(gate: Gate, push: Push) -> tuple[Gate, Decision]:
        clock = gate.advance(push.worker)  # the clock c that the worker begins next
        needed = clock - max_lead  # condition 3: it must see all updates of the clocks up to c - s - 1
        if push.keeps_copy:  # it has begun, on its cached copy
            return gate, gate.proceed(push)
        if gate.slowest >= needed:  # every worker has pushed them: the newest version contains them
            return gate, gate.proceed(push)
        return gate, gate.wait(push, until=needed)  # condition 1: the slowest worker is too far behind

    return gated(on_push, max_lead, weight, keep_copy=keep_copy)


@named(staleness=at_least(0, infinite=True), weight=or_none(positive))
def essp(staleness: int | float, *, weight: float | None = None) -> Policy:
    """Eager SSP: the max lead of `ssp`, but every task starts from the newest version.

    Guarantees: those of `ssp`. `essp(0)` is `bsp()`; `essp(math.inf)` is `asp(weight=1 / num_workers)`.

    Args:
        staleness: the paper's s, the largest lead in clocks, a whole number >= 0 or `math.inf`.
        weight: the weight of one push in its update. Default: as for `ssp`.

    Returns:
        The policy. Its `max_lead` is `staleness`.

    Raises:
        ValueError: `staleness` is negative or not a whole number.

    >>> essp(staleness=3)
    essp(staleness=3)

    Reference: Dai et al. 2015, "High-performance distributed ML at scale through parameter server
    consistency models".
    """
    return eager(staleness, weight)


@dataclass
class DSSPGate(Gate):
    """State of DSSP."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # By worker: the clocks that it may still run beyond the lower bound (the paper's r_p), and the times
        # of its last two pushes in seconds (the paper's A; their difference is the paper's I).
        self.credit = [0] * self.num_workers
        self.pushed_at = [(0.0, 0.0)] * self.num_workers


@named(lower=checks.at_least(0), upper=checks.at_least(0), weight=checks.or_none(checks.positive))
def dssp(lower: int, upper: int, *, weight: float | None = None) -> Policy:
    """Dynamic stale synchronous parallel: SSP with a max lead between `lower` and `upper` clocks.

    A worker that leads the slowest by at most `lower` clocks starts its next task. Beyond that, a controller
    decides how many of the `upper - lower` extra clocks the fastest worker may run before it waits. It
    predicts the finish times of both workers, and chooses the number after which the fastest worker's finish
    is nearest to a finish of the slowest worker. Every task starts from the newest version.

    Guarantees: `dssp(s, s)` is `essp(s)`. `upper` does *not* bound the lead: a worker that has used up its
    extra clocks and is still the fastest gets new ones, as in the paper's pseudo-code.

    Args:
        lower: the paper's s_L, clocks, >= 0.
        upper: the paper's s_U = s_L + r_max, clocks, >= lower.
        weight: the weight of one push in its update. Default: as for `ssp`.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: a bound is negative or not a whole number, or `upper < lower`.

    >>> dssp(lower=3, upper=15)
    dssp(lower=3, upper=15)

    Reference: Zhao et al. 2019, "Dynamic stale synchronous parallel distributed training for deep learning",
    algorithms 1 and 2.
    """
    checks.integer("upper", upper, low=lower)
    most = upper - lower

    def extra_clocks(gate: DSSPGate, worker: int) -> int:
        """The paper's controller: the r <= most with the smallest wait min_k |Sim_slow[k] - Sim_p[r]|."""
        pushed_at = gate.pushed_at
        slow = min(gate.present, key=lambda w: (gate.finished[w], pushed_at[w][1], w))
        (slow_before, slow_last), (before, last) = pushed_at[slow], pushed_at[worker]
        slow_times = [slow_last + (k + 1) * (slow_last - slow_before) for k in range(most + 1)]

        def wait(extra: int) -> float:
            return min(abs(time - (last + extra * (last - before))) for time in slow_times)

        return min(range(most + 1), key=wait)

    def on_push(gate: DSSPGate, push: Push) -> tuple[DSSPGate, Decision]:
        worker, clock = push.worker, gate.advance(push.worker)
        gate.pushed_at[worker] = (gate.pushed_at[worker][1], push.time)
        if gate.credit[worker] > 0:
            gate.credit[worker] -= 1
            return gate, gate.proceed(push)
        if gate.slowest >= clock - lower:
            return gate, gate.proceed(push)
        if most and clock == max(gate.finished[w] for w in gate.present):  # the fastest worker
            gate.credit[worker] = extra_clocks(gate, worker)
            if gate.credit[worker] > 0:
                return gate, gate.proceed(push)
        return gate, gate.wait(push, until=clock - lower)

    def on_join(gate: DSSPGate, worker: int, time: float) -> tuple[DSSPGate, Decision]:
        gate.credit[worker], gate.pushed_at[worker] = 0, (time, time)
        return gate, gate.join(worker)

    policy = gated(on_push, lower, weight, state=DSSPGate, rounds=upper == 0)
    return policy._replace(on_join=on_join, max_lead=lower if most == 0 else None)


@dataclass
class SwitchGate(Gate):
    """State of Sync-Switch."""

    rounds_left: int = 0  # remaining rounds of BSP


@named(rounds=at_least(0), weight=or_none(positive))
def sync_switch(rounds: int, *, weight: float | None = 1.0) -> Policy:
    """Sync-Switch: BSP for a number of rounds, then ASP.

    Guarantees: `sync_switch(0)` is `asp()`; if `rounds` is at least the number of rounds in the run, it is
    `bsp()`.

    Args:
        rounds: number of rounds of BSP, >= 0. The paper states it as a fraction of the training: multiply
            that fraction by the number of clocks of a worker.
        weight: the weight of one push in its update after the switch to ASP, as for `asp`.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `rounds` or `weight` is out of range.

    >>> sync_switch(500)
    sync_switch(rounds=500)

    Reference: Li et al. 2021, "Sync-Switch: hybrid parameter synchronization for distributed deep learning".
    In the paper the learning rate and the momentum also change at the switch; here they stay the same.
    """

    def init(num_workers: int) -> SwitchGate:
        if rounds:
            return SwitchGate(num_workers, max_lead=0, rounds=True, rounds_left=rounds)
        return SwitchGate(num_workers, math.inf, weight)

    def counted(gate: SwitchGate, decision: Decision) -> tuple[SwitchGate, Decision]:
        if decision.apply and gate.rounds_left:
            gate.rounds_left -= 1
            if not gate.rounds_left:
                gate.max_lead, gate.weight, gate.rounds = math.inf, weight, False
                gate.look()
        return gate, decision

    def on_push(gate: SwitchGate, push: Push) -> tuple[SwitchGate, Decision]:
        clock = gate.advance(push.worker)
        if gate.rounds_left and gate.slowest < clock:
            return gate, gate.wait(push, until=clock)
        return counted(gate, gate.proceed(push))

    def on_leave(gate: SwitchGate, worker: int, time: float) -> tuple[SwitchGate, Decision]:
        return counted(gate, gate.leave(worker))

    return gated(on_push, math.inf)._replace(init=init, on_leave=on_leave, max_lead=None)
