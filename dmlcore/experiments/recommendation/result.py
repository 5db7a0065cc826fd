"""The result of `recommend`: a table of methods, the best, the reason, and answers for other clusters."""

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
from dmlcore.experiments.recommendation.question import Question
from dmlcore.experiments.recommendation.ranking import level, ranked, times_first
from dmlcore.experiments.recommendation.regimes import Regimes
from dmlcore.experiments.recommendation.runner import Runner, Stopwatch
from dmlcore.types import Method

ELSEWHERE = "Settings and learning rates were tuned for another cluster"
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
    """The runs on which settings and learning rates were tuned.

    Args:
        cluster: of all tuning runs.
        seeds: of all tuning runs.
        runs_each: number of runs of every method, before the leading ones go on.
    """

    cluster: Cluster
    seeds: frozenset[int]
    runs_each: int


def _nothing_to_ask(cluster: Cluster, budget: float) -> Recommendation:
    return checks.fail("budget", budget, "None (the arguments of this recommendation are not known)")


@dataclass(frozen=True, eq=False)
class Recommendation:
    """Methods ranked by their time to a target on a cluster, on seeds that were not used for tuning.

    Args:
        question: problem, cluster and target.
        table: a frame with one row per method, the fastest first. `setting` and `learning_rate` are the tuned
            ones. `seconds` is the median time to the target, `least` and `most` its range over the seeds with
            which the method ran; inf: a run did not reach the target within four times the best median of the
            tuning. `fastest` is the fraction of all seeds on which the method is the fastest. `samples` and
            `bytes` are the medians of samples computed and bytes sent until the target. `ratio` is the median
            time over that of the first method, over the seeds with which both ran. `verdict` is "best" for
            the first method; "slower" if a method is slower on so many seeds that chance is an unlikely
            reason: 5 of 5, 9 of 10, 15 of 20 (sign test); "slower on 3 of 5" and the like otherwise, when the
            seeds show no difference; "not reached" if no run reached the target.
        methods: name -> the method as it was run, with its optimizer.
        seconds: a frame of the seconds to the target, by method and seed. NaN: the method did not run with
            this seed, because it was slower on others or the budget was spent.
        runs: histories of the final runs, as `compare` returns them. None: Ctrl-C was pressed before; then
            `seconds` are from tuning seeds, and the notes say so.
        tuned: the runs on which settings and learning rates were tuned.
        seeds: the judging seeds with which all methods ran.
        why: the reason, in sentences.
        notes: sentences on what a record of the cluster does not determine, and on methods left out. Default:
            none.
        interrupted: whether Ctrl-C ended the search.
        again: cluster, budget in seconds -> the recommendation for that cluster, with the other arguments
            unchanged. `recommend` sets it.

    >>> import dmlcore as dml
    >>> cluster = dml.Cluster.from_speeds([1000, 1000, 250])
    >>> problem = dml.problems.linear_regression(num_samples=20, num_features=3)
    >>> found = dml.recommend(problem, cluster, {"loss": 1.0}, methods=["BSP", "ASP"], seeds=[0, 1], trials=3,
    ...                       budget=60, progress=False)
    >>> list(found.table.index), found.best.policy
    (['ASP', 'BSP'], asp())
    """

    question: Question
    table: pd.DataFrame
    methods: Mapping[str, Method]
    seconds: pd.DataFrame
    runs: pd.DataFrame | None
    tuned: Tuned
    seeds: Sequence[int]
    why: str
    notes: Sequence[str] = ()
    interrupted: bool = False
    again: Callable[[Cluster, float], Recommendation] = field(default=_nothing_to_ask, repr=False)

    @property
    def best(self) -> Method:
        """The method to use, with its optimizer: `dml.train(problem, cluster, found.best, None, ...)`."""
        return self.methods[str(self.table.index[0])]

    @property
    def cluster(self) -> Cluster:
        """The cluster of this recommendation: the given one, or the one fitted to a record."""
        return self.question.cluster

    def plot(self, ax: Any = None) -> Any:
        """Draws each method's time to the target, see `dml.plot.recommendation`.

        Args:
            ax: the Axes to draw on. Default: None, a new figure.

        Returns:
            The Axes.

        Raises:
            AttributeError: `ax` is not an Axes.

        >>> found.plot()  # doctest: +SKIP
        <Axes: ...>
        """
        return importlib.import_module("dmlcore.view.plot").recommendation(self, ax=ax)

    def with_cluster(self, cluster: Cluster, *, seeds: Iterable[int] | None = None) -> Recommendation:
        """Ranks the methods on another cluster, with the settings and learning rates of this recommendation.

        Args:
            cluster: the other cluster, such as `found.cluster.resized(16)`. Methods that it does not support
                are left out, and the notes say so.
            seeds: of the runs. Default: the seeds with which all methods of this recommendation ran.

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
        if seeds is None and cluster == self.cluster and self.runs is not None:
            return self
        question = dataclasses.replace(self.question, cluster=cluster)
        judging = checks.several("seeds", self.seeds if seeds is None else seeds, checks.check_seed)
        if self.runs is not None and (both := self.tuned.seeds.intersection(judging)):
            checks.fail(
                "seeds", judging, f"seeds that did not tune, unlike {', '.join(map(str, sorted(both)))}"
            )
        methods, notes = {}, [*self.notes]
        for name, method in self.methods.items():
            try:
                question.check(method)
                methods[name] = method
            except ValueError as error:
                notes.append(left_out(name, error))
        if not methods:
            checks.fail("cluster", cluster, f"a cluster on which a method can run ({notes[-1]})")
        if cluster != self.tuned.cluster and ELSEWHERE not in notes:
            notes.append(ELSEWHERE)
        runner = Runner(question, Stopwatch(math.inf), self._about(question, methods), judging[0])
        runs = runner.until_reached(methods, judging)
        told = self.table[["setting", "learning_rate"]]
        found = answer(question, methods, told, question.measured(runs), runs, self.tuned, judging, notes)
        return dataclasses.replace(found, again=self.again)

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
        clusters = [along(self.question, cell) for cell in cells]  # before anything is run
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

    def _about(self, question: Question, methods: Mapping[str, Method]) -> float:
        """Estimates the seconds to the target on another cluster, if methods need as many samples there."""
        reached = [name for name in self.table.index[np.isfinite(self.table["seconds"])] if name in methods]
        if not reached:
            expected = f"a recommendation in which one of {', '.join(methods)} reached the target"
            checks.reject("cluster", "one in which none did", expected)
        here, there = (_samples_per_second(each, methods[reached[0]]) for each in (self.question, question))
        return float(self.table["seconds"][reached[0]]) * here / there

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def __repr__(self) -> str:
        first = self.table.iloc[0]
        setting = f" ({first['setting']})" if first["setting"] else ""
        return (
            f"Recommendation({self.table.index[0]}{setting}, learning rate {first['learning_rate']:.3g}: "
            f"{self.question} in {first['seconds']:.3g} s)"
        )


def _told(found: Recommendation, tuned: bool) -> dict[str, Any]:
    """Returns the columns of `over` for a recommendation."""
    first, others = found.table.iloc[0], level(found.table)
    about = {"method": str(found.table.index[0]), "seconds": float(first["seconds"])}
    return about | {"uncertain": bool(others), "others": ", ".join(others), "tuned": tuned}


def left_out(name: str, error: Exception) -> str:
    """Returns the note on a method that the problem or the cluster does not support."""
    return f"{name} is left out ({error})"


def _samples_per_second(question: Question, method: Method) -> float:
    """Returns the samples per second that a method applies; at least one task in the measured time."""
    made = question.timeline(method, seconds=question.rounds().end_time)
    return float(max(made.updates["samples"].sum(), question.batch_size) / made.end_time)


def answer(
    question: Question,
    methods: Mapping[str, Method],
    told: pd.DataFrame,
    measured: pd.DataFrame,
    runs: pd.DataFrame | None,
    tuned: Tuned,
    seeds: Sequence[int],
    notes: Sequence[str],
) -> Recommendation:
    """Returns the recommendation for outcomes by method and seed (`measured`) and tuned values (`told`)."""
    seconds = measured["seconds"].unstack("seed")
    table = ranked(seconds).join(told)
    medians = measured[["samples", "nbytes"]].groupby("method").median()
    table = table.join(medians.rename(columns={"nbytes": "bytes"}))[COLUMNS]
    samples = times_first(measured["samples"].unstack("seed").loc[table.index])
    why = reasons.why(question, table, samples, methods, [int(seed) for seed in seconds.columns])
    if runs is None:
        why = f"{notes[0]}. {why}"
    seconds = seconds.loc[table.index]
    return Recommendation(question, table, methods, seconds, runs, tuned, seeds, why, notes)
