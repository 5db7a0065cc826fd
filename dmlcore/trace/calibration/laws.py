"""Maximum likelihood for times of workers with means of their own and one law of multipliers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import optimize, special, stats

from dmlcore.trace.calibration.empirical import Empirical, mean_beyond
from dmlcore.trace.calibration.observed import Times

STEADY = 0.01  # multipliers that vary by less count as none
MISFIT = 0.03  # Kolmogorov-Smirnov distance from which a law gives way to the multipliers themselves
CUT = 0.3  # share of cut times from which the multipliers themselves say too little of the longest


@lru_cache(maxsize=4)  # making a frozen distribution takes longer than using it
def gamma(shape: float) -> Any:
    """The gamma law of mean 1 by the logarithm of its shape."""
    return stats.gamma(math.exp(shape), scale=math.exp(-shape))


@lru_cache(maxsize=4)
def lognormal(shape: float) -> Any:
    """The lognormal law of mean 1 by the logarithm of its sigma."""
    return stats.lognorm(math.exp(shape), scale=math.exp(-math.exp(2 * shape) / 2))


@lru_cache(maxsize=4)
def weibull(shape: float) -> Any:
    """The Weibull law of mean 1 by the logarithm of its shape."""
    return stats.weibull_min(math.exp(shape), scale=1 / special.gamma(1 + math.exp(-shape)))


# Smooth laws of mean 1 by the logarithm of their shape, and its bounds.
LAWS: tuple[tuple[Callable[[float], Any], float, float], ...] = (
    (gamma, -2.0, 10.0),
    (lognormal, -5.0, 1.0),
    (weibull, -1.0, 5.0),
)


def fit_law(times: Times, workers: int) -> tuple[np.ndarray, Any]:
    """Returns each worker's mean and the law of the multipliers; workers that take no time have mean 0."""
    total = np.bincount(times.worker, times.seconds, workers)
    ended = np.bincount(times.worker[times.whole], minlength=workers)
    seen = np.bincount(times.worker[times.whole], times.seconds[times.whole], workers)
    mean = seen / np.maximum(ended, 1)
    used = (mean[times.worker] > 0) & (times.whole | (times.seconds > 0))
    seconds, whole, worker = times = Times(*(column[used] for column in times))
    if not whole.any() or np.std(seconds[whole] / mean[worker[whole]]) < STEADY:
        return mean, None
    # Density and gradient are finite where a time is not 0.
    times = times._replace(seconds=np.maximum(seconds, 1e-6 * mean[worker]))
    start = np.where(mean > 0, total / np.maximum(ended, 1), 0.0)
    plain = stats.expon()  # the maximum of its likelihood is `start`: total time over whole tasks
    fits = [(_aic(_loss(times, start, plain), 0), start, plain), _shifted(times, start)]
    fits += [_smooth(times, mean, *law) for law in LAWS]
    _, fitted, law = min(fits, key=lambda fit: fit[0])
    ranked = times.seconds / fitted[worker]
    km = stats.ecdf(stats.CensoredData(uncensored=ranked[whole], right=ranked[~whole])).cdf
    distance = np.abs(km.probabilities - law.cdf(km.quantiles)).max()
    if distance < max(MISFIT, 1.63 / math.sqrt(whole.sum())) or whole.mean() < 1 - CUT:
        return fitted, law
    own = Empirical.of(km)
    likely = np.where(whole, ranked, mean_beyond(own, ranked)) * fitted[worker]
    counts = np.maximum(np.bincount(worker, minlength=workers), 1)
    return np.bincount(worker, likely, workers) / counts, own


def _loss(times: Times, mean: np.ndarray, law: Any) -> np.ndarray:
    """Returns minus the log-likelihood of each worker's times."""
    seconds, whole, worker = times
    scale = np.maximum(mean, 1e-300)[worker]
    z = seconds / scale
    density = np.empty(len(z))
    density[whole] = law.logpdf(z[whole]) - np.log(scale[whole])
    density[~whole] = law.logsf(z[~whole])
    return -np.bincount(worker, np.maximum(density, -1e4), len(mean))  # far tails underflow


def _aic(loss: np.ndarray, shapes: int) -> float:
    return 2 * float(loss.sum()) + 2 * shapes


def _shifted(times: Times, start: np.ndarray) -> tuple[float, np.ndarray, Any]:
    """The law expon(loc=1 - a, scale=a), whose likelihood ends with a jump at the shortest time."""
    shortest = np.full(len(start), np.inf)
    np.minimum.at(shortest, times.worker[times.whole], times.seconds[times.whole])

    def fit(a: float) -> tuple[float, np.ndarray, Any]:
        mean = np.minimum(start / a, shortest / (1 - a) * (1 - 1e-9))
        law = stats.expon(loc=1 - a, scale=a)
        return _aic(_loss(times, mean, law), 1), mean, law

    bounds, options = (0.01, 0.999), {"xatol": 1e-3}
    best = optimize.minimize_scalar(lambda a: fit(a)[0], bounds=bounds, method="bounded", options=options)
    return fit(best.x)


def _smooth(
    times: Times, mean: np.ndarray, law: Callable[[float], Any], low: float, high: float
) -> tuple[float, np.ndarray, Any]:
    def loss(shared: np.ndarray, mean: np.ndarray) -> np.ndarray:
        return _loss(times, mean, law(shared[0]))

    (shape,), mean = maximise(loss, [(low, 0.0, high)], mean)
    return _aic(_loss(times, mean, law(shape)), 1), mean, law(shape)


def maximise(
    loss: Callable[[np.ndarray, np.ndarray], np.ndarray],
    shared: Sequence[tuple[float, float, float]],
    mean: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Maximises a likelihood over parameters that workers share and a mean of each worker.

    For one worker `scipy.stats` finds the same by `fit` on `CensoredData`, but it has no parameters that
    several samples share; the regressions of lifelines have, but no gamma law and no hidden states.

    `loss`: shared parameters, means -> minus the log-likelihood of each worker. `shared` has the least, first
    and largest value of each shared parameter, `mean` the first means; a worker with mean 0 keeps it.
    """
    step = 1e-6
    count = len(shared)
    live = mean > 0
    size = loss(np.array([first for _, first, _ in shared]), mean).sum() or 1.0

    def at(x: np.ndarray) -> np.ndarray:
        means = mean.copy()
        means[live] *= np.exp(x[count:])
        return loss(x[:count], means) / abs(size)

    def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        # A worker's mean moves its own likelihood alone: one step of all means gives all their derivatives.
        here = at(x)
        by_shared = [(at(x + one) - here).sum() for one in np.eye(len(x))[:count] * step]
        by_means = (at(x + np.where(np.arange(len(x)) < count, 0.0, step)) - here)[live]
        return here.sum(), np.concatenate([by_shared, by_means]) / step

    first = np.concatenate([[first for _, first, _ in shared], np.zeros(live.sum())])
    bounds = [(low, high) for low, _, high in shared] + [(-5.0, 5.0)] * int(live.sum())
    found = optimize.minimize(value_and_gradient, first, jac=True, method="L-BFGS-B", bounds=bounds).x
    means = mean.copy()
    means[live] *= np.exp(found[count:])
    return found[:count], means
