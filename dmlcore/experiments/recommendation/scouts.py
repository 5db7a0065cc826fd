"""Scouts: BSP and ASP show at which learning rates, and how soon, a target can be reached."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dmlcore import checks
from dmlcore.engines import simulate
from dmlcore.experiments.comparison import sweep
from dmlcore.experiments.recommendation import trials
from dmlcore.experiments.recommendation.goal import LOOKS, Clock, Goal
from dmlcore.experiments.recommendation.library import Family
from dmlcore.methods.policies import asp, bsp
from dmlcore.trace import metrics
from dmlcore.types import Policy

RATES = [4.0**power for power in range(-7, 5)]  # that are tried
ROUNDS = 32  # of BSP, with which they begin
CORES = 0.8  # of them that runs use
SCOUTING = 1 / 3  # of the budget, at most, until a target must be reached
FIRST = [6 * 2**power for power in range(8)]  # trials of a method in the first rung


class Scouted(NamedTuple):
    """What BSP and ASP showed, over a wide range of learning rates.

    Args:
        rates: the best of each.
        seconds: of the cluster's time to the target, the less of the two.
        per_run: seconds of computing that a run took.
        first: seconds of computing of the first runs, which were compiled.
    """

    rates: Mapping[str, float]
    seconds: float
    per_run: float
    first: float


def scout(goal: Goal, optimizer: Any, seed: int, clock: Clock, advance: Callable[[int], None]) -> Scouted:
    """Runs BSP and ASP over a wide range of rates, twice as long each time, until one reaches the target."""
    rounds, workers = ROUNDS, goal.cluster.num_workers
    rates: dict[str, list[float]] = {"BSP": RATES, "ASP": RATES}
    policies: dict[str, Policy] = {"BSP": bsp(), "ASP": asp()}
    first = 0.0
    while True:
        began, best, reached, last = clock.spent, {}, math.inf, {}
        sizes: Any = {"batch_size": goal.batch_size, "parameter_bytes": goal.problem.parameter_bytes}
        seconds = simulate(bsp(), goal.cluster, updates=rounds, seed=seed, **sizes).end_time
        for name, policy in policies.items():
            every = max(1, rounds // LOOKS) * (workers if name == "ASP" else 1)
            options = goal.options(seconds, every)
            runs = sweep(
                {name: policy}, goal.problem, goal.cluster, optimizer, rates[name], seeds=[seed], **options
            )
            advance(len(rates[name]))
            best[name] = float(
                metrics.best_learning_rate(runs, goal.metric, goal.target, below=goal.below)[name]
            )
            reached = min(reached, metrics.time_to(runs, goal.metric, goal.target, below=goal.below).min())
            starts = float(runs[goal.metric].iloc[0])
            ended = runs.groupby("learning_rate")[goal.metric].last()
            last[name] = ended[best[name]]
            rates[name] = [rate for rate in RATES if best[name] / 16 <= rate <= best[name] * 16]
        took = clock.spent - began
        first = first or took
        if reached == 0:
            begun = f"one that the first parameters do not reach, at {starts:.4g}"
            checks.fail("target", {goal.metric: goal.target}, begun)
        if math.isfinite(reached):
            return Scouted(best, float(reached), took / sum(map(len, rates.values())), first)
        if clock.spent > SCOUTING * clock.budget:
            closest = (min if goal.below else max)(last, key=last.__getitem__)
            checks.fail(
                "target",
                {goal.metric: goal.target},
                f"one that is reached: in {seconds:.3g} s of the cluster's time, which took a third of the "
                f"budget of {clock.budget:g} s, {closest} came to {last[closest]:.4g} (learning rate "
                f"{best[closest]:g}); give a larger budget, or a target that is easier",
            )
        rounds *= 2


def affordable(families: Mapping[str, Family], judging: int, scouted: Scouted, clock: Clock) -> int:
    """Returns how many trials each method can have in the first rung, of `FIRST`.

    Each setting of a method is compiled, as BSP and ASP were; runs are made on all cores.
    """
    cores = max(1.0, CORES * (os.cpu_count() or 1))
    for first in reversed(FIRST):
        programs = sum(trials.settings_tried(family, first) for family in families.values())
        runs = len(families) * (trials.runs_of(first) + judging)
        if (programs * scouted.first / 2 + runs * scouted.per_run) / cores <= clock.left:
            return first
    return FIRST[0]
