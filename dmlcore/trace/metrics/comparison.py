"""Which method is faster: time to a target, paired speedups, fair learning rates and intervals over seeds."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy

from dmlcore import checks, tables
from dmlcore.calls import checked

IDS = ("method", "seed", "learning_rate")  # the columns of a `compare` frame that tell runs apart


class Interval(NamedTuple):
    """A median and the bootstrap interval around it."""

    median: float
    low: float
    high: float


@checked(confidence=partial(checks.real, above=0, below=1), seed=checks.check_seed)
def interval(samples: npt.ArrayLike, confidence: float = 0.95, seed: int = 0) -> Interval:
    """Median of the samples and its percentile bootstrap interval.

    Args:
        samples: one value per seed; `inf` stands for "never reached" and counts as larger than any number.
        confidence: coverage, between 0 and 1.
        seed: of the resampling, so that the same samples give the same interval.

    Returns:
        `(median, low, high)`; all equal where the samples are.

    Raises:
        ValueError: where samples are missing, NaN or -inf, or the confidence is not within (0, 1).

    >>> interval([1.0, 2.0, 3.0])
    Interval(median=2.0, low=1.0, high=3.0)
    >>> interval([1.0, 2.0, 3.0, 4.0, float("inf")]).high
    inf

    Source: Efron 1979, by `scipy.stats.bootstrap`.
    """
    values = checks.array("samples", samples)
    if not values.size or (values == -np.inf).any():
        checks.fail("samples", values.tolist(), "one or more numbers or +inf, without NaN")
    median = float(np.median(values))
    if (values == values[0]).all():
        return Interval(median, median, median)
    # Quantiles interpolate, and inf - inf is NaN: so resample with a huge number in place of inf. What comes
    # out huge had an inf in it; the rest is held within the samples, which rounding may leave by an ulp.
    finite = values[np.isfinite(values)]
    huge = np.where(np.isinf(values), 1e150, values)
    with np.errstate(over="ignore"):
        options: Any = {"confidence_level": confidence, "rng": np.random.default_rng(seed)}
        found = scipy.stats.bootstrap((huge,), np.median, method="percentile", **options).confidence_interval
    low, high = (np.inf if edge > 1e100 else float(edge.clip(finite.min(), finite.max())) for edge in found)
    return Interval(median, low, high)


@checked(
    x=partial(checks.array, nan=True),
    y=partial(checks.array, nan=True),
    target=checks.real,
    below=checks.boolean,
)
def crossing(x: npt.ArrayLike, y: npt.ArrayLike, target: float, below: bool = True) -> float:
    """The first x at which y reaches the target, interpolated linearly between evaluations.

    Args:
        x: where y was evaluated, ascending.
        y: the values; NaN reaches nothing.
        target: the value to reach.
        below: whether to reach it from above (losses) or from below (accuracies).

    Returns:
        The x of the crossing, the first x where the target is met from the outset, inf where it never is.

    >>> crossing([0, 10, 20], [1.0, 0.6, 0.2], target=0.4)
    15.0
    """
    xs, ys = np.asarray(x), np.asarray(y)
    if len(xs) != len(ys):
        checks.fail("y", f"{len(ys)} values", f"as many as x has, {len(xs)}")
    hit = np.flatnonzero(ys <= target if below else ys >= target)
    if not hit.size:
        return float("inf")
    i = hit[0]
    if i == 0 or not np.isfinite(ys[i - 1 : i + 1]).all():
        return float(xs[i])
    return float(xs[i - 1] + (ys[i - 1] - target) / (ys[i - 1] - ys[i]) * (xs[i] - xs[i - 1]))


def _runs(runs: pd.DataFrame, **columns: str) -> Any:
    """The frame grouped into single runs, after a check that it has the columns that arguments name."""
    tables.check_frame("runs", runs)
    for argument, column in columns.items():
        tables.check_column(argument, column, runs)
    ids = [name for name in IDS if name in runs]
    if not ids:
        checks.fail("runs", list(runs.columns), f"a frame with columns out of {', '.join(IDS)}")
    return runs.groupby(ids, sort=False)


def time_to(
    runs: pd.DataFrame, metric: str, target: float, *, column: str = "time", below: bool = True
) -> pd.Series:
    """When each run first reached a target.

    Args:
        runs: what `compare` returns. For the history of a single run see `crossing`.
        metric: the column to watch, such as `loss`.
        target: the value to reach.
        column: what to count: `time` in seconds, `update` or `samples`.
        below: whether smaller is better.

    Returns:
        One value per run, interpolated between evaluations, inf where it never got there; indexed by the
        columns out of `method, seed, learning_rate` that the frame has.

    Raises:
        ValueError: where the frame lacks a column, or does not tell runs apart.

    >>> runs = pd.DataFrame({"method": "BSP", "seed": [0, 0, 1, 1],
    ...                      "time": [0, 4, 0, 4], "loss": [4, 0, 4, 3]})
    >>> time_to(runs, "loss", 1.0).to_dict()
    {('BSP', 0): 3.0, ('BSP', 1): inf}
    """
    goal, below = checks.real("target", target), checks.boolean("below", below)
    groups = _runs(runs, metric=metric, column=column)[[column, metric]]
    found = groups.apply(lambda run: crossing(run[column], run[metric], goal, below))
    return found.rename(f"{column}_to_{metric}")


def speedup(times: pd.Series, baseline: str) -> pd.Series:
    """How many times faster than a baseline each run was: baseline / method, paired by seed.

    Pairing matters: two methods on the same seed meet the same stragglers.

    Args:
        times: what `time_to` returns: by method, and by seed where there are several. One run each: apply
            `fair` first where there is a grid of learning rates.
        baseline: the method to compare with.

    Returns:
        Ratios, indexed by method (and seed): inf where only the method got there, 0 where only the baseline
        did, NaN where neither did or the baseline lacks the seed.

    Raises:
        ValueError: where the baseline is missing or a method has two values for one seed.

    >>> index = pd.MultiIndex.from_product([["BSP", "SSP"], [0, 1]], names=["method", "seed"])
    >>> speedup(pd.Series([6.0, 9.0, 3.0, float("inf")], index), baseline="BSP")["SSP"].to_dict()
    {0: 2.0, 1: 0.0}
    """
    checks.check_kind("times", times, pd.Series)
    if "learning_rate" in times.index.names:
        times = times.droplevel("learning_rate")
    if "method" not in times.index.names or times.index.has_duplicates:
        checks.fail("times", times.index.names, "one value per method and seed")
    methods = times.index.get_level_values("method")
    checks.choice("baseline", baseline, dict.fromkeys(methods))
    if times.index.nlevels == 1:
        return (times[baseline] / times).rename("speedup")
    seeds = times.index.get_level_values("seed")
    paired = times.xs(baseline, level="method").reindex(seeds).to_numpy()
    return (paired / times).rename("speedup")


def best_learning_rate(
    runs: pd.DataFrame, metric: str, target: float, *, column: str = "time", below: bool = True
) -> pd.Series:
    """Returns the learning rate that each method would pick from the grid, by method.

    The one with the smallest median time to the target over seeds. Ties, such as none ever getting there, go
    to the best median of the last value, then to the smaller rate.

    Args:
        runs: what `compare` returns, with a column `learning_rate`.
        metric, target, column, below: as in `time_to`.

    Returns:
        Learning rate by method.

    Raises:
        ValueError: where the frame has no column `learning_rate`, or as in `time_to`.

    >>> runs = pd.DataFrame({"method": "BSP", "seed": 0, "learning_rate": [0.1, 0.1, 0.2, 0.2],
    ...                      "time": [0, 1, 0, 1], "loss": [9, 5, 9, 3]})
    >>> best_learning_rate(runs, "loss", 4.0).to_dict()
    {'BSP': 0.2}
    """
    tables.check_frame("runs", runs, {"method": "its name", "learning_rate": "of the run"})
    below = checks.boolean("below", below)
    last = _runs(runs, metric=metric)[metric].agg(lambda values: values.iloc[-1])
    last = (last if below else -last).fillna(np.inf)  # a run that diverged is the worst of all
    times = time_to(runs, metric, target, column=column, below=below)
    table = pd.DataFrame({"time": times, "last": last})
    median = table.groupby(["method", "learning_rate"], sort=False).median().reset_index()
    ranked = median.sort_values(["time", "last", "learning_rate"])
    best = ranked.drop_duplicates("method").set_index("method")["learning_rate"]
    return best.reindex(median["method"].unique()).rename_axis("method")


def fair(
    runs: pd.DataFrame, metric: str, target: float, *, column: str = "time", below: bool = True
) -> pd.DataFrame:
    """Returns the rows of each method at its own best learning rate: none wins by a rate that suits it alone.

    Args:
        runs, metric, target, column, below: as in `best_learning_rate`.

    Returns:
        The rows of `runs` that remain.

    Raises:
        ValueError: as in `best_learning_rate`.

    >>> runs = pd.DataFrame({"method": ["BSP", "BSP", "SSP", "SSP"], "learning_rate": [0.1, 0.2, 0.1, 0.2],
    ...                      "time": 1, "loss": [3, 5, 5, 3]})
    >>> fair(runs, "loss", 4.0)[["method", "learning_rate"]].values.tolist()
    [['BSP', 0.1], ['SSP', 0.2]]
    """
    best = best_learning_rate(runs, metric, target, column=column, below=below)
    return runs[runs["learning_rate"] == runs["method"].map(best)]
