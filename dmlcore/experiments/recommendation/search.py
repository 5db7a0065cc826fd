"""The search of a recommendation: tunes all methods, and compares the best trial of each on other seeds."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pandas as pd

from dmlcore import checks
from dmlcore.experiments.recommendation import finals
from dmlcore.experiments.recommendation import progress as saved
from dmlcore.experiments.recommendation import trials as halving
from dmlcore.experiments.recommendation.library import Family, Trial
from dmlcore.experiments.recommendation.progress import SearchProgress
from dmlcore.experiments.recommendation.question import Outcome, Question
from dmlcore.experiments.recommendation.ranking import level, ranked
from dmlcore.experiments.recommendation.result import Recommendation, Tuned, answer
from dmlcore.experiments.recommendation.runner import LONGEST, Runner
from dmlcore.experiments.recommendation.trials import Measure, Outcomes, Pairs
from dmlcore.types import Method

FURTHER = 3  # largest number of further judging seeds, as a multiple of those given
FINE = 12  # trials in the first rung from which on learning rates are found to within some tenths


def tune_all(
    runner: Runner,
    families: Mapping[str, Family],
    tuning: Sequence[int],
    judging: int,
    so_far: SearchProgress,
    path: Path | None,
) -> tuple[Outcomes, int]:
    """Tunes every method by successive halving within the budget, then the leading ones.

    Saves the progress after every rung.

    Args:
        runner: makes the runs.
        families: the methods.
        tuning: seeds for tuning.
        judging: number of seeds of the final comparison, for which the search leaves time.
        so_far: the size of the first rung, and the rungs that an earlier call has finished.
        path: file of the saved progress, or None.

    Returns:
        The outcomes; the number of runs that every method had.
    """
    stopwatch, made, done = runner.stopwatch, 0, so_far
    saved.keep(path, dataclasses.replace(so_far, spent=stopwatch.spent))

    def stage(name: str) -> tuple[Measure, Callable[[int, int], bool]]:
        """Returns what measures and what ends the rungs that are counted as `name` in the progress."""
        finished, earlier = 0, getattr(so_far, name)

        def measure(pairs: Pairs, limit: float) -> dict[tuple[Trial, int], Outcome]:
            nonlocal made, done, finished
            found = outcomes(runner, families, pairs, limit)
            made += len(pairs)
            if len(found) == len(pairs):
                finished += 1
                done = dataclasses.replace(done, **{name: max(finished, earlier)}, spent=stopwatch.spent)
                saved.keep(path, done)
            return found

        def enough(rung: int, runs: int) -> bool:
            if rung < earlier:
                return stopwatch.interrupted
            per_run = stopwatch.spent / max(made, 1)
            return stopwatch.interrupted or (runs + judging * len(families)) * per_run > stopwatch.left

        return measure, enough

    found = halving.halve(families, so_far.first, tuning, LONGEST * so_far.seconds, *stage("rungs"))
    each = max(sum(len(found.outcomes[trial]) for trial in found.of(name)) for name in families)
    if not stopwatch.interrupted:
        finals.play(found, families, tuning, *stage("finals"))
    return found, each


def outcomes(
    runner: Runner, families: Mapping[str, Family], pairs: Pairs, limit: float
) -> dict[tuple[Trial, int], Outcome]:
    """Returns the outcomes of trials by trial and seed; after Ctrl-C, those of the finished runs."""
    seeds: dict[Trial, list[int]] = {}
    for trial, seed in pairs:
        seeds.setdefault(trial, []).append(seed)
    names = {f"{trial.method}, setting {trial.setting}, rate {trial.rate!r}": trial for trial in seeds}
    methods = {name: families[trial.method].of(trial) for name, trial in names.items()}
    runs = runner.runs(methods, {name: seeds[trial] for name, trial in names.items()}, limit)
    if runs is None:
        return {}
    measured = runner.question.measured(runs)
    return {
        (names[name], seed): Outcome(*row)
        for (name, seed), row in zip(measured.index, measured.itertuples(index=False), strict=True)
    }


def judge(
    runner: Runner,
    families: Mapping[str, Family],
    found: Outcomes,
    each: int,
    seeds: Sequence[int],
    further: Sequence[int],
    notes: Sequence[str],
) -> Recommendation:
    """Runs the best trial of each method on `seeds`; after Ctrl-C, answers from the tuning runs.

    Args:
        runner: makes the runs.
        families: the methods.
        found: the outcomes of the tuning.
        each: number of runs in which every method was tuned.
        seeds: of all methods.
        further: seeds for the methods that `seeds` do not tell apart from the best one.
        notes: for the recommendation.

    Raises:
        ValueError: no method reaches the target.
        KeyboardInterrupt: Ctrl-C was pressed before any run was finished.
    """
    best = {name: found.best(name) for name in families if found.of(name)}
    if not best:
        raise KeyboardInterrupt
    question, methods = runner.question, {name: families[name].of(trial) for name, trial in best.items()}
    told = pd.DataFrame(
        {
            "setting": {name: families[name].told(trial) for name, trial in best.items()},
            "learning_rate": {name: trial.rate for name, trial in best.items()},
        }
    )
    tuning = {seed for outcomes in found.outcomes.values() for seed in outcomes}
    known, tuned = found.outcomes_of(best), Tuned(question.cluster, frozenset(tuning), each)
    runs, least = None, float(known["seconds"].groupby("method").median().min())
    if not runner.stopwatch.interrupted:
        if math.isinf(least):
            fail_to_reach(question, known, LONGEST * runner.about)
        runs = tell_apart(runner, methods, seeds, further, LONGEST * least)
    if each < halving.runs_of(FINE):
        notes = [
            *notes,
            f"Each method had only {each} runs; a larger budget may find better settings and learning rates",
        ]
    if runs is None:
        count = known.index.get_level_values("seed").nunique()
        said = (
            f"Interrupted: the times are those of {count} of the seeds that tuned, not of the judging seeds"
        )
        if len(best) < len(families):
            said += f", for {len(best)} of {len(families)} methods"
    elif runner.stopwatch.interrupted:
        said = "Interrupted: more seeds could tell more methods apart"
    if runner.stopwatch.interrupted:
        warnings.warn(said, stacklevel=3)
        notes = [said, *notes]
    measured = known if runs is None else question.measured(runs)
    return answer(question, methods, told, measured, runs, tuned, notes)


def tell_apart(
    runner: Runner,
    methods: Mapping[str, Method],
    seeds: Sequence[int],
    further: Sequence[int],
    seconds: float,
) -> pd.DataFrame | None:
    """Returns histories of all methods on `seeds`, and of the best and those level with it on further ones.

    They run on twice as many seeds each time, until the best one is clear, the seeds are used up, or the
    budget is. After Ctrl-C: the runs on the seeds that all of them finished, or None.

    Args:
        runner: makes the runs.
        methods: name -> method with its optimizer.
        seeds: of all methods.
        further: seeds for methods that are level.
        seconds: length of a run in cluster time.
    """
    began = runner.stopwatch.spent
    runs = runner.runs(methods, dict.fromkeys(methods, seeds), seconds)
    if runs is None or runner.stopwatch.interrupted:
        return None
    per_run = (runner.stopwatch.spent - began) / (len(methods) * len(seeds))
    used = 0
    while used < len(further):
        table = ranked(runner.question.measured(runs)["seconds"].unstack("seed"))
        if not (alike := level(table)):
            break
        more = further[used : used + len(seeds) + used]
        left = {name: methods[name] for name in (str(table.index[0]), *alike)}
        if len(left) * len(more) * per_run > runner.stopwatch.left:
            break
        added = runner.runs(left, dict.fromkeys(left, more), seconds)
        if added is None or runner.stopwatch.interrupted:
            break
        runs, used = pd.concat([runs, added], ignore_index=True), used + len(more)
    return runs


def fail_to_reach(question: Question, tuned: pd.DataFrame, seconds: float) -> NoReturn:
    """Raises ValueError that says how close the methods came to the target that none reached."""
    last = tuned["last"].groupby("method").median()
    closest = str(last.idxmin())
    checks.fail(
        "target",
        {question.metric: question.target},
        f"a target that a method reaches (in {seconds:.3g} s of the cluster's time, four times what BSP or "
        f"ASP takes, {closest} came closest, to {question.value(float(last.min())):.4g})",
    )
