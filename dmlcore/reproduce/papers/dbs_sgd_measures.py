"""What notebooks/05_dbs_sgd.ipynb measures, and what theory predicts for it.

Each claim's metric is a function of traces or runs here: the notebook and the tests of opposite settings call
the same one.
"""

from collections.abc import Callable, Iterable, Sequence
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


class Episodes:
    """Law of a task's time over its mean where a share of the tasks takes several times as long.

    Args:
        law: of the other tasks, a frozen distribution of scipy on [0, inf).
        share: of the slow tasks, in [0, 1).
        factor: on their time, >= 1.

    >>> round(float(Episodes(scipy.stats.uniform(0, 2), 0.2, 3).cdf(3.0)), 6)
    0.9
    """

    def __init__(self, law: Any, share: float, factor: float) -> None:
        self.law, self.share, self.factor = law, share, factor

    def cdf(self, z: npt.ArrayLike) -> Any:
        """Returns the probability of at most z."""
        fast, slow = self.law.cdf(z), self.law.cdf(np.asarray(z) / self.factor)
        return (1 - self.share) * fast + self.share * slow

    def ppf(self, p: float) -> float:
        """Returns a time that is exceeded with a probability of at most 1 - p."""
        return self.factor * float(self.law.ppf(p))


def speedup_over_bsp(speeds: Sequence[float], law: Any, *, batch: int = 32, transfers: float = 0.0) -> float:
    """Returns samples per second of DBS-SGD over those of BSP, as predicted.

    A round of BSP takes as long as its slowest worker. Under DBS-SGD all iterations take equally long and no
    worker waits; with slow episodes batches shrink at once, so that a share of the time is slow.

    Args:
        speeds: samples per second of each worker, outside of episodes.
        law: of a task's time over its mean: a frozen distribution of scipy with mean 1, or `Episodes` of one.
        batch: samples of a worker's task on average.
        transfers: seconds of a pull and a push.

    >>> round(speedup_over_bsp([2000, 1000], scipy.stats.uniform(0.999, 0.002)), 2)
    1.5
    """
    power = float(np.sum(speeds))
    if isinstance(law, Episodes):
        power *= 1 - law.share + law.share / law.factor
    own = batch * len(speeds) / power + transfers
    return round_seconds([batch / speed for speed in speeds], law, transfers) / own


def samples_per_second(trace: Trace) -> float:
    """Returns the samples in updates over the time of the last one."""
    return float(trace.updates["samples"].sum() / trace.updates["time"].iloc[-1])


def deviation(measured: npt.ArrayLike, predicted: float) -> list[float]:
    """Returns by how much measurements are off a prediction, %.

    >>> [round(found, 6) for found in deviation([1.1, 0.98], 1.0)]
    [10.0, 2.0]
    """
    return (100 * np.abs(np.asarray(measured, float) / predicted - 1)).tolist()


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


def ages(trace: Trace, warm: int) -> npt.NDArray[np.int64]:
    """Returns the staleness of gradients in the order of their updates, from update `warm` on: versions."""
    order = trace.tasks["update"].sort_values()
    return metrics.staleness(trace).loc[order[order >= warm].index].to_numpy(np.int64)


def largest_stable_step(ages: Sequence[int] | npt.NDArray[np.int64], momentum: float = 0.0) -> float:
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


def distance(runs: pd.DataFrame, method: str) -> pd.Series:
    """Returns how far each seed's accuracies are from BSP's median curve, over BSP's own median distance.

    Args:
        runs: as for `apart`.
        method: whose curves.
    """
    return apart(runs, method) / apart(runs, "BSP").median()


def finals(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns loss and accuracy at the end of each run, by method and seed.

    A loss that is not finite counts as infinite, an accuracy that is not a number as 0.

    >>> runs = pd.DataFrame({"method": "BSP", "seed": 0, "loss": [2.0, np.nan], "accuracy": [0.1, np.nan]})
    >>> finals(runs).loc["BSP", 0].tolist()
    [inf, 0.0]
    """
    ends = runs.groupby(["method", "seed"]).tail(1).set_index(["method", "seed"]).sort_index()
    return ends[["loss", "accuracy"]].fillna({"loss": np.inf, "accuracy": 0.0})


def against(
    runs: pd.DataFrame, rivals: Iterable[str], how: Callable[[pd.DataFrame, pd.DataFrame], pd.Series]
) -> dict[str, list[float]]:
    """Returns DBS-SGD compared with each rival at the end, one number per seed.

    Args:
        runs: what `compare` returns, with DBS-SGD and the rivals.
        rivals: their names.
        how: `loss_ratio`, `points` or `accuracy_ratio`.
    """
    ends = {str(name): part.droplevel("method") for name, part in finals(runs).groupby("method")}
    return {rival: how(ends["DBS-SGD"], ends[rival]).tolist() for rival in rivals}


def loss_ratio(own: pd.DataFrame, other: pd.DataFrame) -> pd.Series:
    """Returns the loss over that of the other, infinite where the own loss is."""
    return (own["loss"] / other["loss"]).where(np.isfinite(own["loss"]), np.inf)


def points(own: pd.DataFrame, other: pd.DataFrame) -> pd.Series:
    """Returns the accuracy minus that of the other, percentage points."""
    return 100 * (own["accuracy"] - other["accuracy"])


def accuracy_ratio(own: pd.DataFrame, other: pd.DataFrame) -> pd.Series:
    """Returns the accuracy over that of the other."""
    return own["accuracy"] / other["accuracy"]


def ahead_of_bsp(runs: pd.DataFrame, target: float = 0.25) -> pd.Series:
    """Returns the time of BSP to a training loss over that of DBS-SGD, by seed."""
    return metrics.speedup(metrics.time_to(runs, "loss", target), "BSP")["DBS-SGD"]


def map_ratios(atlas: pd.DataFrame) -> pd.DataFrame:
    """Returns what the map shows, by setting, ratio of speeds and seed.

    Args:
        atlas: runs of ASGD and DBS-SGD, and of BSP or not, with the columns `setting`, `ratio` and `at`:
            "own" for runs at a method's own best learning rate, "shared" for ASGD at that of DBS-SGD.

    Returns:
        A frame with `shared` and `own`, the loss of DBS-SGD over that of ASGD at the end, and where BSP has
        runs `time`, as of `ahead_of_bsp`.
    """
    keys = ["setting", "ratio", "at", "method", "seed"]
    ends = atlas.groupby(keys)["loss"].last().fillna(np.inf).unstack("method")
    mine = ends["DBS-SGD"].xs("own", level="at")
    found = {at: mine / ends["ASGD"].xs(at, level="at") for at in ("shared", "own")}
    if "BSP" in ends:
        owns = atlas[atlas["at"] == "own"].groupby(["setting", "ratio"])
        times = {key: ahead_of_bsp(part) for key, part in owns}
        found["time"] = pd.concat(times, names=["setting", "ratio"])
    return pd.DataFrame(found)


def growth(ratios: pd.DataFrame, setting: str) -> pd.Series:
    """Returns the loss ratio at own rates at speeds of 1 to 10 over that at equal speeds, by seed."""
    own = ratios["own"][setting].unstack("seed")
    return own.loc[10] / own.loc[1]


def least_shared(ratios: pd.DataFrame, setting: str) -> pd.Series:
    """Returns the least loss ratio at one learning rate of all ratios of speeds, by seed."""
    return ratios["shared"][setting].unstack("seed").min()
