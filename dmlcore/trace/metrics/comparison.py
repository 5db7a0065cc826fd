"""Comparison of methods: time to a target, paired speedups, fair learning rates."""

import warnings
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from dmlcore import checks, tables
from dmlcore.calls import checked
from dmlcore.trace.metrics.decision import LEVEL

IDS = ("method", "seed", "learning_rate")  # the columns of a `compare` frame that identify a run


@checked(
    x=partial(checks.array, nan=True),
    y=partial(checks.array, nan=True),
    target=checks.real,
    below=checks.boolean,
)
def crossing(x: npt.ArrayLike, y: npt.ArrayLike, target: float, below: bool = True) -> float:
    """Returns the first x at which y reaches the target, interpolated linearly between evaluations.

    Args:
        x: points at which y was evaluated, ascending, shape (N,), in any unit.
        y: values at x, shape (N,); NaN does not reach the target.
        target: the value to reach, in the unit of y.
        below: True if y must fall to the target (losses), False if it must rise to it (accuracies).

    Returns:
        The x of the crossing, in the unit of x; the first x if y[0] already meets the target; inf if y never
        reaches it.

    Raises:
        ValueError: x and y are not numbers, or differ in length.

    >>> crossing([0, 10, 20], [1.0, 0.6, 0.2], target=0.4)
    15.0
    """
    xs, ys = np.asarray(x), np.asarray(y)
    if len(xs) != len(ys):
        checks.reject("y", f"{len(ys)}", f"as many values as x has, {len(xs)}")
    i = _first(ys, target, below)
    if i is None:
        return float("inf")
    if i == 0 or not np.isfinite(ys[i - 1 : i + 1]).all():
        return float(xs[i])
    return float(xs[i - 1] + (ys[i - 1] - target) / (ys[i - 1] - ys[i]) * (xs[i] - xs[i - 1]))


def _first(values: np.ndarray, target: float, below: bool) -> int | None:
    """Returns the place of the first value that reaches a target."""
    hit = np.flatnonzero(values <= target if below else values >= target)
    return int(hit[0]) if hit.size else None


def _runs(runs: pd.DataFrame, **columns: str) -> Any:
    """Returns the frame grouped by run, after a check that it has the columns that arguments name."""
    tables.check_frame("runs", runs)
    for argument, column in columns.items():
        tables.check_column(argument, column, runs)
    ids = [name for name in IDS if name in runs]
    if not ids:
        checks.fail("runs", list(runs.columns), f"a frame with at least one of the columns {', '.join(IDS)}")
    return runs.groupby(ids, sort=False)


def time_to(
    runs: pd.DataFrame, metric: str, target: float, *, column: str = "time", below: bool = True
) -> pd.Series:
    """Returns when each run first reached a target.

    It warns if the two evaluations around a run's target are more than 5% of the result apart, and other
    updates lie between them. A noisy method may have reached the target much earlier than such a result says;
    `compare` with `until` and `resolve` finds the first of all updates that did.

    Args:
        runs: the frame that `compare` returns. For the history of a single run see `crossing`.
        metric: the column to watch, such as `loss`.
        target: the value to reach, in the unit of `metric`.
        column: the column to measure progress by: `time` in seconds, `update`, `samples` or `bytes`.
        below: whether smaller values of `metric` are better.

    Returns:
        One value per run in the unit of `column`, interpolated between evaluations; inf if the run did not
        reach the target before it ended, possibly at an easier target of `until`. The index has those of
        `method, seed, learning_rate` that are columns of the frame.

    Raises:
        ValueError: the frame lacks a column, or has none of `method, seed, learning_rate`.

    >>> runs = pd.DataFrame({"method": "BSP", "seed": [0, 0, 1, 1],
    ...                      "time": [0, 4, 0, 4], "loss": [4, 0, 4, 3]})
    >>> time_to(runs, "loss", 1.0).to_dict()
    {('BSP', 0): 3.0, ('BSP', 1): inf}
    """
    found, gap = _times(runs, metric, target, column, below)
    if gap > LEVEL:
        finer = (
            f"compare with until={{{metric!r}: {target!r}}} and resolve=True, which finds the first update"
        )
        warnings.warn(
            f"runs reach {metric} {target:g} between evaluations that are up to {gap:.0%} of the result "
            f"apart: evaluate more often (eval_every=), or {finer} that reaches it",
            stacklevel=2,
        )
    return found


def _times(
    runs: pd.DataFrame, metric: str, target: float, column: str, below: bool
) -> tuple[pd.Series, float]:
    """Returns the result of `time_to`, and the largest gap around a target with further updates, relative."""
    goal, below = checks.real("target", target), checks.boolean("below", below)
    groups, gaps = _runs(runs, metric=metric, column=column), [0.0]

    def reached(run: pd.DataFrame) -> float:
        last = _first(run[metric].to_numpy(), goal, below)
        found = crossing(run[column], run[metric], goal, below)
        if last and found > 0 and "update" in run and np.diff(run["update"].iloc[last - 1 : last + 1]) > 1:
            gaps.append(float(np.diff(run[column].iloc[last - 1 : last + 1])[0] / found))
        return found

    kept = [*dict.fromkeys((column, metric, *runs.columns.intersection(["update"])))]
    return groups[kept].apply(reached).rename(f"{column}_to_{metric}"), max(gaps)


def speedup(times: pd.Series, baseline: str) -> pd.Series:
    """Returns how many times faster than a baseline each run was: baseline / method, paired by seed.

    Pairing matters, because two methods with the same seed meet the same stragglers.

    Args:
        times: the result of `time_to` in seconds (or another unit), indexed by method, and by seed if there
            are several seeds. There must be one value per method and seed: with a grid of learning rates,
            apply `fair` first.
        baseline: the method to compare with.

    Returns:
        Ratios without a unit, indexed by method (and seed): inf if only the method reached the target, 0 if
        only the baseline did, NaN if neither did or the baseline lacks the seed.

    Raises:
        ValueError: the baseline is missing, or a method has two values for one seed.

    >>> index = pd.MultiIndex.from_product([["BSP", "SSP"], [0, 1]], names=["method", "seed"])
    >>> speedup(pd.Series([6.0, 9.0, 3.0, float("inf")], index), baseline="BSP")["SSP"].to_dict()
    {0: 2.0, 1: 0.0}
    """
    checks.check_kind("times", times, pd.Series)
    if "learning_rate" in times.index.names:
        times = times.droplevel("learning_rate")
    if "method" not in times.index.names or times.index.has_duplicates:
        checks.reject("times, index", f"{[*times.index.names]}", "one value for each method and seed")
    methods = times.index.get_level_values("method")
    checks.choice("baseline", baseline, dict.fromkeys(methods))
    if times.index.nlevels == 1:
        return times.rdiv(times[baseline]).rename("speedup")
    seeds = times.index.get_level_values("seed")
    paired = times.xs(baseline, level="method").reindex(seeds).to_numpy()
    return times.rdiv(paired).rename("speedup")


def best_learning_rate(
    runs: pd.DataFrame, metric: str, target: float, *, column: str = "time", below: bool = True
) -> pd.Series:
    """Returns each method's best learning rate on the grid.

    The best rate has the smallest median time to the target over seeds. In a tie, for example if no rate
    reaches the target, it is the rate with the best median of the last value, then the smaller rate.

    Args:
        runs: the frame that `compare` or `sweep` returns, with a column `learning_rate`.
        metric: the column to watch, such as `loss`.
        target: the value to reach, in the unit of `metric`.
        column: the column to measure progress by: `time` in seconds, `update`, `samples` or `bytes`.
        below: whether smaller values of `metric` are better.

    Returns:
        Learning rates, indexed by method.

    Raises:
        ValueError: the frame lacks a column, such as `learning_rate`.

    >>> runs = pd.DataFrame({"method": "BSP", "seed": 0, "learning_rate": [0.1, 0.1, 0.2, 0.2],
    ...                      "time": [0, 1, 0, 1], "loss": [9, 5, 9, 3]})
    >>> best_learning_rate(runs, "loss", 4.0).to_dict()
    {'BSP': 0.2}
    """
    tables.check_frame("runs", runs, {"method": "its name", "learning_rate": "of the run"})
    below = checks.boolean("below", below)
    last = _runs(runs, metric=metric)[metric].agg(lambda values: values.iloc[-1])
    last = (last if below else -last).fillna(np.inf)  # a run that diverged is the worst of all
    times, _ = _times(runs, metric, target, column, below)  # a coarse grid, too, finds a method's best rate
    table = pd.DataFrame({"time": times, "last": last})
    median = table.groupby(["method", "learning_rate"], sort=False).median().reset_index()
    ranked = median.sort_values(["time", "last", "learning_rate"])
    best = ranked.drop_duplicates("method").set_index("method")["learning_rate"]
    return best.reindex(median["method"].unique()).rename_axis("method")


def fair(
    runs: pd.DataFrame, metric: str, target: float, *, column: str = "time", below: bool = True
) -> pd.DataFrame:
    """Returns the rows of each method at its own best learning rate, for a fair comparison.

    With one rate for all, the method that this rate suits best would win.

    Args:
        runs: the frame that `compare` or `sweep` returns, with a column `learning_rate`.
        metric: the column to watch, such as `loss`.
        target: the value to reach, in the unit of `metric`.
        column: the column to measure progress by: `time` in seconds, `update`, `samples` or `bytes`.
        below: whether smaller values of `metric` are better.

    Returns:
        The rows of `runs` whose learning rate is the `best_learning_rate` of their method.

    Raises:
        ValueError: the frame lacks a column, such as `learning_rate`.

    >>> runs = pd.DataFrame({"method": ["BSP", "BSP", "SSP", "SSP"], "learning_rate": [0.1, 0.2, 0.1, 0.2],
    ...                      "time": 1, "loss": [3, 5, 5, 3]})
    >>> fair(runs, "loss", 4.0)[["method", "learning_rate"]].values.tolist()
    [['BSP', 0.1], ['SSP', 0.2]]
    """
    best = best_learning_rate(runs, metric, target, column=column, below=below)
    return runs[runs["learning_rate"] == runs["method"].map(best)]
