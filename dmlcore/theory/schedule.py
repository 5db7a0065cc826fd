"""Schedules over time of workers to wait for and samples to give them, what they cost, when they switch."""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmlcore import checks
from dmlcore.theory.bound import Constants, decay, floor


class Phase(NamedTuple):
    """A stretch of time with one k and one batch size."""

    start: float  # seconds
    k: int  # workers that a round waits for
    batch_size: int  # b, samples of every worker's task
    round_seconds: float  # mu(k, b)
    floor: float  # phi(k, b), excess loss
    error: float  # the bound at `start`, excess loss


class Account(NamedTuple):
    """What it takes to bring the bound down to a target; all infinite where it never gets there."""

    seconds: float
    rounds: float
    used_samples: float  # k b a round: gradients that count
    assigned_samples: float  # n b a round: gradients that workers begin
    uplinks: float  # k a round: gradients sent that count
    downlinks: float  # n a round: broadcasts of the parameters


class Schedule(NamedTuple):
    """Phases, one after the other, and the bound along them."""

    phases: tuple[Phase, ...]  # at least one; the last never ends
    num_workers: int  # n
    decay: float  # alpha, of a round

    def at(self, seconds: float) -> Phase:
        """Returns the phase that runs at a time."""
        starts = [phase.start for phase in self.phases]
        return self.phases[max(int(np.searchsorted(starts, seconds, side="right")) - 1, 0)]

    def error(self, seconds: float) -> float:
        """Returns the bound at a time, seconds >= 0, excess loss."""
        seconds = checks.not_negative("seconds", seconds)
        phase = self.at(seconds)
        rounds = (seconds - phase.start) / phase.round_seconds
        return phase.floor + (phase.error - phase.floor) * math.exp(-self.decay * rounds)

    def account(self, target: float) -> Account:
        """Returns what it takes until the bound is at `target`, an excess loss."""
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
    """Returns how long a phase takes to bring the bound to `error`, seconds."""
    if error <= phase.floor:
        return math.inf
    return phase.round_seconds / alpha * math.log((phase.error - phase.floor) / (error - phase.floor))


def fixed_schedule(
    round_seconds: float, num_workers: int, k: int, batch_size: int, constants: Constants, error: float
) -> Schedule:
    """Returns the schedule that never switches.

    Args:
        round_seconds: mu(k, b).
        num_workers: n.
        k: workers that a round waits for.
        batch_size: b.
        constants: of the problem and the step.
        error: E_0, excess loss at the start.

    Raises:
        ValueError: an argument is out of range.

    >>> bound = Constants(0.001, 2.0, 1.0, 10.0)
    >>> round(fixed_schedule(0.5, 4, 2, 10, bound, 100.0).account(1.0).seconds, 1)
    2301.7
    """
    num_workers = checks.integer("num_workers", num_workers, low=1)
    k = checks.integer("k", k, low=1, high=num_workers, why="the workers")
    batch_size = checks.integer("batch_size", batch_size, low=1)
    seconds, error = checks.positive("round_seconds", round_seconds), checks.positive("error", error)
    phase = Phase(0.0, k, batch_size, seconds, float(floor(constants, k, batch_size)), error)
    return Schedule((phase,), num_workers, decay(constants))


def greedy_schedule(
    round_seconds: np.ndarray, batch_sizes: Sequence[int], constants: Constants, error: float
) -> Schedule:
    """Returns the schedule that at every error runs the (k, b) with which the bound falls fastest.

    The bound falls by alpha (E - phi(k, b)) / mu(k, b) a second: a line in E for every (k, b), and the
    schedule follows their upper envelope from E_0 down to the lowest floor. From one to the next it goes at
    E* = (mu' phi - mu phi') / (mu' - mu). With one batch size this is the rule of `switching_times`.

    Args:
        round_seconds: mu(k, b), seconds, (n, number of batch sizes), row k - 1 for k.
        batch_sizes: b, one for each column.
        constants: of the problem and the step.
        error: E_0, excess loss at the start.

    Raises:
        ValueError: shapes disagree, or a constant is out of range.

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
    return _fall_fastest(mu, floor(constants, k, b), decay(constants), b, error)


def _fall_fastest(mu: np.ndarray, phi: np.ndarray, alpha: float, b: np.ndarray, error: float) -> Schedule:
    """Begins with the (k, b) whose bound falls fastest, and goes to the next where that one falls faster."""
    now = np.unravel_index(np.argmax((error - phi) / mu), mu.shape)
    time, phases = 0.0, []
    while True:
        row, column = (int(index) for index in now)
        phases.append(Phase(time, row + 1, int(b[column]), float(mu[now]), float(phi[now]), error))
        later = (mu > mu[now]) & (phi < phi[now])  # longer rounds with a lower floor
        if not later.any():
            return Schedule(tuple(phases), len(mu), alpha)
        # E*, at which both fall as fast; the highest comes first.
        switch = np.where(later, (mu * phi[now] - mu[now] * phi) / np.where(later, mu - mu[now], 1), -np.inf)
        switch = np.minimum(switch, error)
        now = np.unravel_index(np.lexsort((mu.ravel(), switch.ravel()))[-1], mu.shape)  # the best below
        time += _lasts(phases[-1], float(switch[now]), alpha)
        error = float(switch[now])


def switching_times(
    round_seconds: np.ndarray, constants: Constants, batch_size: int, error: float
) -> np.ndarray:
    """Returns when to go from waiting for k workers to waiting for k + 1.

    t_k = t_(k-1) + mu_k / alpha (ln(mu_(k+1) - mu_k) - ln(eta L sigma^2 mu_k)
          + ln(2 c k (k + 1) s E_(k-1) - eta L (k + 1) sigma^2)),

    or t_(k-1) if that is later, with t_0 = 0 and E_(k-1) the bound at t_(k-1). There the bound falls as fast
    with k as with k + 1.

    Args:
        round_seconds: mu_1 to mu_n, seconds, (n,), rising.
        constants: of the problem and the step.
        batch_size: s, samples of a worker's task.
        error: E_0 = F(w_0) - F*.

    Returns:
        t_1 to t_(n-1), seconds, (n - 1,).

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
        checks.fail("round_seconds", np.asarray(round_seconds).tolist(), "seconds that rise with k")
    for k, (mu, longer) in enumerate(itertools.pairwise(round_seconds), start=1):
        left = 2 * convexity * k * (k + 1) * batch_size * error - noise * (k + 1)
        lasts = 0.0
        if left > 0 and noise > 0:
            lasts = mu / alpha * (math.log(longer - mu) - math.log(noise * mu) + math.log(left))
        elif noise == 0:
            lasts = math.inf  # without noise the fastest round is the best for good
        lasts = max(lasts, 0.0)
        end = floor(constants, k, batch_size)
        error = end + (error - end) * math.exp(-alpha * lasts / mu)
        time += lasts
        times.append(time)
    return np.array(times)
