"""Why a method is the fastest: the regime, the samples that methods need, and what their workers wait for."""

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from dmlcore import files
from dmlcore.experiments.study.judging import Answer, ratios
from dmlcore.trace import metrics

BASES = "BSP", "ASP"  # methods that the best one is compared with
SAID = files.table(__file__, "reasons")


def why(answer: Answer) -> str:
    """Returns the reason in sentences: the fastest method, the regime, and what makes the difference."""
    goal, table = answer.goal, answer.table()
    rows: Any = table.to_dict("index")
    first, best = next(iter(rows.items()))
    workers = f"{goal.cluster.num_workers} worker{'s' * (goal.cluster.num_workers > 1)}"
    c, rho = goal.cluster.regime(goal.problem, goal.batch_size)
    regime = SAID["regime"].format(straggling=metrics.straggling(goal.rounds()), c=c, rho=rho)
    about = f"{goal.problem.name} on {workers}, {goal.batch_size} samples a task: {regime}"
    if not math.isfinite(best["seconds"]):
        return f"{about}. No method reaches {goal} on most of the seeds."
    known = f"{best['seconds_low']:.3g} to {number(best['seconds_high'])}, " * (best["seconds_low"] > 0)
    spread = f"{known}{best['seeds']} seed{'s' * (best['seeds'] > 1)}"
    told = [f"{about}. The fastest to {goal} is {first}: {best['seconds']:.3g} s in the median ({spread})"]
    for outcome in ("level", "undecided"):
        if alike := alike_of(table, outcome):
            told.append(SAID[outcome].format(names=in_words(alike), are="is" if len(alike) == 1 else "are"))
    if len(table) > 1 and not alike_of(table):
        told.append(SAID["apart"])
    computed = answer.measured["samples"].unstack("seed")
    told.append(f"With {first} workers {_doing(answer, first, best['seconds'])}")
    for name in (each for each in BASES if each in rows and each != first):
        row, facts = rows[name], {"name": name, "does": _doing(answer, name, best["seconds"])}
        late = not math.isfinite(row["seconds"])
        if not late:
            samples = ratios(computed, name, first).median()
            facts |= {"longer": row["ratio"], "samples": samples, "rate": samples / row["ratio"]}
        told.append(SAID["late" if late else "slower"].format(**facts))
    return ". ".join(told) + "."


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
    shares = {does: spent[f"{kind}_share"].mean() for kind, does in SAID["doing"].items()}
    parts = [f"{does} {share:.0%}" for does, share in shares.items() if share >= 0.05]
    parts[:1] = [f"{parts[0]} of the time"] if parts else ["do nothing that takes time"]
    return in_words(parts)


def in_words(names: Sequence[str]) -> str:
    """Returns names as a list in words.

    >>> in_words(["BSP"]), in_words(["BSP", "SSP", "ASP"])
    ('BSP', 'BSP, SSP and ASP')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
