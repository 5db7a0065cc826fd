"""Why a method is the fastest: the regime, the samples that methods need, and what their workers wait for."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dmlcore.experiments.study.goal import Goal
from dmlcore.experiments.study.judging import ratios
from dmlcore.experiments.study.result import Answer
from dmlcore.trace import metrics

BASES = "BSP", "ASP"  # methods that the best one is compared with
DOING = {
    "compute": "compute",
    "cancelled": "compute what is thrown away",
    "pull": "pull",
    "push": "push",
    "queue": "queue at the server",
    "wait": "wait for others",
    "away": "are away",
}


def regime(goal: Goal) -> str:
    """Returns the regime of a problem on a cluster in words: straggling, c and rho."""
    ratio, load = goal.cluster.regime(goal.problem, goal.batch_size)
    slowest = metrics.straggling(goal.rounds())
    return (
        f"the slowest task of a round takes {slowest:.2g} times as long as the mean one (straggling), "
        f"transfers take {ratio:.2g} times as long as computing (c), the server's load is {load:.2g} (ρ)"
    )


def why(answer: Answer) -> str:
    """Returns the reason in sentences: the fastest method, the regime, and what makes the difference."""
    goal, table = answer.goal, answer.table()
    rows: Any = table.to_dict("index")
    first, best = next(iter(rows.items()))
    workers = f"{goal.cluster.num_workers} worker{'s' * (goal.cluster.num_workers > 1)}"
    about = f"{goal.problem.name} on {workers}, {goal.batch_size} samples a task: {regime(goal)}"
    if not math.isfinite(best["seconds"]):
        return f"{about}. No method reaches {goal} on most of the seeds."
    known = f"{best['seconds_low']:.3g} to {number(best['seconds_high'])}, " * (best["seconds_low"] > 0)
    spread = f"{known}{best['seeds']} seed{'s' * (best['seeds'] > 1)}"
    told = [f"{about}. The fastest to {goal} is {first}: {best['seconds']:.3g} s in the median ({spread})"]
    alike, open_ones = alike_of(table, "level"), alike_of(table, "undecided")
    if alike:
        told.append(f"{in_words(alike)} {'is' if len(alike) == 1 else 'are'} level with it, within 5%")
    if open_ones:
        told.append(f"Between it and {in_words(open_ones)} these seeds decide nothing")
    if len(table) > 1 and not alike and not open_ones:
        told.append("All others, as they are tuned here, are slower")
    computed = answer.measured["samples"].unstack("seed")
    told.append(f"With {first} workers {_doing(answer, first, best['seconds'])}")
    for name in BASES:
        if name in rows and name != first:
            samples = ratios(computed, name, first).median()
            told.append(_against(rows[name], samples, name, _doing(answer, name, best["seconds"])))
    return ". ".join(told) + "."


def _against(row: Mapping[str, Any], samples: float, name: str, does: str) -> str:
    """Returns why a method takes longer: more samples, or fewer samples/s, and how its workers spend time."""
    if not math.isfinite(row["seconds"]):
        return f"{name} does not reach it in the time that it was given; its workers {does}"
    longer = row["ratio"]
    return (
        f"{name} takes {longer:.2f} times as long: it computes {samples:.2f} times as many samples, at "
        f"{samples / longer:.2f} times the samples per second; its workers {does}"
    )


def alike_of(table: pd.DataFrame, *outcomes: str) -> list[str]:
    """Returns the methods with one of these outcomes; by default those that are not known to be slower."""
    wanted = outcomes or ("level", "undecided")
    return [str(name) for name in table.index if table.loc[name, "outcome"] in wanted]


def number(value: float) -> str:
    """Returns a number with three digits as text, or "never" for infinity.

    >>> number(12.345), number(math.inf)
    ('12.3', 'never')
    """
    return f"{value:.3g}" if math.isfinite(value) else "never"


def _doing(answer: Answer, name: str, seconds: float) -> str:
    """Returns the activities that take at least a twentieth of the time of a method's workers, in words."""
    seed = int(answer.seconds.columns[0])
    spent = metrics.time_breakdown(answer.goal.timeline(answer.methods[name], seconds=seconds, seed=seed))
    shares = {does: spent[f"{kind}_share"].mean() for kind, does in DOING.items()}
    parts = [f"{does} {share:.0%}" for does, share in shares.items() if share >= 0.05]
    parts[:1] = [f"{parts[0]} of the time"] if parts else ["do nothing that takes time"]
    return in_words(parts)


def in_words(names: Sequence[str]) -> str:
    """Returns names as a list in words.

    >>> in_words(["BSP"]), in_words(["BSP", "SSP", "ASP"])
    ('BSP', 'BSP, SSP and ASP')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
