"""Adaptive synchronous parallel: fast workers wait in a group, stragglers continue with less weight."""

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
    """State of adaptive synchronous parallel: what the server has recorded about its workers."""

    threshold: float  # this and the next two are arguments of `adaptive_sync`
    behind: float
    patience: float
    present: set[int]  # workers that are present
    read: list[int]  # version of each worker's copy
    clocks: list[int]  # tasks that each worker has finished
    begun: list[float]  # when each worker was last started, in seconds
    seconds: list[float]  # running mean of the seconds from start to push; 0 before the first push
    kind: list[str]  # state of each worker at its last push: "normal", "lagging" or "fast"
    stragglers: set[int] = field(default_factory=set)  # late by version and by time at their last push
    group: Group = field(default_factory=Group)  # workers behind the barrier
    version: int = 0  # updates made

    def identify(self, worker: int, tau: int, slow: float) -> None:
        """Records whether a worker is a straggler: late by version and by time."""
        known = [self.seconds[w] for w in self.present if self.seconds[w] > 0]
        self.stragglers.discard(worker)
        if tau >= self.behind and self.seconds[worker] > slow * median(known or [0.0]):
            self.stragglers.add(worker)

    def complete(self) -> bool:
        """Returns whether all workers that are not stragglers are in the group."""
        return self.present - self.stragglers <= self.group.waiting

    def measure(self, push: Push) -> None:
        """Updates the running mean of a worker's task times."""
        worker = push.worker
        if push.version_read > self.read[worker]:
            # The server has restarted: all tasks in flight began again, at an unknown time.
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

    When worker i pushes, let tau_i be the number of versions made since its pull. The worker is a straggler
    if tau_i >= `behind` and its tasks take more than `slow` times as long as the median worker's, by running
    means. The gap is the difference between the newest and the oldest version that workers hold a copy of.
    By the gap, the push is handled in one of three ways:

    - *normal*, if the gap is <= `threshold`: its gradient is an update, and the worker continues;
    - *lagging*, else if the worker is a straggler: the same, with weight 1 / (1 + tau_i);
    - *fast*, otherwise: the worker and its gradient wait in a group behind a relaxed barrier. The barrier
      opens when every worker that is not a straggler is in the group, when a worker is normal, or when
      `patience` pushes of any kind have arrived since the group's first. The weighted mean of the group is
      then an update; the weights are in proportion to b_i / (1 + tau_i) for b_i samples.

    The push that opens the barrier is merged with the group into one update, because no worker reads in
    between. If a lagging push closes the gap, the barrier stays closed until the next normal push. If the
    departure of a worker closes the gap, the barrier opens at once.

    Guarantees: every wait ends. `adaptive_sync(math.inf)` is `asp()`; with `threshold=-1`,
    `behind=math.inf` and `patience=math.inf` all workers are fast, and the policy is `bsp()`.

    Args:
        threshold: the paper's threshold S, in the unit of `gap`, a whole number >= -1 or `math.inf`.
            Default: 2 x the number of workers.
        behind: versions by which a straggler is late, >= 0. Default: 2 x the number of workers.
        slow: a straggler's tasks take more than this factor times the median worker's, >= 0.
        patience: how long a group waits, >= 1; its unit is one push. Default: the number of workers.
        damping: weight of a straggler's gradient, as for `asp`.
        shares: weights of gradients in a group, up to a common factor: "inverse", b / (1 + tau); "uniform",
            all equal; or "pushes", the number of pushes that the worker has made.
        gap: what is compared with `threshold`: "versions" of copies, or "clocks" that workers have finished.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: a number is out of range, or `damping`, `shares` or `gap` is not one of those listed.

    >>> adaptive_sync(16, shares="uniform")
    adaptive_sync(threshold=16, shares='uniform')

    Reference: Wang and Zhu 2024, of which only the abstract is available to us. It names the three states and
    what decides between them, and says that each has an update rule. The rules and all numbers are our
    reconstruction.
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
        """Returns whether the gap between workers is at most the threshold."""
        counts = state.read if gap == "versions" else state.clocks
        found = [counts[worker] for worker in state.present]
        return max(found) - min(found) <= state.threshold

    def decide(state: SyncState, time: float, apply: list[Task], start: set[int], opens: bool) -> Decision:
        """Adds the group to the update if the barrier opens, and starts workers on the new version."""
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
