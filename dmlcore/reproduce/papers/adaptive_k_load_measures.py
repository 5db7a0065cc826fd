"""Measurements of notebooks/03_adaptive_k_load.ipynb: the paper's algorithm, fitted constants, costs."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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
    """Runs SGD with a k and b that follow a schedule, the algorithm of Egger et al.

    Args:
        gradient: w, b -> the gradient of b random samples, (d,).
        response: b -> response time of each of the n workers in seconds, (n,).
        phases: (t_l, k_l, b_l, ...), ascending in t_l, the first at 0.
        w: initial parameters, (d,).
        eta: learning rate.
        reached: w -> whether to stop.

    Returns:
        The seconds until `reached`.

    >>> phases = [theory.Phase(0.0, 1, 1, 1.0, 0.0, 1.0), theory.Phase(2.0, 2, 8, 1.0, 0.0, 1.0)]
    >>> def response(b):
    ...     return np.array([1.0, 3.0])
    >>> joint_sgd(lambda w, b: w, response, phases, np.ones(1), 0.5, lambda w: w[0] < 0.1)
    8.0
    """
    time = 0.0
    while not reached(w):
        _, k, b, *_ = [phase for phase in phases if phase.start <= time][-1]
        seconds = response(b)  # all workers receive w and compute b samples each
        fastest = np.argsort(seconds)[:k]  # the server cancels the others
        w = w - eta * np.mean([gradient(w, b) for _ in fastest], axis=0)
        time += float(seconds[fastest].max())
    return time


def fitted(
    many: pd.DataFrame, few: pd.DataFrame, samples: int, optimum: float, learning_rate: float
) -> tuple[theory.Constants, float]:
    """Fits the constants of the bound to two runs, and the excess loss E_0 at the start.

    c and E_0 come from a straight line through the log excess loss of the run with many samples per update,
    while it falls to a hundredth. The variance comes from the floor of the run with few samples. Only the
    product of L and the variance matters, so L = c is chosen.

    Args:
        many, few: histories with the columns `update` and `loss`; the second half of `few` is at its floor.
        samples: samples per update of `few`.
        optimum: of the loss.
        learning_rate: of both.

    Returns:
        The constants, and E_0.

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


class Proven(NamedTuple):
    """Constants of a linear regression with which the error bound holds, and where it holds.

    Let H be the mean of x x', with eigenvalues from c to L, and v = w - w* the distance from the optimum. A
    step with the mean of the gradients g = x (<x, w> - y) of B random samples changes |v|^2 on average by

        - 2 eta v'H v + eta^2 ((1 - 1/B) |H v|^2 + E|g|^2 / B),

    with |H v|^2 <= L v'H v, and E|g|^2 <= growth v'H v + sigma^2. So if eta (L + growth / B) <= 1, |v|^2
    becomes at most (1 - eta c) |v|^2 + eta^2 sigma^2 / B on average, and as the excess loss is at most
    L |v|^2 / 2, it stays below phi + (1 - eta c)^j (error - phi), with phi = eta L sigma^2 / (2 c B).

    Args:
        constants: with L, c and sigma^2 of the data, for one learning rate.
        error: L |w_0 - w*|^2 / 2 for w_0 = 0, at least the excess loss there; E_0 of the bound.
        growth: how fast the noise grows with the error; close to tr H, of which it is a safe value.

    >>> Proven(theory.Constants(0.1, 2.0, 1.0, 10.0), 100.0, 32.0).overshoot(1, 8)
    0.6000000000000001
    """

    constants: theory.Constants
    error: float
    growth: float

    def overshoot(self, k: Any, b: Any) -> Any:
        """Returns eta (L + growth / (k b)): the bound holds up to 1, and from about 2 on SGD diverges."""
        return self.constants.learning_rate * (self.constants.smoothness + self.growth / (k * b))


def proven(problem: Problem, learning_rate: float) -> Proven:
    """Computes the constants of a linear regression with which the error bound holds.

    Growth is the smallest R^2 with E[|x|^2 x x'] <= R^2 H, and a twentieth more. That twentieth pays for the
    products of v with what the optimum does not explain, whose mean in E|g|^2 is nearly 0.

    Args:
        problem: with data `x` and `y`, and parameters that begin at 0.
        learning_rate: of SGD.

    >>> from dmlcore.problems import linear_regression
    >>> known = proven(linear_regression(num_features=3, standardize=True), 0.1)
    >>> round(known.constants.strong_convexity, 2), round(known.constants.smoothness, 2), round(known.growth)
    (0.96, 1.04, 4)
    """
    x, y = (problem.data[name].astype(float) for name in "xy")
    values, vectors = np.linalg.eigh(x.T @ x / len(x))
    optimum = np.linalg.lstsq(x, y, rcond=None)[0]
    left, squares = y - x @ optimum, (x**2).sum(1)
    white = x @ vectors / np.sqrt(values)  # its mean of x x' is the identity
    most = float(np.linalg.eigvalsh((white * squares[:, None]).T @ white / len(x))[-1])
    mixed = white.T @ (squares * left) / len(x)
    variance = float(np.mean(squares * left**2) + mixed @ mixed / (most / 20))
    c, smoothness = float(values[0]), float(values[-1])
    constants = theory.Constants(learning_rate, smoothness, c, variance)
    return Proven(constants, smoothness / 2 * float(optimum @ optimum), 1.05 * most)


def ill_conditioned(problem: Problem, ratio: float) -> Problem:
    """Returns a linear regression with scaled features, so that the curvatures have this ratio.

    The optimum, and the excess loss at zero weights, stay the same.

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
    """Returns the cost of each run until a loss, by method and seed; infinite if it did not reach the loss.

    The columns are the names in `COSTS`, and the means until then of `k`, gradients per update, and of `b`,
    samples per gradient.

    >>> runs = pd.DataFrame({"method": "x", "seed": 0, "loss": [2.0, 0.0], "update": [3, 4], "time": [7.0, 8],
    ...     "samples": [60, 80], "assigned_samples": [75, 100], "uplinks": [6, 8], "downlinks": [15, 20]})
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
    """Returns costs for comparing a method with rivals of which some do not reach the target.

    On seeds on which the method reaches the target, the cost of such a rival is the one at the end of its
    run. The true cost is larger, so that the method is at least that much cheaper. Other costs do not change.

    Args:
        cost: as `spent` returns it.
        runs: the runs of `cost`.
        method: name of the method; its own costs stay infinite if it does not reach the target.

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


def ratios(cost: pd.DataFrame, one: str, other: str, column: str) -> list[float]:
    """Returns the ratio of two methods' costs by seed; NaN (not measured) if neither reached the target.

    >>> index = pd.MultiIndex.from_product([["a", "b"], [0, 1]])
    >>> ratios(pd.DataFrame({"time": [1.0, np.inf, 2.0, 3.0]}, index), "a", "b", "time")
    [0.5, inf]
    """
    return (cost[column][one] / cost[column][other]).tolist()
