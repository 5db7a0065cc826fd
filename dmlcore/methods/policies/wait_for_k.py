"""Policies that wait for K gradients: K-sync, K-batch-sync, K-async, K-batch-async and n-softsync.

They differ in two answers: may the K come from any worker ("batch") or only one from each, and is the work in
flight cancelled when the K-th arrives ("sync") or does it go on, to arrive stale ("async"). Means are over
samples: a task of b samples has the weight b / sum b in its update, 1 / K where all have as many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dmlcore import checks
from dmlcore.methods.policies.damping import DAMPING
from dmlcore.types import Decision, Observation, Policy, Push, Start


class Wait(NamedTuple):
    """What a round waits for.

    Args:
        k: gradients.
        batch_size: samples of the tasks that begin with it; None asks the load rule.
    """

    k: int
    batch_size: int | None = None


class Plan(NamedTuple):
    """How many gradients to wait for, round by round. What a plan remembers may be updated in place.

    Args:
        init: number of workers -> memory. Raises ValueError where the plan does not suit so many.
        wait: memory, time -> what the round waits for that begins now.
        on_push: memory, push: a gradient arrived.
        on_observation: memory, observation: the server looked at its training.
        observe_every: most updates between observations.
        batch_size: samples of everybody's first task; None asks the load rule.
        sizes: of tasks that may come later.
    """

    init: Callable[[int], Any]
    wait: Callable[[Any, float], Wait]
    on_push: Callable[[Any, Push], None] | None = None
    on_observation: Callable[[Any, Observation], None] | None = None
    observe_every: int = 1
    batch_size: int | None = None
    sizes: tuple[int, ...] = ()


@dataclass
class WaitState:
    """State of a policy that waits for K gradients.

    Args:
        present: workers that are there.
        memory: of the plan.
        wait: what this round waits for.
        arrived: pushes since the last update.
        version: updates made.
    """

    present: set[int]
    memory: Any
    wait: Wait
    arrived: list[Push] = field(default_factory=list)
    version: int = 0


def waiting(name: str, plan: Plan, *, any_worker: bool, cancels: bool, damping: str = "none") -> Policy:
    """Returns the policy that waits for as many gradients as a plan says.

    Args:
        name: the call that makes it.
        plan: how many.
        any_worker: they may come from any worker, and not only one from each.
        cancels: work in flight is cancelled when the last arrives.
        damping: of stale gradients, a name in `DAMPING`.
    """
    damp = checks.choice("damping", damping, DAMPING)

    def init(num_workers: int) -> WaitState:
        memory = plan.init(num_workers)
        return WaitState(set(range(num_workers)), memory, plan.wait(memory, 0.0))

    def complete(state: WaitState) -> bool:
        k = state.wait.k
        if not any_worker and k > len(state.present):
            # Each counts once: more than those who are there or have pushed already will not come.
            k = min(k, len(state.present.union(push.worker for push in state.arrived)))
        return len(state.arrived) >= k and bool(state.present)

    def update(state: WaitState, idle: set[int], time: float) -> tuple[WaitState, Decision]:
        """Applies what arrived; of those present, all but `idle` and who waits for the update are at work."""
        total = sum(push.samples for push in state.arrived)
        apply = [
            (push.worker, push.clock, push.samples / total * damp(state.version - push.version_read))
            for push in sorted(state.arrived)
        ]
        if not any_worker:
            idle = idle | {push.worker for push in state.arrived}
        state.arrived = []
        state.version += 1
        state.wait = wait = plan.wait(state.memory, time)
        if cancels:
            cancel, begin = sorted(state.present - idle), sorted(state.present)
        else:
            cancel, begin = [], sorted(state.present & idle)
        return state, Decision(apply, (), cancel, [Start(w, wait.batch_size) for w in begin])

    def on_push(state: WaitState, push: Push) -> tuple[WaitState, Decision]:
        if plan.on_push is not None:
            plan.on_push(state.memory, push)
        state.arrived.append(push)
        if complete(state):
            return update(state, {push.worker}, push.time)
        return state, Decision(start=(Start(push.worker, state.wait.batch_size),) if any_worker else ())

    def on_leave(state: WaitState, worker: int, time: float) -> tuple[WaitState, Decision]:
        state.present.remove(worker)
        return update(state, set(), time) if complete(state) else (state, Decision())

    def on_join(state: WaitState, worker: int, time: float) -> tuple[WaitState, Decision]:
        state.present.add(worker)
        if complete(state):
            return update(state, {worker}, time)
        waits = not any_worker and any(push.worker == worker for push in state.arrived)
        return state, Decision(start=() if waits else (Start(worker, state.wait.batch_size),))

    def on_observation(state: WaitState, seen: Observation) -> WaitState:
        assert plan.on_observation is not None
        plan.on_observation(state.memory, seen)
        return state

    staleness = 0 if cancels and not any_worker else None
    return Policy(
        name,
        init,
        on_push,
        staleness,
        on_leave,
        on_join,
        on_observation if plan.on_observation is not None else None,
        plan.observe_every,
        plan.batch_size,
        sizes=plan.sizes,
    )


def _fixed(family: str, k: int, *, any_worker: bool, cancels: bool) -> Policy:
    k = checks.integer("k", k, low=1)
    wait = Wait(k)

    def init(num_workers: int) -> None:
        if not any_worker:
            checks.integer("k", k, low=1, high=num_workers, why=f"the number of workers, for {family}")

    plan = Plan(init, lambda memory, time: wait)
    return waiting(f"{family}(k={k})", plan, any_worker=any_worker, cancels=cancels)


def k_sync(k: int) -> Policy:
    """K-sync: a round applies the mean of the first `k` workers' gradients and cancels the rest.

    As in `bsp`, and in all that wait for K, the mean is over samples: a task of b samples weighs b / sum b.

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
    return _fixed("k_sync", k, any_worker=False, cancels=True)


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
    return _fixed("k_batch_sync", k, any_worker=True, cancels=True)


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
    return _fixed("k_async", k, any_worker=False, cancels=False)


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

    Reference: Dutta et al. 2018, section 2.
    """
    return _fixed("k_batch_async", k, any_worker=True, cancels=False)


def n_softsync(n: int, *, damping: str = "none") -> Policy:
    """n-softsync: an update is the mean of any floor(P / n) gradients of P workers; nobody waits.

    Each gradient counts damping(tau) times its share of the mean, with tau updates made since its pull.

    Guarantees: `n_softsync(P)` is `asp(damping=damping)`; without damping `n_softsync(n)` is
    `k_batch_async(P // n)`. With workers alike the mean staleness over gradients is about n.

    Args:
        n: updates while each worker pushes once, 1 to the number of workers.
        damping: "none", a fixed rate; "reciprocal", the paper's alpha_0 / tau, with alpha_0 at tau = 0; or
            "inverse", 1 / (1 + tau).

    Returns:
        The policy. Its `init` raises ValueError where `n` exceeds the number of workers.

    Raises:
        ValueError: `n` is no whole number >= 1, or there is no such damping.

    Example:
        >>> n_softsync(4, damping="reciprocal")
        n_softsync(n=4, damping='reciprocal')

    Reference: Zhang, Gupta, Lian and Liu 2016, "Staleness-aware async-SGD for distributed deep learning",
    section 3.
    """
    n = checks.integer("n", n, low=1)

    def init(num_workers: int) -> int:
        checks.integer("n", n, low=1, high=num_workers, why="the number of workers, for n_softsync")
        return num_workers // n

    plan = Plan(init, lambda k, time: Wait(k))
    shown = "" if damping == "none" else f", damping={damping!r}"
    return waiting(f"n_softsync(n={n}{shown})", plan, any_worker=True, cancels=False, damping=damping)
