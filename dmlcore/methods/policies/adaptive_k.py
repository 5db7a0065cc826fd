"""K-sync whose k grows as training goes: when gradients stop agreeing, or as the loss falls."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlcore import checks
from dmlcore.methods.policies.wait_for_k import Plan, Wait, waiting
from dmlcore.types import Observation, Policy


@dataclass
class PflugMemory:
    """What the test remembers.

    Args:
        k: waited for now.
        most: k does not exceed it.
        count: updates whose gradient turned against the one before, less those where it did not.
        since: updates since k was changed.
    """

    k: int
    most: int
    count: int = 0
    since: int = 0


def pflug(
    k: int = 1,
    *,
    step: int = 1,
    most: int | None = None,
    threshold: int = 10,
    burn_in: int = 100,
    observe_every: int = 10,
) -> Policy:
    """K-sync that waits for more workers once successive gradients point against each other.

    While the error falls, g_j and g_(j-1) agree more often than not; around the floor of a k they do not. A
    count goes up where g_j . g_(j-1) < 0 and down elsewhere; beyond `threshold`, and `burn_in` updates after
    the last change, k grows by `step` and the count starts anew. No constant of the problem is needed.

    Guarantees: staleness 0; k never falls.

    Args:
        k: to begin with.
        step: by which it grows, >= 1.
        most: largest k. Default: the number of workers.
        threshold: of the count, >= 0.
        burn_in: updates, >= 0.
        observe_every: most updates between two looks. Every product counts; only the change comes later.

    Returns:
        The policy. Its `init` raises ValueError where a k exceeds the number of workers.

    Raises:
        ValueError: a number is out of range.

    Example:
        >>> pflug(10, step=10, most=40)
        pflug(k=10, step=10, most=40, threshold=10, burn_in=100, observe_every=10)

    Reference: Kas Hanna et al. 2022, algorithm 1, after Pflug 1990 and Chee and Toulis 2018.
    """
    k = checks.integer("k", k, low=1)
    step = checks.integer("step", step, low=1)
    if most is not None:
        most = checks.integer("most", most, low=k)
    threshold = checks.integer("threshold", threshold, low=0)
    burn_in = checks.integer("burn_in", burn_in, low=0)
    observe_every = checks.integer("observe_every", observe_every, low=1)

    def init(num_workers: int) -> PflugMemory:
        for name, value in (("k", k), ("most", most)):
            if value is not None:
                checks.integer(name, value, low=1, high=num_workers, why="the number of workers")
        return PflugMemory(k, num_workers if most is None else most)

    def on_observation(memory: PflugMemory, seen: Observation) -> None:
        for product in seen.products:
            memory.since += 1
            memory.count += 1 if product < 0 else -1
            due = memory.count > threshold and memory.since > burn_in
            if due and memory.k + step <= memory.most:
                memory.k, memory.count, memory.since = memory.k + step, 0, 0

    plan = Plan(
        init,
        lambda memory, time: Wait(memory.k),
        on_observation=on_observation,
        observe_every=observe_every,
    )
    name = (
        f"pflug(k={k}, step={step}, most={most}, threshold={threshold}, burn_in={burn_in}, "
        f"observe_every={observe_every})"
    )
    return waiting(name, plan, any_worker=False, cancels=True)


@dataclass
class AdaSyncMemory:
    """What AdaSync remembers.

    Args:
        num_workers: P.
        k: waited for now.
        first_loss: F(w_0); None before it was seen.
    """

    num_workers: int
    k: int
    first_loss: float | None = None


def adasync(k: int = 1, *, batch_async: bool = False, observe_every: int = 10) -> Policy:
    """AdaSync: waits for more gradients as the loss falls, few at first and all in the end.

    K-sync, for exponential times: K^2 / (P - K) = K_0^2 / (P - K_0) F(w_0) / F(w). K-batch-async:
    K = K_0 sqrt(F(w_0) / F(w)). Rounded to a whole number from 1 to P; where the loss rises, K falls again.

    Guarantees: staleness 0, as K-sync.

    Args:
        k: K_0, to begin with; below P for K-sync.
        batch_async: goes by K-batch-async and not by K-sync.
        observe_every: most updates between two looks at the loss.

    Returns:
        The policy. Its `init` raises ValueError where `k` does not suit the number of workers.

    Raises:
        ValueError: a number is out of range.

    Example:
        >>> adasync(2)
        adasync(k=2, batch_async=False, observe_every=10)

    Reference: Dutta, Wang and Joshi 2020, "Slow and stale gradients can win the race", section 5.
    """
    k = checks.integer("k", k, low=1)
    observe_every = checks.integer("observe_every", observe_every, low=1)

    def init(num_workers: int) -> AdaSyncMemory:
        largest = num_workers if batch_async else max(num_workers - 1, 1)
        checks.integer("k", k, low=1, high=largest, why=f"for {num_workers} workers")
        return AdaSyncMemory(num_workers, k)

    def on_observation(memory: AdaSyncMemory, seen: Observation) -> None:
        if memory.first_loss is None:
            memory.first_loss = seen.loss
        p = memory.num_workers
        # A loss that is no number any more, or none at all, asks for everybody.
        ratio = memory.first_loss / seen.loss if seen.loss > 0 else math.inf
        ratio = max(ratio, 0.0) if math.isfinite(ratio) else math.inf
        if ratio == math.inf or (k == p and not batch_async):
            wanted = math.inf
        elif batch_async:
            wanted = k * math.sqrt(ratio)
        else:
            c = k * k / (p - k) * ratio  # K^2 + c K - c P = 0
            wanted = 2 * p / (1 + math.sqrt(1 + 4 * p / c)) if c > 0 else 0
        memory.k = round(min(max(wanted, 1), p))

    plan = Plan(
        init,
        lambda memory, time: Wait(memory.k),
        on_observation=on_observation,
        observe_every=observe_every,
    )
    name = f"adasync(k={k}, batch_async={batch_async}, observe_every={observe_every})"
    return waiting(name, plan, any_worker=batch_async, cancels=not batch_async)
