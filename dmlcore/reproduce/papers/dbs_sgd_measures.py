"""What notebooks/05_dbs_sgd.ipynb measures, and what theory predicts for it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy

from dmlcore.trace import Trace, metrics


def node_staleness(seconds: npt.ArrayLike) -> float:
    """Returns the mean over the workers of their mean staleness under asynchronous SGD, versions.

    With an update for every push, worker i has the staleness t_i R - 1, R = sum 1 / t_i. The mean over the n
    workers is n mean(t) / harmonic mean(t) - 1; over gradients it is n - 1 whatever the times.

    Args:
        seconds: t_i, of an iteration of each worker: computing and both transfers, > 0, (n,).

    >>> node_staleness([1, 1, 4, 4]), node_staleness([1, 1, 1, 1])
    (5.25, 3.0)
    """
    t = np.asarray(seconds, float)
    return float(t.mean() * (1 / t).sum() - 1)


def round_seconds(seconds: Sequence[float], law: Any, transfers: float = 0.0) -> float:
    """Returns the mean duration of a synchronous round: the mean of the largest t_i Z_i, and the transfers.

    E max = integral of 1 - prod F(t / t_i) dt, for independent Z_i.

    Args:
        seconds: t_i, mean seconds that each worker computes.
        law: of Z, a frozen distribution of scipy on [0, inf) with mean 1.
        transfers: seconds of both transfers.

    >>> round(round_seconds([1.0, 1.0], scipy.stats.expon), 6)
    1.5
    """
    t = np.asarray(seconds, float)
    end = 2 * t.max() * float(law.ppf(1 - 1e-12))

    def unfinished(time: float) -> float:
        return float(1 - np.prod(law.cdf(time / t)))

    found, _ = scipy.integrate.quad(unfinished, 0, end, points=[t.max()], limit=500)
    return float(found) + transfers


def averages(trace: Trace, warm: int) -> dict[str, float]:
    """Returns the staleness in four averages, without that of the first `warm` updates: versions.

    `nodes`: the mean over workers of each one's mean; `gradients`: over updates; `samples`: over samples;
    `maximum`: the largest.
    """
    tasks = trace.tasks.assign(staleness=metrics.staleness(trace))
    tasks = tasks[tasks["update"] >= warm]
    ages = tasks["staleness"]
    return {
        "nodes": float(ages.groupby(tasks["worker"]).mean().mean()),
        "gradients": float(ages.mean()),
        "samples": float(np.average(ages, weights=tasks["batch_size"])),
        "maximum": float(ages.max()),
    }


def largest_stable_step(ages: Sequence[int], momentum: float = 0.0) -> float:
    """Returns the largest step on a parabola, of a grid in steps of 2%, for which distances fall.

    x_{t+1} = x_t - a v_t with v_t = momentum v_{t-1} + x_{t - tau_t}, for all steps a side by side: stable
    where the last quarter of the distances stays below the second. The step is the learning rate times the
    curvature.

    Args:
        ages: tau_t, staleness of each update, versions.
        momentum: of the server's optimizer, in [0, 1).

    Returns:
        The step; 0 where none is stable.

    >>> round(largest_stable_step([0] * 400), 1), round(largest_stable_step([7] * 2000), 2)
    (2.0, 0.21)
    """
    steps = 1.02 ** np.arange(-350, 40)
    lag, count = int(max(ages)) + 1, len(ages)
    x, velocity = np.ones((lag + count, len(steps))), np.zeros(len(steps))
    for now, age in enumerate(ages, start=lag - 1):
        velocity = momentum * velocity + x[now - age]
        x[now + 1] = np.clip(x[now] - steps * velocity, -1e200, 1e200)
    far = np.abs(x[lag:])
    stable = far[-count // 4 :].max(0) < far[count // 4 : count // 2].max(0)
    return float(steps[stable].max(initial=0.0))


def apart(runs: pd.DataFrame, method: str, *, baseline: str = "BSP", column: str = "accuracy") -> pd.Series:
    """Returns how far each seed's curve is from the median curve of the baseline on the other seeds.

    The root mean square of the differences over the second half of the samples. The baseline itself is
    compared in the same way: its own numbers are the spread that the choice of a seed makes.

    Args:
        runs: what `compare` returns, one run for each method and seed; at least two seeds of the baseline.
        method: whose curves.
        baseline: method whose median curve they are held against.
        column: metric of the history.

    Returns:
        One number per seed, in units of the column.

    >>> runs = pd.DataFrame({"method": ["BSP"] * 4 + ["mine"] * 4, "seed": [0, 0, 1, 1] * 2,
    ...                      "samples": [0, 8] * 4, "accuracy": [0, 0.5, 0, 0.7, 0, 0.9, 0, 0.4]})
    >>> apart(runs, "BSP").round(3).tolist(), apart(runs, "mine").round(3).tolist()
    ([0.153, 0.153], [0.153, 0.077])
    """
    grid = np.linspace(0.5, 1, 21) * runs["samples"].max()

    def curves(name: str) -> pd.DataFrame:
        each = runs[runs["method"] == name].groupby("seed")
        return pd.DataFrame({seed: np.interp(grid, run["samples"], run[column]) for seed, run in each})

    mine, theirs = curves(method), curves(baseline)
    gaps = {seed: mine[seed] - theirs.drop(columns=seed).median(axis=1) for seed in mine}
    return (pd.DataFrame(gaps) ** 2).mean() ** 0.5
