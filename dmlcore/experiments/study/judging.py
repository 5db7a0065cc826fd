"""Judging: the best setting of each method on seeds that chose nothing, and what a study has found by them.

As many seeds are run as it takes to decide. The answer is a table, the ratio of every pair of methods, and a
picture.
"""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from dmlcore import checks, notebook
from dmlcore.experiments.study.goal import Goal, Seeds
from dmlcore.experiments.study.search import Search, recorded
from dmlcore.experiments.study.spending import Spending
from dmlcore.trace.metrics.decision import LOOKS, Ratio, decide
from dmlcore.types import Method

Runs = Callable[[Mapping[str, Method], Seeds], tuple[pd.DataFrame | None, bool]]
BEST, NEVER = "best", "not reached"  # outcomes besides those of `decide`


def ratios(costs: pd.DataFrame, name: str, other: str) -> pd.Series:
    """Returns the ratio of two methods' costs by seed, of the seeds with which both ran.

    Args:
        costs: of reaching the target, such as seconds, by method and seed; inf: not reached; NaN: not run.
        name: the method whose costs are divided.
        other: the method by whose costs they are divided.

    Returns:
        1 if both are equal, inf or 0 if one is inf, and NaN if both are.
    """
    ran = costs.loc[[name, other]].dropna(axis="columns")
    one, two = ran.iloc[0], ran.iloc[1]
    return (one / two).mask((one == two) & np.isfinite(one), 1.0)


def first(seconds: pd.DataFrame) -> str:
    """Returns the best method: the one with the least median time among those with the most seeds.

    If the ratios, seed by seed, say that another one of these is faster, it is that one.
    """
    ran = seconds.notna().sum(axis=1)
    most = seconds[ran == ran.max()]
    order = most.median(axis=1).fillna(np.inf).sort_values(kind="stable")
    best = str(order.index[0])
    for name in map(str, order.index[1:]):
        if decide(ratios(most, name, best)).outcome == "faster":
            best = name
    return best


def compared(seconds: pd.DataFrame) -> dict[str, Ratio]:
    """Returns the ratio of every method to the best one, which comes first."""
    best = first(seconds)
    return {name: decide(ratios(seconds, name, best)) for name in dict.fromkeys([best, *seconds.index])}


def outcomes(seconds: pd.DataFrame) -> dict[str, Ratio]:
    """Returns the ratios of `compared`; the first is `BEST`, and methods that never arrive are `NEVER`."""
    found, arrives = compared(seconds), seconds.lt(np.inf).any(axis=1)
    best = next(iter(found))
    if arrives[best]:
        found[best] = Ratio(1.0, 1.0, 1.0, int(seconds.count(axis=1)[best]), BEST)
    return {name: each if arrives[name] else each._replace(outcome=NEVER) for name, each in found.items()}


def judge(goal: Goal, methods: Mapping[str, Method], runs: Runs, spending: Spending) -> pd.DataFrame | None:
    """Runs all methods on the first seeds, and on more those that are not told apart from the best one.

    Args:
        goal: what is asked, with the seeds.
        methods: name -> method with its optimizer.
        runs: methods and seeds by name -> histories, and whether Ctrl-C was pressed.
        spending: what it may spend.

    Returns:
        The histories; None if Ctrl-C was pressed before all methods had run.
    """
    most = len(goal.seeds)
    looks = [most] if goal.all_seeds else sorted({min(look, most) for look in LOOKS})
    left, found, ran = [*methods], None, 0
    for look in looks:
        own = goal.seeds[ran:look]
        if not ran:
            own = own[: max(1, spending.room())]  # a small budget has fewer seeds, and decides nothing
        elif not spending.affords(f"look {look}", dict.fromkeys(left, len(own))):
            break
        made, stopped = runs({name: methods[name] for name in left}, dict.fromkeys(left, own))
        spending.interrupted |= stopped
        if stopped or made is None:
            break
        spending.count(dict.fromkeys(left, len(own)))
        found = pd.concat([found, made], ignore_index=True)
        seconds = goal.measured(found)["seconds"].unstack("seed")
        if np.isinf(seconds.median(axis=1)).all():
            break
        told = compared(seconds)
        best, *others = told
        left = [best, *(name for name in others if name in left and told[name].outcome == "undecided")]
        if len(left) == 1 or len(own) < look - ran:
            break
        ran = look
    return found


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

    def settings(self) -> dict[str, Any]:
        """Returns what the search has found, as JSON values."""
        return recorded(self.search)

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
        spans = [f"{name}{end}" for name in ("seconds", "ratio") for end in ("", "_low", "_high")]
        table = pd.DataFrame.from_dict(rows, "index", columns=[*spans, "outcome", "seeds", "runs"])
        medians = self.measured.groupby("method")[["samples", "bytes"]].median()
        table = self.told.join([table, medians]).loc[[*rows]].fillna({"ratio": np.inf})
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
        whole = (each.settings() for each in self.answers.values() if not each.search.spending.interrupted)
        return {key: found for each in whole for key, found in each.items()}

    @property
    def runs(self) -> pd.DataFrame:
        """Histories of the judged runs, as `compare` returns them; of several clusters with `cluster`."""
        ran = {name: each.runs for name, each in self.answers.items() if each.runs is not None}
        parts = [runs.assign(cluster=name) if self.several else runs for name, runs in ran.items()]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    @property
    def notes(self) -> list[str]:
        """Sentences on what limits the answer."""
        notes = (note for each in self.answers.values() for note in [*each.unreached(), *each.notes])
        return [*self.failed, *dict.fromkeys(notes)]

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the study."""
        return any(each.search.spending.interrupted for each in self.answers.values())

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
                rate = "" if math.isnan(row["learning_rate"]) else f"learning rate {row['learning_rate']:.3g}"
                setting = ", ".join(filter(None, (row["setting"], rate)))
                about = f"{where}{method}" + f" ({setting})" * bool(setting)
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

    _repr_html_ = notebook.html

    def __repr__(self) -> str:
        return "\n".join([*self.sentences(), *self.notes])
