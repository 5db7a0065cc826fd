"""The rule of the policies that choose the largest expected gain per second, `adaptive_load` and `dbw`.

By the descent lemma a step along the mean g of k gradients of b samples lowers the loss by
eta (G - q E|g|^2), with E|g|^2 = G + V / (k b), where G is the squared norm of the mean gradient, V the
variance of one sample's gradient and q half the curvature along g times eta. The policies estimate all of
these.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dmlcore import checks
from dmlcore.checks import at_least
from dmlcore.methods.policies._wait import Rounds, wait_for_k
from dmlcore.theory import LAWS, fit_response, mean_round
from dmlcore.types import Observation, Policy

NEWEST = 0.3  # weight of the last observation in the running mean of the gain
CURVATURE, KNOWN = 0.05, 20  # q before any measurement, and how many updates that prior value counts as
MEMORY = 200  # updates over which q is averaged; an observation of more updates replaces the average
LEAST, MOST = 1e-3, 0.5  # bounds of q; beyond 1/2 a step overshoots, however large the batch


class Rate(float):
    """A learning rate that the name of a policy shows with six digits."""

    def __repr__(self) -> str:
        return f"{self:g}"


def rate(name: str, value: Any) -> Rate:
    """Returns `value` if it is a finite number > 0."""
    return Rate(checks.positive(name, value))


CHECKS: dict[str, Any] = {"law": checks.one_of(*LAWS), "explore": at_least(2), "observe_every": at_least(1)}


class Look(NamedTuple):
    """Sums over the updates of one observation.

    The product g . g' of the last update needs the next gradient, so it is added at the next observation.
    """

    fell: float  # fall of the loss / eta
    products: float  # sum of g . g' over all updates but the last; g' is the gradient of the update after g
    squares: float  # sum of |g|^2
    updates: int


@dataclass
class GainRounds(Rounds):
    """The measurements of response times and gradients, and the choice of (k, b) that follows from them."""

    explore: int = 2  # remaining rounds that wait for all workers, to measure response times
    begun: float = 0.0  # when the round began, in seconds
    communication: list[float] = field(default_factory=list)  # seconds per response in the exploring rounds
    computation: list[float] = field(default_factory=list)  # seconds per response in the exploring rounds
    measured_size: int = 1  # batch size of the measured tasks
    # mu(k, b) in seconds, shape (number of workers, number of batch sizes). None while exploring.
    round_seconds: np.ndarray | None = None
    loss: float = float("nan")  # at the last observation
    look: Look | None = None  # the last observation
    curvature: float = CURVATURE  # q, a running mean
    known: float = KNOWN  # updates in that mean, at least those of the last observation
    gain: float | None = None  # running mean of (G - q |g|^2) / |g|^2; None before the first observation
    chosen: bool = False  # whether a (k, b) was chosen before

    @property
    def q(self) -> float:
        """The running mean of the curvature, clipped to its bounds."""
        return min(max(self.curvature, LEAST), MOST)


def estimate(state: GainRounds, seen: Observation, eta: float, from_loss: bool) -> None:
    """Estimates q, and the gain of an update as a fraction of its |g|^2.

    If g' is the gradient of the next update, the mean of g . g' is G - 2 q |g|^2.
    """
    square, count = float(np.mean(seen.squared_norms)), len(seen.tasks)
    if from_loss:  # an update lowers the loss by eta (G - q |g|^2)
        fell, before, state.loss = (state.loss - seen.loss) / eta, state.look, seen.loss
        if not np.isfinite(fell):  # the first observation after the training diverged and recovered
            return
        if before is not None:
            q = (before.fell - before.products - seen.products[0]) / before.squares
            state.known = max(before.updates, min(state.known + before.updates, MEMORY))
            state.curvature += before.updates / state.known * (q - state.curvature)
        state.look = Look(fell, sum(seen.products[1:]), square * count, count)
        gain = fell / count / square
    else:  # the policy does not use the loss
        gain = float(np.mean(seen.products)) / square + state.q
    state.gain = gain if state.gain is None else state.gain + NEWEST * (gain - state.gain)


def choose(state: GainRounds, seen: Observation, sizes: list[int]) -> tuple[int, int]:
    """Returns the k, and the index of the b in `sizes`, with the largest gain per second."""
    square, used = float(np.mean(seen.squared_norms)), float(np.mean(seen.samples))
    G = min(max((state.gain or 0.0) + state.q, 0.0), 1.0) * square
    V = (square - G) * used
    k, b = np.arange(1, state.num_workers + 1)[:, None], np.array(sizes)
    gain = G - state.q * (G + V / (k * b))
    value = np.where(gain > 0, gain / state.round_seconds, gain)  # if no (k, b) gains: the least noise
    if state.chosen:  # then k b changes by a factor of 2 at most, or to the next value of the grid
        now, grid = state.k * (state.batch_size or state.measured_size), np.unique(k * b)
        at = int(np.searchsorted(grid, now))
        low, high = min(now / 2, grid[max(at - 1, 0)]), max(2 * now, grid[min(at + 1, len(grid) - 1)])
        value = np.where((low <= k * b) & (k * b <= high), value, -np.inf)
    row, column = np.unravel_index(int(np.argmax(value)), value.shape)
    return int(row) + 1, int(column)


def largest_gain(
    eta: float, sizes: list[int] | None, law: str, explore: int, observe_every: int, from_loss: bool = True
) -> Policy:
    """Returns the policy. `sizes`: ascending batch sizes; None: the load rule sets the batch size."""
    largest = None if sizes is None else sizes[-1]

    def init(num_workers: int) -> GainRounds:
        return GainRounds(num_workers, num_workers, largest, explore=explore)

    def begin(state: GainRounds, time: float) -> None:
        if state.explore:  # the round that ends now is one of the measured rounds
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
        squares = np.asarray(seen.squared_norms, float)
        measured = [*squares, *seen.products, *([seen.loss] if from_loss else ())]
        if not squares.size:
            state.loss = seen.loss
        elif not np.isfinite(measured).all() or not squares.mean() > 0:
            # The training has diverged or its gradient is 0: skip this observation, and forget the last one
            # so that no later estimate spans it.
            state.loss, state.look = seen.loss, None
        else:
            estimate(state, seen, eta, from_loss)
            if state.round_seconds is not None:
                state.k, column = choose(state, seen, sizes or [state.measured_size])
                state.batch_size, state.chosen = None if sizes is None else sizes[column], True
        return state

    watch: dict[str, Any] = {"on_observation": on_observation, "observe_every": observe_every}
    size: dict[str, Any] = {"batch_size": largest, "sizes": tuple(sizes or ())}
    return wait_for_k(init, any_worker=False, cancels=True, begin=begin, **watch, **size)
