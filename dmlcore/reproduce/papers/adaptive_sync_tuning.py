"""One budget for every method: so many settings are tried, of its knob and of the learning rate together."""

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

FACTOR = 2.0  # between the rates that are tried first


class Goal(NamedTuple):
    """What a method is tuned for: the least time until a metric reaches a target."""

    metric: str
    target: float

    @property
    def below(self) -> bool:
        """Whether the metric is to be small, as losses are."""
        return not is_accuracy(self.metric)

    @property
    def until(self) -> dict[str, float]:
        """Ends a run at the target."""
        return {self.metric: self.target}

    def times(self, runs: pd.DataFrame) -> pd.Series:
        """Seconds to the target of each run; inf where it was not reached."""
        return metrics.time_to(runs, self.metric, self.target, below=self.below)


def ranked(runs: pd.DataFrame, goal: Goal) -> pd.DataFrame:
    """Returns the settings that were tried, the best first.

    The one with the least median time over seeds; ties, such as none getting there, go to the better median
    of the last value, then to the smaller rate.

    Args:
        runs: what `sweep` returns.
        goal: what is best.

    Returns:
        The columns method, learning_rate, time and last; the last value is negative where it is to be large.

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
    """A method at the best of its settings.

    Args:
        label: which value of its knob is best, in words.
        policies: at each value of the knob, by label.
        rate: its best learning rate.
        settings: all that were tried, as `ranked` returns them.
    """

    label: str
    policies: Mapping[str, Policy]
    rate: float
    settings: pd.DataFrame

    @property
    def policy(self) -> Policy:
        """With the best value of its knob."""
        return self.policies[self.label]

    @property
    def method(self) -> Method:
        """To run on other seeds."""
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
        """Time on the tuning seeds of each value of the knob, at its best rate of those tried."""
        return self.settings.groupby("method", sort=False)["time"].min()

    def at(self, label: str) -> Tuned:
        """Returns the method at another value of its knob and the best rate of those tried for it."""
        tried = self.settings[self.settings["method"] == label]  # the best first
        return self._replace(label=label, rate=float(tried["learning_rate"].iloc[0]))


def for_all(found: Sequence[Tuned], least: Sequence[float]) -> str:
    """Returns the label of the one value of a knob that is best for several clusters.

    It is the value whose worst case is the best: the largest time on the tuning seeds over the least time of
    any method there.

    Args:
        found: the method as tuned on each cluster.
        least: on each, the least time of any method.

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
    """Tries `budget` settings of a method: values of its knob, each with learning rates around its own best.

    Each value of the knob begins with three rates, a factor of 2 apart. As long as the best setting has the
    smallest or the largest rate of its value, the next rate there is tried. What is left of the budget then
    goes to rates around the best one, evenly between its neighbours: a method without a knob has a finer grid
    of rates.

    Guarantees: `budget` settings, if it is at least three for each value of the knob. Whether the budget was
    large enough to try rates on both sides of the best one, `interior` says.

    Args:
        family: the method.
        problem, cluster, **options: as for `sweep`, `seeds` among them.
        goal: what is best.
        start: the rate at which ASP begins; others by their factor.
        budget: how many settings.

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

    begun: dict[float, list[str]] = {}  # rate -> values of the knob that begin with it
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
    """Returns so many powers between -1 and 1 without 0, evenly spaced on each side, one more above if odd.

    >>> between(3)
    [0.3333333333333333, 0.6666666666666666, -0.5]
    """
    above, below = (number + 1) // 2, number // 2
    powers = [step / (above + 1) for step in range(1, above + 1)]
    return powers + [-step / (below + 1) for step in range(1, below + 1)]
