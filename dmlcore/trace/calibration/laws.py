"""Maximum likelihood for times of workers with one law of multipliers, and for their slow episodes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import optimize, special, stats

from dmlcore.cluster.jitter import quantile_function

STEADY = 0.01  # multipliers with a smaller standard deviation count as constant
MISFIT = 0.03  # Kolmogorov-Smirnov distance above which the empirical distribution replaces the fitted one
CUT = 0.3  # share of censored times above which the empirical distribution is not used: its tail is unknown

Fit = tuple[float, np.ndarray, Any]  # AIC, mean of each worker in seconds (W,), distribution of multipliers

# Smooth distributions with mean 1 as functions of a, the logarithm of their shape (lognormal: of sigma), with
# the bounds of a.
_kept = lru_cache(maxsize=4)  # a frozen distribution takes longer to make than to use
gamma = _kept(lambda a: stats.gamma(math.exp(a), scale=math.exp(-a)))
lognormal = _kept(lambda a: stats.lognorm(math.exp(a), scale=math.exp(-math.exp(2 * a) / 2)))
weibull = _kept(lambda a: stats.weibull_min(math.exp(a), scale=1 / special.gamma(1 + math.exp(-a))))
LAWS = ((gamma, -2.0, 10.0), (lognormal, -5.0, 1.0), (weibull, -1.0, 5.0))


class Times(NamedTuple):
    """Observed times; a time that was cut is right-censored, so its full length is longer."""

    seconds: np.ndarray  # observed times, > 0, (T,)
    whole: np.ndarray  # False if the time was cut, (T,)
    worker: np.ndarray  # number of the worker, (T,)


@dataclass(frozen=True, eq=False)
class Empirical:
    """Quantile function of observed multipliers with mean 1, linear between `values` at equal steps.

    >>> Empirical(np.array([0.5, 1.5]))(np.array([0.0, 0.5, 0.9]))
    array([0.5, 1. , 1.5])
    """

    values: np.ndarray

    @classmethod
    def of(cls, km: Any) -> Self:
        """Returns the quantiles of a distribution function from `scipy.stats.ecdf`."""
        grid = (np.arange(2000) + 0.5) / 2000
        rank = np.searchsorted(km.probabilities, grid)
        values = km.quantiles[np.minimum(rank, len(km.quantiles) - 1)]
        return cls(values / values.mean())

    @property
    def __name__(self) -> str:
        return "empirical"

    def __call__(self, uniforms: np.ndarray) -> np.ndarray:
        count = len(self.values)
        return np.interp(uniforms, (np.arange(count) + 0.5) / count, self.values)


def mean_beyond(jitter: Any, z: np.ndarray) -> np.ndarray:
    """Returns the mean of the multipliers above each z."""
    quantile = quantile_function(jitter)
    if quantile is None:
        return np.maximum(z, 1.0)
    grid = (np.arange(10_000) + 0.5) / 10_000
    values = quantile(grid)
    tail = np.cumsum(values[::-1])[::-1] / np.arange(len(values), 0, -1)
    first = np.minimum(np.searchsorted(values, z), len(values) - 1)
    return np.maximum(tail[first], z)


def fit_law(times: Times, workers: int) -> tuple[np.ndarray, Any]:
    """Returns each worker's mean in seconds, shape (W,), and the distribution of the multipliers.

    A worker that takes no time has the mean 0.
    """
    total = np.bincount(times.worker, times.seconds, workers)
    ended = np.bincount(times.worker[times.whole], minlength=workers)
    seen = np.bincount(times.worker[times.whole], times.seconds[times.whole], workers)
    mean = seen / np.maximum(ended, 1)
    used = (mean[times.worker] > 0) & (times.whole | (times.seconds > 0))
    seconds, whole, worker = times = Times(*(column[used] for column in times))
    if not whole.any() or np.std(seconds[whole] / mean[worker[whole]]) < STEADY:
        return mean, None
    # Times of 0 are replaced, so that density and gradient are finite.
    times = times._replace(seconds=np.maximum(seconds, 1e-6 * mean[worker]))
    start = np.where(mean > 0, total / np.maximum(ended, 1), 0.0)
    plain = stats.expon()  # the maximum of its likelihood is `start`: total time over whole tasks
    fits: list[Fit] = [(_aic(_loss(times, start, plain), 0), start, plain), _shifted(times, start)]
    fits += [_smooth(times, mean, *law) for law in LAWS]
    _, fitted, law = min(fits, key=lambda fit: fit[0])
    ranked = times.seconds / fitted[worker]
    km = stats.ecdf(stats.CensoredData(uncensored=ranked[whole], right=ranked[~whole])).cdf
    distance = np.abs(km.probabilities - law.cdf(km.quantiles)).max()
    if distance < max(MISFIT, 1.63 / math.sqrt(whole.sum())) or whole.mean() < 1 - CUT:
        return fitted, law
    ranked = times.seconds / start[worker]  # the means of a law that is rejected say nothing
    own = Empirical.of(stats.ecdf(stats.CensoredData(uncensored=ranked[whole], right=ranked[~whole])).cdf)
    likely = np.where(whole, ranked, mean_beyond(own, ranked)) * start[worker]
    counts = np.maximum(np.bincount(worker, minlength=workers), 1)
    return np.bincount(worker, likely, workers) / counts, own


def _loss(times: Times, mean: np.ndarray, law: Any) -> np.ndarray:
    """Returns the negative log-likelihood of each worker's times, shape (W,)."""
    seconds, whole, worker = times
    scale = np.maximum(mean, 1e-300)[worker]
    z = seconds / scale
    density = np.empty(len(z))
    density[whole] = law.logpdf(z[whole]) - np.log(scale[whole])
    density[~whole] = law.logsf(z[~whole])
    return -np.bincount(worker, np.maximum(density, -1e4), len(mean))  # densities underflow in the tails


def _aic(loss: np.ndarray, shapes: int) -> float:
    return 2 * float(loss.sum()) + 2 * shapes


def _shifted(times: Times, start: np.ndarray) -> Fit:
    """Fits expon(loc=1 - a, scale=a), whose likelihood ends with a jump at the shortest time."""
    shortest = np.full(len(start), np.inf)
    np.minimum.at(shortest, times.worker[times.whole], times.seconds[times.whole])

    def fit(a: float) -> Fit:
        mean = np.minimum(start / a, shortest / (1 - a) * (1 - 1e-9))
        law = stats.expon(loc=1 - a, scale=a)
        return _aic(_loss(times, mean, law), 1), mean, law

    bounds, options = (0.01, 0.999), {"xatol": 1e-3}
    best = optimize.minimize_scalar(lambda a: fit(a)[0], bounds=bounds, method="bounded", options=options)
    return fit(best.x)


def _smooth(times: Times, mean: np.ndarray, law: Callable[[float], Any], low: float, high: float) -> Fit:
    bounds = [(low, 0.0, high)]
    (shape,), mean = maximise(lambda shared, mean: _loss(times, mean, law(shared[0])), bounds, mean)
    return _aic(_loss(times, mean, law(shape)), 1), mean, law(shape)


def maximise(
    loss: Callable[[np.ndarray, np.ndarray], np.ndarray],
    shared: Sequence[tuple[float, float, float]],
    mean: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Maximises a likelihood over parameters that all workers share and over the mean of each worker.

    For one worker `scipy.stats` gives the same result by `fit` on `CensoredData`, but it does not support
    parameters that several samples share. The regressions of lifelines do, but have no gamma distribution and
    no hidden states.

    Args:
        loss: shared parameters, means -> negative log-likelihood of each worker, shape (W,).
        shared: (least, first, largest) value of each shared parameter.
        mean: the first means in seconds, shape (W,); a mean of 0 is not changed.

    Returns:
        The shared parameters and the means at the maximum.
    """
    step, count, live = 1e-6, len(shared), mean > 0
    firsts = np.array([first for _, first, _ in shared])
    size = loss(firsts, mean).sum() or 1.0

    def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        means = mean.copy()
        means[live] *= np.exp(x[count:])
        return x[:count], means

    def at(x: np.ndarray) -> np.ndarray:
        return loss(*parts(x)) / abs(size)

    def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        # A worker's mean changes only its own likelihood, so one step of all means gives all derivatives.
        here = at(x)
        by_shared = [(at(x + one) - here).sum() for one in np.eye(len(x))[:count] * step]
        by_means = (at(x + np.where(np.arange(len(x)) < count, 0.0, step)) - here)[live]
        return here.sum(), np.concatenate([by_shared, by_means]) / step

    first = np.append(firsts, np.zeros(live.sum()))
    bounds = [(low, high) for low, _, high in shared] + [(-5.0, 5.0)] * int(live.sum())
    return parts(optimize.minimize(value_and_gradient, first, jac=True, method="L-BFGS-B", bounds=bounds).x)


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
