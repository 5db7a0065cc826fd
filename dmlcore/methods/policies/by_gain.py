"""K-sync that picks the k, or the k and batch size, with the largest expected gain a second."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dmlcore import checks
from dmlcore.methods.policies.wait_for_k import Plan, Wait, waiting
from dmlcore.theory import LAWS, fit_response, mean_round
from dmlcore.types import Observation, Policy, Push

NEWS = 0.3  # weight of the last look in the running mean


@dataclass
class GainMemory:
    """What is measured, and what follows from it.

    Args:
        num_workers: n.
        wait: for what.
        explore: rounds still to wait for everybody, to measure how long an answer takes.
        begun: when the round began, seconds.
        communication: seconds of each answer, measured while exploring.
        computation: likewise.
        batch_size: of those answers.
        round_seconds: mu(k, b), (n, number of batch sizes); None while exploring.
        loss: when last seen.
        curvature: q; None before it was seen.
        gain: running mean of (G - q |g|^2) / |g|^2.
    """

    num_workers: int
    wait: Wait
    explore: int
    begun: float = 0.0
    communication: list[float] = field(default_factory=list)
    computation: list[float] = field(default_factory=list)
    batch_size: int = 1
    round_seconds: np.ndarray | None = None
    loss: float = float("nan")
    curvature: float | None = None
    gain: float = 0.0


def adaptive_load(
    learning_rate: float,
    batch_sizes: Sequence[int],
    *,
    law: str = "exponential",
    explore: int = 2,
    observe_every: int = 10,
) -> Policy:
    """Adaptive k and computation load, online: runs the (k, b) with the largest gain a second, as measured.

    By the descent lemma a step along the mean g of k gradients of b samples lowers the loss by
    eta (G - q E|g|^2), with E|g|^2 = G + V / (k b), where G is the square of the mean gradient, V the
    variance of one sample's gradient and q half the curvature along g times eta. Measured are, at every
    look, |g|^2 and how much the loss fell, as a running mean; and q, when nothing is noisy yet: at the first,
    where the product of two successive gradients stands for G. So G and V follow. The length mu(k, b) of a
    round is `theory.mean_round` of a law fitted to the answers of the first rounds, which wait for everybody.
    Where G is in proportion to the excess loss E, the largest gain over mu(k, b) is where
    (E - phi(k, b)) / mu(k, b) is: the rule of the oracle `theory.greedy_schedule`. After the first look k b
    changes by a factor of 2 at most, or to the next in the grid, so that a bad look costs little.

    Guarantees: staleness 0.

    Args:
        learning_rate: eta, of plain SGD.
        batch_sizes: to choose from; everybody begins with the largest.
        law: family of computation times, "exponential", "erlang" or "shifted".
        explore: rounds that wait for everybody, >= 2.
        observe_every: most updates between two choices.

    Returns:
        The policy.

    Raises:
        ValueError: a number is out of range, or there is no such law.

    Example:
        >>> adaptive_load(0.1, [1, 8, 32], law="erlang")
        adaptive_load(learning_rate=0.1, batch_sizes=[1, 8, 32], law='erlang', explore=2, ...)

    Reference: Egger, Kas Hanna and Bitar 2023, whose scheme knows the constants; the estimates are ours.
    """
    if not isinstance(batch_sizes, Iterable):
        checks.fail("batch_sizes", batch_sizes, "several whole numbers >= 1")
    sizes = sorted({checks.integer("batch_sizes", b, low=1) for b in batch_sizes})
    if not sizes:
        checks.fail("batch_sizes", batch_sizes, "at least one")
    policy = _by_gain(learning_rate, sizes, law, explore, observe_every)
    return policy._replace(
        name=f"adaptive_load(learning_rate={learning_rate:g}, batch_sizes={sizes}, law={law!r}, "
        f"explore={explore}, observe_every={observe_every})"
    )


def dbw(
    learning_rate: float, *, law: str = "exponential", explore: int = 2, observe_every: int = 10
) -> Policy:
    """Dynamic backup workers: K-sync with the k of the largest expected gain a second, as measured.

    It is `adaptive_load` with the batch size of the load rule. The original takes V from how far workers'
    gradients are apart and every mu(k) from the times at which gradients arrived, late ones too; here late
    work is cancelled, mu(k) is that of a law fitted to the first rounds, and V is estimated as there.

    Guarantees: staleness 0.

    Args:
        learning_rate: eta, of plain SGD.
        law: family of computation times, "exponential", "erlang" or "shifted".
        explore: rounds that wait for everybody, >= 2.
        observe_every: most updates between two choices.

    Returns:
        The policy.

    Raises:
        ValueError: a number is out of range, or there is no such law.

    Example:
        >>> dbw(0.1)
        dbw(learning_rate=0.1, law='exponential', explore=2, observe_every=10)

    Reference: Xu, Neglia and Sebastianelli 2021, "Dynamic backup workers for parallel machine learning".
    """
    policy = _by_gain(learning_rate, None, law, explore, observe_every)
    return policy._replace(
        name=f"dbw(learning_rate={learning_rate:g}, law={law!r}, explore={explore}, "
        f"observe_every={observe_every})"
    )


def _by_gain(
    learning_rate: float, sizes: list[int] | None, law: str, explore: int, observe_every: int
) -> Policy:
    eta = checks.real("learning_rate", learning_rate, above=0, high=1e300)
    checks.choice("law", law, LAWS)
    explore = checks.integer("explore", explore, low=2)
    observe_every = checks.integer("observe_every", observe_every, low=1)
    largest = None if sizes is None else sizes[-1]

    def init(num_workers: int) -> GainMemory:
        return GainMemory(num_workers, Wait(num_workers, largest), explore)

    def on_push(memory: GainMemory, push: Push) -> None:
        if memory.explore:
            memory.computation.append(push.compute_seconds)
            memory.communication.append(max(push.time - memory.begun - push.compute_seconds, 0.0))
            memory.batch_size = push.samples

    def wait(memory: GainMemory, time: float) -> Wait:
        memory.begun = time
        if memory.explore and memory.computation:
            memory.explore -= 1
            if not memory.explore:
                b = memory.batch_size
                response = fit_response(law, memory.communication, memory.computation, b)
                memory.round_seconds = mean_round(response, memory.num_workers, sizes or [b])
        return memory.wait

    def on_observation(memory: GainMemory, seen: Observation) -> None:
        fell, memory.loss = memory.loss - seen.loss, seen.loss
        if memory.round_seconds is None or not len(seen.tasks):
            return
        gained = fell / (eta * len(seen.tasks))  # G - q |g|^2, in an update
        square = float(np.mean(seen.squared_norms))
        used = float(np.mean(seen.samples))
        if not square > 0:
            return
        first = memory.curvature is None
        if memory.curvature is None:
            # What two gradients, each with luck of its own, have in common is G; more, where steps are long.
            common = float(np.mean(seen.products))
            memory.curvature = min(max((common - gained) / square, 1e-6), 1.0)
            memory.gain = gained / square
        memory.gain += NEWS * (gained / square - memory.gain)
        q = memory.curvature
        agreement = min(max(memory.gain + q, 0.0), 1.0) * square
        k = np.arange(1, memory.num_workers + 1)[:, None]
        b = np.array(sizes or [memory.batch_size])
        gain = agreement - q * (agreement + (square - agreement) * used / (k * b))
        # Where nothing gains any more, the least noise is best; but a bad look should not cost much.
        value = np.where(gain > 0, gain / memory.round_seconds, gain)
        if not first:
            now = memory.wait.k * (memory.wait.batch_size or memory.batch_size)
            grid = np.unique(k * b)
            at = int(np.searchsorted(grid, now))
            low, high = min(now / 2, grid[max(at - 1, 0)]), max(2 * now, grid[min(at + 1, len(grid) - 1)])
            value = np.where((low <= k * b) & (k * b <= high), value, -np.inf)
        row, column = np.unravel_index(int(np.argmax(value)), value.shape)
        memory.wait = Wait(int(row) + 1, None if sizes is None else sizes[column])

    plan = Plan(init, wait, on_push, on_observation, observe_every, largest, tuple(sizes or ()))
    return waiting("", plan, any_worker=False, cancels=True)
