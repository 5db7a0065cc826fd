"""The search of a recommendation: tunes all methods, and compares the best trial of each on other seeds."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import pandas as pd

from dmlcore import checks
from dmlcore.experiments.recommendation import trials as halving
from dmlcore.experiments.recommendation.leading import halve_leading, improve_leading
from dmlcore.experiments.recommendation.library import Family, Trial
from dmlcore.experiments.recommendation.progress import SearchLog, keep
from dmlcore.experiments.recommendation.question import Outcome, Question
from dmlcore.experiments.recommendation.ranking import level, ranked
from dmlcore.experiments.recommendation.result import Recommendation, Tuned, answer
from dmlcore.experiments.recommendation.runner import LONGEST, Runner
from dmlcore.experiments.recommendation.trials import Measure, Outcomes, Pairs
from dmlcore.types import Method

FURTHER = 3  # largest number of further judging seeds, as a multiple of those given
CUT = "The budget ended before the leading methods were tuned to the end; a larger one may rank them anew"
FINE = 12  # trials in the first rung from which on learning rates are found to within some tenths


@dataclass
class Search:
    """A search within a budget, which saves its progress after every step.

    Args:
        runner: makes the runs.
        families: the methods.
        judging: seeds of the final comparison, for which the tuning leaves time.
        log: the finished steps.
    """

    runner: Runner
    families: Mapping[str, Family]
    judging: Sequence[int]
    log: SearchLog

    def affords(self, stage: str, runs: int) -> bool:
        """Returns whether to make the next step of a stage: it fits the budget, or was made before."""
        if self.runner.stopwatch.interrupted:
            return False
        return self.log.repeats(stage) or runs * self.runner.per_run <= self.runner.stopwatch.left

    def finish(self, stage: str) -> None:
        """Counts a step."""
        self.log.finish(stage, self.runner.stopwatch.spent)

    def tuning(self, stage: str) -> tuple[Measure, Callable[[int], bool]]:
        """Returns what measures trials, and says whether to, in the rungs of a stage."""

        def measure(pairs: Pairs, limit: float) -> dict[tuple[Trial, int], Outcome]:
            found = outcomes(self.runner, self.families, pairs, limit)
            if len(found) == len(pairs):
                self.finish(stage)
            return found

        def affords(runs: int) -> bool:
            return self.affords(stage, runs + len(self.judging) * len(self.families))

        return measure, affords


class Tuning(NamedTuple):
    """The result of tuning.

    Args:
        found: the outcomes.
        each: number of runs that every method had.
        whole: whether the leading methods were tuned to the end.
    """

    found: Outcomes
    each: int
    whole: bool


def tune_all(search: Search, tuning: Sequence[int]) -> Tuning:
    """Tunes every method by successive halving, then the leading ones further, on the seeds `tuning`."""
    log, families = search.log, search.families
    keep(log.path, dataclasses.replace(log.progress, spent=search.runner.stopwatch.spent))
    first, longest = log.progress.first, LONGEST * log.progress.seconds
    found = halving.halve(families, first, tuning, longest, *search.tuning("rungs"))
    each = max(sum(len(found.outcomes[trial]) for trial in found.of(name)) for name in families)
    if search.runner.stopwatch.interrupted:  # perhaps before every method had a run
        return Tuning(found, each, False)
    steps = improve_leading(found, families, tuning, *search.tuning("steps"))
    rungs = halve_leading(found, families, tuning, *search.tuning("leading"))
    return Tuning(found, each, steps and rungs)


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


def judge(search: Search, tuning: Tuning, further: Sequence[int], notes: Sequence[str]) -> Recommendation:
    """Compares the best trial of each method on the judging seeds; after Ctrl-C, on the tuning seeds.

    Args:
        search: the methods and the judging seeds.
        tuning: its result.
        further: judging seeds for the methods that the others do not tell apart from the best one.
        notes: for the recommendation.

    Raises:
        ValueError: no method reaches the target.
        KeyboardInterrupt: Ctrl-C was pressed before any run was finished.
    """
    runner, families, (found, each, whole) = search.runner, search.families, tuning
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
    tried = {seed for outcomes in found.outcomes.values() for seed in outcomes}
    known, tuned = found.outcomes_of(best), Tuned(question.cluster, frozenset(tried), each)
    runs, least = None, float(known["seconds"].groupby("method").median().min())
    if not runner.stopwatch.interrupted:
        if math.isinf(least):
            fail_to_reach(question, known, LONGEST * runner.about)
        runs = tell_apart(search, methods, further, LONGEST * least)
    if each < halving.runs_of(FINE):
        notes = [
            *notes,
            f"Methods that do not lead had only {each} runs; a larger budget may find better settings and "
            "learning rates",
        ]
    interrupted = runner.stopwatch.interrupted
    if not whole and not interrupted:
        notes = [*notes, CUT]
    if interrupted:
        notes = [_interrupted(known, len(best), len(families), runs is None), *notes]
        warnings.warn(notes[0], stacklevel=3)
    measured = known if runs is None else question.measured(runs)
    answered = answer(question, methods, told, measured, runs, tuned, search.judging, notes)
    return dataclasses.replace(answered, interrupted=interrupted)


def _interrupted(known: pd.DataFrame, methods: int, of: int, before_judging: bool) -> str:
    """Returns what Ctrl-C has left of the answer."""
    if not before_judging:
        return "Interrupted: more seeds could tell more methods apart"
    count = known.index.get_level_values("seed").nunique()
    said = f"Interrupted: the times are those of {count} of the seeds that tuned, not of the judging seeds"
    return said + (f", for {methods} of {of} methods" if methods < of else "")


def tell_apart(
    search: Search, methods: Mapping[str, Method], further: Sequence[int], seconds: float
) -> pd.DataFrame | None:
    """Returns histories of all methods on the judging seeds, and of those that are level on further ones.

    The best method and those that are level with it get twice as many seeds each time, until the best is
    clear, or the seeds or the budget are used up. After Ctrl-C: without the runs that were under way; None if
    not all methods have run on the judging seeds.

    Args:
        search: makes the runs.
        methods: name -> method with its optimizer.
        further: seeds for methods that are level.
        seconds: length of a run in cluster time.
    """
    runner, every, count = search.runner, [*search.judging, *further], len(search.judging)
    runs = runner.runs(methods, dict.fromkeys(methods, search.judging), seconds)
    if runs is None or runner.stopwatch.interrupted:
        return None
    search.finish("judged")
    while True:
        table = ranked(runner.question.measured(runs)["seconds"].unstack("seed"))
        alike, ran = level(table), runs.groupby("method")["seed"].agg(set)
        left = {
            name: [seed for seed in every[:count] if seed not in ran[name]]
            for name in (str(table.index[0]), *alike)
        }
        if lacking := {name: seeds for name, seeds in left.items() if seeds}:
            if not search.affords("judged", sum(map(len, lacking.values()))):
                return runs
            added = runner.runs({name: methods[name] for name in lacking}, lacking, seconds)
            if added is None or runner.stopwatch.interrupted:
                return runs
            search.finish("judged")
            runs = pd.concat([runs, added], ignore_index=True)
        elif not alike or count == len(every):
            return runs
        else:
            count = min(2 * count, len(every))


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
