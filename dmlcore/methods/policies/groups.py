"""Policies with a barrier for a group of workers, whose gradients are applied as one weighted mean."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from dmlcore.calls import named
from dmlcore.checks import at_least, one_of, or_none, real
from dmlcore.methods.policies.damping import DAMPING
from dmlcore.types import NOTHING_YET, Decision, Policy, Push, Start

Task = tuple[int, int, float]  # worker, clock, weight


@dataclass
class Group:
    """The workers that wait behind the barrier, and their pushes.

    >>> group = Group()
    >>> group.add(Push(2, 7, version_read=0, time=1.0, compute_seconds=1.0, samples=32), share=3)
    >>> group.add(Push(0, 5, version_read=0, time=2.0, compute_seconds=1.0, samples=32), share=1)
    >>> group.open()
    ([(0, 5, 0.25), (2, 7, 0.75)], {0, 2})
    """

    pushes: list[Task] = field(default_factory=list)  # worker, clock, unnormalised share of the mean
    waiting: set[int] = field(default_factory=set)  # workers present that wait
    passed: int = 0  # pushes of any worker since the group's first push

    def __bool__(self) -> bool:
        return bool(self.pushes)

    def add(self, push: Push, share: float) -> None:
        """Adds a push; its worker waits from now on."""
        self.pushes.append((push.worker, push.clock, share))
        self.waiting.add(push.worker)

    def open(self) -> tuple[list[Task], set[int]]:
        """Empties the group and returns its weighted tasks, and the workers that may start again."""
        total = sum(share for _, _, share in self.pushes)
        apply = sorted((worker, clock, share / total) for worker, clock, share in self.pushes)
        start, self.pushes, self.waiting, self.passed = self.waiting, [], set(), 0
        return apply, start

    def leave(self, worker: int, *known: set[int]) -> None:
        """Removes a worker from the group and from the sets `known`; its gradient stays in the mean."""
        for workers in (self.waiting, *known):
            workers.discard(worker)


def join(worker: int, present: set[int], counts: list[int]) -> None:
    """Adds a worker to `present`; its count becomes at least the smallest count of the other workers."""
    counts[worker] = max(counts[worker], min((counts[w] for w in present), default=0))
    present.add(worker)


def answer(apply: list[Task], start: set[int]) -> Decision:
    """Returns the decision that applies these tasks and then starts these workers."""
    return Decision(apply, start=[Start(worker) for worker in sorted(start)])


@dataclass
class A2SState:
    """State of A2S."""

    present: set[int]  # workers that are present
    pushes: list[int]  # number of pushes of each worker so far
    checked: list[int]  # epochs that each worker had finished at the last comparison
    members: set[int] = field(default_factory=set)  # workers of the group that will synchronise
    group: Group = field(default_factory=Group)  # the members that wait already


@named(every=True, epoch=at_least(1), patience=at_least(0))
def a2s(epoch: int, *, patience: int = 5) -> Policy:
    """Adaptive asynchronous-synchronous: ASP, but once per epoch the fastest workers wait for each other.

    The server compares the workers each time that every worker has finished a further epoch. If the fastest
    worker is s > 1 epochs ahead of the slowest, the s fastest of the K workers (at most K - 1) form a group.
    Each member waits after its next push. The barrier opens when all members have pushed, or at a member's
    push once more than `patience` pushes of any worker have arrived since the group's first. The weighted
    mean of the group's gradients is then one update, and the group is dissolved. The weight of a gradient is
    in proportion to the number of pushes that its worker has made. Every other push is an update of its own.

    Guarantees: every wait ends; as long as no worker is two epochs ahead, the policy acts as `asp()`.

    Args:
        epoch: number of pushes of a worker that make an epoch, >= 1.
        patience: the paper's C, >= 0; its unit is one push.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `epoch` or `patience` is out of range.

    >>> a2s(epoch=60)
    a2s(epoch=60, patience=5)

    Reference: Tan, Liu et al. 2022, International Journal of Intelligent Systems, and its public code. That
    the group is dissolved when the barrier opens is our reading. The paper's decay of the learning rate is
    left to the optimizer.
    """

    def init(num_workers: int) -> A2SState:
        return A2SState({*range(num_workers)}, [0] * num_workers, [0] * num_workers)

    def compare(state: A2SState) -> None:
        """Forms a group if all workers have finished a further epoch and the fastest is 2 or more ahead."""
        epochs = [pushes // epoch for pushes in state.pushes]
        if state.members or any(epochs[w] <= state.checked[w] for w in state.present):
            return
        state.checked = epochs
        order = sorted(state.present, key=lambda w: (-epochs[w], w))
        ahead = epochs[order[0]] - epochs[order[-1]]
        if ahead > 1:
            state.members = {*order[: min(ahead, len(order) - 1)]}

    def opened(state: A2SState) -> Decision:
        state.members = set()
        return answer(*state.group.open())

    def on_push(state: A2SState, push: Push) -> tuple[A2SState, Decision]:
        worker = push.worker
        state.pushes[worker] += 1
        compare(state)
        state.group.passed += bool(state.group)
        if worker not in state.members:
            return state, answer([(worker, push.clock, 1.0)], {worker})
        state.group.add(push, state.pushes[worker])
        if state.members <= state.group.waiting or state.group.passed > patience:
            return state, opened(state)
        return state, NOTHING_YET

    def on_leave(state: A2SState, worker: int, time: float) -> tuple[A2SState, Decision]:
        state.group.leave(worker, state.present, state.members)
        if state.group and state.members <= state.group.waiting:
            return state, opened(state)
        return state, NOTHING_YET

    def on_join(state: A2SState, worker: int, time: float) -> tuple[A2SState, Decision]:
        join(worker, state.present, state.pushes)
        return state, answer([], {worker})

    return Policy("", init, on_push, None, on_leave, on_join)


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
