"""Measurements of notebooks/05_dbs_sgd.ipynb, and their predictions by theory.

Each claim's metric is a function of traces or runs. The notebook and the tests of opposite settings call the
same function.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy

from dmlcore.trace import Trace, metrics


def node_staleness(seconds: npt.ArrayLike) -> float:
    """Returns the mean over workers of their mean staleness in versions, under asynchronous SGD.

    If every push is an update, worker i has the staleness t_i R - 1 with R = sum 1 / t_i. The mean over the n
    workers is n mean(t) / harmonic mean(t) - 1. The mean over gradients is n - 1, whatever the times.

    Args:
        seconds: t_i, seconds per iteration of each worker, computing and both transfers, > 0, (n,).

    >>> node_staleness([1, 1, 4, 4]), node_staleness([1, 1, 1, 1])
    (5.25, 3.0)
    """
    t = np.asarray(seconds, float)
    return float(t.mean() * (1 / t).sum() - 1)


def round_seconds(seconds: Sequence[float], law: Any, transfers: float = 0.0) -> float:
    """Returns the mean seconds of a synchronous round: the mean of the largest t_i Z_i, plus the transfers.

    E max = integral of 1 - prod F(t / t_i) dt, for independent Z_i with the distribution function F.

    Args:
        seconds: t_i, mean computing seconds of each worker, (W,).
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
    """The law of a task's time over its mean if a fraction of the tasks takes several times as long.

    Args:
        law: of the other tasks, a frozen distribution of scipy on [0, inf).
        share: fraction of slow tasks, in [0, 1).
        factor: of their time, >= 1.

    >>> round(float(Episodes(scipy.stats.uniform(0, 2), 0.2, 3).cdf(3.0)), 6)
    0.9
    """

    def __init__(self, law: Any, share: float, factor: float) -> None:
        self.law, self.share, self.factor = law, share, factor

    def cdf(self, z: npt.ArrayLike) -> Any:
        """Returns the probability that the ratio is at most z."""
        fast, slow = self.law.cdf(z), self.law.cdf(np.asarray(z) / self.factor)
        return (1 - self.share) * fast + self.share * slow

    def ppf(self, p: float) -> float:
        """Returns a ratio that is exceeded with a probability of at most 1 - p."""
        return self.factor * float(self.law.ppf(p))


def speedup_over_bsp(speeds: Sequence[float], law: Any, *, batch: int = 32, transfers: float = 0.0) -> float:
    """Returns the predicted ratio of the samples/s of DBS-SGD to those of BSP.

    A round of BSP takes as long as its slowest worker. Under DBS-SGD all iterations take equally long and no
    worker waits. The prediction assumes that batches shrink immediately in a slow episode, so that the given
    share is a share of the time.

    Args:
        speeds: samples/s of each worker outside of episodes, (W,).
        law: of a task's time over its mean: a frozen distribution of scipy with mean 1, or `Episodes` of one.
        batch: mean samples per task.
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
    """Returns the samples in all updates divided by the time of the last update."""
    return float(trace.updates["samples"].sum() / trace.updates["time"].iloc[-1])


def deviation(measured: npt.ArrayLike, predicted: float) -> list[float]:
    """Returns the deviations of measurements from a prediction, in %.

    >>> [round(found, 6) for found in deviation([1.1, 0.98], 1.0)]
    [10.0, 2.0]
    """
    return (100 * np.abs(np.asarray(measured, float) / predicted - 1)).tolist()


def averages(trace: Trace, warm: int) -> dict[str, float]:
    """Returns four averages of the staleness in versions, without the first `warm` updates.

    They are `nodes`, the mean over workers of each worker's mean; `gradients`, the mean over gradients;
    `samples`, the mean over samples; and `maximum`, the largest value.
    """
    tasks = _applied(trace, warm)
    ages = tasks["staleness"]
    return {
        "nodes": float(ages.groupby(tasks["worker"]).mean().mean()),
        "gradients": float(ages.mean()),
        "samples": float(np.average(ages, weights=tasks["batch_size"])),
        "maximum": float(ages.max()),
    }


def ages(trace: Trace, warm: int) -> npt.NDArray[np.int64]:
    """Returns the staleness of gradients in versions, in the order of updates, from update `warm` on."""
    return _applied(trace, warm).sort_values("update")["staleness"].to_numpy(np.int64)


def _applied(trace: Trace, warm: int) -> pd.DataFrame:
    """Returns the tasks of the updates from update `warm` on, with their staleness in versions."""
    tasks = trace.tasks.assign(staleness=metrics.staleness(trace))
    return tasks[tasks["update"] >= warm]


def largest_stable_step(ages: Sequence[int] | npt.NDArray[np.int64], momentum: float = 0.0) -> float:
    """Returns the largest stable step on a parabola, from a grid with a spacing of 2%.

    It computes x_{t+1} = x_t - a v_t with v_t = momentum v_{t-1} + x_{t - tau_t} for all steps a at once. A
    step is stable if the distances in the last quarter stay below those in the second quarter. The step is
    the learning rate times the curvature.

    Args:
        ages: tau_t, staleness of each update in versions.
        momentum: of the server's optimizer, in [0, 1).

    Returns:
        The step; 0 if none is stable.

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


def apart(runs: pd.DataFrame, method: str) -> pd.Series:
    """Returns the distance of each seed's accuracies from the median curve of BSP on the other seeds.

    The distance is the root mean square of the differences over the second half of the samples. The distances
    of BSP itself show the spread that is due to the seed.

    Args:
        runs: a frame of `compare`, one run per method and seed, with at least two seeds of BSP.
        method: the method of the curves.

    Returns:
        One number per seed, a share of the samples as the accuracy is.

    >>> runs = pd.DataFrame({"method": ["BSP"] * 4 + ["mine"] * 4, "seed": [0, 0, 1, 1] * 2,
    ...                      "samples": [0, 8] * 4, "accuracy": [0, 0.5, 0, 0.7, 0, 0.9, 0, 0.4]})
    >>> apart(runs, "BSP").round(3).tolist(), apart(runs, "mine").round(3).tolist()
    ([0.153, 0.153], [0.153, 0.077])
    """
    grid = np.linspace(0.5, 1, 21) * runs["samples"].max()

    def curves(name: str) -> pd.DataFrame:
        each = runs[runs["method"] == name].groupby("seed")
        return pd.DataFrame({seed: np.interp(grid, run["samples"], run["accuracy"]) for seed, run in each})

    mine, theirs = curves(method), curves("BSP")
    gaps = {seed: mine[seed] - theirs.drop(columns=seed).median(axis=1) for seed in mine}
    return (pd.DataFrame(gaps) ** 2).mean() ** 0.5


def distance(runs: pd.DataFrame, method: str) -> pd.Series:
    """Returns the distance of each seed's accuracies from BSP's median curve, over BSP's median distance.

    Args:
        runs: as for `apart`.
        method: the method of the curves.
    """
    return apart(runs, method) / apart(runs, "BSP").median()


def finals(runs: pd.DataFrame) -> pd.DataFrame:
    """Returns loss and accuracy at the end of each run, by method and seed.

    A loss that is not finite becomes infinity, and an accuracy that is NaN becomes 0.

    >>> runs = pd.DataFrame({"method": "BSP", "seed": 0, "loss": [2.0, np.nan], "accuracy": [0.1, np.nan]})
    >>> finals(runs).loc["BSP", 0].tolist()
    [inf, 0.0]
    """
    ends = runs.groupby(["method", "seed"]).tail(1).set_index(["method", "seed"]).sort_index()
    return ends[["loss", "accuracy"]].fillna({"loss": np.inf, "accuracy": 0.0})


def against(
    runs: pd.DataFrame, rivals: Iterable[str], how: Callable[[pd.DataFrame, pd.DataFrame], pd.Series]
) -> dict[str, list[float]]:
    """Compares DBS-SGD with each rival at the end of the runs.

    Args:
        runs: a frame of `compare`, with DBS-SGD and the rivals.
        rivals: names of the rivals.
        how: `loss_ratio`, `points` or `accuracy_ratio`.

    Returns:
        Name of the rival -> one number per seed.
    """
    ends = {str(name): part.droplevel("method") for name, part in finals(runs).groupby("method")}
    return {rival: how(ends["DBS-SGD"], ends[rival]).tolist() for rival in rivals}


def loss_ratio(own: pd.DataFrame, other: pd.DataFrame) -> pd.Series:
    """Returns the loss over that of the other; infinite if the own loss is infinite."""
    return (own["loss"] / other["loss"]).where(np.isfinite(own["loss"]), np.inf)


def points(own: pd.DataFrame, other: pd.DataFrame) -> pd.Series:
    """Returns the accuracy minus that of the other, in percentage points."""
    return 100 * (own["accuracy"] - other["accuracy"])


def accuracy_ratio(own: pd.DataFrame, other: pd.DataFrame) -> pd.Series:
    """Returns the accuracy over that of the other."""
    return own["accuracy"] / other["accuracy"]


def ahead_of_bsp(runs: pd.DataFrame, target: float = 0.25) -> pd.Series:
    """Returns the ratio of BSP's time to a training loss to that of DBS-SGD, by seed."""
    return metrics.speedup(metrics.time_to(runs, "loss", target), "BSP")["DBS-SGD"]


def map_ratios(atlas: pd.DataFrame) -> pd.DataFrame:
    """Returns the values of the map, by setting, ratio of speeds and seed.

    Args:
        atlas: runs of ASGD and DBS-SGD with the columns `setting`, `ratio` and `at`: "own" for runs at a
            method's own best learning rate, "shared" for ASGD at that of DBS-SGD, and possibly "target" for
            runs of BSP and DBS-SGD at their own rates that end at the target.

    Returns:
        A frame with `shared` and `own`, the final loss of DBS-SGD over that of ASGD, and, if runs end at the
        target, `time`, as `ahead_of_bsp` returns it.
    """
    keys = ["setting", "ratio", "at", "method", "seed"]
    ends = atlas.groupby(keys)["loss"].last().fillna(np.inf).unstack("method")
    mine = ends["DBS-SGD"].xs("own", level="at")
    found = {at: mine / ends["ASGD"].xs(at, level="at") for at in ("shared", "own")}
    arriving = atlas[atlas["at"] == "target"].groupby(["setting", "ratio"])
    if times := {key: ahead_of_bsp(part) for key, part in arriving}:
        found["time"] = pd.concat(times, names=["setting", "ratio"])
    return pd.DataFrame(found)


def growth(ratios: pd.DataFrame, setting: str) -> pd.Series:
    """Returns the loss ratio (own rates) with speeds of 1 to 10 over that with equal speeds, by seed."""
    own = ratios["own"][setting].unstack("seed")
    return own.loc[10] / own.loc[1]


def least_shared(ratios: pd.DataFrame, setting: str) -> pd.Series:
    """Returns the smallest loss ratio at one learning rate over all ratios of speeds, by seed."""
    return ratios["shared"][setting].unstack("seed").min()
