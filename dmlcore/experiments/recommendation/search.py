"""The search of a recommendation: tunes all methods, and compares the best trial of each on other seeds."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pandas as pd

from dmlcore import checks
from dmlcore.experiments.recommendation import progress as saved
from dmlcore.experiments.recommendation import trials as halving
from dmlcore.experiments.recommendation.library import Family, Trial
from dmlcore.experiments.recommendation.progress import SearchProgress
from dmlcore.experiments.recommendation.question import Outcome, Question
from dmlcore.experiments.recommendation.result import Recommendation, Tuned, answer
from dmlcore.experiments.recommendation.runner import LONGEST, Runner
from dmlcore.experiments.recommendation.trials import Outcomes, Pairs

FINE = 12  # trials in the first rung from which on learning rates are found to within some tenths


def tune_all(
    runner: Runner,
    families: Mapping[str, Family],
    tuning: Sequence[int],
    judging: int,
    so_far: SearchProgress,
    path: Path | None,
) -> Outcomes:
    """Tunes every method by successive halving within the budget, and saves the progress.

    Args:
        runner: makes the runs.
        families: the methods.
        tuning: seeds for tuning.
        judging: number of seeds of the final comparison, for which the search leaves time.
        so_far: the size of the first rung, and the rungs that an earlier call has finished.
        path: file of the saved progress, or None.
    """
    stopwatch, made, rungs = runner.stopwatch, 0, 0
    saved.keep(path, dataclasses.replace(so_far, spent=stopwatch.spent))

    def measure(pairs: Pairs, limit: float) -> dict[tuple[Trial, int], Outcome]:
        nonlocal made, rungs
        found = outcomes(runner, families, pairs, limit)
        made += len(pairs)
        if len(found) == len(pairs):
            rungs += 1
            done = max(rungs, so_far.rungs)
            saved.keep(path, dataclasses.replace(so_far, rungs=done, spent=stopwatch.spent))
        return found

    def enough(rung: int, runs: int) -> bool:
        if rung < so_far.rungs:
            return stopwatch.interrupted
        per_run = stopwatch.spent / max(made, 1)
        return stopwatch.interrupted or (runs + judging * len(families)) * per_run > stopwatch.left

    return halving.halve(families, so_far.first, tuning, measure, LONGEST * so_far.seconds, enough)


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
    seeds: Sequence[int],
    notes: Sequence[str],
) -> Recommendation:
    """Runs the best trial of each method on `seeds`; after Ctrl-C, answers from the tuning runs.

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
    each = max(sum(len(found.outcomes[trial]) for trial in found.of(name)) for name in best)
    tuning = {seed for outcomes in found.outcomes.values() for seed in outcomes}
    known, tuned = found.outcomes_of(best), Tuned(question.cluster, frozenset(tuning), each)
    runs, least = None, float(known["seconds"].groupby("method").median().min())
    if not runner.stopwatch.interrupted:
        if math.isinf(least):
            fail_to_reach(question, known, LONGEST * runner.about)
        runs = runner.runs(methods, dict.fromkeys(methods, seeds), LONGEST * least)
    if each < halving.runs_of(FINE):
        notes = [
            *notes,
            f"Each method had only {each} runs; a larger budget may find better settings and learning rates",
        ]
    if runs is None or runner.stopwatch.interrupted:
        count = known.index.get_level_values("seed").nunique()
        said = (
            f"Interrupted: the times are those of {count} of the seeds that tuned, not of the judging seeds"
        )
        if len(best) < len(families):
            said += f", for {len(best)} of {len(families)} methods"
        warnings.warn(said, stacklevel=3)
        return answer(question, methods, told, known, None, tuned, [said, *notes])
    return answer(question, methods, told, question.measured(runs), runs, tuned, notes)


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
