"""`study`: which method reaches a target first, each at its best settings, by how much, and how sure."""

from __future__ import annotations

import itertools
import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import optax
import pandas as pd

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.experiments.comparison import bar, check_factory
from dmlcore.experiments.journal import Journal, folder_for
from dmlcore.experiments.study import search as searching
from dmlcore.experiments.study.goal import Goal, Outcome, check_target
from dmlcore.experiments.study.judging import judge
from dmlcore.experiments.study.result import Answer, Study
from dmlcore.experiments.study.search import LONGEST, Search, halve, improve, magnitudes, runs_of
from dmlcore.experiments.study.space import Candidate, Space, Trial, as_space
from dmlcore.experiments.study.spending import Spending, check_budget
from dmlcore.problems.problem import Problem
from dmlcore.problems.validation import check_problem
from dmlcore.trace.metrics.decision import LOOKS
from dmlcore.types import Method, Policy

TUNING = 1000  # the first seed of the search; judging seeds are left out
FIRST = [1, 3, *(6 * 2**power for power in range(8))]  # possible numbers of trials in the first rung
PART = 0.6  # part of a search's budget for the rungs of all methods; the rest is for those that lead
WHOLE = 1.4  # runs of a search of all methods, over those before the leading ones go on
CORES = 0.8  # fraction of the cores that runs use on average
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
    batch_size: int = 32,
    save: Any = None,
    executor: str = "threads",
    progress: bool = False,
) -> Study:
    """Finds out which method reaches a target first, each at its best settings, and how sure that is.

    The search gives every method the same number of runs, over its knobs and its learning rate, by successive
    halving: each rung has half as many trials on twice as many seeds, and ranges grow while their ends win.
    Methods within twice the best median then go on in steps, and those within 1.5 times are halved together.
    No run lasts longer than four times the best.

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
        budget: what each method may spend on each cluster: a number of runs, >= 2, about half of them for
            judging; or seconds of computing on this machine, such as "30 s" or a timedelta, with which every
            machine gives an answer of its own.
        seeds: for judging, S of them; 8 are the fewest that decide anything. The search uses others.
        batch_size: samples per task.
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
    check_problem(problem)
    spaces = named(methods)
    check_factory(optimizer)
    metric, value = check_target(target, problem)
    judging = checks.several("seeds", seeds, checks.check_seed)
    runs, seconds = check_budget(budget)
    checks.integer("batch_size", batch_size, low=1)
    checks.one_of("threads", "ray")("executor", executor)
    several = isinstance(cluster, Mapping)
    clusters: Mapping[str, Cluster] = cluster if isinstance(cluster, Mapping) else {"": cluster}
    if not clusters:
        checks.fail("cluster", cluster, "a Cluster, or a mapping of at least one name to one")
    goals = {}
    for name, each in clusters.items():
        if not isinstance(name, str):
            checks.fail("cluster", name, "a string as the name of each cluster")
        checks.check_kind(f"cluster[{name!r}]" if several else "cluster", each, Cluster)
        goals[name] = Goal(problem, each, metric, value, batch_size, folder_for(save), executor)
    own = None if problem.additive else optimizer
    made = {name: candidates(spaces, own, goal) for name, goal in goals.items()}
    for one in itertools.chain.from_iterable(group.values() for group in made.values()):
        one.check()  # before anything is run
    answers, failed = {}, {}
    with bar(checks.boolean("progress", progress), None) as advance:
        for name, goal in goals.items():
            path = place(goal, made[name], {"budget": str(budget), "seeds": judging})
            spending = Spending(runs, seconds and seconds * len(spaces), None if runs else path)
            try:
                answers[name] = answer(goal, made[name], judging, spending, advance)
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
    notes = [f"{name} is left out ({error})" for name, error in failed.items()]
    found = Study(answers, judging, notes)
    if len(answers) + len(failed) < len(goals) or found.interrupted:
        known = f"; the study knows {len(answers)} of {len(goals)} clusters" if several else ""
        warnings.warn(f"interrupted: the answer is that of the runs that are finished{known}", stacklevel=2)
    return found


def named(methods: Any) -> dict[str, Space]:
    """Returns the argument `methods` as name -> space.

    >>> import dmlcore as dml
    >>> [*named([dml.bsp(), dml.ssp(3)])]
    ['bsp()', 'ssp(staleness=3)']
    """
    if isinstance(methods, Mapping):
        pairs = [*methods.items()]
    elif isinstance(methods, Sequence) and not isinstance(methods, str | Policy | Method | Space):
        pairs = [(str(given), given) for given in methods]
    else:
        pairs = []
    if not pairs:
        checks.fail("methods", methods, "a mapping of at least one name to a method, or a list of methods")
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            checks.fail("methods", name, "a different name for each method")
    return {name: as_space(name, given) for name, given in pairs}


def candidates(spaces: Mapping[str, Space], optimizer: Any, goal: Goal) -> dict[str, Candidate]:
    """Returns the methods of a study; `optimizer` is None for a problem without a learning rate."""
    return {name: Candidate(name, each, optimizer, goal.check) for name, each in spaces.items()}


def place(goal: Goal, candidates: Mapping[str, Candidate], about: Mapping[str, Any]) -> Path | None:
    """Returns the path of a call's decisions; None if the call does not save its runs.

    Raises:
        ValueError: finished runs of two settings of a method could not be told apart in the folder.
    """
    if goal.save is None:
        return None
    known: dict[str, Any] = {name: str(value) for name, value in about.items()} | {"target": str(goal)}
    for name, each in candidates.items():
        told = [goal.identity(each.method(Trial(name, setting, 0.1))) for setting in each.settings]
        if len({*told}) < len(told):
            expected = "policies, loads and transports whose names say their settings (with save=)"
            checks.fail(f"methods[{name!r}]", each.space, expected)
        known[f"method {name}"] = told
    return Journal(goal.save, {"call": "study"}).path(known).with_suffix(".json")


def answer(
    goal: Goal,
    candidates: Mapping[str, Candidate],
    judging: Sequence[int],
    spending: Spending,
    advance: Callable[[int], None],
    *,
    about: float = 0.0,
    first: int | None = None,
    compiling: float | None = None,
    notes: Sequence[str] = (),
) -> Answer:
    """Searches the best settings of all methods for one goal, and judges them.

    Args:
        goal: what is asked.
        candidates: the methods by name.
        judging: seeds of the comparison.
        spending: what may be spent.
        advance: called with the number of finished runs.
        about: cluster time in which a good run reaches the target. 0: not known.
        first: trials of each method in the first rung. None: as many as the budget allows.
        compiling: seconds to compile a program. None: not known.
        notes: of the answer.

    Raises:
        ValueError: no method reaches the target.
        KeyboardInterrupt: Ctrl-C was pressed before any run was finished.
    """
    tuning = [*itertools.islice((seed for seed in itertools.count(TUNING) if seed not in judging), 2**12)]
    spending.made.update(dict.fromkeys(candidates, 0))
    judged = min(LOOKS[0], len(judging))
    runs = spending.runs
    reserve = judged
    if runs is not None:  # about half of them; to tell a single method apart no further seeds are run
        reserve = max(1, min(runs // 2, judged if len(candidates) == 1 else len(judging)))
    search = Search(goal, candidates, tuning, spending, reserve, about, advance)
    rates = {name: each.space.rate or 1.0 for name, each in candidates.items()}
    whole = False
    try:
        if not about:
            most = len(searching.MAGNITUDES) if runs is None else max(1, (runs - reserve) // 3)
            found, search.about = magnitudes(search, most)
            rates |= found
        first = first or spending.once("first", lambda: _affordable(search, judged, compiling))
        halve(search, rates, first)
        whole = not spending.interrupted and improve(search)
    except KeyboardInterrupt:
        spending.interrupted = True
    best = search.best()
    if not best:
        raise KeyboardInterrupt
    methods = {name: candidates[name].method(trial) for name, trial in best.items()}
    told = pd.DataFrame(
        {
            "setting": {name: candidates[name].told(trial) for name, trial in best.items()},
            "learning_rate": {name: trial.rate for name, trial in best.items()},
        }
    ).astype({"learning_rate": float})
    seeds = set.intersection(*({*search.found[trial]} for trial in best.values()))
    rows = {(name, seed): search.found[trial][seed] for name, trial in best.items() for seed in sorted(seeds)}
    index = pd.MultiIndex.from_tuples(rows, names=["method", "seed"])
    measured, histories = pd.DataFrame([*rows.values()], index, columns=Outcome._fields), None
    if not spending.interrupted:
        least = min(search.seconds().values())
        if math.isinf(least):
            last = measured["last"].groupby("method").median()
            searching.fail_to_reach(
                goal, {str(name): float(value) for name, value in last.items()}, LONGEST * search.about
            )

        def make(some: Mapping[str, Method], own: Sequence[int]) -> Any:
            made = goal.runs(some, dict.fromkeys(some, own), LONGEST * least, search.about, tuning[0])
            advance(len(some) * len(own))
            return made

        histories = judge(goal, methods, judging, make, spending)
    if histories is not None:
        measured = goal.measured(histories)
    said = [*notes]
    if not whole and not spending.interrupted:
        said.append(CUT)
    if spending.interrupted:
        said.insert(0, _interrupted(measured, histories is None))
        if unknown := [name for name in candidates if name not in best]:
            said.insert(1, f"Not run before the interrupt: {', '.join(unknown)}")
    used = frozenset(seed for outcomes in search.found.values() for seed in outcomes)
    spent = {name: spending.made[name] for name in best}
    return Answer(goal, methods, told, measured, histories, used, spent, said, spending.interrupted)


def _interrupted(measured: pd.DataFrame, before_judging: bool) -> str:
    if not before_judging:
        return "Interrupted: more seeds could tell more methods apart"
    count = measured.index.get_level_values("seed").nunique()
    return f"Interrupted: the times are those of {count} of the seeds that tuned, not of the judging seeds"


def _affordable(search: Search, judged: int, compiling: float | None) -> int:
    """Returns the number of `FIRST` that the budget allows as trials of each method in the first rung."""
    spending, methods = search.spending, search.candidates
    cores = max(1.0, CORES * len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [0]))
    per_run = spending.per_run / 2  # so far, half of the time went into compiling
    compiling = spending.spent / max(len(spending.made), 1) if compiling is None else compiling
    for first in reversed(FIRST):
        if spending.runs is not None:
            left = spending.runs - search.reserve - max(spending.made.values())
            if runs_of(first) <= PART * left:
                return first
        else:
            tried = (min(len(each.settings), max(1, first // searching.SHARE)) for each in methods.values())
            runs = WHOLE * len(methods) * (runs_of(first) + judged)
            if (sum(tried) * compiling + runs * per_run) / cores <= spending.left():
                return first
    return FIRST[0] if spending.runs is not None else searching.FEWEST
