"""Policies that gate on clocks: BSP, SSP, ESSP, and ASP, are one rule with a window of different width."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dmlcore import checks
from dmlcore.types import Decision, Policy, Push, Start

new = tuple.__new__  # half the cost of a named tuple's own constructor, on the path of every push
WAIT = Decision()


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
        self._at_slowest = num_workers

    def advance(self, worker: int) -> int:
        """Counts one more finished clock of `worker` and returns its new count."""
        count = self.finished[worker] + 1
        self.finished[worker] = count
        if count == self.slowest + 1:
            self._at_slowest -= 1
            if not self._at_slowest:
                self._find_slowest()
        return count

    def _find_slowest(self) -> None:
        """Looks at every worker: at most once for each clock that all of them finish."""
        finished = self.finished
        if len(self.present) < len(finished):
            finished = [finished[worker] for worker in self.present] or [self.slowest]
        self.slowest = min(finished)
        self._at_slowest = finished.count(self.slowest)

    def leave(self, worker: int) -> None:
        """Lets no worker wait for `worker` any more."""
        self.present.remove(worker)
        self._find_slowest()

    def join(self, worker: int) -> int:
        """Takes `worker` in again, at the slowest's clock unless it was further, and returns its count."""
        count = self.finished[worker] = max(self.finished[worker], self.slowest)
        self.present.add(worker)
        self._find_slowest()
        return count


@dataclass
class GateState:
    """What every policy that gates on clocks keeps.

    Args:
        clocks: finished clocks of every worker.
        weight: of one push in an update; None: a worker's share of a mean over those present, and in a round
            of everybody that of its samples.
        waiting: count that the slowest worker must reach -> workers that wait for it.
        held: (worker, clock, samples) of pushes not applied yet, because their workers wait.
        share: what `weight` is now.
    """

    clocks: ClockTable
    weight: float | None
    waiting: dict[int, list[int]] = field(default_factory=dict)
    held: list[tuple[int, int, int]] = field(default_factory=list)
    share: float = field(init=False)

    def __post_init__(self) -> None:
        self.count_present()

    def count_present(self) -> None:
        """Sets the share of each push after somebody left or joined."""
        self.share = 1.0 / max(len(self.clocks.present), 1) if self.weight is None else self.weight


@dataclass
class WindowState(GateState):
    """State of a policy with a fixed window.

    Args:
        copies: per worker, what it was told when it last pulled: the slowest worker's count, and the weight
            of its pushes while it keeps the copy; empty where every task pulls.
    """

    copies: list[tuple[int, float]] = field(default_factory=list)


def hold(state: GateState, worker: int, needed: int) -> None:
    """Lets `worker` wait until the slowest worker's count is `needed`."""
    state.waiting.setdefault(needed, []).append(worker)


def release(state: GateState, slowest_before: int) -> list[Start]:
    """Starts of the workers in `state.waiting` that the advance of the slowest lets go, in worker order."""
    slowest, finished = state.clocks.slowest, state.clocks.finished
    if slowest == slowest_before or not state.waiting:
        return []
    due = [needed for needed in state.waiting if needed <= slowest]
    free = [worker for needed in due for worker in state.waiting.pop(needed)]
    return [Start(worker, clock=finished[worker]) for worker in sorted(free)]


def take_held(
    state: GateState, push: Push | None = None, *, rounds: bool = False
) -> list[tuple[int, int, float]]:
    """The pushes that form the next update: `push` and all held ones, in (worker, clock) order.

    Args:
        state: of the policy.
        push: that has just arrived.
        rounds: an update is a round of everybody. Where no weight is set, tasks then count by their samples:
            the update is the mean over samples, and with equal sizes that over workers, to the last bit.
    """
    if push is not None:
        if not state.held:
            return [(push.worker, push.clock, state.share)]
        state.held.append((push.worker, push.clock, push.samples))
    tasks = sorted(state.held)
    state.held = []
    if state.weight is None and rounds:
        total = sum(samples for _, _, samples in tasks)
        return [(worker, clock, samples / total) for worker, clock, samples in tasks]
    # A mean's weights sum to 1 also where somebody left after its push.
    share = min(state.share, 1.0 / max(len(tasks), 1)) if state.weight is None else state.weight
    return [(worker, clock, share) for worker, clock, _ in tasks]


def leave(state: GateState, worker: int) -> list[Start]:
    """Takes `worker` out of the gate; returns the starts of those who waited for it alone."""
    slowest_before = state.clocks.slowest
    state.clocks.leave(worker)
    state.count_present()
    for needed in [n for n, workers in state.waiting.items() if worker in workers]:
        state.waiting[needed].remove(worker)
        if not state.waiting[needed]:
            del state.waiting[needed]
    return release(state, slowest_before)


def join(state: GateState, worker: int, staleness: float) -> list[Start]:
    """Takes `worker` in again; returns its start, or none where it must wait."""
    clock = state.clocks.join(worker)
    state.count_present()
    if state.clocks.slowest < clock - staleness:
        hold(state, worker, int(clock - staleness))
        return []
    return [Start(worker, clock=clock)]


def window_rule(staleness: float):
    """Returns `on_push`, `on_leave` and `on_join` of a fixed window."""

    def on_push(state: WindowState, push: Push) -> tuple[WindowState, Decision]:
        worker = push.worker
        clocks, copies = state.clocks, state.copies
        slowest_before = clocks.slowest
        needed = clocks.advance(worker) - staleness
        keeps = bool(copies) and copies[worker][0] >= needed
        if not keeps and clocks.slowest < needed:
            hold(state, worker, int(needed))
            state.held.append((worker, push.clock, push.samples))
            return state, WAIT
        start = [] if keeps else [new(Start, (worker, None, None))]
        if not (state.waiting or state.held):  # as a rule, where nobody waits: the short way
            share = copies[worker][1] if keeps else state.share
            return state, new(Decision, ([(worker, push.clock, share)], (), (), start))
        if released := release(state, slowest_before):
            start = sorted([*start, *released], key=lambda each: each.worker)
        apply = take_held(state, push, rounds=not staleness)
        if keeps:
            apply = [(w, c, copies[w][1] if w == worker else share) for w, c, share in apply]
        return state, new(Decision, (apply, (), (), start))

    def on_leave(state: WindowState, worker: int, time: float) -> tuple[WindowState, Decision]:
        start = leave(state, worker)
        return state, Decision(take_held(state, rounds=not staleness) if start else [], start=start)

    def on_join(state: WindowState, worker: int, time: float) -> tuple[WindowState, Decision]:
        return state, Decision(start=join(state, worker, staleness))

    return on_push, on_leave, on_join


def check_staleness(name: str, value: float) -> float:
    """Returns `value` if it is a whole number >= 0 or infinity."""
    if value == math.inf:
        return value
    return checks.integer(name, value, low=0, why="or math.inf")


def check_weight(weight: float | None) -> float | None:
    """Returns `weight` if it is None or a finite number > 0."""
    return weight if weight is None else checks.real("weight", weight, above=0, high=1e300)


def window(name: str, staleness: float, weight: float | None, *, cached: bool) -> Policy:
    """Returns the policy with a fixed window.

    Args:
        name: the call that makes it.
        staleness: clocks by which a worker may lead.
        weight: of one push in the update; None: 1 / number of workers.
        cached: workers go on with their copy while it is fresh enough.
    """

    def init(num_workers: int) -> WindowState:
        copies = [(0, 0.0)] * num_workers if cached else []
        return WindowState(ClockTable(num_workers), weight, copies=copies)

    def on_pull(state: WindowState, worker: int) -> tuple[int, float]:
        told = state.copies[worker] = state.clocks.slowest, state.share
        return told

    def keep_copy(copy_clock: int, clock: int) -> bool:
        return copy_clock >= clock - staleness

    on_push, on_leave, on_join = window_rule(staleness)
    policy = Policy(name, init, on_push, staleness, on_leave, on_join)
    return policy._replace(on_pull=on_pull, keep_copy=keep_copy) if cached else policy


def bsp() -> Policy:
    """Bulk synchronous parallel: every round waits for all workers and applies the mean of their gradients.

    The mean is over samples: a task of b samples has the weight b / sum b in its round, 1 / number of workers
    where all have as many.

    Guarantees: staleness 0; the parameters after u updates do not depend on the latencies. `ssp(0)` and
    `k_sync(num_workers)` are the same policy.

    Returns:
        The policy.

    Example:
        >>> bsp()
        bsp()

    Reference: Valiant 1990, "A bridging model for parallel computation".
    """
    return window("bsp()", 0, None, cached=False)


def ssp(staleness: int | float, *, weight: float | None = None) -> Policy:
    """Stale synchronous parallel: a worker may lead the slowest by at most `staleness` clocks.

    Guarantees: the clocks that two workers work on differ by at most `staleness`; a task of clock c has seen
    every update of clocks <= c - staleness - 1, and all of its own worker's. `ssp(0)` is `bsp()`.

    A worker goes on with its cached copy, plus its own updates since (read-my-writes), as long as the copy is
    fresh enough, and does not wait for its push to arrive; else it pulls, and where the slowest worker is too
    far behind it waits first. A push is applied when it arrives; that of a worker that must wait is applied
    together with the next push that lets somebody go on. Nobody reads in between, so for an optimizer that is
    linear in the gradient, such as plain SGD, this is the same up to rounding; with momentum or Adam one
    merged step differs from several. Hence `updates=` counts different amounts of work at different
    `staleness`: compare by `seconds=` or `samples=`. With `staleness=math.inf` nobody waits and nobody ever
    pulls; `essp(math.inf)` is the variant that becomes ASP.

    Args:
        staleness: the paper's s, clocks, a whole number >= 0 or `math.inf`.
        weight: of one push in the update. Default: 1 / number of workers, however many samples it has, so
            that one clock of all workers moves the parameters as far as one step of BSP; with `staleness=0`
            a round is weighted by samples, as in `bsp`.

    Returns:
        The policy.

    Raises:
        ValueError: `staleness` is negative or no whole number.

    Example:
        >>> ssp(staleness=3)
        ssp(staleness=3)

    Reference: Ho et al. 2013, section 2 (conditions 1-4) and section 3 (cache rule).
    """
    staleness = check_staleness("staleness", staleness)
    return window(f"ssp(staleness={staleness}{_shown(weight)})", staleness, check_weight(weight), cached=True)


def essp(staleness: int | float, *, weight: float | None = None) -> Policy:
    """Eager SSP: the window of `ssp`, but every task starts from the newest version.

    Guarantees: those of `ssp`. `essp(0)` is `bsp()`; with a window beyond the run it is
    `asp(weight=1 / num_workers)`.

    Args:
        staleness: clocks, a whole number >= 0 or `math.inf`.
        weight: of one push in the update. Default: as for `ssp`.

    Returns:
        The policy.

    Raises:
        ValueError: `staleness` is negative or no whole number.

    Example:
        >>> essp(staleness=3)
        essp(staleness=3)

    Reference: Dai et al. 2015, "High-performance distributed ML at scale through parameter server
    consistency models".
    """
    staleness = check_staleness("staleness", staleness)
    return window(
        f"essp(staleness={staleness}{_shown(weight)})", staleness, check_weight(weight), cached=False
    )


def _shown(weight: float | None) -> str:
    return "" if weight is None else f", weight={weight}"
