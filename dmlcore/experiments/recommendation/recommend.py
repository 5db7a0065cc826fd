"""`recommend`: the fastest method for a cluster, the reason, and answers for other clusters."""

import dataclasses
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self

import optax
import pandas as pd

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.experiments.comparison import bar
from dmlcore.experiments.journal import folder_for
from dmlcore.experiments.recommendation import reasons
from dmlcore.experiments.recommendation.clusters import ASSUMED_SIZE, AXES, along, as_cluster, with_links
from dmlcore.experiments.recommendation.library import Scale, chosen
from dmlcore.experiments.study.goal import asked
from dmlcore.experiments.study.judging import Study
from dmlcore.experiments.study.search import FEWEST, FIRST, LENGTHS, LONGEST, magnitudes, tune
from dmlcore.experiments.study.space import Space, Trial, as_space, possible
from dmlcore.experiments.study.spending import Spending
from dmlcore.experiments.study.study import answer, begin, place
from dmlcore.methods.policies import asp, bsp
from dmlcore.problems.problem import Problem
from dmlcore.trace.metrics.decision import LOOKS
from dmlcore.training.loop import EvalParams

ELSEWHERE = "Settings and learning rates were tuned for another cluster"
SEEDS = 4  # with which methods run on another cluster, to find out how long they take
MOST = LENGTHS + SEEDS + LOOKS[2]  # runs of each method there


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Recommendation(Study):
    """A study of methods on one cluster, with the reason, and answers for other clusters.

    Args:
        answers: what was found on the cluster, see `Study`.
        failed: as for `Study`; empty.
        tuned: the cluster for which settings and learning rates were tuned.
        again: cluster, `budget` in seconds -> the recommendation for that cluster, with the other arguments
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
    again: Callable[..., Self]
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

    def with_cluster(self, cluster: Cluster, *, seeds: Iterable[int] | None = None) -> Self:
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
        given = self.answer.goal.seeds if seeds is None else seeds
        judging = checks.several("seeds", given, checks.check_seed)
        goal = dataclasses.replace(self.answer.goal, cluster=cluster, seeds=judging)
        if both := self.answer.tuning.intersection(judging):
            expected = f"seeds that did not tune, unlike {', '.join(map(str, sorted(both)))}"
            checks.fail("seeds", judging, expected)
        notes = [*self.answer.notes]
        fixed = {name: as_space(name, each) for name, each in self.answer.methods.items()}
        made = possible(fixed, None, goal.check, notes)
        if not made:
            checks.fail("cluster", cluster, f"a cluster on which a method can run ({notes[-1]})")
        notes += [ELSEWHERE] * (cluster != self.tuned)
        search = begin(goal, made, Spending(MOST, None))
        search.about = magnitudes(search)[1]
        search.rung("", map(Trial, made), SEEDS, LONGEST * search.about)
        found = answer(search, notes)
        if search.spending.interrupted:
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
        answer_for: Callable[[Cluster], Self] = self.with_cluster
        if budget is not None:
            answer_for = functools.partial(self.again, budget=checks.real("budget", budget, above=0))
        values = {name: checks.listed(name, each) for name, each in axes.items()}
        cells = [dict(zip(values, each, strict=True)) for each in itertools.product(*values.values())]
        clusters = [along(self.answer.goal, cell) for cell in cells]  # before anything is run
        rows: list[tuple[Any, ...]] = []
        with bar(checks.boolean("progress", progress), len(cells), "cells") as advance:
            for cell, cluster in zip(cells, clusters, strict=True):
                try:
                    found = answer_for(cluster)
                except KeyboardInterrupt:
                    if not rows:
                        raise
                    finished = f"{len(rows)} of {len(cells)} cells"
                    warnings.warn(f"interrupted: the frame has {finished}", stacklevel=2)
                    break
                except ValueError as error:
                    warnings.warn(f"{cell}: {error}", stacklevel=2)
                    told: Any = "none", math.inf, False, ""
                else:
                    table, others = found.table, reasons.alike_of(found.table)
                    told = str(table.index[0]), table["seconds"].iloc[0], bool(others), ", ".join(others)
                rows.append((*cell.values(), *told))
                advance(1)
        columns = [*values, "method", "seconds", "uncertain", "others"]
        return pd.DataFrame(rows, columns=columns).assign(tuned=budget is not None)

    def __repr__(self) -> str:
        return f"Recommendation({self.sentences()[0]})"


def recommend(
    problem: Problem,
    cluster: Any,
    target: Mapping[str, float],
    *,
    methods: Any = None,
    optimizer: Callable[[float], optax.GradientTransformation] = optax.sgd,
    batch_size: int | None = None,
    eval_params: EvalParams | None = None,
    budget: float = 60.0,
    seeds: Iterable[int] = range(LOOKS[-1]),
    trials: int | None = None,
    save: Any = None,
    progress: bool = True,
    parameter_bytes: Any = None,
    links: Any = None,
) -> Recommendation:
    """Finds the method that reaches a target fastest on a cluster: a `study` of the library, and the reason.

    BSP and ASP show which learning rates reach the target, and in what time. From these the library derives
    where the search begins for each of its methods. The search and the judging are those of `dml.study`.

    Guarantees: all methods have the same number of runs before those that cannot become the best are left
    behind. This number depends on the machine, because `budget` is computing time. With `trials`, and a large
    enough budget, every machine gives the same answer, up to the last bits of its arithmetic.

    Args:
        problem: the problem to train.
        cluster: a `Cluster`; or a recorded `Trace`, or a log that `read_tasks` reads, or its result, to which
            `calibrate` fits a cluster. What was assumed, and what is probably wrong, is in the notes.
        target: one metric and the value to reach, such as `{"loss": 0.1}`.
        methods: the methods to compare. A list of names of the library, such as `["BSP", "SSP"]`; or name ->
            a policy, a `Method`, a function of the learning rate that returns one, a `dml.space`, or, for a
            method of the library, the values of its arguments to try, such as `{"SSP": {"staleness": [1]}}`.
            Default: None, the whole library.
        optimizer: learning rate -> optax optimizer of the server; with local steps, of the local steps.
        batch_size: samples per task, also of the tasks of a log that does not say it. Default: the batch size
            of the record if all its tasks have the same, else 32.
        eval_params: as for `study`; methods whose optimizer it does not suit are left out.
        budget: about how many seconds to compute on this machine, > 0; the minimal search may take longer.
        seeds: for judging, as for `study`.
        trials: trials of each method in the first rung, >= 3. Default: as many as the budget probably allows.
        save: folder for finished runs, as for `compare`; a call with the same arguments continues from it.
            Default: as for `compare`.
        progress: whether to show a progress bar.
        parameter_bytes: size of your model in bytes, or with a unit, such as "5.2GB": messages are as large,
            while `problem` trains in its place. Default: the size of the problem's parameters.
        links: the rate of every worker's link, such as "25Gb/s" or bytes/s; or a mapping with some of
            `bandwidth`, `server_bandwidth` (the link that all workers share) and `latency`, such as "50us" or
            seconds. Default: those of the cluster.

    Returns:
        A study with the reason, and answers for other clusters. After an interrupt (Ctrl-C), the result so
        far.

    Raises:
        ValueError: an argument is wrong; no method reaches the target, and the message says how far they
            came; or a record is too short, and the message says how long it must be.

    >>> import dmlcore as dml
    >>> cluster, problem = dml.Cluster.from_speeds([1000, 1000, 250]), dml.problems.digits_mlp()
    >>> found = recommend(problem, cluster, {"loss": 1.0}, methods=["BSP", "ASP"], seeds=range(8), budget=1,
    ...                   progress=False)
    >>> list(found.table.index)
    ['ASP', 'BSP']
    """
    size = 1 if batch_size is None else batch_size
    goal = asked(problem, target, optimizer, seeds, size, save=folder_for(save), eval_params=eval_params)
    if problem.additive:
        checks.fail("problem", problem, "a problem that is trained by gradients, with a learning rate")
    budget = checks.real("budget", budget, above=0)
    trials = trials if trials is None else checks.integer("trials", trials, low=FEWEST, high=FIRST[-1])
    fitted = with_links(as_cluster(cluster, batch_size), links)
    if parameter_bytes is not None:
        problem = problem.with_parameter_bytes(parameter_bytes)
        fitted.untold.append(f"Messages are those of a model of {problem.parameter_bytes:,} bytes")
    size = batch_size or fitted.batch_size or ASSUMED_SIZE
    goal = dataclasses.replace(goal, problem=problem, cluster=fitted.cluster, batch_size=size)
    tasks = goal.rounds().tasks
    seconds = float((tasks["push_end"] - tasks["pull_start"]).mean())
    scale = Scale(goal.cluster.num_workers, size, seconds, 1.0, 1.0, optimizer, not fitted.real)

    notes = [*fitted.untold]
    # What the caller named must be possible. This is known before anything is run.
    made = possible(chosen(methods, scale), optimizer, goal.check, [] if methods is None else None)
    path = place(goal, made, budget=budget, trials=trials)
    scouts = {"BSP at first": Space(bsp, {}), "ASP at first": Space(asp, {})}
    with bar(checks.boolean("progress", progress), None) as advance:
        spending = Spending(None, budget, path, advance=advance)
        rates, reached = magnitudes(begin(goal, possible(scouts, optimizer, goal.check), spending))
        together, alone = (rates[name] for name in scouts)
        spaces = chosen(methods, scale._replace(together=together, alone=alone))
        made = possible(spaces, optimizer, goal.check, notes if methods is None else None)
        search = begin(goal, made, spending, reached)
        tune(search, trials)
        found = answer(search, notes)
    if spending.interrupted:
        warnings.warn(found.notes[0], stacklevel=2)
    same: Any = {"target": target, "trials": trials, "methods": methods, "optimizer": optimizer, "save": save}
    same |= {"seeds": goal.seeds, "batch_size": batch_size, "progress": False, "eval_params": eval_params}
    again = functools.partial(recommend, problem, **same)
    return Recommendation({"": found}, tuned=goal.cluster, again=again)
