"""`recommend`: the fastest method for a cluster, and the reason."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import optax

from dmlcore import checks
from dmlcore.checks import check_seed, several
from dmlcore.cluster import Cluster
from dmlcore.experiments.comparison import bar, check_factory
from dmlcore.experiments.journal import folder_for
from dmlcore.experiments.recommendation import progress as saved
from dmlcore.experiments.recommendation import trials as halving
from dmlcore.experiments.recommendation.clusters import as_cluster
from dmlcore.experiments.recommendation.leading import MORE
from dmlcore.experiments.recommendation.library import Family, Scale, chosen
from dmlcore.experiments.recommendation.progress import SearchLog, SearchProgress
from dmlcore.experiments.recommendation.question import Question
from dmlcore.experiments.recommendation.result import Recommendation, left_out
from dmlcore.experiments.recommendation.runner import Runner, Stopwatch
from dmlcore.experiments.recommendation.scouts import affordable, scout
from dmlcore.experiments.recommendation.search import FURTHER, Search, judge, tune_all
from dmlcore.experiments.runs import check_until
from dmlcore.problems.problem import Problem
from dmlcore.problems.validation import check_problem


def recommend(
    problem: Problem,
    cluster: Any,
    target: Mapping[str, float],
    *,
    methods: Any = None,
    optimizer: Callable[[float], optax.GradientTransformation] = optax.sgd,
    batch_size: int | None = None,
    budget: float = 60.0,
    seeds: Iterable[int] = range(5),
    trials: int | None = None,
    save: Any = None,
    progress: bool = True,
) -> Recommendation:
    """Finds the method that reaches a target fastest on a cluster.

    First, BSP and ASP show which learning rates reach the target, and in what time. Then every method is
    tuned in rungs, with the same number of runs on the same tuning seeds. The first rung tries its settings
    with learning rates over a range, on one seed. Each later rung has half as many trials on twice as many
    seeds: the best trials so far, and new rates next to the best one. Methods whose median time is at most
    1.5 times the best one then lead: up to four steps try settings and rates next to the best ones of each,
    and further rungs halve their best trials together, on up to eight times as many seeds. No run lasts
    longer than 4 times the best run so far.

    At the end, the best trial of each method runs on `seeds`. Methods that these do not tell apart from the
    best one run on up to three times as many other seeds, while the budget lasts.

    The judging seeds do not choose settings or rates, but they rank the methods. If many methods are about
    equally fast, the time of the first one is therefore slightly better than it would be on new seeds.

    Guarantees: all methods have the same number of runs before the leading ones go on. This number depends on
    the machine, because `budget` is computing time. With `trials`, and a large enough budget, every machine
    gives the same answer, up to the last bits of its arithmetic.

    Args:
        problem: the problem to train.
        cluster: a `Cluster`; or a recorded `Trace`, or measured tasks, to which `calibrate` fits a cluster.
            Measured tasks are a DataFrame or the path of a CSV or Parquet file, with the columns `worker`,
            `samples` and `seconds`, or those of `Trace.from_tasks`.
        target: one metric and the value to reach, such as `{"loss": 0.1}`.
        methods: the methods to compare. A list of names of the library, such as `["BSP", "SSP"]`; or name ->
            a policy, a `Method`, a function of the learning rate that returns one, or, for a method of the
            library, the values of its arguments to try, such as `{"SSP": {"staleness": [1, 4]}}`. Default:
            None, the whole library.
        optimizer: learning rate -> optax optimizer of the server; with local steps, of the local steps.
        batch_size: samples per task. Default: the batch size of the record if all its tasks have the same,
            else 32.
        budget: about how many seconds to compute on this machine, > 0; the minimal search may take longer.
        seeds: for the final comparison of all methods; the tuning, and the further comparison of methods that
            are level, use other seeds.
        trials: trials of each method in the first rung, >= 3. Default: as many as the budget probably allows.
        save: folder for finished runs, as for `compare`; a call with the same arguments continues from it.
            Default: as for `compare`.
        progress: whether to show a progress bar.

    Returns:
        A table of the methods, the best method, ready for `train`, and the reason. After an interrupt
        (Ctrl-C), the result so far.

    Raises:
        ValueError: an argument is wrong; no method reaches the target, and the message says how far they
            came; or a record is too short, and the message says how long it must be.

    >>> import dmlcore as dml
    >>> cluster, problem = dml.Cluster.from_speeds([1000, 1000, 250]), dml.problems.digits_mlp()
    >>> found = recommend(problem, cluster, {"loss": 1.0}, methods=["BSP", "ASP"], seeds=[0, 1], budget=1,
    ...                   progress=False)
    >>> list(found.table.index)
    ['ASP', 'BSP']

    Reference: Karnin et al. 2013 for the halving; see `dmlcore.experiments.recommendation.trials`.
    """
    check_problem(problem)
    if problem.additive:
        checks.fail("problem", problem, "a problem that is trained by gradients, with a learning rate")
    judging = several("seeds", seeds, check_seed)
    budget = checks.real("budget", budget, above=0)
    example = check_factory(optimizer)
    metric, value = check_target(target, problem)
    if batch_size is not None:
        checks.integer("batch_size", batch_size, low=1)
    if trials is not None:
        checks.integer("trials", trials, low=halving.FEWEST, high=halving.MOST)
    fitted = as_cluster(cluster)
    batch_size = batch_size or fitted.batch_size or 32
    save = folder_for(save)
    question = Question(problem, fitted.cluster, metric, value, batch_size, save)
    workers, seconds = fitted.cluster.num_workers, task_seconds(question)
    scale = Scale(workers, batch_size, seconds, 1.0, 1.0, optimizer, not fitted.real)
    usable(chosen(methods, scale), question, methods is not None)  # before anything is run
    others = (seed for seed in itertools.count(1000) if seed not in judging)
    tuning = [*itertools.islice(others, MORE * halving.MOST)]
    further = [*itertools.islice(others, FURTHER * len(judging))]
    about = {"seeds": judging, "budget": budget, "trials": trials, "methods": described(methods)}
    path = saved.place(question, example, about)
    kept = saved.load(path)
    stopwatch = Stopwatch(budget, kept.spent if kept else 0.0)
    with bar(checks.boolean("progress", progress), None) as advance:
        scouted = kept or scout(question, optimizer, tuning[0], stopwatch, advance)
        scale = scale._replace(together=scouted.rates["BSP"], alone=scouted.rates["ASP"])
        families, left = usable(chosen(methods, scale), question, methods is not None)
        if isinstance(scouted, SearchProgress):
            so_far = scouted
        else:
            first = trials or affordable(families, len(judging), scouted, stopwatch)
            so_far = SearchProgress(scouted.rates, scouted.seconds, first)
        runner = Runner(question, stopwatch, so_far.seconds, tuning[0], advance)
        search = Search(runner, families, judging, SearchLog(so_far, path))
        answered = judge(search, tune_all(search, tuning), further, [*fitted.untold, *left])

    def again(cluster: Cluster, budget: float) -> Recommendation:
        same: Any = {"trials": trials, "methods": methods, "optimizer": optimizer, "batch_size": batch_size}
        same |= {"seeds": judging, "save": save, "progress": False}
        return recommend(problem, cluster, target, budget=budget, **same)

    return dataclasses.replace(answered, again=again)


def described(methods: Any) -> str:
    """Returns a text that identifies the argument `methods` of a call."""
    if not isinstance(methods, Mapping):
        return str(methods)
    return str({name: getattr(given, "__qualname__", given) for name, given in methods.items()})


def check_target(target: Any, problem: Problem) -> tuple[str, float]:
    """Checks a target and returns its metric and value."""
    if not isinstance(target, Mapping) or len(target) != 1:
        checks.fail("target", target, "a mapping of one metric to its value, such as {'loss': 0.1}")
    ((metric, value),) = check_until(target, problem, "target").items()
    return metric, value


def task_seconds(question: Question) -> float:
    """Returns the mean seconds of a task of BSP, from its pull to the arrival of its push."""
    tasks = question.rounds().tasks
    return float((tasks["push_end"] - tasks["pull_start"]).mean())


def usable(
    families: Mapping[str, Family], question: Question, all_of_them: bool
) -> tuple[dict[str, Family], list[str]]:
    """Returns the families that the problem and the cluster support, and notes on why others are left out.

    Args:
        families: by name.
        question: problem and cluster.
        all_of_them: True: raises ValueError if a setting is not supported, because the caller named it.
    """
    left, notes = {}, []
    for name, family in families.items():
        settings, why = [], ValueError()
        for setting in family.settings:
            try:
                method = family.at(setting, family.rate)
                question.check(method)
                settings.append(setting)
            except ValueError as error:
                why = error
                if all_of_them:
                    raise ValueError(f"methods[{name!r}], {why}") from error
        if settings:
            left[name] = family._replace(settings=settings)
        else:
            notes.append(left_out(name, why))
    return left, notes
