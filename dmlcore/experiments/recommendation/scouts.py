"""Scouts: runs of BSP and ASP show which learning rates reach a target, and in what time."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dmlcore import checks
from dmlcore.experiments.comparison import sweep
from dmlcore.experiments.recommendation import trials
from dmlcore.experiments.recommendation.library import Family
from dmlcore.experiments.recommendation.question import Question
from dmlcore.experiments.recommendation.runner import LOOKS, Stopwatch
from dmlcore.methods.policies import asp, bsp
from dmlcore.trace import metrics
from dmlcore.types import Method, Policy

RATES = [4.0**power for power in range(-7, 5)]  # learning rates of the first runs
AROUND = [4.0**power for power in range(-2, 3)]  # later runs try the best rate times these factors
FIRST_ROUNDS = 32  # rounds of BSP in the first runs
CORES = 0.8  # fraction of the cores that runs use on average
WHOLE = 1.4  # runs of a search of all methods, over those before the leading and the level ones go on
FIRST = [6 * 2**power for power in range(8)]  # possible numbers of trials of a method in the first rung


class Scouted(NamedTuple):
    """The results of BSP and ASP.

    Args:
        rates: best learning rate of each, by name.
        seconds: cluster time to the target of the faster one.
        per_run: seconds of computing per run.
        compiling: seconds of computing per new compiled program.
    """

    rates: Mapping[str, float]
    seconds: float
    per_run: float
    compiling: float


def scout(
    question: Question, optimizer: Any, seed: int, stopwatch: Stopwatch, advance: Callable[[int], None]
) -> Scouted:
    """Runs BSP and ASP over a wide range of rates, doubling the length until one reaches the target.

    Raises:
        ValueError: the target is reached from the start, or not within the budget.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    rounds, workers = FIRST_ROUNDS, question.cluster.num_workers
    rates: dict[str, list[float]] = {"BSP": RATES, "ASP": RATES}
    policies: dict[str, Policy] = {"BSP": bsp(), "ASP": asp()}
    first = 0.0
    metric: Any = {"metric": question.metric, "target": question.target, "below": question.below}
    while True:
        began, made, reached = stopwatch.spent, 0, math.inf
        best: dict[str, float] = {}
        last: dict[str, float] = {}
        seconds = question.timeline(Method(bsp()), updates=rounds, seed=seed).end_time
        for name, policy in policies.items():
            options = question.options(seconds, max(1, rounds // LOOKS) * (workers if name == "ASP" else 1))
            cluster = question.problem, question.cluster, optimizer
            runs = sweep({name: policy}, *cluster, rates[name], seeds=[seed], **options)
            if runs.attrs["interrupted"]:
                raise KeyboardInterrupt
            made += len(rates[name])
            advance(len(rates[name]))
            best[name] = float(metrics.best_learning_rate(runs, **metric)[name])
            reached = min(reached, float(metrics.time_to(runs, **metric).min()))
            last[name] = float(runs.loc[runs["learning_rate"] == best[name], question.metric].iloc[-1])
            starts = float(runs[question.metric].iloc[0])
            rates[name] = [best[name] * factor for factor in AROUND]
        took = stopwatch.spent - began
        if reached == 0:
            expected = f"a target that the initial parameters do not reach (they have {starts:.4g})"
            checks.fail("target", {question.metric: question.target}, expected)
        if math.isfinite(reached):
            compiling = (first or took) / 2  # the first runs compile two programs
            return Scouted(best, reached, took / made / (1 if first else 2), compiling)
        first = first or took
        if stopwatch.left < 0:
            closest = (min if question.below else max)(last, key=last.__getitem__)
            checks.fail(
                "target",
                {question.metric: question.target},
                f"a target that is reached (in {seconds:.3g} s of the cluster's time {closest} came to "
                f"{last[closest]:.4g}, with learning rate {best[closest]:g}, and {stopwatch.spent:.3g} s of "
                f"the budget of {stopwatch.budget:g} s were spent)",
                "a larger budget or an easier target",
            )
        rounds *= 2


def affordable(families: Mapping[str, Family], judging: int, scouted: Scouted, stopwatch: Stopwatch) -> int:
    """Returns the number of `FIRST` that the budget allows as trials of each method in the first rung.

    The estimate assumes that each setting of a method is compiled, and that runs use all cores.
    """
    cores = max(1.0, CORES * len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [0]))
    for first in reversed(FIRST):
        programs = sum(trials.settings_tried(family, first) for family in families.values())
        runs = WHOLE * len(families) * (trials.runs_of(first) + judging)
        if (programs * scouted.compiling + runs * scouted.per_run) / cores <= stopwatch.left:
            return first
    return FIRST[0]
