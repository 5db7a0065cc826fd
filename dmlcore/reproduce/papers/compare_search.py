"""How notebooks/06_compare.ipynb tunes every method with one budget, and then times it on other seeds."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import optax
import pandas as pd

import dmlcore as dml

Told = Callable[[float], dml.Method]  # learning rate -> method, with an optimizer of its own
SEPARATOR = " | "  # between a method and its setting


class Entry(NamedTuple):
    """A method of the comparison.

    Args:
        group: what its workers wait for: the rows that it stands with.
        start: learning rate at which its search begins.
        settings: the method by value of its main setting, as text: one, or two to choose from. Where the
            learning rate is part of a method, a function of it.
        every: updates between two looks at the metric. Times to a target depend on it, so that it should be
            about as many samples for all methods, those of a round of BSP or somewhat fewer.
        sends_less: whether it sends fewer bytes than a gradient and the parameters for every mini-batch.
    """

    group: str
    start: float
    settings: Mapping[str, dml.Method | Told]
    every: int = 1
    sends_less: bool = False


class Task(NamedTuple):
    """What the methods are to do: reach a target on a cluster."""

    problem: Any
    cluster: dml.Cluster
    metric: str
    target: float
    seconds: float  # at most

    @property
    def below(self) -> bool:
        """Whether the metric is to be small."""
        return not self.metric.endswith("accuracy")

    def options(self, seeds: Iterable[int], every: int) -> dict[str, Any]:
        """Returns what runs have in common, for `dml.compare` and `dml.tune`."""
        until = {self.metric: self.target}
        return {"seeds": seeds, "seconds": self.seconds, "until": until, "eval_every": every}

    def times(self, runs: pd.DataFrame) -> pd.Series:
        """Returns the seconds to the target of every run."""
        return dml.metrics.time_to(runs, self.metric, self.target, below=self.below)

    def best_rates(self, runs: pd.DataFrame) -> pd.Series:
        """Returns the best learning rate of every method."""
        return dml.metrics.best_learning_rate(runs, self.metric, self.target, below=self.below)


def tune_told(
    task: Task,
    methods: Mapping[str, Told],
    start: Mapping[str, float],
    seeds: Iterable[int],
    every: int = 1,
    steps: int = 8,
) -> pd.DataFrame:
    """Does what `dml.tune` does for methods that are built for each learning rate, which is part of them.

    Args:
        task: what they are to do.
        methods: name -> what builds the method for a rate.
        start: rate to begin with, by name.
        seeds: of the runs.
        every: updates between two looks at the metric.
        steps: most rounds; each tries the neighbours of the best rates, a factor of 2 away.

    Returns:
        All runs, with a column learning_rate.

    >>> task = Task(dml.problems.digits_mlp(), dml.Cluster.uniform(4), "loss", 2.0, 1.0)
    >>> sgd = {"BSP": lambda rate: dml.Method(dml.bsp(), optimizer=optax.sgd(rate))}
    >>> runs = tune_told(task, sgd, {"BSP": 0.1}, seeds=[1000])
    >>> rates = sorted(runs["learning_rate"].unique())
    >>> bool(rates[0] < task.best_rates(runs)["BSP"] < rates[-1])
    True
    """
    tried: dict[str, set[int]] = {name: set() for name in methods}  # powers of 2, over the start
    untried, runs = {name: {-1, 0, 1} for name in methods}, []
    for _ in range(steps):
        pairs = [(name, start[name] * 2.0**power) for name in untried for power in sorted(untried[name])]
        built = {str(number): methods[name](rate) for number, (name, rate) in enumerate(pairs)}
        made = dml.compare(built, task.problem, task.cluster, None, **task.options(seeds, every))
        of = [pairs[int(number)] for number in made["method"]]
        runs.append(made.assign(method=[name for name, _ in of], learning_rate=[rate for _, rate in of]))
        best = task.best_rates(pd.concat(runs))
        for name, powers in untried.items():
            tried[name] |= powers
        at = {name: round(float(np.log2(best[name] / start[name]))) for name in untried}
        near = {name: {power - 1, power + 1} - tried[name] for name, power in at.items()}
        untried = {name: powers for name, powers in near.items() if powers}
        if not untried:
            break
    return pd.concat(runs, ignore_index=True)


def tuned(task: Task, entries: Mapping[str, Entry], seeds: Iterable[int]) -> pd.DataFrame:
    """Runs every setting of every method at the learning rates around its best, in factors of 2.

    Returns:
        All runs. The column method names method and setting.
    """
    runs = []
    for every in {entry.every for entry in entries.values()}:
        some = {
            f"{name}{SEPARATOR}{text}": (entry.start, each)
            for name, entry in entries.items()
            for text, each in entry.settings.items()
            if entry.every == every
        }
        plain = {name: each for name, (_, each) in some.items() if isinstance(each, dml.Method)}
        told = {name: each for name, (_, each) in some.items() if not isinstance(each, dml.Method)}
        if plain:
            goal = task.problem, task.cluster, optax.sgd, task.metric, task.target
            start = {name: some[name][0] for name in plain}
            runs.append(dml.tune(plain, *goal, start=start, **task.options(seeds, every)))
        if told:
            runs.append(tune_told(task, told, {name: some[name][0] for name in told}, seeds, every))
    return pd.concat(runs, ignore_index=True)


def chosen(task: Task, runs: pd.DataFrame) -> pd.DataFrame:
    """Returns the best setting of every method, at its best learning rate.

    The one with the least median time to the target; where none gets there, with the best last value.

    Args:
        task: what the methods were to do.
        runs: what `tuned` returns.

    Returns:
        By method: setting, learning rate, at_end (whether none beyond it was tried on one side), and
        tuning_seconds, the median.
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
    """Runs every method, with what `chosen` found for it, on seeds that judge.

    Returns:
        Seconds to the target by method and seed, and all runs.
    """
    methods = {}
    for name, entry in entries.items():
        each, rate = entry.settings[best["setting"][name]], best["learning_rate"][name]
        if isinstance(each, dml.Method):
            methods[name] = each._replace(optimizer=optax.sgd(rate))
        else:
            methods[name] = each(rate)
    parts = []
    for every in {entry.every for entry in entries.values()}:
        some = {name: method for name, method in methods.items() if entries[name].every == every}
        parts.append(dml.compare(some, task.problem, task.cluster, None, **task.options(seeds, every)))
    runs = pd.concat(parts, ignore_index=True)
    return task.times(runs).unstack("seed").loc[[*entries]], runs
