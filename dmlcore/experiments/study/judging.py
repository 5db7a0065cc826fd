"""Judging: the best setting of each method on seeds that chose nothing, as many as it takes to decide."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from dmlcore.experiments.study.goal import Goal
from dmlcore.experiments.study.spending import Spending
from dmlcore.trace.metrics.decision import LOOKS, Ratio, decide
from dmlcore.types import Method

Runs = Callable[[Mapping[str, Method], Mapping[str, Sequence[int]]], tuple[pd.DataFrame | None, bool]]
BEST, NEVER = "best", "not reached"  # outcomes besides those of `decide`


def ratios(costs: pd.DataFrame, name: str, other: str) -> pd.Series:
    """Returns the ratio of two methods' costs by seed, of the seeds with which both ran.

    Args:
        costs: of reaching the target, such as seconds, by method and seed; inf: not reached; NaN: not run.
        name: the method whose costs are divided.
        other: the method by whose costs they are divided.

    Returns:
        1 if both are equal, inf or 0 if one is inf, and NaN if both are.
    """
    ran = costs.loc[[name, other]].dropna(axis="columns")
    one, two = ran.iloc[0], ran.iloc[1]
    return (one / two).mask((one == two) & np.isfinite(one), 1.0)


def first(seconds: pd.DataFrame) -> str:
    """Returns the best method: the one with the least median time among those with the most seeds.

    If the ratios, seed by seed, say that another one of these is faster, it is that one.
    """
    ran = seconds.notna().sum(axis=1)
    most = seconds[ran == ran.max()]
    order = most.median(axis=1).fillna(np.inf).sort_values(kind="stable")
    best = str(order.index[0])
    for name in map(str, order.index[1:]):
        if decide(ratios(most, name, best)).outcome == "faster":
            best = name
    return best


def compared(seconds: pd.DataFrame) -> dict[str, Ratio]:
    """Returns the ratio of every method to the best one, which comes first."""
    best = first(seconds)
    return {name: decide(ratios(seconds, name, best)) for name in dict.fromkeys([best, *seconds.index])}


def outcomes(seconds: pd.DataFrame) -> dict[str, Ratio]:
    """Returns the ratios of `compared`; the first is `BEST`, and methods that never arrive are `NEVER`."""
    found, arrives = compared(seconds), seconds.lt(np.inf).any(axis=1)
    best = next(iter(found))
    if arrives[best]:
        found[best] = Ratio(1.0, 1.0, 1.0, int(seconds.count(axis=1)[best]), BEST)
    return {name: each if arrives[name] else each._replace(outcome=NEVER) for name, each in found.items()}


def judge(goal: Goal, methods: Mapping[str, Method], runs: Runs, spending: Spending) -> pd.DataFrame | None:
    """Runs all methods on the first seeds, and on more those that are not told apart from the best one.

    Args:
        goal: what is asked, with the seeds.
        methods: name -> method with its optimizer.
        runs: methods and seeds by name -> histories, and whether Ctrl-C was pressed.
        spending: what it may spend.

    Returns:
        The histories; None if Ctrl-C was pressed before all methods had run.
    """
    most = len(goal.seeds) if goal.all_seeds else min(len(goal.seeds), LOOKS[-1])
    looks = [*(look for look in LOOKS if look < most and not goal.all_seeds), most]
    left, found, ran = [*methods], None, 0
    for look in looks:
        own = goal.seeds[ran:look]
        if not ran:
            own = own[: max(1, spending.room())]  # a small budget has fewer seeds, and decides nothing
        elif not spending.affords(f"look {look}", dict.fromkeys(left, len(own))):
            break
        made, stopped = runs({name: methods[name] for name in left}, dict.fromkeys(left, own))
        spending.interrupted |= stopped
        if stopped or made is None:
            break
        spending.count(dict.fromkeys(left, len(own)))
        found = pd.concat([found, made], ignore_index=True)
        seconds = goal.measured(found)["seconds"].unstack("seed")
        if np.isinf(seconds.median(axis=1)).all():
            break
        told = compared(seconds)
        best, *others = told
        left = [best, *(name for name in others if name in left and told[name].outcome == "undecided")]
        if len(left) == 1 or len(own) < look - ran:
            break
        ran = look
    return found
