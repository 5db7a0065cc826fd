"""Policies that wait for K gradients: K-sync, K-batch-sync, K-async and K-batch-async.

They differ in two answers: may the K come from any worker ("batch") or only one from each, and is the work in
flight cancelled when the K-th arrives ("sync") or does it go on, to arrive stale ("async").
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dmlcore import checks
from dmlcore.types import Decision, Policy, Push, Start


@dataclass
class WaitState:
    """State of a policy that waits for K gradients.

    Args:
        present: workers that are there.
        arrived: (worker, clock) of pushes since the last update.
    """

    present: set[int]
    arrived: list[tuple[int, int]] = field(default_factory=list)


def _policy(family: str, k: int, *, any_worker: bool, cancels: bool) -> Policy:
    k = checks.integer("k", k, low=1)

    def init(num_workers: int) -> WaitState:
        if not any_worker:
            checks.integer("k", k, low=1, high=num_workers, why=f"the number of workers, for {family}")
        return WaitState(set(range(num_workers)))

    def complete(state: WaitState) -> bool:
        # Each counts once: more than those who are there or have pushed already will not come.
        team = state.present.union(worker for worker, _ in state.arrived)
        needed = k if any_worker else min(k, len(team))
        return bool(state.present) and len(state.arrived) >= needed

    def update(state: WaitState, idle: set[int]) -> tuple[WaitState, Decision]:
        """Applies what arrived; of those present, all but `idle` and who waits for the update are at work."""
        weight = 1.0 / len(state.arrived)
        apply = [(worker, clock, weight) for worker, clock in sorted(state.arrived)]
        if not any_worker:
            idle = idle | {worker for worker, _ in state.arrived}
        state.arrived = []
        if cancels:
            cancel = sorted(state.present - idle)
            return state, Decision(apply, (), cancel, [Start(w) for w in sorted(state.present)])
        return state, Decision(apply, (), (), [Start(w) for w in sorted(state.present & idle)])

    def on_push(state: WaitState, push: Push) -> tuple[WaitState, Decision]:
        state.arrived.append((push.worker, push.clock))
        if complete(state):
            return update(state, {push.worker})
        return state, Decision(start=(Start(push.worker),) if any_worker else ())

    def on_leave(state: WaitState, worker: int, time: float) -> tuple[WaitState, Decision]:
        state.present.remove(worker)
        return update(state, set()) if complete(state) else (state, Decision())

    def on_join(state: WaitState, worker: int, time: float) -> tuple[WaitState, Decision]:
        state.present.add(worker)
        if complete(state):
            return update(state, {worker})
        waits = not any_worker and any(w == worker for w, _ in state.arrived)
        return state, Decision(start=() if waits else (Start(worker),))

    staleness = 0 if cancels and not any_worker else None
    return Policy(f"{family}(k={k})", init, on_push, staleness, on_leave, on_join)


def k_sync(k: int) -> Policy:
    """K-sync: a round applies the mean of the first `k` workers' gradients and cancels the rest.

    Guarantees: staleness 0. With exponential task times of rate m and P workers a round takes
    (H_P - H_{P-k}) / m on average, H the harmonic numbers. `k_sync(num_workers)` is `bsp()`.

    Args:
        k: the paper's K, gradients per update, 1 to the number of workers.

    Returns:
        The policy. Its `init` raises ValueError where `k` exceeds the number of workers.

    Raises:
        ValueError: `k` is no whole number >= 1.

    Example:
        >>> k_sync(4)
        k_sync(k=4)

    Reference: Dutta et al. 2018, "Slow and stale gradients can win the race", section 2; backup workers are
    the same rule (Chen et al. 2016).
    """
    return _policy("k_sync", k, any_worker=False, cancels=True)


def k_batch_sync(k: int) -> Policy:
    """K-batch-sync: a round applies the mean of the first `k` mini-batches, whoever computed them.

    A worker that finishes early starts another mini-batch on the same version; the `k`-th push cancels all
    unfinished work.

    Guarantees: staleness 0. With exponential task times of rate m a round takes k / (P m) on average.

    Args:
        k: mini-batches per update, >= 1; may exceed the number of workers.

    Returns:
        The policy.

    Raises:
        ValueError: `k` is no whole number >= 1.

    Example:
        >>> k_batch_sync(4)
        k_batch_sync(k=4)

    Reference: Dutta et al. 2018, section 2; with k = S it is Rennala SGD (Tyurin and Richtarik 2023).
    """
    return _policy("k_batch_sync", k, any_worker=True, cancels=True)


def k_async(k: int) -> Policy:
    """K-async: an update is the mean of the first `k` workers' gradients; the others work on, stale.

    The `k` workers wait for each other and start again from the new version.

    Guarantees: every update holds one gradient of each of `k` workers. `k_async(1)` is `asp()`.

    Args:
        k: gradients per update, 1 to the number of workers.

    Returns:
        The policy. Its `init` raises ValueError where `k` exceeds the number of workers.

    Raises:
        ValueError: `k` is no whole number >= 1.

    Example:
        >>> k_async(4)
        k_async(k=4)

    Reference: Dutta et al. 2018, section 2.
    """
    return _policy("k_async", k, any_worker=False, cancels=False)


def k_batch_async(k: int) -> Policy:
    """K-batch-async: an update is the mean of any `k` mini-batches; finishers start at once on the newest.

    Guarantees: nobody waits. With exponential task times of rate m an update takes k / (P m) on average.
    `k_batch_async(1)` is `asp()`.

    Args:
        k: mini-batches per update, >= 1; may exceed the number of workers.

    Returns:
        The policy.

    Raises:
        ValueError: `k` is no whole number >= 1.

    Example:
        >>> k_batch_async(4)
        k_batch_async(k=4)

    Reference: Dutta et al. 2018, section 2; n-softsync (Zhang et al. 2016) is k = P / n.
    """
    return _policy("k_batch_async", k, any_worker=True, cancels=False)
