"""Slow episodes in a trace: two states of a worker, normal and slow, that last for several tasks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import special, stats

from dmlcore.calibration.laws import LAWS, STEADY, maximise
from dmlcore.calibration.observed import Times

CHANCE = 1e-3  # probability of finding a correlation where there is none
GAIN = 20.0  # log-likelihood by which episodes must explain the times better


class Episodes(NamedTuple):
    """Slow episodes that were found.

    Args:
        mean: of each worker's times outside episodes.
        law: of the multipliers outside episodes; None: none.
        slowdown: factor on the time of a slow task.
        fraction: share of tasks that are slow.
        mean_tasks: mean length of an episode.
        slow: which workers have them, a mask.
    """

    mean: np.ndarray
    law: Any
    slowdown: float
    fraction: float
    mean_tasks: float
    slow: np.ndarray

    @property
    def factor(self) -> np.ndarray:
        """Mean time of each worker's task over that of one outside episodes."""
        return np.where(self.slow, 1 + self.fraction * (self.slowdown - 1), 1.0)


def find_episodes(times: Times, fixed: np.ndarray, mean: np.ndarray, law: Any) -> Episodes | None:
    """Fits a two-state Markov chain where successive tasks of a worker are slow together.

    It maximises the likelihood of pairs of successive tasks, which is consistent and needs no recursion. With
    share f of slow tasks and lag-1 correlation r of the states, a pair has the density
    r E[a b] + (1 - r) E[a] E[b], where a and b are the densities of its times given the state.

    Args:
        times: of tasks, by worker and clock.
        fixed: part of each time that has no jitter.
        mean: of each worker's time without that part.
        law: of the multipliers, if there are no episodes; None: none.

    Returns:
        The episodes, or None where there is no sign of any.
    """
    seconds, whole, worker = times
    pair = worker[1:] == worker[:-1]
    if law is None or pair.sum() < 3:
        return None
    # Martingale residuals: uncorrelated where tasks are independent, whatever was cut.
    frozen = law if hasattr(law, "logsf") else stats.expon()
    residual = whole + frozen.logsf((seconds - fixed) / mean[worker])
    residual = np.maximum(residual, -20.0)
    before, after = residual[:-1][pair], residual[1:][pair]
    if np.ptp(before) == 0 or np.ptp(after) == 0:
        return None
    if stats.pearsonr(before, after, alternative="greater").pvalue > CHANCE:
        return None
    owner = worker[1:][pair]

    def density(law: Any, mean: np.ndarray, slowdown: np.ndarray | float, factor: np.ndarray) -> np.ndarray:
        scale = mean[worker] / factor[worker]
        z = np.maximum((seconds / slowdown - fixed / factor[worker]) / scale, 1e-6)
        seen = np.empty(len(z))
        seen[whole] = (law.pdf(z) / (slowdown * scale))[whole]
        seen[~whole] = law.sf(z[~whole])
        return seen + 1e-200

    def loss(shared: np.ndarray, mean: np.ndarray, make: Any, slow: np.ndarray) -> np.ndarray:
        law, slowdown = make(shared[0]), np.exp(shared[1])
        fraction, together = special.expit(shared[2:])
        factor = np.where(slow, 1 + fraction * (slowdown - 1), 1.0)
        normal = density(law, mean, 1.0, factor)
        slowed = density(law, mean, np.where(slow, slowdown, 1.0)[worker], factor)
        either = (1 - fraction) * normal + fraction * slowed
        both = (1 - fraction) * (normal[1:] * normal[:-1]) + fraction * (slowed[1:] * slowed[:-1])
        likelihood = (together * both + (1 - together) * either[1:] * either[:-1])[pair]
        return -np.bincount(owner, np.log(likelihood + 1e-300), len(mean))

    best: tuple[float, Episodes] | None = None
    for name in ("gamma", "lognorm"):
        make, low, high = LAWS[name]
        first = 1.0 if name == "gamma" else -1.0
        start = [(low, first, high), (0.2, 1.1, 5.0), (-6.0, -1.7, 3.0), (-3.0, 1.4, 6.0)]
        slow = np.ones(len(mean), bool)
        for _ in range(2):

            def own(shared: np.ndarray, mean: np.ndarray, make: Any = make, slow: Any = slow) -> np.ndarray:
                return loss(shared, mean, make, slow)

            shared, fitted = maximise(own, start, mean)
            calm = loss(shared, fitted, make, np.zeros(len(mean), bool))
            gain = calm - own(shared, fitted)
            if (gain[slow] > 0).all():
                break
            slow = gain > 0
        found = float(own(shared, fitted).sum())
        if best is None or found < best[0]:
            fraction, together = special.expit(shared[2:])
            law = make(shared[0])
            episodes = Episodes(
                fitted,
                None if law.std() < STEADY else law,
                float(np.exp(shared[1])),
                float(fraction),
                float(1 / ((1 - together) * (1 - fraction))),
                slow,
            )
            best = found, episodes._replace(mean=fitted / episodes.factor)
    assert best is not None
    return best[1] if best[1].slow.any() else None
