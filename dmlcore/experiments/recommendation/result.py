"""The result of `recommend`: a study with the reason, and answers for other clusters."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.experiments.comparison import bar
from dmlcore.experiments.recommendation import reasons
from dmlcore.experiments.recommendation.clusters import AXES, along
from dmlcore.experiments.study.result import Study
from dmlcore.experiments.study.search import LENGTHS, LONGEST, magnitudes
from dmlcore.experiments.study.space import Trial, as_space, possible
from dmlcore.experiments.study.spending import Spending
from dmlcore.experiments.study.study import answer, begin
from dmlcore.trace.metrics.decision import LOOKS

ELSEWHERE = "Settings and learning rates were tuned for another cluster"
SEEDS = 4  # with which methods run on another cluster, to find out how long they take
MOST = LENGTHS + SEEDS + LOOKS[2]  # runs of each method there
TOLD = ["method", "seconds", "uncertain", "others", "tuned"]  # of each cell, besides its place on the axes


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Recommendation(Study):
    """A study of methods on one cluster, with the reason, and answers for other clusters.

    Args:
        answers: what was found on the cluster, see `Study`.
        failed: as for `Study`; empty.
        tuned: the cluster for which settings and learning rates were tuned.
        again: cluster, budget in seconds -> the recommendation for that cluster, with the other arguments
            unchanged.

    >>> import dmlcore as dml
    >>> cluster = dml.Cluster.from_speeds([1000, 1000, 250])
    >>> problem = dml.problems.linear_regression(num_samples=20, num_features=3)
    >>> found = dml.recommend(problem, cluster, {"loss": 1.0}, methods=["BSP", "ASP"], trials=3, budget=60,
    ...                       progress=False)
    >>> list(found.table.index), found.best.policy
    (['ASP', 'BSP'], asp())
    """

    tuned: Cluster
    again: Callable[[Cluster, float], Recommendation]
    _drawn_by: ClassVar[str] = "recommendation"

    @functools.cached_property
    def why(self) -> str:
        """The reason, in sentences."""
        known = f"{self.notes[0]}. " if self.answer.runs is None else ""
        return known + reasons.why(self.answer)

    @property
    def answer(self) -> Any:
        """What was found on the cluster."""
        return self.answers[""]

    @property
    def cluster(self) -> Cluster:
        """The cluster of this recommendation: the given one, or the one fitted to a record."""
        return self.answer.goal.cluster

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
            ValueError: `cluster` is not a cluster, none of the methods can run on it or reaches the target
                there, or a seed was used for tuning.
            KeyboardInterrupt: Ctrl-C was pressed.

        >>> found.with_cluster(found.cluster.resized(16)).best  # doctest: +SKIP
        """
        checks.check_kind("cluster", cluster, Cluster)
        if seeds is None and cluster == self.cluster and self.answer.runs is not None:
            return self
        judging = checks.several(
            "seeds", self.answer.goal.seeds if seeds is None else seeds, checks.check_seed
        )
        goal = dataclasses.replace(self.answer.goal, cluster=cluster, seeds=judging)
        if both := self.answer.tuning.intersection(judging):
            expected = f"seeds that did not tune, unlike {', '.join(map(str, sorted(both)))}"
            checks.fail("seeds", judging, expected)
        notes = [*self.answer.notes]
        fixed = {name: as_space(name, each) for name, each in self.answer.methods.items()}
        made = possible(fixed, None, goal.check, notes)
        if not made:
            checks.fail("cluster", cluster, f"a cluster on which a method can run ({notes[-1]})")
        if cluster != self.tuned and ELSEWHERE not in notes:
            notes.append(ELSEWHERE)
        search = begin(goal, made, Spending(MOST, None))
        search.about = magnitudes(search)[1]
        search.rung("", map(Trial, made), SEEDS, LONGEST * search.about)
        found = answer(search, True, notes)
        if found.interrupted:
            raise KeyboardInterrupt
        found = dataclasses.replace(found, told=self.answer.told.loc[[*made]], tuning=self.answer.tuning)
        return dataclasses.replace(self, answers={"": found})

    def over(self, *, budget: float | None = None, progress: bool = True, **axes: Any) -> pd.DataFrame:
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
            A frame with one row per combination: the values of the axes; `method`, the best one, or "none" if
            none reaches the target there, of which a warning tells; `seconds`, its median time; `uncertain`,
            whether other methods are not clearly slower; `others`, the names of these; and `tuned`, whether
            the methods were tuned for this combination. After Ctrl-C, the rows that are finished.

        Raises:
            ValueError: there is no axis or more than two, an axis is unknown, or a value or the budget is not
                possible.
            KeyboardInterrupt: Ctrl-C was pressed before the first row was finished.

        >>> found.over(workers=[4, 8, 16], c=[0.1, 1.0])  # doctest: +SKIP
        """
        if not 1 <= len(axes) <= 2:
            checks.fail("axes", [*axes], f"one or two of {', '.join(map(repr, AXES))}")
        if budget is not None:
            checks.real("budget", budget, above=0)
        values = {name: checks.listed(name, each) for name, each in axes.items()}
        cells = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
        clusters = [along(self.answer.goal, cell) for cell in cells]  # before anything is run
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
                except ValueError as error:
                    warnings.warn(f"{cell}: {error}", stacklevel=2)
                    told: Any = "none", math.inf, False, ""
                else:
                    table, others = found.table, reasons.alike_of(found.table)
                    told = str(table.index[0]), table["seconds"].iloc[0], bool(others), ", ".join(others)
                rows.append(cell | dict(zip(TOLD, (*told, budget is not None), strict=True)))
                advance(1)
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return f"Recommendation({self.sentences()[0]})"
