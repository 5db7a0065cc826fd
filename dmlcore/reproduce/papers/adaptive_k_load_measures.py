"""What notebooks/03_adaptive_k_load.ipynb measures: the paper's algorithm, fitted constants, costs."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dmlcore import theory
from dmlcore.problems.problem import Problem
from dmlcore.trace import metrics

COSTS = {"time": "time", "computation": "assigned_samples", "uplinks": "uplinks", "downlinks": "downlinks"}


def joint_sgd(
    gradient: Callable[[np.ndarray, int], np.ndarray],
    response: Callable[[int], np.ndarray],
    phases: Sequence[theory.Phase],
    w: np.ndarray,
    eta: float,
    reached: Callable[[np.ndarray], bool],
) -> float:
    """Returns the seconds that SGD takes whose k and b follow a schedule: the algorithm of Egger et al.

    Args:
        gradient: w, b -> the gradient of b samples drawn at random.
        response: b -> seconds after which each of the n workers answers, (n,).
        phases: (t_l, k_l, b_l, ...), ascending, the first at 0.
        w: where it starts, (d,).
        eta: learning rate.
        reached: w -> whether to stop.

    >>> phases = [theory.Phase(0.0, 1, 1, 1.0, 0.0, 1.0), theory.Phase(2.0, 2, 8, 1.0, 0.0, 1.0)]
    >>> def response(b):
    ...     return np.array([1.0, 3.0])
    >>> joint_sgd(lambda w, b: w, response, phases, np.ones(1), 0.5, lambda w: w[0] < 0.1)
    8.0
    """
    time = 0.0
    while not reached(w):
        _, k, b, *_ = [phase for phase in phases if phase.start <= time][-1]
        seconds = response(b)  # all workers get w, and compute b samples each
        fastest = np.argsort(seconds)[:k]  # the others are cancelled
        w = w - eta * np.mean([gradient(w, b) for _ in fastest], axis=0)
        time += float(seconds[fastest].max())
    return time


def fitted(
    many: pd.DataFrame, few: pd.DataFrame, samples: int, optimum: float, learning_rate: float
) -> tuple[theory.Constants, float]:
    """Returns the constants with which the bound is the loss of two runs, and E_0.

    c and E_0 come from the straight line through the log excess loss of the run whose updates hold many
    samples, while it falls to a hundredth; the variance from the floor of the one with few. L and the
    variance matter by their product only: L = c.

    Args:
        many, few: histories, with the columns update and loss; the second half of `few` is at its floor.
        samples: of an update of `few`.
        optimum: of the loss.
        learning_rate: of both.

    >>> steps = np.arange(0, 1001, 10)
    >>> def history(floor):
    ...     return pd.DataFrame({"update": steps, "loss": 5 + floor + (100 - floor) * 0.98**steps})
    >>> constants, error = fitted(history(0.0), history(0.5), 4, 5.0, 0.01)
    >>> round(constants.strong_convexity, 3), round(error, 1), round(float(theory.floor(constants, 1, 4)), 3)
    (2.0, 100.0, 0.5)
    """
    excess = many["loss"] - optimum
    falls = (excess >= excess.iloc[0] / 100).cummin()
    slope, start = np.polyfit(many["update"][falls], np.log(excess[falls]), 1)
    c = -float(np.expm1(slope)) / learning_rate
    floor = float((few["loss"] - optimum).iloc[len(few) // 2 :].mean())
    variance = 2 * floor * samples / learning_rate
    return theory.Constants(learning_rate, c, c, variance), float(np.exp(start))


def ill_conditioned(problem: Problem, ratio: float) -> Problem:
    """Returns a linear regression with its features scaled, so that the curvatures spread over this ratio.

    The optimum and the excess loss at zero weights stay what they were.

    >>> from dmlcore.problems import linear_regression
    >>> made = ill_conditioned(linear_regression(num_features=3, standardize=True), 100)
    >>> (made.data["x"].astype(float) ** 2).mean(0).round(3)
    array([1.  , 0.1 , 0.01])
    """
    x = problem.data["x"]
    scales = (ratio**-0.5) ** (np.arange(x.shape[1]) / max(x.shape[1] - 1, 1))
    data = {**problem.data, "x": (x * scales).astype(x.dtype)}
    return dataclasses.replace(problem, data=data, eval_data=data)


def spent(runs: pd.DataFrame, goal: float) -> pd.DataFrame:
    """Returns what each run took until a loss, by method and seed; all infinite where it did not get there.

    Columns: those of `COSTS` by their names, and the means until then: `k`, gradients of an update, and `b`,
    samples of a gradient.

    >>> runs = pd.DataFrame({"method": "x", "seed": 0, "loss": [2.0, 0.0], "update": [0, 4], "time": [0, 8.0],
    ...     "samples": [0, 80], "assigned_samples": [0, 100], "uplinks": [0, 8], "downlinks": [0, 20]})
    >>> spent(runs, 0.0).iloc[0].to_dict()
    {'time': 8.0, 'computation': 100.0, 'uplinks': 8.0, 'downlinks': 20.0, 'k': 2.0, 'b': 10.0}
    """
    runs = runs.drop(columns="learning_rate", errors="ignore")
    columns = {**COSTS, "update": "update", "samples": "samples"}
    found = pd.DataFrame(
        {name: metrics.time_to(runs, "loss", goal, column=column) for name, column in columns.items()}
    )
    found["k"], found["b"] = found["uplinks"] / found["update"], found["samples"] / found["uplinks"]
    return found.drop(columns=["update", "samples"])


def bounded(cost: pd.DataFrame, runs: pd.DataFrame, method: str) -> pd.DataFrame:
    """Returns costs with which a method is compared with rivals, some of which do not reach the target.

    On seeds on which the method gets there, such a rival counts with what it had spent when its run ended:
    it would have spent more, so that the method is at least that much cheaper. All else stays as it is.

    Args:
        cost: of `spent`.
        runs: that `cost` was made of.
        method: name of the method; its own costs stay infinite where it does not get there.

    >>> runs = pd.DataFrame({"method": ["a", "b"], "seed": 0, "time": [3.0, 8.0],
    ...     "assigned_samples": [30.0, 80.0], "uplinks": [3.0, 8.0], "downlinks": [6.0, 16.0]})
    >>> cost = runs.set_index(["method", "seed"]).rename(columns={"assigned_samples": "computation"})
    >>> cost.loc["b"] = np.inf
    >>> bounded(cost, runs, "a").loc["b"].iloc[0].to_dict()
    {'time': 8.0, 'computation': 80.0, 'uplinks': 8.0, 'downlinks': 16.0}
    """
    last = runs.groupby(["method", "seed"])[[*COSTS.values()]].last().set_axis([*COSTS], axis=1)
    there = cost["time"][method][lambda times: np.isfinite(times)].index
    found = cost.astype(float)
    cut = found.index[~np.isfinite(found["time"]) & found.index.get_level_values("seed").isin(there)]
    found.loc[cut, [*COSTS]] = last.loc[cut].astype(float)
    return found


def best_settings(runs: pd.DataFrame, families: Mapping[str, Sequence[str]], goal: float) -> pd.DataFrame:
    """Returns, of each family of methods, the setting and the rate with the least median time to a loss.

    Args:
        runs: of `dml.tune`, with all settings of all families.
        families: names of the methods that are settings of one, by its name.
        goal: the loss; of settings that do not reach it, that with the least loss at the end.

    Returns:
        Columns `setting` and `learning_rate`, by family.

    >>> runs = pd.DataFrame({"method": ["a"] * 2 + ["b"] * 2, "seed": 0, "learning_rate": 0.1,
    ...                      "time": [0, 1, 0, 2], "loss": [3, 1, 3, 1]})
    >>> best_settings(runs, {"both": ["a", "b"]}, 1.0).loc["both"].to_dict()
    {'setting': 'a', 'learning_rate': 0.1}
    """
    rates = metrics.best_learning_rate(runs, "loss", goal)
    own = runs[runs["learning_rate"] == runs["method"].map(rates)]
    times = metrics.time_to(own, "loss", goal).groupby("method").median()
    ends = own.groupby(["method", "seed"])["loss"].last().fillna(np.inf).groupby("method").median()
    ranks = pd.DataFrame({"time": times, "loss": ends}).sort_values(["time", "loss"]).index
    rows: dict[str, Any] = {}
    for family, settings in families.items():
        setting = next(name for name in ranks if name in settings)
        rows[family] = {"setting": setting, "learning_rate": float(rates[setting])}
    return pd.DataFrame(rows).T.astype({"learning_rate": float})


def ratios(cost: pd.DataFrame, one: str, other: str, column: str) -> list[float]:
    """Returns one method's cost over another's, by seed; where neither got there, NaN, not measured.

    >>> index = pd.MultiIndex.from_product([["a", "b"], [0, 1]])
    >>> ratios(pd.DataFrame({"time": [1.0, np.inf, 2.0, 3.0]}, index), "a", "b", "time")
    [0.5, inf]
    """
    with np.errstate(invalid="ignore"):
        return np.divide(*(np.asarray(cost[column][name], float) for name in (one, other))).tolist()
