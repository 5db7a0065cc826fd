"""Calibration: the cluster that a recorded trace ran on, for what-if runs under other policies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, special, stats

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.engines.arguments import check_kind
from dmlcore.trace import Trace

STEADY = 0.01  # multipliers that vary by less count as none
MISFIT = 0.03  # Kolmogorov-Smirnov distance from which a law gives way to the multipliers themselves
UNSEEN = 0.05  # share of multipliers beyond the longest seen from which their own law is too short
NEGLIGIBLE = 1e-9  # share of the run below which a transfer is rounding


class Times(NamedTuple):
    """Observed times, right-censored where they were cut: the whole time is longer than was seen.

    Args:
        seconds: what was seen, > 0.
        whole: False where it was cut.
        worker: whose.
    """

    seconds: np.ndarray
    whole: np.ndarray
    worker: np.ndarray


# Smooth laws of mean 1 by the logarithm of their shape, and its bounds.
LAWS: dict[str, tuple[Callable[[float], Any], float, float]] = {
    "gamma": (lambda s: stats.gamma(math.exp(s), scale=math.exp(-s)), -2.0, 10.0),
    "lognorm": (lambda s: stats.lognorm(math.exp(s), scale=math.exp(-math.exp(2 * s) / 2)), -5.0, 1.0),
    "weibull": (
        lambda s: stats.weibull_min(math.exp(s), scale=1 / special.gamma(1 + math.exp(-s))),
        -1.0,
        5.0,
    ),
}


def calibrate(trace: Trace) -> Cluster:
    """Fits a cluster to a recorded trace: speeds, overheads, latencies and how much they fluctuate.

    A simulation of any policy on the result predicts that policy on the recorded machines. The fit is maximum
    likelihood in which cut tasks count as right-censored, so a trace whose policy cancels the slow tasks
    (K-sync) gives the true speeds. The law of the multipliers, one for all workers, is the exponential,
    shifted exponential, gamma, lognormal or Weibull law of lowest AIC; where none fits, the multipliers' own
    quantiles (Kaplan-Meier).

    What a trace cannot tell apart:

    - overhead and speed of a worker whose tasks all have one size: the time is all speed, overhead 0, and
      right for that size alone;
    - latency and bandwidth: transfers are all latency, right for these parameters; waiting in the server's
      queue and the difference between pull and push are part of it. Pushes of cached copies are left out, as
      they may wait for the push before;
    - persistent stragglers and slow workers: both are slow workers.

    Slow episodes become part of the jitter: their share is kept, that they come in a row is not. This changes
    little where workers wait for each other each clock or never; `ssp` between the two suffers more from long
    episodes than predicted.

    Args:
        trace: of any engine. A few hundred tasks for each worker give speeds within a few percent.

    Returns:
        The cluster, one worker for each of the trace.

    Raises:
        ValueError: no trace, or a worker that finished no task or whose tasks take no time.

    Example:
        >>> from dmlcore.engines import simulate
        >>> from dmlcore.policies import asp
        >>> calibrate(simulate(asp(), Cluster.from_speeds([1000, 500], latency=0.01), updates=100))
        Cluster(2 workers, 500-1000 samples/s, latency 0.01 s)

    Reference: Kaplan and Meier 1958; Buckley and James 1979 for regression with censored times.
    """
    check_kind("trace", trace, Trace)
    workers = trace.num_workers
    compute, samples, transfers = _observed(trace)
    finished = np.bincount(compute.worker[compute.whole], compute.seconds[compute.whole] > 0, workers)
    if not finished.all():
        who, allowed = int(finished.argmin()), "at least 1 in the trace; record a longer run, or under asp()"
        checks.fail(f"trace, worker {who}", "no finished task that takes time", allowed)
    per_sample, overhead, jitter = _fit_compute(compute, samples, workers)
    latency, latency_jitter = _fit(transfers, workers)
    return Cluster.from_speeds(
        (1 / per_sample).tolist(),
        overhead=overhead.tolist(),
        latency=latency.tolist(),
        jitter=jitter,
        latency_jitter=latency_jitter,
    )


def _observed(trace: Trace) -> tuple[Times, np.ndarray, Times]:
    """Returns compute times, the samples of their tasks, and the transfers both ways."""
    tasks = trace.tasks.sort_values(["worker", "clock"])
    worker, samples = tasks["worker"].to_numpy(), tasks["batch_size"].to_numpy()
    columns = ("pull_start", "compute_start", "compute_end", "push_end")
    pull, start, end, push = (tasks[name].to_numpy() for name in columns)
    arrived = np.isfinite(push)
    # A task is cut by another's arrival, at the latest where its worker's next task starts or the run ends.
    following = tasks["pull_start"].fillna(tasks["compute_start"]).groupby(tasks["worker"]).shift(-1)
    cut = following.fillna(trace.end_time).to_numpy()
    computed = arrived | ((end < cut) & ~np.isin(end, push[arrived]))
    begun = computed | (end > start)

    pulled = np.isfinite(pull)
    sent = pulled & computed
    seconds = np.concatenate([(start - pull)[pulled], (np.where(arrived, push, cut) - end)[sent]])
    seconds[seconds < NEGLIGIBLE * trace.end_time] = 0.0
    whole = np.concatenate([begun[pulled], arrived[sent]])
    transfers = Times(seconds, whole, np.concatenate([worker[pulled], worker[sent]]))
    return Times((end - start)[begun], computed[begun], worker[begun]), samples[begun], transfers


def _fit_compute(times: Times, samples: np.ndarray, workers: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Returns seconds per sample and overhead of each worker, and the jitter."""
    seconds, whole, worker = times
    overhead = np.zeros(workers)
    own = [worker == w for w in range(workers)]
    varied = [w for w in range(workers) if len(set(samples[own[w]])) > 1]
    per_sample, jitter = _fit(Times(seconds / samples, whole, worker), workers)
    for _ in range(10 if varied else 0):
        # Cut times are replaced by what they would have come to, then overhead is the slope of the time of a
        # sample over 1 / samples, where all points have the same relative error.
        scale = samples * per_sample[worker]
        seen = (seconds - overhead[worker]) / scale
        likely = np.where(whole, seconds, overhead[worker] + scale * _mean_beyond(jitter, seen))
        last = overhead.copy()
        for w in varied:
            slope = stats.linregress(1 / samples[own[w]], (likely / samples)[own[w]]).slope
            overhead[w] = np.clip(slope, 0, 0.9 * seconds[own[w] & whole].min())
        per_sample, jitter = _fit(Times((seconds - overhead[worker]) / samples, whole, worker), workers)
        if whole.all() or np.allclose(overhead, last, rtol=0.01):
            break
    return per_sample, overhead, jitter


def _fit(times: Times, workers: int) -> tuple[np.ndarray, Any]:
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
    fits = [_exponential(times, start), _shifted(times, start)]
    fits += [_smooth(times, mean, *law) for law in LAWS.values()]
    _, fitted, law = min(fits, key=lambda fit: fit[0])
    ranked = times.seconds / fitted[worker]
    km = stats.ecdf(stats.CensoredData(uncensored=ranked[whole], right=ranked[~whole])).cdf
    distance = np.abs(km.probabilities - law.cdf(km.quantiles)).max()
    if distance < max(MISFIT, 1.63 / math.sqrt(whole.sum())) or km.probabilities[-1] < 1 - UNSEEN:
        return fitted, law
    own = Empirical.of(km)
    likely = np.where(whole, ranked, _mean_beyond(own, ranked)) * fitted[worker]
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


def _exponential(times: Times, start: np.ndarray) -> tuple[float, np.ndarray, Any]:
    law = stats.expon()  # the maximum is `start`: total time over whole tasks
    return _aic(_loss(times, start, law), 0), start, law


def _shifted(times: Times, start: np.ndarray) -> tuple[float, np.ndarray, Any]:
    """The law expon(loc=1 - a, scale=a), whose likelihood ends with a jump at the shortest time."""
    shortest = np.full(len(start), np.inf)
    np.minimum.at(shortest, times.worker[times.whole], times.seconds[times.whole])

    def fit(a: float) -> tuple[float, np.ndarray, Any]:
        mean = np.minimum(start / a, shortest / (1 - a) * (1 - 1e-9))
        law = stats.expon(loc=1 - a, scale=a)
        return _aic(_loss(times, mean, law), 1), mean, law

    return fit(optimize.minimize_scalar(lambda a: fit(a)[0], bounds=(0.01, 0.999), method="bounded").x)


def _smooth(
    times: Times, start: np.ndarray, law: Callable[[float], Any], low: float, high: float
) -> tuple[float, np.ndarray, Any]:
    """Maximum likelihood over the workers' means and the shape that they share."""
    step = 1e-4
    live = start > 0

    def loss(x: np.ndarray) -> np.ndarray:
        mean = start.copy()
        mean[live] *= np.exp(x[1:])
        return _loss(times, mean, law(x[0]))

    def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        # A worker's mean moves its own likelihood alone: one step of all of them gives all derivatives.
        shape = np.eye(len(x))[0] * step
        means = step - shape
        means[0] = 0.0
        by_shape = (loss(x + shape) - loss(x - shape)).sum()
        by_means = (loss(x + means) - loss(x - means))[live]
        scale = len(times.seconds)
        return loss(x).sum() / scale, np.append(by_shape, by_means) / (2 * step * scale)

    first = np.zeros(1 + live.sum())
    bounds = [(low, high)] + [(-5.0, 5.0)] * int(live.sum())
    best = optimize.minimize(value_and_gradient, first, jac=True, method="L-BFGS-B", bounds=bounds).x
    mean = start.copy()
    mean[live] *= np.exp(best[1:])
    return _aic(loss(best), 1), mean, law(best[0])


def _mean_beyond(jitter: Any, z: np.ndarray) -> np.ndarray:
    """Returns the mean of the multipliers above each z."""
    if jitter is None:
        return np.maximum(z, 1.0)
    grid = (np.arange(10_000) + 0.5) / 10_000
    values = getattr(jitter, "ppf", jitter)(grid)
    tail = np.cumsum(values[::-1])[::-1] / np.arange(len(values), 0, -1)
    first = np.minimum(np.searchsorted(values, z), len(values) - 1)
    return np.maximum(tail[first], z)


@dataclass(frozen=True, eq=False)
class Empirical:
    """Quantile function of multipliers that were seen, with mean 1, linear between `values` at equal steps.

    >>> import numpy as np
    >>> Empirical(np.array([0.5, 1.5]))(np.array([0.0, 0.5, 0.9]))
    array([0.5, 1. , 1.5])
    """

    values: np.ndarray

    @classmethod
    def of(cls, km: Any) -> Empirical:
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
