"""`study`: which method reaches a target first, each at its best settings, by how much, and how sure."""

import dataclasses
import functools
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import optax
import pandas as pd

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.experiments.comparison import bar
from dmlcore.experiments.journal import Journal, folder_for
from dmlcore.experiments.study.goal import Goal, Outcome, asked
from dmlcore.experiments.study.judging import Answer, Study, judge
from dmlcore.experiments.study.search import LONGEST, Search, fail_to_reach, recalled, tune
from dmlcore.experiments.study.space import Candidates, Space, Trial, as_space, possible
from dmlcore.experiments.study.spending import Spending, check_budget
from dmlcore.problems.problem import Problem
from dmlcore.trace.metrics.decision import LOOKS
from dmlcore.training.loop import EvalParams
from dmlcore.types import Method, Policy

CUT = "The budget ended before the leading methods were tuned to the end; a larger one may rank them anew"


def study(
    methods: Any,
    problem: Problem,
    cluster: Cluster | Mapping[str, Cluster],
    target: Mapping[str, float],
    *,
    optimizer: Callable[[float], optax.GradientTransformation] = optax.sgd,
    budget: int | str | timedelta = 200,
    seeds: Iterable[int] = range(LOOKS[-1]),
    all_seeds: bool = False,
    settings: Mapping[str, Any] | None = None,
    batch_size: int = 32,
    eval_params: EvalParams | None = None,
    save: Any = None,
    executor: str = "threads",
    progress: bool = False,
) -> Study:
    """Finds out which method reaches a target first, each at its best settings, and how sure that is.

    The search first gives every method the same number of runs, over its knobs and its learning rate, by
    successive halving: each rung has half as many trials on twice as many seeds, and ranges grow while their
    ends win. Only methods within twice the best median then go on in steps, and those within 1.5 times are
    halved together. No run lasts longer than four times the best.

    Then the best setting of each method is judged, on other seeds, the same for all: on 8, and then on 16,
    32, 64 and 128 those that `metrics.decide` does not tell apart from the best one, while the budget lasts.

    A judged run reaches the target with the first of all its updates whose parameters meet it, whatever the
    grid of evaluations is.

    Args:
        methods: name -> a policy; a `Method`, with an optimizer of its own or without; a function of the
            learning rate that returns one; or a `dml.space`. Or a list of them, which are named as they are
            written.
        problem: the problem to train. An additive one has no learning rate.
        cluster: the cluster to train on; or name -> cluster, for a map.
        target: one metric and the value to reach, such as `{"loss": 0.1}`.
        optimizer: learning rate -> optax optimizer of the server, for methods that bring none.
        budget: the most that each method may spend on each cluster: a number of runs, >= 3, about half of
            them for judging; or seconds of computing on this machine, such as "30 s" or a timedelta, with
            which every machine gives an answer of its own.
        seeds: for judging, S of them; 8 are the fewest that decide anything. The search uses others.
        all_seeds: whether all methods are judged on all seeds, also those that are told apart before. The
            search then has the budget's runs less S; with S more than the search is to have, its answer does
            not depend on S.
        settings: what earlier studies have found, `Study.settings` of one or of several: the search is left
            out where they have the same problem, target, cluster and names of methods. Default: None.
        batch_size: samples per task.
        eval_params: as for `train`: makes the parameters whose metric is to reach the target.
        save: folder for finished runs, as for `compare`; the same call goes on from it.
        executor: "threads" or "ray", as for `compare`.
        progress: whether to show a progress bar.

    Returns:
        The study; after Ctrl-C, what is known by then.

    Raises:
        ValueError: an argument is wrong, a method is not possible on a cluster, or no method reaches the
            target; the message says how far each came.

    >>> import dmlcore as dml
    >>> problem = dml.problems.linear_regression(num_samples=64, num_features=3)
    >>> cluster = dml.Cluster.from_speeds([1000, 1000, 250])
    >>> found = study({"BSP": dml.bsp(), "ASP": dml.asp()}, problem, cluster, {"loss": 30.0}, budget=40,
    ...               batch_size=8)
    >>> found.versus("BSP", "ASP").outcome
    'slower'

    Source: `dmlcore.experiments.study.search` for the halving, `metrics.decide` for the rule.
    """
    options: Any = {"all_seeds": checks.boolean("all_seeds", all_seeds), "save": folder_for(save)}
    options |= {"executor": checks.one_of("threads", "ray")("executor", executor), "eval_params": eval_params}
    goal = asked(problem, target, optimizer, seeds, batch_size, **options)
    spaces, (runs, seconds) = named(methods), check_budget(budget)
    seconds = seconds and seconds * len(spaces)  # of all methods together
    if all_seeds and not (runs and runs > len(goal.seeds)):
        checks.fail("budget", budget, f"more runs than the {len(goal.seeds)} seeds (with all_seeds=True)")
    if not isinstance(settings, Mapping | None):
        checks.fail("settings", settings, "the `settings` of an earlier study")
    several = isinstance(cluster, Mapping)
    clusters: Any = cluster if several else {"": cluster}
    if not clusters:
        checks.fail("cluster", cluster, "a Cluster, or a mapping of at least one name to one")
    goals: dict[str, tuple[Goal, Candidates]] = {}
    for name, each in clusters.items():
        if not isinstance(name, str):
            checks.fail("cluster", name, "a string as the name of each cluster")
        checks.check_kind(f"cluster[{name!r}]" if several else "cluster", each, Cluster)
        own = dataclasses.replace(goal, cluster=each)
        goals[name] = own, possible(spaces, None if problem.additive else optimizer, own.check)
    answers, failed = dict[str, Answer](), dict[str, ValueError]()
    with bar(checks.boolean("progress", progress), None) as advance:
        for name, (goal, made) in goals.items():
            path = place(goal, made, budget=budget)
            spending = Spending(runs, seconds, None if runs else path, advance=advance)
            try:
                search = begin(goal, made, spending)
                if not (settings and recalled(search, settings)):
                    tune(search)
                answers[name] = answer(search)
            except KeyboardInterrupt:
                if not answers:
                    raise
                break
            except ValueError as error:
                if not several:
                    raise
                failed[name] = error
            if spending.interrupted:
                break
    if not answers:
        raise ValueError("; ".join(f"on {name}, {error}" for name, error in failed.items()))
    found = Study(answers, [f"{name} is left out ({error})" for name, error in failed.items()])
    if len(answers) + len(failed) < len(goals) or found.interrupted:
        told = f"; the study knows {len(answers)} of {len(goals)} clusters" if several else ""
        warnings.warn(f"interrupted: the answer is that of the runs that are finished{told}", stacklevel=2)
    return found


def named(methods: Any) -> dict[str, Space]:
    """Returns the argument `methods` as name -> space.

    >>> import dmlcore as dml
    >>> [*named([dml.bsp(), dml.ssp(3)])]
    ['bsp()', 'ssp(staleness=3)']
    """
    by_name = methods
    if isinstance(methods, Sequence) and not isinstance(methods, str | Policy | Method | Space):
        by_name = {str(given): given for given in methods}
        if len(by_name) < len(methods):
            twice = next(name for name in by_name if [*map(str, methods)].count(name) > 1)
            checks.fail("methods", twice, "a different name for each method")
    if not isinstance(by_name, Mapping) or not by_name:
        checks.fail("methods", methods, "a mapping of at least one name to a method, or a list of methods")
    return {name: as_space(name, given) for name, given in by_name.items()}


def place(goal: Goal, candidates: Candidates, **about: Any) -> Path | None:
    """Returns the path of a call's decisions; None if the call does not save its runs.

    Raises:
        ValueError: finished runs of two settings of a method could not be told apart in the folder.
    """
    if goal.save is None:
        return None
    call: dict[str, Any] = {"target": {goal.metric: goal.target}, "seeds": [*goal.seeds], "about": str(about)}
    for name, each in candidates.items():
        own = [goal.identity(each.method(Trial(name, setting, 0.1))) for setting in each.settings]
        if len({*own}) < len(own):
            expected = "policies, loads and transports whose names say their settings (with save=)"
            checks.fail(f"methods[{name!r}]", each.space, expected)
        call[f"method {name}"] = own
    return Journal(goal.save, {"call": "study"}).path(call).with_suffix(".json")


def begin(goal: Goal, candidates: Candidates, spending: Spending, about: float = 0.0) -> Search:
    """Returns a search on seeds that do not judge, which leaves runs for judging.

    Args:
        goal: what is asked.
        candidates: the methods by name.
        spending: what may be spent.
        about: cluster time in which a good run reaches the target. 0: not known.
    """
    spending.made.update(dict.fromkeys(candidates, 0))
    further = spending.runs is not None and len(candidates) > 1  # a single method needs no further seeds
    most = len(goal.seeds) if further else min(LOOKS[0], len(goal.seeds))
    reserve = len(goal.seeds) if goal.all_seeds else max(1, min(most, spending.room() // 2))
    return Search(goal, candidates, goal.tuning, spending, reserve, about)


def answer(search: Search, notes: Sequence[str] = ()) -> Answer:
    """Judges the best settings that a search has found; after Ctrl-C, tells what they are.

    Args:
        search: its trials, and what may be spent.
        notes: of the answer.

    Raises:
        ValueError: no method reaches the target.
        KeyboardInterrupt: Ctrl-C was pressed before any run was finished.
    """
    goal, spending, candidates, best = search.goal, search.spending, search.candidates, search.best()
    if not best:
        raise KeyboardInterrupt
    methods = {name: candidates[name].method(trial) for name, trial in best.items()}
    settings = {name: (candidates[name].told(trial), trial.rate) for name, trial in best.items()}
    told = pd.DataFrame(settings, index=["setting", "learning_rate"]).T.astype({"learning_rate": float})
    histories = None
    if not spending.interrupted:
        longest = search.longest()
        if math.isinf(longest):
            last = {name: search.rank(trial)[2] for name, trial in best.items()}
            fail_to_reach(goal, last, LONGEST * search.about)
        runs = functools.partial(goal.runs, seconds=longest, about=search.about)
        histories = judge(goal, methods, runs, spending)
    if histories is not None:
        measured, known = goal.measured(histories), "more seeds could tell more methods apart"
    elif not any(spending.made.values()):
        raise KeyboardInterrupt
    else:  # the runs of the search on common seeds
        seeds = sorted(set.intersection(*({*search.found[trial]} for trial in best.values())))
        rows = {(name, seed): search.found[best[name]][seed] for name in best for seed in seeds}
        measured = pd.DataFrame(rows, index=Outcome._fields).T.rename_axis(["method", "seed"])
        known = f"the times are those of {len(seeds)} of the seeds that tuned, not of the judging seeds"
    if spending.interrupted:
        unknown = ", ".join(name for name in candidates if name not in best)
        lacking = [f"Not run before the interrupt: {unknown}"] if unknown else []
        notes = [f"Interrupted: {known}", *lacking, *notes]
    elif not search.whole:
        notes = [*notes, CUT]
    return Answer(search, methods, told, measured, histories, search.tuned(), notes)
