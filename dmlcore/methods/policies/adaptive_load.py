"""K-sync with the k and batch size of the largest expected gain a second."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmlcore import checks
from dmlcore.calls import named
from dmlcore.checks import at_least
from dmlcore.methods.policies._wait import Rounds, wait_for_k
from dmlcore.theory import LAWS, fit_response, mean_round
from dmlcore.types import Observation, Policy

NEWEST = 0.3  # weight of the last observation in the running mean


class Rate(float):
    """A learning rate; names of policies show six digits of it."""

    def __repr__(self) -> str:
        return f"{self:g}"


def rate(name: str, value: Any) -> Rate:
    """Returns `value` if it is a finite number > 0."""
    return Rate(checks.positive(name, value))


CHECKS: dict[str, Any] = {"law": checks.one_of(*LAWS), "explore": at_least(2), "observe_every": at_least(1)}


@dataclass
class GainRounds(Rounds):
    """What is measured, and what follows from it."""

    explore: int = 2  # rounds left that wait for all workers, to measure response times
    begun: float = 0.0  # when the round began, seconds
    communication: list[float] = field(default_factory=list)  # seconds of each response in these rounds
    computation: list[float] = field(default_factory=list)  # likewise
    measured_size: int = 1  # batch size of the measured tasks
    round_seconds: np.ndarray | None = None  # mu(k, b), (n, number of batch sizes); None while exploring
    loss: float = float("nan")  # at the last observation
    curvature: float | None = None  # q; None before it was measured
    gain: float = 0.0  # running mean of (G - q |g|^2) / |g|^2


def _ascending(name: str, values: Any) -> list[int]:
    if not isinstance(values, Iterable):
        checks.fail(name, values, "several whole numbers >= 1")
    sizes = sorted({checks.integer(name, value, low=1) for value in values})
    return sizes or checks.fail(name, values, "at least one")


@named(every=True, learning_rate=rate, batch_sizes=_ascending, **CHECKS)
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
    variance of one sample's gradient and q half the curvature along g times eta. Every observation measures
    |g|^2 and the fall of the loss, as a running mean. The first one, where noise is small, also measures q:
    there the product of two successive gradients estimates G. G and V follow. The length mu(k, b) of a round
    is `theory.mean_round` of a law fitted to the response times in the first rounds, which wait for all
    workers. Where G is in proportion to the excess loss E, the gain over mu(k, b) is largest where
    (E - phi(k, b)) / mu(k, b) is: the rule of the oracle `theory.greedy_schedule`. A noisy observation costs
    little: after the first, k b changes by a factor of 2 at most, or to the next value in the grid.

    Guarantees: staleness 0.

    Args:
        learning_rate: eta, of plain SGD.
        batch_sizes: to choose from; the first tasks have the largest.
        law: family of computation times, "exponential", "erlang" or "shifted".
        explore: rounds that wait for all workers, >= 2.
        observe_every: most updates between two choices.

    Raises:
        ValueError: a number is out of range, or there is no such law.

    >>> adaptive_load(0.1, [1, 8, 32], law="erlang")
    adaptive_load(learning_rate=0.1, batch_sizes=[1, 8, 32], law='erlang', explore=2, ...)

    Reference: Egger, Kas Hanna and Bitar 2023, whose scheme knows the constants; the estimates are ours.
    """
    return largest_gain(learning_rate, [*batch_sizes], law, explore, observe_every)


def largest_gain(eta: float, sizes: list[int] | None, law: str, explore: int, observe_every: int) -> Policy:
    """Returns the policy. `sizes`: batch sizes in ascending order; None takes those of the load rule."""
    largest = None if sizes is None else sizes[-1]

    def init(num_workers: int) -> GainRounds:
        return GainRounds(num_workers, num_workers, largest, explore=explore)

    def begin(state: GainRounds, time: float) -> None:
        if state.explore:  # the round that ends now was measured
            for push in state.arrived:
                state.computation.append(push.compute_seconds)
                state.communication.append(max(push.time - state.begun - push.compute_seconds, 0.0))
            b = state.measured_size = push.samples
            state.explore -= 1
            if not state.explore:
                response = fit_response(law, state.communication, state.computation, b)
                state.round_seconds = mean_round(response, state.num_workers, sizes or [b])
        state.begun = time

    def on_observation(state: GainRounds, seen: Observation) -> GainRounds:
        fell, state.loss = state.loss - seen.loss, seen.loss
        if state.round_seconds is None or not len(seen.tasks):
            return state
        gained = fell / (eta * len(seen.tasks))  # G - q |g|^2 of one update
        square = float(np.mean(seen.squared_norms))  # |g|^2
        used = float(np.mean(seen.samples))  # k b
        if not square > 0:
            return state

        # Estimate q once and G at every observation; V / (k b) = |g|^2 - G.
        first = state.curvature is None
        if state.curvature is None:
            # G, where noise is independent; more, where steps are long.
            common = float(np.mean(seen.products))
            state.curvature = min(max((common - gained) / square, 1e-6), 1.0)
            state.gain = gained / square
        state.gain += NEWEST * (gained / square - state.gain)
        q = state.curvature
        G = min(max(state.gain + q, 0.0), 1.0) * square

        # The gain of every (k, b) a second. Where no (k, b) gains, the one with the least noise is best.
        k = np.arange(1, state.num_workers + 1)[:, None]
        b = np.array(sizes or [state.measured_size])
        gain = G - q * (G + (square - G) * used / (k * b))
        value = np.where(gain > 0, gain / state.round_seconds, gain)
        if not first:  # k b changes by a factor of 2 at most, or to its neighbour in the grid
            now = state.k * (state.batch_size or state.measured_size)
            grid = np.unique(k * b)
            at = int(np.searchsorted(grid, now))
            low, high = min(now / 2, grid[max(at - 1, 0)]), max(2 * now, grid[min(at + 1, len(grid) - 1)])
            value = np.where((low <= k * b) & (k * b <= high), value, -np.inf)
        row, column = np.unravel_index(int(np.argmax(value)), value.shape)
        state.k, state.batch_size = int(row) + 1, None if sizes is None else sizes[column]
        return state

    watch: dict[str, Any] = {"on_observation": on_observation, "observe_every": observe_every}
    size: dict[str, Any] = {"batch_size": largest, "sizes": tuple(sizes or ())}
    return wait_for_k(init, any_worker=False, cancels=True, begin=begin, **watch, **size)
