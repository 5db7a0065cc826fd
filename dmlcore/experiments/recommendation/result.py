"""The result of `recommend`: a study with the reason, and answers for other clusters."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.experiments.comparison import bar
from dmlcore.experiments.recommendation import reasons
from dmlcore.experiments.recommendation.axes import AXES, along
from dmlcore.experiments.recommendation.regimes import Regimes
from dmlcore.experiments.study.goal import Goal
from dmlcore.experiments.study.judging import judge
from dmlcore.experiments.study.result import Answer, Study, told_setting
from dmlcore.experiments.study.search import LONGEST
from dmlcore.experiments.study.spending import Spending
from dmlcore.trace.metrics.decision import LOOKS
from dmlcore.types import Method

ELSEWHERE = "Settings and learning rates were tuned for another cluster"
TIMES = 3  # how often runs are made longer until a run reaches the target


def _nothing_to_ask(cluster: Cluster, budget: float) -> Recommendation:
    return checks.fail("budget", budget, "None (the arguments of this recommendation are not known)")


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation(Study):
    """A study of methods on one cluster, with the reason, and answers for other clusters.

    Args:
        answers: what was found on the cluster, see `Study`.
        seeds: for judging.
        failed: as for `Study`; empty.
        why: the reason, in sentences. `recommend` sets it, and what follows.
        tuned: the cluster for which settings and learning rates were tuned. Default: None, that of `answers`.
        again: cluster, budget in seconds -> the recommendation for that cluster, with the other arguments
            unchanged. `recommend` sets it.

    >>> import dmlcore as dml
    >>> cluster = dml.Cluster.from_speeds([1000, 1000, 250])
    >>> problem = dml.problems.linear_regression(num_samples=20, num_features=3)
    >>> found = dml.recommend(problem, cluster, {"loss": 1.0}, methods=["BSP", "ASP"], trials=3, budget=60,
    ...                       progress=False)
    >>> list(found.table.index), found.best.policy
    (['ASP', 'BSP'], asp())
    """

    why: str = ""
    tuned: Cluster | None = None
    again: Callable[[Cluster, float], Recommendation] = field(default=_nothing_to_ask)
    _drawn_by: ClassVar[str] = "recommendation"

    @property
    def answer(self) -> Any:
        """What was found on the cluster."""
        return self.answers[""]

    @property
    def goal(self) -> Any:
        """What was asked: problem, cluster and target."""
        return self.answer.goal

    @property
    def seconds(self) -> pd.DataFrame:
        """Times to the target by method and seed; inf: not reached; NaN: not run."""
        return self.answer.seconds

    @property
    def methods(self) -> Mapping[str, Method]:
        """Name -> the method as it was judged, with its optimizer."""
        return self.answer.methods

    @property
    def cluster(self) -> Cluster:
        """The cluster of this recommendation: the given one, or the one fitted to a record."""
        return self.goal.cluster

    def with_cluster(self, cluster: Cluster, *, seeds: Iterable[int] | None = None) -> Recommendation:
        """Judges the methods on another cluster, with the settings and learning rates of this recommendation.

        Args:
            cluster: the other cluster, such as `found.cluster.resized(16)`. Methods that it does not support
                are left out, and the notes say so.
            seeds: for judging. Default: those of this recommendation.

        Returns:
            The recommendation for that cluster; nothing is tuned again. This recommendation if the cluster is
            its own one and there are no `seeds`.

        Raises:
            ValueError: `cluster` is not a cluster, none of the methods can run on it, or a seed was used for
                tuning.
            KeyboardInterrupt: Ctrl-C was pressed.

        >>> found.with_cluster(found.cluster.resized(16)).best  # doctest: +SKIP
        """
        checks.check_kind("cluster", cluster, Cluster)
        if seeds is None and cluster == self.cluster and self.answer.runs is not None:
            return self
        goal = dataclasses.replace(self.goal, cluster=cluster, _grids={})
        judging = checks.several("seeds", self.seeds if seeds is None else seeds, checks.check_seed)
        if both := self.answer.tuning.intersection(judging):
            expected = f"seeds that did not tune, unlike {', '.join(map(str, sorted(both)))}"
            checks.fail("seeds", judging, expected)
        methods, notes = {}, [*self.notes]
        for name, method in self.methods.items():
            try:
                goal.check(method)
                methods[name] = method
            except ValueError as error:
                notes.append(left_out(name, error))
        if not methods:
            checks.fail("cluster", cluster, f"a cluster on which a method can run ({notes[-1]})")
        if cluster != self.tuned and ELSEWHERE not in notes:
            notes.append(ELSEWHERE)
        histories = self._judged(goal, methods, judging)
        told, spent = self.answer.told.loc[[*methods]], dict.fromkeys(methods, 0)
        measured = goal.measured(histories)
        answer = Answer(goal, methods, told, measured, histories, self.answer.tuning, spent, notes)
        return recommendation(answer, judging, self.again, self.tuned)

    def _judged(self, goal: Goal, methods: Mapping[str, Method], seeds: Sequence[int]) -> pd.DataFrame:
        """Returns histories of methods, in runs that are made longer until one reaches the target."""
        about = self._about(goal, methods)
        longest = LONGEST * about
        histories = pd.DataFrame()
        for times in range(TIMES):

            def make(some: Mapping[str, Method], own: Sequence[int], seconds: float = longest) -> Any:
                return goal.runs(some, dict.fromkeys(some, own), seconds, about, min(self.answer.tuning))

            spending = Spending(LOOKS[2], None)
            found = judge(goal, methods, seeds, make, spending)
            if found is None or spending.interrupted:
                raise KeyboardInterrupt
            histories = found
            least = float(goal.measured(histories)["seconds"].groupby("method").median().min())
            if LONGEST * least <= longest or times == TIMES - 1:
                break
            longest = LONGEST * (least if math.isfinite(least) else longest)
        return histories

    def over(self, *, budget: float | None = None, progress: bool = True, **axes: Any) -> Regimes:
        """Returns the best method for every combination of values of one or two axes; see `dml.plot.regimes`.

        Args:
            budget: seconds of computing per combination, to tune all methods for it. Default: None, use the
                settings and learning rates of this recommendation, as `with_cluster` does; they suit a
                cluster less, the more it differs from this one.
            progress: whether to show a progress bar.
            **axes: axis -> values. `workers`, the number of workers; `c`, the communication ratio, set by the
                workers' links; `rho`, the load of the server, set by its processor; `slowdown`, the factor of
                slow episodes of ten tasks that have a tenth of all tasks (1: none).

        Returns:
            A frame with one row per combination: the values of the axes; `method`, the best one; `seconds`,
            its median time; `uncertain`, whether other methods are not clearly slower; `others`, the names of
            these; and `tuned`, whether the methods were tuned for this combination. After Ctrl-C, the rows
            that are finished. A notebook shows it as a table of the best methods.

        Raises:
            ValueError: there is no axis or more than two, an axis is unknown, or a value is not possible.
            KeyboardInterrupt: Ctrl-C was pressed before the first row was finished.

        >>> found.over(workers=[4, 8, 16], c=[0.1, 1.0])  # doctest: +SKIP
        """
        if not 1 <= len(axes) <= 2:
            checks.fail("axes", [*axes], f"one or two of {', '.join(map(repr, AXES))}")
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
                        f"interrupted: the frame has {len(rows)} of {len(cells)} cells", stacklevel=2
                    )
                    break
                rows.append(cell | _told(found, budget is not None))
                advance(1)
        return Regimes(rows)

    def _about(self, goal: Goal, methods: Mapping[str, Method]) -> float:
        """Estimates the seconds to the target on another cluster, if methods need as many samples there."""
        table = self.table
        reached = [name for name in table.index[np.isfinite(table["seconds"])] if name in methods]
        if not reached:
            expected = f"a recommendation in which one of {', '.join(methods)} reached the target"
            checks.reject("cluster", "one in which none did", expected)
        here, there = (_samples_per_second(each, methods[reached[0]]) for each in (self.goal, goal))
        return float(table["seconds"][reached[0]]) * here / there

    def __repr__(self) -> str:
        first = self.table.iloc[0]
        return (
            f"Recommendation({self.table.index[0]}{told_setting(first)}: "
            f"{self.goal} in {first['seconds']:.3g} s)"
        )


def _told(found: Recommendation, tuned: bool) -> dict[str, Any]:
    """Returns the columns of `over` for a recommendation."""
    table = found.table
    others = reasons.alike_of(table)
    about = {"method": str(table.index[0]), "seconds": float(table["seconds"].iloc[0])}
    return about | {"uncertain": bool(others), "others": ", ".join(others), "tuned": tuned}


def left_out(name: str, error: Exception) -> str:
    """Returns the note on a method that the problem or the cluster does not support."""
    return f"{name} is left out ({error})"


def _samples_per_second(goal: Goal, method: Method) -> float:
    """Returns the samples per second that a method applies; at least one task in the measured time."""
    made = goal.timeline(method, seconds=goal.rounds().end_time)
    return float(max(made.updates["samples"].sum(), goal.batch_size) / made.end_time)


def recommendation(
    answer: Answer,
    seeds: Sequence[int],
    again: Callable[[Cluster, float], Recommendation],
    tuned: Cluster | None,
) -> Recommendation:
    """Returns the recommendation for what was found on a cluster, with the reason."""
    table = answer.table()
    samples = answer.ratios("samples", str(table.index[0]))
    ran = [int(seed) for seed in answer.seconds.loc[table.index[0]].dropna().index]
    why = reasons.why(answer.goal, table, samples, answer.methods, ran)
    if answer.runs is None:
        why = f"{answer.notes[0]}. {why}"
    return Recommendation({"": answer}, seeds, (), why, tuned, again)
