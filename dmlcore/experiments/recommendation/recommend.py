"""`recommend`: the fastest method for a cluster, and the reason."""

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import optax

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.experiments.comparison import bar
from dmlcore.experiments.journal import folder_for
from dmlcore.experiments.recommendation.clusters import ASSUMED_SIZE, as_cluster, with_links
from dmlcore.experiments.recommendation.library import Scale, chosen
from dmlcore.experiments.recommendation.result import Recommendation
from dmlcore.experiments.study.goal import asked
from dmlcore.experiments.study.search import FEWEST, FIRST, magnitudes, tune
from dmlcore.experiments.study.space import Candidates, Space, possible
from dmlcore.experiments.study.spending import Spending
from dmlcore.experiments.study.study import answer, begin, place
from dmlcore.methods.policies import asp, bsp
from dmlcore.problems.problem import Problem
from dmlcore.trace.metrics.decision import LOOKS
from dmlcore.training.loop import EvalParams


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
    save = folder_for(save)
    goal = asked(problem, None, target, optimizer, seeds, size, save=save, eval_params=eval_params)
    if problem.additive:
        checks.fail("problem", problem, "a problem that is trained by gradients, with a learning rate")
    budget = checks.real("budget", budget, above=0)
    if trials is not None:
        checks.integer("trials", trials, low=FEWEST, high=FIRST[-1])
    if parameter_bytes is not None:
        problem = problem.with_parameter_bytes(parameter_bytes)
    fitted = with_links(as_cluster(cluster, batch_size), links)
    if parameter_bytes is not None:
        fitted.untold.append(f"Messages are those of a model of {problem.parameter_bytes:,} bytes")
    size = batch_size or fitted.batch_size or ASSUMED_SIZE
    goal = dataclasses.replace(goal, problem=problem, cluster=fitted.cluster, batch_size=size)
    tasks = goal.rounds().tasks
    seconds = float((tasks["push_end"] - tasks["pull_start"]).mean())
    scale = Scale(goal.cluster.num_workers, size, seconds, 1.0, 1.0, optimizer, not fitted.real)

    def chosen_at(scale: Scale, left_out: list[str]) -> Candidates:
        strict = methods is not None  # what the caller named must be possible
        return possible(chosen(methods, scale), optimizer, goal.check, None if strict else left_out)

    made = chosen_at(scale, [])  # before anything is run
    path = place(goal, made, {"budget": budget, "trials": trials})
    scouts = {"BSP at first": Space(bsp, {}), "ASP at first": Space(asp, {})}
    with bar(checks.boolean("progress", progress), None) as advance:
        spending = Spending(None, budget, path, advance=advance)
        scouting = begin(goal, possible(scouts, optimizer, goal.check), spending)
        rates, reached = magnitudes(scouting)
        together, alone = (rates[name] for name in scouts)
        notes = [*fitted.untold]
        made = chosen_at(scale._replace(together=together, alone=alone), notes)
        search = begin(goal, made, spending, reached)
        found = answer(search, tune(search, trials), notes)
    if found.interrupted:
        warnings.warn(found.notes[0], stacklevel=2)

    def again(cluster: Cluster, budget: float) -> Recommendation:
        same: Any = {"trials": trials, "methods": methods, "optimizer": optimizer, "save": save}
        same |= {"seeds": goal.seeds, "batch_size": batch_size, "progress": False, "eval_params": eval_params}
        return recommend(problem, cluster, target, budget=budget, **same)

    return Recommendation({"": found}, tuned=goal.cluster, again=again)
