"""Schedules of k (workers to wait for) and b (batch size) over time: their error bound, cost and switches."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmlcore import checks
from dmlcore.theory.bound import Constants, decay, floor


class Phase(NamedTuple):
    """A period of time with one k and one batch size.

    Args:
        start: when it begins, in seconds.
        k: number of workers that a round waits for.
        batch_size: b, samples per task.
        round_seconds: mu(k, b), the mean seconds of a round.
        floor: phi(k, b), as an excess loss.
        error: the bound at `start`, as an excess loss.

    >>> bound = Constants(0.001, 2.0, 1.0, 10.0)
    >>> fixed_schedule(0.5, 4, 2, 10, bound, error=100.0).at(7.0).k
    2
    """

    start: float
    k: int
    batch_size: int
    round_seconds: float
    floor: float
    error: float


class Account(NamedTuple):
    """The cost of bringing the bound down to a target; all infinite if the bound never reaches the target.

    Args:
        seconds: the time in seconds.
        rounds: the number of rounds.
        used_samples: samples in gradients that are applied, k b per round.
        assigned_samples: samples in tasks that workers begin, n b per round.
        uplinks: gradients that are sent and applied, k per round.
        downlinks: transfers of the parameters to a worker, n per round.

    >>> bound = Constants(0.001, 2.0, 1.0, 10.0)
    >>> account = fixed_schedule(0.5, 4, 2, 10, bound, error=100.0).account(target=1.0)
    >>> account.uplinks / account.rounds, account.downlinks / account.rounds
    (2.0, 4.0)
    """

    seconds: float
    rounds: float
    used_samples: float
    assigned_samples: float
    uplinks: float
    downlinks: float


class Schedule(NamedTuple):
    """A sequence of phases, and the error bound along them.

    Args:
        phases: at least one, in the order of time; the last one does not end.
        num_workers: n.
        decay: alpha, the decay of the bound per round, see `decay`.

    >>> bound = Constants(0.001, 2.0, 1.0, 10.0)
    >>> schedule = greedy_schedule(np.array([[0.1], [0.3]]), [10], bound, error=100.0)
    >>> [phase.k for phase in schedule.phases]
    [1, 2]
    """

    phases: tuple[Phase, ...]
    num_workers: int
    decay: float

    def at(self, seconds: float) -> Phase:
        """Returns the phase at a time.

        Args:
            seconds: the time in seconds, >= 0.

        Returns:
            The phase; for negative times, the first.

        Raises:
            TypeError: `seconds` is not a scalar.

        >>> fixed_schedule(0.5, 4, 2, 10, Constants(0.001, 2.0, 1.0, 10.0), 100.0).at(1.0).batch_size
        10
        """
        starts = [phase.start for phase in self.phases]
        return self.phases[max(int(np.searchsorted(starts, seconds, side="right")) - 1, 0)]

    def error(self, seconds: float) -> float:
        """Returns the error bound at a time.

        Args:
            seconds: the time in seconds, >= 0.

        Returns:
            The bound, an excess loss in the unit of the loss.

        Raises:
            ValueError: `seconds` is out of range.

        >>> fixed_schedule(0.5, 4, 2, 10, Constants(0.001, 2.0, 1.0, 10.0), 100.0).error(0.0)
        100.0
        """
        seconds = checks.not_negative("seconds", seconds)
        phase = self.at(seconds)
        rounds = (seconds - phase.start) / phase.round_seconds
        return phase.floor + (phase.error - phase.floor) * math.exp(-self.decay * rounds)

    def account(self, target: float) -> Account:
        """Returns the cost until the bound reaches a target.

        Args:
            target: an excess loss, > 0.

        Returns:
            The time and the work; all infinite if the bound stays above the target.

        Raises:
            ValueError: `target` is out of range.

        >>> schedule = fixed_schedule(0.5, 4, 2, 10, Constants(0.001, 2.0, 1.0, 10.0), 100.0)
        >>> round(schedule.account(1.0).seconds, 1), schedule.account(1e-9).seconds
        (2301.7, inf)
        """
        target = checks.real("target", target, above=0)
        total = np.zeros(len(Account._fields))
        for phase, after in zip(self.phases, (*self.phases[1:], None), strict=True):
            if phase.error <= target:
                break
            end = target if after is None else max(target, after.error)
            seconds = _lasts(phase, end, self.decay)
            rounds, n = seconds / phase.round_seconds, self.num_workers
            per_round = (phase.k * phase.batch_size, n * phase.batch_size, phase.k, n)
            total += [seconds, rounds, *(rounds * each for each in per_round)]
        return Account(*total.tolist())


def _lasts(phase: Phase, error: float, alpha: float) -> float:
    """Returns the seconds that a phase takes to bring the bound down to `error`."""
    if error <= phase.floor:
        return math.inf
    return phase.round_seconds / alpha * math.log((phase.error - phase.floor) / (error - phase.floor))


def fixed_schedule(
    round_seconds: float, num_workers: int, k: int, batch_size: int, constants: Constants, error: float
) -> Schedule:
    """Returns the schedule with one k and one batch size.

    Args:
        round_seconds: mu(k, b), the mean seconds of a round.
        num_workers: n.
        k: number of workers that a round waits for.
        batch_size: b, samples per task.
        constants: of the problem and the step.
        error: E_0, the excess loss at the start.

    Returns:
        The schedule.

    Raises:
        ValueError: an argument is out of range.

    >>> bound = Constants(0.001, 2.0, 1.0, 10.0)
    >>> round(fixed_schedule(0.5, 4, 2, 10, bound, 100.0).account(1.0).seconds, 1)
    2301.7
    """
    num_workers = checks.integer("num_workers", num_workers, low=1)
    k = checks.integer("k", k, low=1, high=num_workers, why="the number of workers")
    batch_size = checks.integer("batch_size", batch_size, low=1)
    seconds, error = checks.positive("round_seconds", round_seconds), checks.positive("error", error)
    phase = Phase(0.0, k, batch_size, seconds, float(floor(constants, k, batch_size)), error)
    return Schedule((phase,), num_workers, decay(constants))


def greedy_schedule(
    round_seconds: np.ndarray,
    batch_sizes: Sequence[int],
    constants: Constants,
    error: float,
    allowed: np.ndarray | bool = True,
) -> Schedule:
    """Returns the schedule that always uses the (k, b) with which the bound falls fastest.

    At the error E the bound falls by alpha (E - phi(k, b)) / mu(k, b) per second. This is a line in E for
    every (k, b), and the schedule follows the upper envelope of these lines from E_0 down to the lowest
    floor. It switches from (mu, phi) to (mu', phi') at E* = (mu' phi - mu phi') / (mu' - mu). With one batch
    size this is the rule of `switching_times`.

    Args:
        round_seconds: mu(k, b) in seconds, shape (W, B) for W workers and B batch sizes; row k - 1 is for k.
        batch_sizes: b of each column, samples per task.
        constants: of the problem and the step.
        error: E_0, the excess loss at the start.
        allowed: which (k, b) may be used, booleans of shape (W, B), such as those for which the bound holds.
            Default: True, all.

    Returns:
        The schedule.

    Raises:
        ValueError: shapes disagree, a constant is out of range, or no (k, b) is allowed.

    >>> mu = np.array([[0.1, 0.2], [0.3, 0.6]])
    >>> made = greedy_schedule(mu, [1, 2], Constants(0.001, 2.0, 1.0, 10.0), 100.0)
    >>> [(phase.k, phase.batch_size, round(phase.start, 1)) for phase in made.phases]
    [(1, 1, 0.0), (1, 2, 989.8), (2, 2, 1405.5)]

    Reference: Egger, Kas Hanna and Bitar 2023; reconstructed from the switching theorem of Kas Hanna et al.
    """
    mu = np.asarray(round_seconds, float)
    if mu.ndim != 2 or mu.shape[1] != len(batch_sizes):
        checks.fail("round_seconds, shape", mu.shape, f"(workers, {len(batch_sizes)} batch sizes)")
    k, b = np.arange(1, len(mu) + 1)[:, None], np.asarray(batch_sizes)
    if np.shape(allowed) not in ((), mu.shape) or not np.any(allowed):
        checks.fail("allowed", allowed, f"booleans of shape {mu.shape}, at least one of them True")
    phi = np.where(allowed, floor(constants, k, b), np.inf)  # with an infinite floor it is never the best
    return _fall_fastest(mu, phi, decay(constants), b, error)


def _fall_fastest(mu: np.ndarray, phi: np.ndarray, alpha: float, b: np.ndarray, error: float) -> Schedule:
    """Starts with the (k, b) whose bound falls fastest, and switches whenever another one falls faster."""
    now = np.unravel_index(np.argmax((error - phi) / mu), mu.shape)
    time, phases = 0.0, []
    while True:
        row, column = (int(index) for index in now)
        phases.append(Phase(time, row + 1, int(b[column]), float(mu[now]), float(phi[now]), error))
        later = (mu > mu[now]) & (phi < phi[now])  # longer rounds with a lower floor
        if not later.any():
            return Schedule(tuple(phases), len(mu), alpha)
        # E*, at which both bounds fall equally fast; the schedule reaches the highest E* first.
        switch = np.where(later, (mu * phi[now] - mu[now] * phi) / np.where(later, mu - mu[now], 1), -np.inf)
        switch = np.minimum(switch, error)
        now = np.unravel_index(np.lexsort((mu.ravel(), switch.ravel()))[-1], mu.shape)  # the best below E*
        time += _lasts(phases[-1], float(switch[now]), alpha)
        error = float(switch[now])


def switching_times(
    round_seconds: np.ndarray, constants: Constants, batch_size: int, error: float
) -> np.ndarray:
    """Returns the times t_k at which to switch from waiting for k workers to waiting for k + 1.

    t_k = t_(k-1) + mu_k / alpha (ln(mu_(k+1) - mu_k) - ln(eta L sigma^2 mu_k)
          + ln(2 c k (k + 1) s E_(k-1) - eta L (k + 1) sigma^2)),

    or t_(k-1) if that is later, with t_0 = 0 and the bound E_(k-1) at t_(k-1). At t_k the bound falls equally
    fast with k and with k + 1.

    Args:
        round_seconds: mu_1 to mu_n in seconds, ascending, shape (W,) for W = n workers.
        constants: of the problem and the step.
        batch_size: the paper's s, samples per task.
        error: E_0 = F(w_0) - F*, the excess loss at the start.

    Returns:
        t_1 to t_(n-1) in seconds, shape (W - 1,).

    Raises:
        ValueError: `round_seconds` does not rise, or a constant is out of range.

    >>> mu = np.cumsum(1 / np.arange(5, 0, -1)) / 5
    >>> switching_times(mu, Constants(0.001, 2.0, 1.0, 10.0), 10, 100.0).round(2)
    array([ 496.92,  621.62,  793.65, 1102.52])

    Reference: Kas Hanna, Bitar, Parag, Dasari and El Rouayheb 2020, theorem 1.
    """
    eta, smoothness, convexity, variance = constants.checked()
    noise, alpha, time, times = eta * smoothness * variance, decay(constants), 0.0, []
    if not (np.diff(round_seconds) > 0).all():
        checks.fail("round_seconds", np.asarray(round_seconds).tolist(), "seconds that increase with k")
    for k, (mu, longer) in enumerate(itertools.pairwise(round_seconds), start=1):
        left = 2 * convexity * k * (k + 1) * batch_size * error - noise * (k + 1)
        lasts = 0.0
        if left > 0 and noise > 0:
            lasts = mu / alpha * (math.log(longer - mu) - math.log(noise * mu) + math.log(left))
        elif noise == 0:
            lasts = math.inf  # without noise the fastest round stays the best
        lasts = max(lasts, 0.0)
        end = floor(constants, k, batch_size)
        error = end + (error - end) * math.exp(-alpha * lasts / mu)
        time += lasts
        times.append(time)
    return np.array(times)
