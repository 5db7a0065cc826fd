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
        num_workers: P.
        arrived: pushes since the last update.
    """

    num_workers: int
    arrived: list[tuple[int, int, float]] = field(default_factory=list)


def _policy(family: str, k: int, *, any_worker: bool, cancels: bool) -> Policy:
    k = checks.integer("k", k, low=1)
    weight = 1.0 / k

    def init(num_workers: int) -> WaitState:
        if not any_worker:
            checks.integer("k", k, low=1, high=num_workers, why=f"the number of workers, for {family}")
        return WaitState(num_workers)

    def on_push(state: WaitState, push: Push) -> tuple[WaitState, Decision]:
        state.arrived.append((push.worker, push.clock, weight))
        if len(state.arrived) < k:
            return state, Decision(start=(Start(push.worker),) if any_worker else ())
        update = sorted(state.arrived)
        state.arrived = []
        if cancels:
            idle = {push.worker} if any_worker else {task[0] for task in update}
            everyone = range(state.num_workers)
            cancel = [w for w in everyone if w not in idle] if len(idle) < state.num_workers else ()
            return state, Decision(update, (), cancel, [Start(w) for w in everyone])
        start = [Start(push.worker)] if any_worker else [Start(w) for w, _, _ in update]
        return state, Decision(update, (), (), start)

    return Policy(f"{family}(k={k})", init, on_push, 0 if cancels and not any_worker else None)


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
