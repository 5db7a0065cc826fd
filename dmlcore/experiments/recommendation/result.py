"""What `recommend` answers: a table of methods, the best, the reason, and the same for other clusters."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from dmlcore import checks, notebook
from dmlcore.cluster import Cluster
from dmlcore.experiments.recommendation import reasons
from dmlcore.experiments.recommendation.axes import AXES, along
from dmlcore.experiments.recommendation.goal import Clock, Goal, Runner
from dmlcore.experiments.recommendation.library import Family
from dmlcore.experiments.recommendation.ranking import level, ranked
from dmlcore.experiments.recommendation.trials import RANGE, Found
from dmlcore.types import Method


def _nothing_to_ask(cluster: Cluster, budget: float) -> Recommendation:
    return checks.fail("budget", budget, "None: this recommendation does not know how it was asked for")


@dataclass(frozen=True, eq=False)
class Recommendation:
    """Methods ranked by their time to a target on a cluster, on seeds that did not tune them.

    Args:
        goal: problem, cluster and target.
        table: a row for each method, the fastest first: `setting` and `learning_rate`, as tuned; `seconds`,
            the median time to the target, `least` and `most` over seeds, inf where it was not reached in the
            time of 4 times the best; `fastest`, the share of seeds on which it is; `samples` computed and
            `bytes` sent until then, medians; `ratio`, the median over seeds of its time over that of the
            best; and `verdict`: "best"; "slower", on every seed; "slower on 3 of 5" seeds, which shows no
            difference; or "not reached" on any seed.
        methods: each as it was run, with its optimizer, by name.
        seconds: time to the target by method and seed.
        runs: histories of the runs that judge, as of `compare`; None after an interrupt: then `seconds` are
            of seeds that tuned.
        runs_each: how many runs tuned each method.
        why: the reason, in sentences.
        notes: in sentences, what a record of the cluster could not tell, and what was left out.
        again: cluster, budget -> the recommendation for it, with the same arguments otherwise.
    """

    goal: Goal
    table: pd.DataFrame
    methods: Mapping[str, Method]
    seconds: pd.DataFrame
    runs: pd.DataFrame | None
    runs_each: int
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
            ValueError: it is no cluster, or none of the methods can run on it.
        """
        checks.check_kind("cluster", cluster, Cluster)
        goal = dataclasses.replace(self.goal, cluster=cluster)
        judging = checks.several("seeds", self.seconds if seeds is None else seeds, checks.check_seed)
        methods, notes = {}, []
        for name, method in self.methods.items():
            try:
                goal.check(method)
                methods[name] = method
            except ValueError as error:
                notes.append(f"{name} is left out ({error})")
        if not methods:
            checks.fail("cluster", cluster, f"one that the methods can run on: {notes[0]}")
        if cluster != self.cluster:
            notes.append("Settings and learning rates are those that were tuned for another cluster")
        runner = Runner(goal, Clock(math.inf), self._about(goal, methods), judging[0])
        runs = runner.until_reached(methods, judging)
        told = self.table[["setting", "learning_rate"]]
        return answer(goal, methods, told, goal.measured(runs), runs, self.runs_each, notes)

    def over(self, *, budget: float | None = None, **axes: Any) -> pd.DataFrame:
        """Returns the best method for every combination of values of one or two axes; see `dml.plot.regimes`.

        Args:
            budget: seconds of computing for each cell, in which all methods are tuned anew. None: settings
                and learning rates are those found here, as in `with_cluster`; the farther other clusters are,
                the less they suit them.
            **axes: values by axis: `workers`; `c`, the communication ratio, by the workers' links; `rho`, the
                load of the server's processor; `slowdown`, of a tenth of the tasks, ten in a row (1: none).

        Returns:
            A row for each cell: the axes' values, `method`, `seconds` (its median), `uncertain`, whether
            seeds do not tell it from another one, and `others`, those.

        Raises:
            ValueError: no axis or more than two, an unknown one, or a value that is not possible.
        """
        if not 1 <= len(axes) <= 2:
            checks.fail("axes", [*axes], f"one or two of {', '.join(AXES)}")
        values = {name: checks.listed(name, each) for name, each in axes.items()}
        cells = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
        clusters = [along(self.goal, cell) for cell in cells]  # before anything is run
        rows = []
        for cell, cluster in zip(cells, clusters, strict=True):
            found = self.with_cluster(cluster) if budget is None else self.again(cluster, budget)
            others = level(found.table)
            about = {"method": str(found.table.index[0]), "seconds": float(found.table["seconds"].iloc[0])}
            rows.append(cell | about | {"uncertain": bool(others), "others": ", ".join(others)})
        return pd.DataFrame(rows)

    def _about(self, goal: Goal, methods: Mapping[str, Method]) -> float:
        """About the time to the target there, if as many samples are needed as here."""
        name = next(name for name in self.table.index if name in methods)
        here, there = (reasons.samples_per_second(each, methods[name]) for each in (self.goal, goal))
        return float(self.table["seconds"][name]) * here / there

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def __repr__(self) -> str:
        first = self.table.iloc[0]
        setting = f" ({first['setting']})" if first["setting"] else ""
        return (
            f"Recommendation({self.table.index[0]}{setting}, learning rate {first['learning_rate']:.3g}: "
            f"{self.goal} in {first['seconds']:.3g} s)"
        )


def judge(
    runner: Runner,
    families: Mapping[str, Family],
    found: Found,
    seeds: Sequence[int],
    notes: Sequence[str],
) -> Recommendation:
    """Runs the best trial of each method on the seeds that judge; after an interrupt, answers without."""
    best = {name: found.best(name) for name in families if found.of(name)}
    if not best:
        raise KeyboardInterrupt
    settings = {name: families[name].settings[trial.setting] for name, trial in best.items()}
    methods = {name: families[name].at(settings[name], trial.rate) for name, trial in best.items()}
    told = pd.DataFrame(
        {
            "setting": {
                name: ", ".join(f"{k} = {v}" for k, v in each.items()) for name, each in settings.items()
            },
            "learning_rate": {name: trial.rate for name, trial in best.items()},
        }
    )
    each = max(sum(len(found.outcomes[trial]) for trial in found.of(name)) for name in best)
    runs, measured = None, found.outcomes_of(best)
    if not runner.clock.interrupted:
        runs = runner.runs(
            methods,
            dict.fromkeys(methods, seeds),
            RANGE * measured["seconds"].groupby("method").median().min(),
        )
    if runner.clock.interrupted:
        warnings.warn(
            "interrupted: the answer is of the seeds that tuned, as far as they were run", stacklevel=3
        )
        runs = None
    return answer(
        runner.goal,
        methods,
        told,
        measured if runs is None else runner.goal.measured(runs),
        runs,
        each,
        notes,
    )


def answer(
    goal: Goal,
    methods: Mapping[str, Method],
    told: pd.DataFrame,
    measured: pd.DataFrame,
    runs: pd.DataFrame | None,
    runs_each: int,
    notes: Sequence[str],
) -> Recommendation:
    """Returns the recommendation that outcomes, by method and seed, lead to."""
    seconds = measured["seconds"].unstack("seed")
    table = ranked(seconds).join(told)
    medians = measured[["samples", "nbytes"]].groupby("method").median()
    table = table.join(medians.rename(columns={"nbytes": "bytes"}))
    names = [
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
    why = reasons.why(goal, table, methods, int(seconds.columns[0]))
    return Recommendation(goal, table[names], methods, seconds.loc[table.index], runs, runs_each, why, notes)
