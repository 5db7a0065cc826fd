"""The search with which notebooks/06_compare.ipynb tunes every method, and the timing on other seeds."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import optax
import pandas as pd

import dmlcore as dml
from dmlcore.training.evaluation import is_accuracy

Optimizer = Callable[[float], optax.GradientTransformation]  # learning rate -> optimizer of the server
SEPARATOR = " | "  # between the names of a method and of its setting


class Entry(NamedTuple):
    """A method of the comparison.

    Args:
        group: group of rows in the table, by what workers wait for.
        start: learning rate at which the search begins.
        settings: value of the main setting as text -> the method, or a function of the learning rate that
            returns the method. One value, or several to choose from.
        every: updates between two evaluations. Times to a target depend on it, so it should be about the same
            number of samples for all methods, those of a round of BSP or somewhat fewer.
        sends_less: whether the method sends fewer bytes than a gradient and the parameters per mini-batch.
        optimizer: learning rate -> optimizer of the server.
    """

    group: str
    start: float
    settings: Mapping[str, dml.Method | Callable[[float], dml.Method]]
    every: int = 1
    sends_less: bool = False
    optimizer: Optimizer = optax.sgd

    def at(self, setting: str, rate: float) -> dml.Method:
        """Returns the method with a setting and a learning rate."""
        each = self.settings[setting]
        method = each if isinstance(each, dml.Method) else each(rate)
        return method._replace(optimizer=self.optimizer(rate))


class Task(NamedTuple):
    """The task of the methods: to reach a target on a cluster."""

    problem: Any
    cluster: dml.Cluster
    metric: str
    target: float
    seconds: float  # longest run

    @property
    def below(self) -> bool:
        """Whether small values of the metric are good."""
        return not is_accuracy(self.metric)

    def options(self, seeds: Iterable[int], every: int) -> dict[str, Any]:
        """Returns the arguments of `dml.compare` and `dml.tune` that all runs share."""
        until = {self.metric: self.target}
        return {"seeds": seeds, "seconds": self.seconds, "until": until, "eval_every": every}

    def times(self, runs: pd.DataFrame) -> pd.Series:
        """Returns the seconds to the target of every run."""
        return dml.metrics.time_to(runs, self.metric, self.target, below=self.below)

    def best_rates(self, runs: pd.DataFrame) -> pd.Series:
        """Returns the best learning rate of every method."""
        return dml.metrics.best_learning_rate(runs, self.metric, self.target, below=self.below)


def tuned(task: Task, entries: Mapping[str, Entry], seeds: Iterable[int]) -> pd.DataFrame:
    """Runs every setting of every method at learning rates around its best one, a factor of 2 apart.

    Returns:
        A frame of all runs. The column `method` has the names of method and setting.
    """
    runs = []
    for every, optimizer in dict.fromkeys((each.every, each.optimizer) for each in entries.values()):
        some = {
            f"{name}{SEPARATOR}{text}": (each, entry.start)
            for name, entry in entries.items()
            for text, each in entry.settings.items()
            if (entry.every, entry.optimizer) == (every, optimizer)
        }
        methods = {name: each for name, (each, _) in some.items()}
        start = {name: rate for name, (_, rate) in some.items()}
        goal = task.problem, task.cluster, optimizer, task.metric, task.target
        runs.append(dml.tune(methods, *goal, start=start, **task.options(seeds, every)))
    return pd.concat(runs, ignore_index=True)


def chosen(task: Task, runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the best setting of every method, with its best learning rate.

    The best setting has the smallest median time to the target, or, if none reaches the target, the best last
    value.

    Args:
        task: the task of the methods.
        runs: a frame of `tuned`.

    Returns:
        A frame by method: setting, learning rate, `at_end`, whether it is the largest or smallest rate that
        was tried, and `tuning_seconds`, the median.
    """
    best = task.best_rates(runs)
    rates = runs.groupby("method")["learning_rate"].agg(["min", "max"]).loc[best.index]
    at_best = runs[runs["learning_rate"] == runs["method"].map(best)]
    last = at_best.groupby(["method", "seed"])[task.metric].last().fillna(np.inf if task.below else 0)
    found = pd.DataFrame(
        {
            "learning_rate": best,
            "at_end": (best <= rates["min"]) | (best >= rates["max"]),
            "tuning_seconds": task.times(at_best).groupby("method").median(),
            "last": last.groupby("method").median() * (1 if task.below else -1),
        }
    )
    names = [name.split(SEPARATOR) for name in found.index]
    found = found.assign(method=[name for name, _ in names], setting=[text for _, text in names])
    ranked = found.sort_values(["tuning_seconds", "last"], kind="stable")
    return ranked.drop_duplicates("method").set_index("method").drop(columns="last")


def timed(
    task: Task, entries: Mapping[str, Entry], best: pd.DataFrame, seeds: Iterable[int]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs every method with its choice by `chosen` on the seeds of the comparison.

    Returns:
        Seconds to the target by method and seed, and all runs.
    """
    methods = {
        name: entry.at(best["setting"][name], best["learning_rate"][name]) for name, entry in entries.items()
    }
    parts = []
    for every in {entry.every for entry in entries.values()}:
        some = {name: method for name, method in methods.items() if entries[name].every == every}
        parts.append(dml.compare(some, task.problem, task.cluster, None, **task.options(seeds, every)))
    runs = pd.concat(parts, ignore_index=True)
    return task.times(runs).unstack("seed").loc[[*entries]], runs
