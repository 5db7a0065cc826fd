"""Adaptive synchronous parallel: who is ahead waits in a group, who lags goes on with less weight."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from dmlcore import checks
from dmlcore.methods.policies.damping import DAMPING
from dmlcore.methods.policies.group import Group, Task, join
from dmlcore.types import Decision, Policy, Push, Start

MEMORY = 0.9  # weight of the past in the running mean of a worker's times


@dataclass
class SyncState:
    """What the server knows of its workers.

    Args:
        threshold, behind, patience: as of `adaptive_sync`.
        present: workers that are there.
        read: version of each worker's copy.
        clocks: tasks that each has finished.
        begun: when each was let go, seconds.
        seconds: running mean of how long each takes from there to its push; 0 before the first.
        kind: what each was at its last push: "normal", "lagging" or "fast".
        stragglers: those who were late by version and by time at their last push.
        group: those behind the barrier.
        version: updates made.
    """

    threshold: float
    behind: float
    patience: float
    present: set[int]
    read: list[int]
    clocks: list[int]
    begun: list[float]
    seconds: list[float]
    kind: list[str]
    stragglers: set[int] = field(default_factory=set)
    group: Group = field(default_factory=Group)
    version: int = 0

    def late(self, worker: int, tau: int, slow: float) -> bool:
        """Whether a worker is a straggler."""
        known = [self.seconds[w] for w in self.present if self.seconds[w] > 0]
        return tau >= self.behind and self.seconds[worker] > slow * median(known or [0.0])

    def complete(self) -> bool:
        """Whether nobody is left for whom the group waits."""
        return self.present - self.stragglers <= self.group.waiting


SHARES: dict[str, Callable[[SyncState, Push, int], float]] = {
    "inverse": lambda state, push, tau: push.samples / (1 + tau),
    "uniform": lambda state, push, tau: 1.0,
    "pushes": lambda state, push, tau: state.clocks[push.worker],
}
GAPS: dict[str, Callable[[SyncState], list[int]]] = {
    "versions": lambda state: state.read,
    "clocks": lambda state: state.clocks,
}


def began_again(state: SyncState, version: int) -> None:
    """The server was restarted: all tasks in flight began again, nobody knows when, on what it had."""
    for worker in state.present - state.group.waiting:
        if state.read[worker] < version:
            state.read[worker], state.begun[worker] = version, math.nan


def adaptive_sync(
    threshold: float | None = None,
    *,
    behind: float | None = None,
    slow: float = 1.5,
    patience: float | None = None,
    damping: str = "inverse",
    shares: str = "inverse",
    gap: str = "versions",
) -> Policy:
    """Adaptive synchronous parallel, reconstructed: asynchronous as long as workers are close together.

    When worker i pushes, with tau_i versions made since its pull, it is a straggler if tau_i >= `behind` and
    its tasks take more than `slow` times as long as the median worker's, by running means. Then, by the gap
    between the newest and the oldest copy that workers have, it is

    - *normal*, gap <= `threshold`: its gradient is an update, and it goes on;
    - *lagging*, a straggler: the same with weight 1 / (1 + tau_i);
    - *fast*, all others: its gradient waits, and so does the worker, in a group behind a relaxed barrier. It
      opens when every worker who is no straggler is in it, when somebody is normal, or when `patience` pushes
      of any kind have come since the group's first. Then its weighted mean is an update, with shares in
      proportion to b_i / (1 + tau_i).

    The push that opens the barrier and the group make one update, since nobody reads in between. A lagging
    push that closes the gap does not open it, as nobody is normal yet: the next push is, and does. Where a
    worker that leaves closes the gap, it opens at once.

    Guarantees: nobody waits for good. `adaptive_sync(math.inf)` is `asp()`; with `threshold=-1`,
    `behind=math.inf` and `patience=math.inf` all are fast, and it is `bsp()`.

    Args:
        threshold: the paper's threshold S, a whole number >= -1 or `math.inf`. Default: 2 per worker.
        behind: versions by which a straggler is late, >= 0. Default: 2 per worker.
        slow: factor of the median time beyond which a worker is a straggler, >= 0.
        patience: pushes for which a group waits, >= 1. Default: 1 per worker.
        damping: weight of a straggler's gradient: "inverse", 1 / (1 + tau); "reciprocal", 1 / max(tau, 1); or
            "none", 1.
        shares: of gradients in a group: "inverse", b / (1 + tau); "uniform"; or "pushes", how many the worker
            has made.
        gap: what is compared with `threshold`: "versions" of copies, or "clocks" that workers have finished.

    Returns:
        The policy.

    Raises:
        ValueError: a number is out of range, or there is no such rule.

    Example:
        >>> adaptive_sync(16, shares="uniform")
        adaptive_sync(threshold=16, shares='uniform')

    Reference: Wang and Zhu 2024, of which the abstract is known: it names the three states, what decides on
    them and that each has an update rule. The rules and all numbers are a reconstruction.
    """
    limits = {"threshold": threshold, "behind": behind, "patience": patience}
    for (name, value), low in zip(limits.items(), (-1, 0, 1), strict=True):
        if value is not None and value != math.inf:
            checks.integer(name, value, low=low, why="or math.inf")
    slow = checks.real("slow", slow, low=0, high=math.inf)
    damp, share = checks.choice("damping", damping, DAMPING), checks.choice("shares", shares, SHARES)
    compared = checks.choice("gap", gap, GAPS)

    def init(num_workers: int) -> SyncState:
        each = {"threshold": 2, "behind": 2, "patience": 1}
        own = {name: each[name] * num_workers if value is None else value for name, value in limits.items()}
        return SyncState(
            own["threshold"],
            own["behind"],
            own["patience"],
            present={*range(num_workers)},
            read=[0] * num_workers,
            clocks=[0] * num_workers,
            begun=[0.0] * num_workers,
            seconds=[0.0] * num_workers,
            kind=["normal"] * num_workers,
        )

    def close(state: SyncState) -> bool:
        """Whether workers are close together."""
        counts = compared(state)
        found = [counts[worker] for worker in state.present]
        return max(found) - min(found) <= state.threshold

    def decide(
        state: SyncState, apply: list[Task], start: set[int], opens: bool, time: float
    ) -> tuple[SyncState, Decision]:
        if opens and state.group:
            tasks, free = state.group.open()
            apply, start = sorted(apply + tasks), start | free
        state.version += bool(apply)
        for worker in start:
            state.read[worker], state.begun[worker] = state.version, time
        return state, Decision(apply, start=[Start(worker) for worker in sorted(start)])

    def on_push(state: SyncState, push: Push) -> tuple[SyncState, Decision]:
        worker, tau = push.worker, state.version - push.version_read
        state.clocks[worker] += 1
        state.group.count()
        if push.version_read > state.read[worker]:
            began_again(state, push.version_read)
        took, before = push.time - state.begun[worker], state.seconds[worker]
        if not math.isnan(took):
            state.seconds[worker] = MEMORY * before + (1 - MEMORY) * took if before else took
        late = state.late(worker, tau, slow)
        (state.stragglers.add if late else state.stragglers.discard)(worker)
        kind = state.kind[worker] = "normal" if close(state) else "lagging" if late else "fast"
        apply: list[Task] = []
        if kind == "fast":
            state.group.add(push, share(state, push, tau))
        else:
            apply = [(worker, push.clock, damp(tau) if kind == "lagging" else 1.0)]
        opens = kind == "normal" or state.group.passed >= state.patience or state.complete()
        return decide(state, apply, {worker} if apply else set(), opens, push.time)

    def on_leave(state: SyncState, worker: int, time: float) -> tuple[SyncState, Decision]:
        state.group.leave(worker, state.present, state.stragglers)
        opens = bool(state.present) and (close(state) or state.complete())
        return decide(state, [], set(), opens, time)

    def on_join(state: SyncState, worker: int, time: float) -> tuple[SyncState, Decision]:
        join(worker, state.present, state.clocks)
        state.seconds[worker] = 0.0
        return decide(state, [], {worker}, False, time)

    given = limits | {"slow": slow, "damping": damping, "shares": shares, "gap": gap}
    usual = inspect.signature(adaptive_sync).parameters
    shown = [f"{name}={value!r}" for name, value in given.items() if value != usual[name].default]
    return Policy(f"adaptive_sync({', '.join(shown)})", init, on_push, None, on_leave, on_join)
