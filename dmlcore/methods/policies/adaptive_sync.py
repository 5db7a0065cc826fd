"""Adaptive synchronous parallel: fast workers wait in a group, stragglers go on with less weight."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from dmlcore.calls import named
from dmlcore.checks import at_least, one_of, or_none, real
from dmlcore.methods.policies._damping import DAMPING
from dmlcore.methods.policies._group import Group, Task, answer, join
from dmlcore.types import Decision, Policy, Push

MEMORY = 0.9  # weight of the past in the running mean of a worker's times


@dataclass
class SyncState:
    """What the server knows of its workers."""

    threshold: float  # as of `adaptive_sync`, as are the next two
    behind: float
    patience: float
    present: set[int]  # workers that are present
    read: list[int]  # version of each worker's copy
    clocks: list[int]  # tasks that each has finished
    begun: list[float]  # when each was started, seconds
    seconds: list[float]  # running mean of the time from there to its push; 0 before the first
    kind: list[str]  # what each was at its last push: "normal", "lagging" or "fast"
    stragglers: set[int] = field(default_factory=set)  # late by version and by time at their last push
    group: Group = field(default_factory=Group)  # workers behind the barrier
    version: int = 0  # updates made

    def identify(self, worker: int, tau: int, slow: float) -> None:
        """Notes whether a worker is a straggler: late by version and by time."""
        known = [self.seconds[w] for w in self.present if self.seconds[w] > 0]
        self.stragglers.discard(worker)
        if tau >= self.behind and self.seconds[worker] > slow * median(known or [0.0]):
            self.stragglers.add(worker)

    def complete(self) -> bool:
        """Whether all workers that are no stragglers are in the group."""
        return self.present - self.stragglers <= self.group.waiting

    def measure(self, push: Push) -> None:
        """Updates the running mean of a worker's times."""
        worker = push.worker
        if push.version_read > self.read[worker]:
            # The server was restarted: all tasks in flight began again, at an unknown time.
            for each in self.present - self.group.waiting:
                if self.read[each] < push.version_read:
                    self.read[each], self.begun[each] = push.version_read, math.nan
        took, before = push.time - self.begun[worker], self.seconds[worker]
        if not math.isnan(took):
            self.seconds[worker] = MEMORY * before + (1 - MEMORY) * took if before else took


SHARES: dict[str, Callable[[SyncState, Push, int], float]] = {
    "inverse": lambda state, push, tau: push.samples / (1 + tau),
    "uniform": lambda state, push, tau: 1.0,
    "pushes": lambda state, push, tau: state.clocks[push.worker],
}


@named(
    threshold=or_none(at_least(-1, infinite=True)),
    behind=or_none(at_least(0, infinite=True)),
    patience=or_none(at_least(1, infinite=True)),
    slow=partial(real, low=0),
    damping=one_of(*DAMPING),
    shares=one_of(*SHARES),
    gap=one_of("versions", "clocks"),
)
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
    between the newest and the oldest copy of the workers, it is

    - *normal*, gap <= `threshold`: its gradient is an update, and it goes on;
    - *lagging*, a straggler: the same with weight 1 / (1 + tau_i);
    - *fast*, all others: its gradient waits, and so does the worker, in a group behind a relaxed barrier. It
      opens when every worker that is no straggler is in it, when a worker is normal, or when `patience`
      pushes of any kind have arrived since the group's first. Then its weighted mean is an update, with
      shares in proportion to b_i / (1 + tau_i).

    The push that opens the barrier and the group make one update, as no worker reads in between. A lagging
    push that closes the gap leaves the barrier to the next, normal one. Where a worker that leaves closes the
    gap, the barrier opens at once.

    Guarantees: every wait ends. `adaptive_sync(math.inf)` is `asp()`; with `threshold=-1`,
    `behind=math.inf` and `patience=math.inf` all are fast, and it is `bsp()`.

    Args:
        threshold: the paper's threshold S, a whole number >= -1 or `math.inf`. Default: 2 per worker.
        behind: versions by which a straggler is late, >= 0. Default: 2 per worker.
        slow: factor of the median time beyond which a worker is a straggler, >= 0.
        patience: pushes for which a group waits, >= 1. Default: 1 per worker.
        damping: weight of a straggler's gradient, as for `asp`.
        shares: of gradients in a group: "inverse", b / (1 + tau); "uniform"; or "pushes" made by the worker.
        gap: what is compared with `threshold`: "versions" of copies, or "clocks" that workers have finished.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: a number is out of range, or there is no such rule.

    >>> adaptive_sync(16, shares="uniform")
    adaptive_sync(threshold=16, shares='uniform')

    Reference: Wang and Zhu 2024, of which the abstract is known: it names the three states, what decides on
    them and that each has an update rule. The rules and all numbers are a reconstruction.
    """

    def init(num_workers: int) -> SyncState:
        return SyncState(
            2 * num_workers if threshold is None else threshold,
            2 * num_workers if behind is None else behind,
            num_workers if patience is None else patience,
            present={*range(num_workers)},
            read=[0] * num_workers,
            clocks=[0] * num_workers,
            begun=[0.0] * num_workers,
            seconds=[0.0] * num_workers,
            kind=["normal"] * num_workers,
        )

    def close(state: SyncState) -> bool:
        """Whether workers are close together."""
        counts = state.read if gap == "versions" else state.clocks
        found = [counts[worker] for worker in state.present]
        return max(found) - min(found) <= state.threshold

    def decide(state: SyncState, time: float, apply: list[Task], start: set[int], opens: bool) -> Decision:
        """Adds the group to the update where the barrier opens, and starts workers on the new version."""
        if opens and state.group:
            tasks, free = state.group.open()
            apply, start = sorted(apply + tasks), start | free
        state.version += bool(apply)
        for worker in start:
            state.read[worker], state.begun[worker] = state.version, time
        return answer(apply, start)

    def on_push(state: SyncState, push: Push) -> tuple[SyncState, Decision]:
        worker, tau = push.worker, state.version - push.version_read
        state.clocks[worker] += 1
        state.group.passed += bool(state.group)
        state.measure(push)
        state.identify(worker, tau, slow)
        apply: list[Task] = []
        if close(state):
            kind, apply = "normal", [(worker, push.clock, 1.0)]
        elif worker in state.stragglers:
            kind, apply = "lagging", [(worker, push.clock, DAMPING[damping](tau))]
        else:
            kind = "fast"
            state.group.add(push, SHARES[shares](state, push, tau))
        state.kind[worker] = kind
        opens = kind == "normal" or state.group.passed >= state.patience or state.complete()
        return state, decide(state, push.time, apply, {worker} if apply else set(), opens)

    def on_leave(state: SyncState, worker: int, time: float) -> tuple[SyncState, Decision]:
        state.group.leave(worker, state.present, state.stragglers)
        opens = bool(state.present) and (close(state) or state.complete())
        return state, decide(state, time, [], set(), opens)

    def on_join(state: SyncState, worker: int, time: float) -> tuple[SyncState, Decision]:
        join(worker, state.present, state.clocks)
        state.seconds[worker] = 0.0
        return state, decide(state, time, [], {worker}, opens=False)

    return Policy("", init, on_push, None, on_leave, on_join)
