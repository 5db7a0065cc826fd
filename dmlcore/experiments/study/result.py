"""What a study has found: a table, the ratio of every pair of methods, and a picture."""

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dmlcore import checks, notebook
from dmlcore.experiments.study.goal import Goal
from dmlcore.experiments.study.judging import NEVER, compared, outcomes, ratios
from dmlcore.experiments.study.search import Search, recorded
from dmlcore.trace.metrics.decision import Ratio, decide
from dmlcore.types import Method

TIMES = ["seconds", "seconds_low", "seconds_high"]  # columns of the table: the median, and its interval
RATIOS = ["ratio", "ratio_low", "ratio_high"]


@dataclass(frozen=True, eq=False)
class Answer:
    """What a study has found on one cluster.

    Args:
        search: what was asked, tried and spent.
        methods: name -> the method at its best setting, with its optimizer.
        told: `setting` and `learning_rate` of each method.
        measured: the outcome of each judged run, by method and seed.
        runs: histories of the judged runs. None: interrupted before; `measured` is of tuning seeds.
        tuning: the seeds of the search.
        notes: sentences on what limits the answer.
    """

    search: Search
    methods: Mapping[str, Method]
    told: pd.DataFrame
    measured: pd.DataFrame
    runs: pd.DataFrame | None
    tuning: frozenset[int]
    notes: Sequence[str] = ()

    @property
    def goal(self) -> Goal:
        """What was asked."""
        return self.search.goal

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the search or the judging."""
        return self.search.spending.interrupted

    @property
    def seconds(self) -> pd.DataFrame:
        """Times to the target by method and seed; inf: not reached; NaN: not run."""
        return self.measured["seconds"].unstack("seed")

    def unreached(self) -> list[str]:
        """Returns a sentence on the methods whose settings were all too slow, if there are some."""
        late = self.seconds.median(axis=1) == math.inf
        names = ", ".join(map(str, late.index[late]))
        told = f"No setting tried of {names} reaches the target in four times the best time; others may"
        return [told] if self.runs is not None and 0 < late.sum() < len(late) else []

    def table(self) -> pd.DataFrame:
        """Returns a row per method, the best first, then by the ratio to it."""
        seconds, rows = self.seconds, dict[str, tuple[Any, ...]]()
        for name, ratio in outcomes(seconds).items():
            took = decide(seconds.loc[name])
            time_span, ratio_span = ((each.median, max(each.low, 0.0), each.high) for each in (took, ratio))
            rows[name] = *time_span, *ratio_span, ratio.outcome, took.seeds, self.search.spending.made[name]
        columns = [*TIMES, *RATIOS, "outcome", "seeds", "runs"]
        table = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
        medians = self.measured.groupby("method")[["samples", "nbytes"]].median()
        table = self.told.join(table).join(medians.rename(columns={"nbytes": "bytes"}))
        table = table.loc[[*rows]].fillna({"ratio": np.inf})
        order = table.iloc[1:].sort_values(["ratio", "seconds"], kind="stable").index
        return table.loc[[table.index[0], *order]].rename_axis("method")


@dataclass(frozen=True, eq=False)
class Study:
    """Methods compared on one cluster or on several, each at its best settings, on seeds that chose nothing.

    Args:
        answers: name of the cluster -> what was found there; the name of a single one is "".
        failed: sentences on clusters on which no method reached the target. Default: none.

    >>> import dmlcore as dml
    >>> problem = dml.problems.linear_regression(num_samples=64, num_features=3)
    >>> found = dml.study([dml.bsp(), dml.asp()], problem, dml.Cluster.from_speeds([1000, 1000, 250]),
    ...                   {"loss": 30.0}, budget=40, batch_size=8)
    >>> found.best.policy, found.table["outcome"].to_dict()
    (asp(), {'asp()': 'best', 'bsp()': 'slower'})
    """

    answers: Mapping[str, Any]  # each an `Answer`
    failed: Sequence[str] = ()
    _drawn_by: ClassVar[str] = "study"  # of `dml.plot`

    @property
    def table(self) -> pd.DataFrame:
        """A row per method, or per cluster and method, the best first.

        `setting` and `learning_rate` are the best ones found; `seconds` is the median time to the target,
        with its interval (inf: not reached within four times the best); `ratio` is the median over that of
        the best method, seed by seed, with its interval; `outcome` is "best", "slower", "level" or
        "undecided", by `metrics.decide`, or "not reached"; `seeds` is how many judged it; `runs` how many
        runs it had in all; `samples` and `bytes` are the medians until the target.
        """
        tables = {name: each.table() for name, each in self.answers.items()}
        return pd.concat(tables, names=["cluster"]) if self.several else next(iter(tables.values()))

    @property
    def several(self) -> bool:
        """Whether the study has named clusters."""
        return [*self.answers] != [""]

    @property
    def best(self) -> Any:
        """The best method, for `dml.train(problem, cluster, best, None, ...)`; by cluster, of several."""
        best = {name: each.methods[str(each.table().index[0])] for name, each in self.answers.items()}
        return best if self.several else best[""]

    @property
    def settings(self) -> dict[str, Any]:
        """What the searches have found, as JSON values: the argument `settings` of the same study later."""
        whole = (each.search for each in self.answers.values() if not each.interrupted)
        return {key: found for search in whole for key, found in recorded(search).items()}

    @property
    def runs(self) -> pd.DataFrame:
        """Histories of the judged runs, as `compare` returns them; of several clusters with `cluster`."""
        parts = [
            each.runs.assign(cluster=name) if self.several else each.runs
            for name, each in self.answers.items()
            if each.runs is not None
        ]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    @property
    def notes(self) -> list[str]:
        """Sentences on what limits the answer."""
        notes = (note for each in self.answers.values() for note in [*each.unreached(), *each.notes])
        return [*self.failed, *dict.fromkeys(notes)]

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the study."""
        return any(each.interrupted for each in self.answers.values())

    def versus(self, method: str, other: str, cluster: str | None = None) -> Ratio:
        """Says how long a method takes compared with another one, and how sure that is.

        Args:
            method: the method whose times are divided.
            other: by whose times they are divided.
            cluster: of several clusters, the one. Default: None, the only one.

        Returns:
            The ratio; `print` says it in words.

        Raises:
            ValueError: a name is unknown, or no cluster of several is named.

        >>> print(found.versus("bsp()", "asp()"))  # doctest: +SKIP
        2.9 times as long (between 2.1 and 3.5 times as long; 8 seeds)
        """
        return decide(self.samples(method, other, cluster))

    def samples(self, method: str, other: str, cluster: str | None = None) -> pd.Series:
        """Returns what `versus` decides on: the ratio of the times of two methods, seed by seed.

        Args:
            method: the method whose times are divided.
            other: by whose times they are divided.
            cluster: of several clusters, the one. Default: None, the only one.

        Returns:
            The ratio by seed, (S,): inf or 0 if only one method reached the target, NaN if neither did.

        Raises:
            ValueError: a name is unknown, or no cluster of several is named.

        >>> found.samples("bsp()", "asp()").round(1).tolist()  # doctest: +SKIP
        [2.9, 3.1, 2.1, 3.5, 2.8, 2.9, 2.4, 3.3]
        """
        if cluster is None and self.several:
            checks.fail("cluster", cluster, f"one of {', '.join(map(repr, self.answers))}")
        answer = checks.choice("cluster", cluster or "", self.answers)
        for argument, name in (("method", method), ("other", other)):
            checks.choice(argument, name, answer.methods)
        return ratios(answer.seconds, method, other)

    def sentences(self) -> list[str]:
        """Says how every method compares with the best one, on each cluster.

        Returns:
            One sentence for each cluster and method, the best one first.

        >>> found.sentences()[0]  # doctest: +SKIP
        'ASP (learning rate 0.0045) reaches loss 30 in 0.152 s, in the median'
        """
        said = []
        for name, answer in self.answers.items():
            where, ratios = f"on {name}, " if self.several else "", compared(answer.seconds)
            for place, (method, row) in enumerate(answer.table().iterrows()):
                about = f"{where}{method}{told_setting(row)}"
                reached = np.isfinite(row["seconds"])
                took = f"in {row['seconds']:.3g} s, in the median" if reached else "on some seeds only"
                never = "the target not reached in four times that time"
                words = never if row["outcome"] == NEVER else str(ratios[str(method)])
                said.append(f"{about}: {words}" if place else f"{about} reaches {answer.goal} {took}")
        return said

    def plot(self, ax: Any = None) -> Any:
        """Draws how the methods compare: see `dml.plot.study`, and `dml.plot.recommendation` for that of one.

        Args:
            ax: the Axes to draw on. Default: None, a new figure.

        Returns:
            The Axes.

        Raises:
            AttributeError: `ax` is not an Axes.

        >>> found.plot()  # doctest: +SKIP
        <Axes: ...>
        """
        return vars(importlib.import_module("dmlcore.view.plot"))[self._drawn_by](self, ax=ax)

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def __repr__(self) -> str:
        return "\n".join([*self.sentences(), *self.notes])


def told_setting(row: Any) -> str:
    """Returns a row's setting and learning rate in brackets, or nothing."""
    rate = "" if math.isnan(row["learning_rate"]) else f"learning rate {row['learning_rate']:.3g}"
    known = ", ".join(part for part in (row["setting"], rate) if part)
    return f" ({known})" if known else ""
