"""What `recommend` answers: a table of methods, the best, the reason, and the same for other clusters."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dmlcore import checks, notebook
from dmlcore.cluster import Cluster
from dmlcore.experiments.comparison import bar
from dmlcore.experiments.recommendation import reasons
from dmlcore.experiments.recommendation.axes import AXES, along
from dmlcore.experiments.recommendation.goal import Goal
from dmlcore.experiments.recommendation.ranking import level, ranked
from dmlcore.experiments.recommendation.runner import Clock, Runner
from dmlcore.types import Method

ELSEWHERE = "Settings and learning rates are those that were tuned for another cluster"
COLUMNS = [
    "setting",
    "learning_rate",
    "seconds",
    "least",
    "most",
    "fastest",
    "samples",
    "bytes",
    "ratio",
    "verdict",
]


class Tuned(NamedTuple):
    """What settings and learning rates were tuned on.

    Args:
        cluster: of all runs.
        seeds: of them.
        runs_each: how many runs each method had.
    """

    cluster: Cluster
    seeds: frozenset[int]
    runs_each: int


def _nothing_to_ask(cluster: Cluster, budget: float) -> Recommendation:
    return checks.fail("budget", budget, "None: this recommendation does not know how it was asked for")


@dataclass(frozen=True, eq=False)
class Recommendation:
    """Methods ranked by their time to a target on a cluster, on seeds that did not tune them.

    Args:
        goal: problem, cluster and target.
        table: a row for each method, the fastest first: `setting` and `learning_rate`, as tuned; `seconds`,
            the median time to the target, `least` and `most` over seeds, inf where it was not reached: runs
            last four times the best median of the tuning; `fastest`, the share of seeds on which it is;
            `samples` computed and `bytes` sent until then, medians; `ratio`, its median time over
            that of the first; and `verdict`: "best"; "slower", on every seed, of at least five;
            "slower on 3 of 5", which shows no difference; or "not reached" on any seed.
        methods: each as it was run, with its optimizer, by name.
        seconds: time to the target by method and seed.
        runs: histories of the runs that judge, as of `compare`; None after Ctrl-C: then `seconds` are of
            seeds that tuned, and the notes say so.
        tuned: what settings and rates were tuned on.
        why: the reason, in sentences.
        notes: in sentences, what a record of the cluster could not tell, and what was left out.
        again: cluster, budget -> the recommendation for it, with the same arguments otherwise.

    >>> import dmlcore as dml
    >>> cluster = dml.Cluster.from_speeds([1000, 1000, 250])
    >>> problem = dml.problems.linear_regression(num_samples=20, num_features=3)
    >>> found = dml.recommend(problem, cluster, {"loss": 1.0}, methods=["BSP", "ASP"], seeds=[0, 1], trials=3,
    ...                       budget=60, progress=False)
    >>> list(found.table.index), found.best.policy
    (['ASP', 'BSP'], asp())
    """

    goal: Goal
    table: pd.DataFrame
    methods: Mapping[str, Method]
    seconds: pd.DataFrame
    runs: pd.DataFrame | None
    tuned: Tuned
    why: str
    notes: Sequence[str] = ()
    again: Callable[[Cluster, float], Recommendation] = field(default=_nothing_to_ask, repr=False)

    @property
    def best(self) -> Method:
        """The method to use, with its optimizer: `dml.train(problem, cluster, found.best, None, ...)`."""
        return self.methods[str(self.table.index[0])]

    @property
    def cluster(self) -> Cluster:
        """The cluster that it is for, as it was fitted to a record."""
        return self.goal.cluster

    def plot(self, ax: Any = None) -> Any:
        """Draws each method's time to the target; see `dml.plot.recommendation`."""
        return importlib.import_module("dmlcore.view.plot").recommendation(self, ax=ax)

    def with_cluster(self, cluster: Cluster, *, seeds: Iterable[int] | None = None) -> Recommendation:
        """Answers for another cluster, from the same methods, settings and learning rates: nothing is tuned.

        Args:
            cluster: such as `found.cluster.resized(16)`. Methods that cannot run on it are left out, and the
                notes say so.
            seeds: that judge. Default: those that judged here.

        Raises:
            ValueError: it is no cluster, none of the methods can run on it, or a seed has tuned them.
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        checks.check_kind("cluster", cluster, Cluster)
        goal = dataclasses.replace(self.goal, cluster=cluster)
        judging = checks.several("seeds", self.seconds if seeds is None else seeds, checks.check_seed)
        if self.runs is not None and (both := self.tuned.seeds.intersection(judging)):
            checks.fail("seeds", judging, f"none of those that tuned, such as {min(both)}")
        methods, notes = {}, [*self.notes]
        for name, method in self.methods.items():
            try:
                goal.check(method)
                methods[name] = method
            except ValueError as error:
                notes.append(left_out(name, error))
        if not methods:
            checks.fail("cluster", cluster, f"one that the methods can run on: {notes[-1]}")
        if cluster != self.tuned.cluster and ELSEWHERE not in notes:
            notes.append(ELSEWHERE)
        runner = Runner(goal, Clock(math.inf), self._about(goal, methods), judging[0])
        runs = runner.until_reached(methods, judging)
        told = self.table[["setting", "learning_rate"]]
        found = answer(goal, methods, told, goal.measured(runs), runs, self.tuned, notes)
        return dataclasses.replace(found, again=self.again)

    def over(self, *, budget: float | None = None, progress: bool = True, **axes: Any) -> pd.DataFrame:
        """Returns the best method for every combination of values of one or two axes; see `dml.plot.regimes`.

        Args:
            budget: seconds of computing for each cell, in which all methods are tuned anew. None: settings
                and learning rates are those found here, as in `with_cluster`; the farther other clusters are,
                the less they suit them.
            progress: whether to show a bar.
            **axes: values by axis: `workers`; `c`, the communication ratio, by the workers' links; `rho`, the
                load of the server's processor; `slowdown`, of a tenth of the tasks, ten in a row (1: none).

        Returns:
            A row for each cell: the axes' values, `method`, `seconds` (its median), `uncertain`, whether
            seeds do not tell it from another one, `others`, those, and `tuned`, whether it was tuned there.
            After Ctrl-C, the rows that are finished.

        Raises:
            ValueError: no axis or more than two, an unknown one, or a value that is not possible.
            KeyboardInterrupt: Ctrl-C was pressed before the first was.
        """
        if not 1 <= len(axes) <= 2:
            checks.fail("axes", [*axes], f"one or two of {', '.join(AXES)}")
        values = {name: checks.listed(name, each) for name, each in axes.items()}
        cells = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
        clusters = [along(self.goal, cell) for cell in cells]  # before anything is run
        rows: list[dict[str, Any]] = []
        with bar(checks.boolean("progress", progress), len(cells), "cells") as advance:
            for cell, cluster in zip(cells, clusters, strict=True):
                try:
                    found = self.with_cluster(cluster) if budget is None else self.again(cluster, budget)
                except KeyboardInterrupt:
                    if not rows:
                        raise
                    warnings.warn(
                        f"interrupted: {len(rows)} of {len(cells)} cells are in the frame", stacklevel=2
                    )
                    break
                rows.append(cell | _told(found, budget is not None))
                advance(1)
        return pd.DataFrame(rows)

    def _about(self, goal: Goal, methods: Mapping[str, Method]) -> float:
        """About the time to the target there, if as many samples are needed as here."""
        reached = [name for name in self.table.index[np.isfinite(self.table["seconds"])] if name in methods]
        if not reached:
            allowed = f"one after a recommendation in which one of {', '.join(methods)} reaches the target"
            checks.fail("cluster", goal.cluster, allowed)
        here, there = (_samples_per_second(each, methods[reached[0]]) for each in (self.goal, goal))
        return float(self.table["seconds"][reached[0]]) * here / there

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def __repr__(self) -> str:
        first = self.table.iloc[0]
        setting = f" ({first['setting']})" if first["setting"] else ""
        return (
            f"Recommendation({self.table.index[0]}{setting}, learning rate {first['learning_rate']:.3g}: "
            f"{self.goal} in {first['seconds']:.3g} s)"
        )


def _told(found: Recommendation, tuned: bool) -> dict[str, Any]:
    """Returns what a cell of a map has of a recommendation."""
    first, others = found.table.iloc[0], level(found.table)
    about = {"method": str(found.table.index[0]), "seconds": float(first["seconds"])}
    return about | {"uncertain": bool(others), "others": ", ".join(others), "tuned": tuned}


def left_out(name: str, error: Exception) -> str:
    """Returns the note on a method that a problem and a cluster do not allow."""
    return f"{name} is left out ({error})"


def _samples_per_second(goal: Goal, method: Method) -> float:
    """Returns how many samples of a method come into updates in a second; those of a task at least."""
    made = goal.timeline(method, seconds=goal.rounds().end_time)
    return float(max(made.updates["samples"].sum(), goal.batch_size) / made.end_time)


def answer(
    goal: Goal,
    methods: Mapping[str, Method],
    told: pd.DataFrame,
    measured: pd.DataFrame,
    runs: pd.DataFrame | None,
    tuned: Tuned,
    notes: Sequence[str],
) -> Recommendation:
    """Returns the recommendation that outcomes, by method and seed, lead to."""
    seconds = measured["seconds"].unstack("seed")
    table = ranked(seconds).join(told)
    medians = measured[["samples", "nbytes"]].groupby("method").median()
    table = table.join(medians.rename(columns={"nbytes": "bytes"}))[COLUMNS]
    why = reasons.why(goal, table, methods, [int(seed) for seed in seconds.columns])
    if runs is None:
        why = f"{notes[0]}. {why}"
    return Recommendation(goal, table, methods, seconds.loc[table.index], runs, tuned, why, notes)
