"""Scouts: runs of BSP and ASP show which learning rates reach a target, and in what time."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dmlcore import checks
from dmlcore.experiments.comparison import sweep
from dmlcore.experiments.recommendation import trials
from dmlcore.experiments.recommendation.goal import Goal
from dmlcore.experiments.recommendation.library import Family
from dmlcore.experiments.recommendation.runner import LOOKS, Clock
from dmlcore.methods.policies import asp, bsp
from dmlcore.trace import metrics
from dmlcore.types import Method, Policy

RATES = [4.0**power for power in range(-7, 5)]  # learning rates of the first runs
AROUND = [4.0**power for power in range(-2, 3)]  # later runs try the best rate times these factors
FIRST_ROUNDS = 32  # rounds of BSP in the first runs
CORES = 0.8  # fraction of the cores that runs use on average
SHARE = 1 / 3  # fraction of the budget after which no longer runs are tried
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


def scout(goal: Goal, optimizer: Any, seed: int, clock: Clock, advance: Callable[[int], None]) -> Scouted:
    """Runs BSP and ASP over a wide range of rates, doubling the length until one reaches the target.

    Raises:
        ValueError: the target is reached from the start, or not within a third of the budget.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    rounds, workers = FIRST_ROUNDS, goal.cluster.num_workers
    rates: dict[str, list[float]] = {"BSP": RATES, "ASP": RATES}
    policies: dict[str, Policy] = {"BSP": bsp(), "ASP": asp()}
    first = 0.0
    metric: Any = {"metric": goal.metric, "target": goal.target, "below": goal.below}
    while True:
        began, made, reached = clock.spent, 0, math.inf
        best: dict[str, float] = {}
        last: dict[str, float] = {}
        seconds = goal.timeline(Method(bsp()), updates=rounds, seed=seed).end_time
        for name, policy in policies.items():
            options = goal.options(seconds, max(1, rounds // LOOKS) * (workers if name == "ASP" else 1))
            cluster = goal.problem, goal.cluster, optimizer
            runs = sweep({name: policy}, *cluster, rates[name], seeds=[seed], **options)
            if runs.attrs["interrupted"]:
                raise KeyboardInterrupt
            made += len(rates[name])
            advance(len(rates[name]))
            best[name] = float(metrics.best_learning_rate(runs, **metric)[name])
            reached = min(reached, float(metrics.time_to(runs, **metric).min()))
            last[name] = float(runs.loc[runs["learning_rate"] == best[name], goal.metric].iloc[-1])
            starts = float(runs[goal.metric].iloc[0])
            rates[name] = [best[name] * factor for factor in AROUND]
        took = clock.spent - began
        if reached == 0:
            expected = f"a target that the initial parameters do not reach (they have {starts:.4g})"
            checks.fail("target", {goal.metric: goal.target}, expected)
        if math.isfinite(reached):
            compiling = (first or took) / 2  # the first runs compile two programs
            return Scouted(best, reached, took / made / (1 if first else 2), compiling)
        first = first or took
        if clock.spent > SHARE * clock.budget:
            closest = (min if goal.below else max)(last, key=last.__getitem__)
            checks.fail(
                "target",
                {goal.metric: goal.target},
                f"a target that is reached (in {seconds:.3g} s of the cluster's time {closest} came to "
                f"{last[closest]:.4g}, with learning rate {best[closest]:g}, and {clock.spent:.3g} s of the "
                f"budget of {clock.budget:g} s were spent)",
                "a larger budget or an easier target",
            )
        rounds *= 2


def affordable(families: Mapping[str, Family], judging: int, scouted: Scouted, clock: Clock) -> int:
    """Returns the number of `FIRST` that the budget allows as trials of each method in the first rung.

    The estimate assumes that each setting of a method is compiled, and that runs use all cores.
    """
    cores = max(1.0, CORES * len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [0]))
    for first in reversed(FIRST):
        programs = sum(trials.settings_tried(family, first) for family in families.values())
        runs = len(families) * (trials.runs_of(first) + judging)
        if (programs * scouted.compiling + runs * scouted.per_run) / cores <= clock.left:
            return first
    return FIRST[0]
