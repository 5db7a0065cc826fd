"""Tuning with one budget for every method: equally many settings of its knob and learning rate together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import optax
import pandas as pd

from dmlcore.experiments.comparison import sweep
from dmlcore.reproduce.papers.adaptive_sync_map import Family
from dmlcore.trace import metrics
from dmlcore.training.evaluation import is_accuracy
from dmlcore.types import Method, Policy

FACTOR = 2.0  # ratio of successive rates of the first trials


class Goal(NamedTuple):
    """The goal of tuning: the smallest time until a metric reaches a target."""

    metric: str
    target: float

    @property
    def below(self) -> bool:
        """Whether small values of the metric are good, as for losses."""
        return not is_accuracy(self.metric)

    @property
    def until(self) -> dict[str, float]:
        """The argument `until` that ends a run at the target."""
        return {self.metric: self.target}

    def times(self, runs: pd.DataFrame) -> pd.Series:
        """Returns the seconds to the target of each run; inf if it was not reached."""
        return metrics.time_to(runs, self.metric, self.target, below=self.below)


def ranked(runs: pd.DataFrame, goal: Goal) -> pd.DataFrame:
    """Returns the tried settings, the best first.

    The best setting has the smallest median time over seeds. In case of a tie, for example if none reaches
    the target, the better median of the last value decides, then the smaller rate.

    Args:
        runs: a frame of `sweep`.
        goal: the metric and the target.

    Returns:
        A frame with the columns method, learning_rate, time and last; the last value is negated if large
        values are good.

    >>> runs = pd.DataFrame({"method": "ASP", "seed": 0, "learning_rate": [1.0, 1.0, 2.0, 2.0],
    ...                      "time": [0, 4, 0, 4], "loss": [4, 0, 4, 2]})
    >>> ranked(runs, Goal("loss", 1.0))[["learning_rate", "time"]].to_numpy().tolist()
    [[1.0, 3.0], [2.0, inf]]
    """
    keys = ["method", "learning_rate"]
    last = runs.groupby([*keys, "seed"])[goal.metric].last()
    last = (last if goal.below else -last).fillna(np.inf)
    table = goal.times(runs).rename("time").to_frame().join(last.rename("last"))
    medians = table.groupby(keys).median().reset_index()
    return medians.sort_values(["time", "last", "learning_rate"], ignore_index=True)


class Tuned(NamedTuple):
    """A method with its best setting.

    Args:
        label: of the best value of its knob.
        policies: label of a value of the knob -> policy.
        rate: the best learning rate.
        settings: all tried settings, as `ranked` returns them.
    """

    label: str
    policies: Mapping[str, Policy]
    rate: float
    settings: pd.DataFrame

    @property
    def policy(self) -> Policy:
        """The policy with the best value of its knob."""
        return self.policies[self.label]

    @property
    def method(self) -> Method:
        """The method to run on other seeds."""
        return Method(self.policy, optimizer=optax.sgd(self.rate))

    @property
    def time(self) -> float:
        """Median seconds to the target on the tuning seeds."""
        return float(self.by_knob[self.label])

    @property
    def interior(self) -> bool:
        """Whether rates on both sides of the best one were tried."""
        rates = self.settings.loc[self.settings["method"] == self.label, "learning_rate"]
        return bool(rates.min() < self.rate < rates.max())

    @property
    def by_knob(self) -> pd.Series:
        """Returns the time on the tuning seeds by value of the knob, each at its best tried rate."""
        return self.settings.groupby("method", sort=False)["time"].min()

    def at(self, label: str) -> Tuned:
        """Returns the method with another value of its knob and its best tried rate."""
        tried = self.settings[self.settings["method"] == label]  # the best first
        return self._replace(label=label, rate=float(tried["learning_rate"].iloc[0]))


def for_all(found: Sequence[Tuned], least: Sequence[float]) -> str:
    """Returns the label of the single value of a knob that is best for several clusters.

    It is the value with the best worst case. The worst case is the largest ratio, over the clusters, of the
    time on the tuning seeds to the smallest time of any method on that cluster.

    Args:
        found: the method as tuned on each cluster.
        least: the smallest time of any method on each cluster.

    >>> settings = {"method": ["S = 2", "S = 8"], "learning_rate": [0.1, 0.2]}
    >>> found = [Tuned("", {}, 0.1, pd.DataFrame(settings | {"time": time})) for time in ([1, 2], [9, 4])]
    >>> for_all(found, [1.0, 3.0])
    'S = 8'
    """
    behind = [each.by_knob / time for each, time in zip(found, least, strict=True)]
    return str(pd.concat(behind, axis=1).max(axis=1).idxmin())


def tuned(
    family: Family, problem: Any, cluster: Any, goal: Goal, *, start: float, budget: int, **options: Any
) -> Tuned:
    """Tries `budget` settings of a method: values of its knob, each with learning rates around its best one.

    Each value of the knob begins with three rates, a factor of 2 apart. As long as the best setting has the
    smallest or the largest rate of its value, the next rate on that side is tried. The rest of the budget is
    for rates around the best one, evenly spaced between its neighbours, so that a method without a knob has a
    finer grid of rates.

    Guarantees: exactly `budget` settings are tried, if it is at least three per value of the knob. `interior`
    of the result says whether the budget was large enough to try rates on both sides of the best one.

    Args:
        family: the method.
        problem, cluster, **options: as for `sweep`, including `seeds`.
        goal: the metric and the target.
        start: initial rate of ASP; other methods have multiples of it.
        budget: number of settings.

    Returns:
        The method with its best setting.

    >>> import dmlcore as dml
    >>> from dmlcore.reproduce.papers.adaptive_sync_map import family
    >>> found = tuned(family("ASP", 4, 100), dml.problems.digits_mlp(), dml.Cluster.uniform(4),
    ...               Goal("loss", 1.5), start=0.2, budget=5, seeds=[0], updates=300)
    >>> len(found.settings), found.label
    (5, 'ASP')
    """

    def tried(labels: list[str], rates: list[float]) -> pd.DataFrame:
        some = {label: family.policies[label] for label in labels}
        return sweep(some, problem, cluster, optax.sgd, rates, until=goal.until, **options)

    begun: dict[float, list[str]] = {}  # initial rate -> values of the knob
    for label, factor in family.rates.items():
        begun.setdefault(start * factor, []).append(label)
    runs = [tried(labels, [rate / FACTOR, rate, rate * FACTOR]) for rate, labels in begun.items()]
    while True:
        settings = ranked(pd.concat(runs, ignore_index=True), goal)
        label, best = settings["method"][0], float(settings["learning_rate"][0])
        if (left := budget - len(settings)) <= 0:
            return Tuned(label, family.policies, best, settings)
        rates = settings.loc[settings["method"] == label, "learning_rate"]
        if best in (rates.min(), rates.max()):
            more = [best / FACTOR if best == rates.min() else best * FACTOR]
        else:
            more = [best * FACTOR**power for power in between(left)]
        runs.append(tried([label], more))


def between(number: int) -> list[float]:
    """Returns `number` powers between -1 and 1 without 0, evenly spaced; if odd, one more above 0 than below.

    >>> between(3)
    [0.3333333333333333, 0.6666666666666666, -0.5]
    """
    above, below = (number + 1) // 2, number // 2
    powers = [step / (above + 1) for step in range(1, above + 1)]
    return powers + [-step / (below + 1) for step in range(1, below + 1)]
