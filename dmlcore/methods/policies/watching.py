"""Policies that watch their training: K-sync with a k, or a k and a batch size, that follow what they see."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from dmlcore import checks
from dmlcore.calls import named
from dmlcore.checks import at_least, or_none
from dmlcore.methods.policies.rounds import Rounds, check_enough, wait_for_k
from dmlcore.theory import LAWS, fit_response, mean_round
from dmlcore.types import Observation, Policy


@dataclass
class AdaSyncRounds(Rounds):
    """State of AdaSync."""

    first_loss: float | None = None  # F(w_0); None before the first observation


@named(every=True, k=checks.at_least(1), batch_async=checks.boolean, observe_every=checks.at_least(1))
def adasync(k: int = 1, *, batch_async: bool = False, observe_every: int = 10) -> Policy:
    """AdaSync: waits for few gradients at first, and for more as the loss falls.

    Let F(w) be the loss and P the number of workers. For K-sync, with exponential task times, K solves
    K^2 / (P - K) = K_0^2 / (P - K_0) F(w_0) / F(w). For K-batch-async, K = K_0 sqrt(F(w_0) / F(w)). K is
    rounded to a whole number from 1 to P; if the loss rises, K falls again.

    Guarantees: staleness 0 with K-sync.

    Args:
        k: the paper's K_0, the K of the first rounds, >= 1; less than P for K-sync.
        batch_async: whether to use K-batch-async instead of K-sync.
        observe_every: the largest number of updates between two observations.

    Returns:
        The policy. For K-sync its `max_lead` is 0: no worker leads another by a clock. For K-batch-async it
        is None: no bound is declared. It watches the training: use it with `train`, or pass a `watch` to
        `simulate`.

    Raises:
        ValueError: a number is out of range; from `init`: `k` is too large for the number of workers.

    >>> adasync(2)
    adasync(k=2, batch_async=False, observe_every=10)

    Reference: Dutta, Wang and Joshi 2020, "Slow and stale gradients can win the race", section 5.
    """

    def init(num_workers: int) -> AdaSyncRounds:
        largest = num_workers if batch_async else max(num_workers - 1, 1)
        checks.integer("k", k, low=1, high=largest, why=f"for {num_workers} workers")
        return AdaSyncRounds(num_workers, k)

    def on_observation(state: AdaSyncRounds, seen: Observation) -> AdaSyncRounds:
        if state.first_loss is None:
            state.first_loss = seen.loss
        p = state.num_workers
        # With a loss that is 0, negative or not a number, the policy waits for all workers.
        ratio = state.first_loss / seen.loss if seen.loss > 0 else math.inf
        ratio = max(ratio, 0.0) if math.isfinite(ratio) else math.inf
        if ratio == math.inf or (k == p and not batch_async):
            wanted = math.inf
        elif batch_async:
            wanted = k * math.sqrt(ratio)
        else:
            c = k * k / (p - k) * ratio  # K^2 + c K - c P = 0
            wanted = 2 * p / (1 + math.sqrt(1 + 4 * p / c)) if c > 0 else 0
        state.k = round(min(max(wanted, 1), p))
        return state

    watch: dict[str, Any] = {"on_observation": on_observation, "observe_every": observe_every}
    return wait_for_k(init, any_worker=batch_async, cancels=not batch_async, **watch)


@dataclass
class PflugRounds(Rounds):
    """State of the test."""

    count: int = 0  # updates with a negative product of successive gradients, less all others
    since: int = 0  # updates since k last changed


@named(
    every=True,
    k=at_least(1),
    step=at_least(1),
    most=or_none(at_least(1)),
    threshold=at_least(0),
    burn_in=at_least(0),
    observe_every=at_least(1),
)
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

    While the error falls, the product g_j . g_(j-1) of successive gradients is positive more often than
    negative; once the error has reached its floor for the current k, it is not. A count goes up by 1 if
    g_j . g_(j-1) < 0, and down by 1 otherwise. When the count exceeds `threshold` more than `burn_in` updates
    after the last change of k, k grows by `step` and the count is reset to 0. The policy needs no constant of
    the problem.

    Guarantees: staleness 0; k never falls.

    Args:
        k: gradients per update in the first rounds, >= 1.
        step: the amount by which k grows, >= 1.
        most: the largest k. Default: the number of workers.
        threshold: the largest count at which k stays the same, >= 0.
        burn_in: after a change, k stays the same for at least this many updates, >= 0.
        observe_every: the largest number of updates between two observations; an observation includes the
            products of all its updates.

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock. It watches the training: use it
        with `train`, or pass a `watch` to `simulate`.

    Raises:
        ValueError: a number is out of range; from `init`: a k exceeds the number of workers.

    >>> pflug(10, step=10, most=40)
    pflug(k=10, step=10, most=40, threshold=10, burn_in=100, observe_every=10)

    Reference: Kas Hanna et al. 2022, algorithm 1, after Pflug 1990 and Chee and Toulis 2018.
    """
    if most is not None:
        at_least(k)("most", most)

    def init(num_workers: int) -> PflugRounds:
        check_enough(num_workers, k=k, most=most)
        return PflugRounds(num_workers, k)

    def on_observation(state: PflugRounds, seen: Observation) -> PflugRounds:
        largest = state.num_workers if most is None else most
        for product in seen.products:
            state.since += 1
            state.count += 1 if product < 0 else -1
            if state.count > threshold and state.since > burn_in and state.k + step <= largest:
                state.k, state.count, state.since = state.k + step, 0, 0
        return state

    return wait_for_k(
        init, any_worker=False, cancels=True, on_observation=on_observation, observe_every=observe_every
    )


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
    round_seconds: Any = None  # an array, one for each (k, b), or one for each k
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


SOURCES = ("loss", "gradients")


def _ascending(name: str, values: Any) -> list[int]:
    if not isinstance(values, Iterable):
        checks.fail(name, values, "whole numbers >= 1, such as [8, 16]")
    sizes = sorted({checks.integer(name, value, low=1) for value in values})
    return sizes or checks.fail(name, values, "at least one whole number")


@named(
    every=True, learning_rate=rate, batch_sizes=_ascending, **CHECKS, estimate_from=checks.one_of(*SOURCES)
)
def adaptive_load(
    learning_rate: float,
    batch_sizes: Sequence[int],
    *,
    law: str = "exponential",
    explore: int = 2,
    observe_every: int = 10,
    estimate_from: str = "loss",
) -> Policy:
    """Adaptive k and computation load, online: uses the (k, b) with the largest measured gain per second.

    By the descent lemma a step along the mean g of k gradients of b samples lowers the loss by
    eta (G - q E|g|^2), with E|g|^2 = G + V / (k b), where G is the squared norm of the mean gradient, V the
    variance of one sample's gradient and q half the curvature along g times eta. The policy uses the (k, b)
    for which (G - q (G + V / (k b))) / mu(k, b) is largest; mu(k, b) is the mean length of a round in
    seconds. Every observation gives |g|^2 and a running mean of the fall of the loss. The rest is estimated
    in one of two ways:

    - from the loss of all data (a real server has only samples of it): the product of successive gradients
      is G - 2 q |g|^2 on average. Together with the fall of the loss it gives q, as a running mean over 200
      updates;
    - from the received gradients alone: the trapezoid rule estimates the fall of the loss from the products
      of successive gradients, and q stays at 0.05, because these products cannot tell q apart from noise.

    `theory.mean_round` computes mu(k, b) from a law that is fitted to the response times in the first rounds,
    which wait for all workers. If G is proportional to the excess loss E, the chosen (k, b) also has the
    largest (E - phi(k, b)) / mu(k, b), which is the rule of the oracle `theory.greedy_schedule`. To limit
    the effect of a noisy observation, after the first choice k b changes by a factor of at most 2, or to
    the next value of the grid.

    Guarantees: staleness 0.

    Args:
        learning_rate: the eta of plain SGD, > 0.
        batch_sizes: the batch sizes to choose from, in samples; the first tasks have the largest.
        law: family of computation times, "exponential", "erlang" or "shifted".
        explore: number of first rounds that wait for all workers, >= 2.
        observe_every: the largest number of updates between two choices.
        estimate_from: "loss", the problem's loss of all its data, which the engine computes at no cost in
            virtual time; or "gradients", the received gradients: then q stays at 0.05, and the policy can
            fail if curvatures differ widely (in notebook 03 no seed reached the target of a logistic
            regression).

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock. It watches the training: use it
        with `train`, or pass a `watch` to `simulate`. It sets the batch size of every task, so the load rule
        has no effect.

    Raises:
        ValueError: a number is out of range, or `law` or `estimate_from` is not one of those listed.

    >>> adaptive_load(0.1, [1, 8, 32], law="erlang")
    adaptive_load(learning_rate=0.1, batch_sizes=[1, 8, 32], law='erlang', explore=2, ...)

    Reference: Egger, Kas Hanna and Bitar 2023. Their scheme knows the constants; the estimates are ours.
    """
    return largest_gain(
        learning_rate, [*batch_sizes], law, explore, observe_every, from_loss=estimate_from == "loss"
    )


@named(every=True, learning_rate=rate, **CHECKS)
def dbw(
    learning_rate: float, *, law: str = "exponential", explore: int = 2, observe_every: int = 10
) -> Policy:
    """Dynamic backup workers: K-sync with the k that has the largest measured gain per second.

    It is `adaptive_load` with the batch size of the load rule. Three things differ from the paper. The paper
    estimates V from the spread of the workers' gradients, and every mu(k) from the times at which gradients
    arrived, late ones included. Here late tasks are cancelled, mu(k) comes from a law that is fitted to the
    first rounds, and V is estimated as in `adaptive_load`.

    Guarantees: staleness 0.

    Args:
        learning_rate, law, explore, observe_every: as for `adaptive_load`.

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock. It watches the training: use it
        with `train`, or pass a `watch` to `simulate`.

    Raises:
        ValueError: a number is out of range, or `law` is not one of those of `adaptive_load`.

    >>> dbw(0.1)
    dbw(learning_rate=0.1, law='exponential', explore=2, observe_every=10)

    Reference: Xu, Neglia and Sebastianelli 2021, "Dynamic backup workers for parallel machine learning".
    """
    return largest_gain(learning_rate, None, law, explore, observe_every)
