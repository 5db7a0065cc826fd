"""Slow episodes in a trace: a worker is in a normal or a slow state, which lasts for several tasks."""

from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats

from dmlcore.trace.calibration.laws import STEADY, Times, gamma, maximise

CHANCE = 1e-3  # probability of a false positive: a correlation is found where there is none
LAGS = (1, 4)  # distance of the two tasks of a pair; the larger one separates long episodes from single tasks
# (least, first, largest) of: log shape, log slowdown, logits of the share of slow tasks and their
# correlation.
START = ((0.0, 1.0, 10.0), (0.2, 1.1, 5.0), (-6.0, -1.7, 3.0), (-3.0, 1.4, 6.0))


class Episodes(NamedTuple):
    """Slow episodes found in traces."""

    mean: np.ndarray  # mean time of each worker's tasks outside episodes, seconds, (W,)
    law: Any  # distribution of the multipliers outside episodes; None: no jitter
    slowdown: float  # factor on the time of a slow task
    fraction: float  # share of tasks that are slow
    mean_tasks: float  # mean length of an episode in tasks
    slow: np.ndarray  # which workers have episodes, a mask, (W,)

    @property
    def factor(self) -> np.ndarray:
        """Mean time of each worker's tasks / mean time of those outside episodes, shape (W,)."""
        return np.where(self.slow, 1 + self.fraction * (self.slowdown - 1), 1.0)


def find_episodes(times: Times, fixed: np.ndarray, mean: np.ndarray, law: Any) -> Episodes | None:
    """Fits a two-state Markov chain, if successive tasks of a worker are slow together.

    The jitter outside episodes is assumed to have a gamma distribution. The fit maximises the likelihood of
    pairs of tasks, which is consistent and needs no recursion: with correlation r of successive states, two
    tasks at lag l have the density r^l E[a b] + (1 - r^l) E[a] E[b], where a and b are the densities of their
    times given the state. A worker has no episodes if its times are more likely without them.

    Args:
        times: times of tasks, sorted by worker and clock.
        fixed: the part of each time that has no jitter, in seconds, shape (T,).
        mean: each worker's mean of the rest, in seconds, shape (W,).
        law: distribution of the multipliers if there are no episodes.

    Returns:
        The episodes; None if successive times are not correlated.
    """
    seconds, whole, worker = times
    # Martingale residuals are uncorrelated if tasks are independent, also if times are censored.
    frozen = law if hasattr(law, "logsf") else stats.expon()
    residual = whole + np.maximum(frozen.logsf((seconds - fixed) / mean[worker]), -20.0)
    before, after = residual[:-1], residual[1:]
    same = worker[1:] == worker[:-1]
    if law is None or same.sum() < 3 or np.ptp(before[same]) == 0 or np.ptp(after[same]) == 0:
        return None
    if stats.pearsonr(before[same], after[same], alternative="greater").pvalue > CHANCE:
        return None

    def density(law: Any, mean: np.ndarray, slowdown: np.ndarray, factor: np.ndarray) -> np.ndarray:
        scale = mean[worker] / factor[worker]
        z = np.maximum((seconds / slowdown[worker] - fixed / factor[worker]) / scale, 1e-6)
        seen = np.empty(len(z))
        seen[whole] = (law.pdf(z) / (slowdown[worker] * scale))[whole]
        seen[~whole] = law.sf(z[~whole])
        return seen + 1e-200  # the density underflows far out in the tails

    def loss(shared: np.ndarray, mean: np.ndarray, slow: np.ndarray) -> np.ndarray:
        episodes = _episodes(shared, mean, slow)
        factor, f = episodes.factor, episodes.fraction
        law, ones = gamma(shared[0]), np.ones(len(mean))
        normal = density(law, mean, ones, factor)
        slowed = density(law, mean, np.where(slow, episodes.slowdown, 1.0), factor)
        either = (1 - f) * normal + f * slowed
        total = np.zeros(len(mean))
        for lag in LAGS:
            r = special.expit(shared[3]) ** lag
            both = (1 - f) * normal[lag:] * normal[:-lag] + f * slowed[lag:] * slowed[:-lag]
            pairs = np.log(np.maximum(r * both + (1 - r) * either[lag:] * either[:-lag], 1e-300))
            total -= np.bincount(worker[lag:], pairs * (worker[lag:] == worker[:-lag]), len(mean))
        return total

    everyone = np.ones(len(mean), bool)
    shared, fitted = maximise(lambda shared, mean: loss(shared, mean, everyone), START, mean)
    slow = loss(shared, fitted, everyone) < loss(shared, mean, ~everyone)
    if not slow.any():
        return None
    if not slow.all():
        shared, fitted = maximise(lambda shared, mean: loss(shared, mean, slow), START, fitted)
    episodes = _episodes(shared, fitted, slow)
    return episodes._replace(mean=fitted / episodes.factor)


def _episodes(shared: np.ndarray, mean: np.ndarray, slow: np.ndarray) -> Episodes:
    law, slowdown = gamma(shared[0]), float(np.exp(shared[1]))
    fraction, together = special.expit(shared[2:]).tolist()
    length = 1 / ((1 - together) * (1 - fraction))
    return Episodes(mean, None if law.std() < STEADY else law, slowdown, fraction, length, slow)
