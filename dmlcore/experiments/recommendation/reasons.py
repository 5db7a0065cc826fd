"""Why a method is the fastest: the regime, the samples that methods need, and what their workers wait for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dmlcore.experiments.recommendation.question import Question
from dmlcore.experiments.recommendation.ranking import level
from dmlcore.trace import metrics
from dmlcore.types import Method

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


def regime(question: Question) -> str:
    """Returns the regime of a problem on a cluster in words: straggling, c and rho."""
    ratio, load = question.cluster.regime(question.problem, question.batch_size)
    slowest = metrics.straggling(question.rounds())
    return (
        f"the slowest task of a round takes {slowest:.2g} times as long as the mean one (straggling), "
        f"transfers take {ratio:.2g} times as long as computing (c), the server's load is {load:.2g} (ρ)"
    )


def shares(question: Question, method: Method, seconds: float, seed: int) -> pd.Series:
    """Returns the mean share of a worker's time for each of its activities."""
    found = metrics.time_breakdown(question.timeline(method, seconds=seconds, seed=seed))
    return found[[f"{kind}_share" for kind in metrics.PHASES]].mean().set_axis([*metrics.PHASES])


def why(
    question: Question,
    table: pd.DataFrame,
    samples: pd.Series,
    methods: Mapping[str, Method],
    seeds: Sequence[int],
) -> str:
    """Returns the reason in sentences: the fastest method, the regime, and what makes the difference.

    Args:
        question: of the recommendation.
        table: its table.
        samples: each method's samples to the target, over those of the first method.
        methods: by name.
        seeds: of the first method.
    """
    first, best = str(table.index[0]), table.iloc[0]
    workers = f"{question.cluster.num_workers} worker{'s' * (question.cluster.num_workers > 1)}"
    about = f"{question.problem.name} on {workers}, {question.batch_size} samples a task: {regime(question)}"
    if not math.isfinite(best["seconds"]):
        return f"{about}. No method reaches {question} on most of the seeds."
    spread = f"{best['least']:.3g} to {number(best['most'])} over {len(seeds)} seed{'s' * (len(seeds) > 1)}"
    told = [
        f"{about}. The fastest to {question} is {first}: {best['seconds']:.3g} s in the median ({spread})"
    ]
    if alike := level(table):
        told.append(f"Between it and {in_words(alike)} there is no difference that these seeds show")
    elif len(table) > 1:
        told.append("All others, as they are tuned here, are clearly slower")
    told.append(f"With {first} workers {_doing(shares(question, methods[first], best['seconds'], seeds[0]))}")
    for name in BASES:
        if name in table.index and name != first:
            told.append(_against(question, table, samples[name], methods, name, seeds[0]))
    return ". ".join(told) + "."


def _against(
    question: Question,
    table: pd.DataFrame,
    samples: float,
    methods: Mapping[str, Method],
    name: str,
    seed: int,
) -> str:
    """Returns why a method takes longer: more samples, or fewer samples/s, and how its workers spend time."""
    first: Any = table.iloc[0]
    other: Any = table.loc[name]
    does = _doing(shares(question, methods[name], float(first["seconds"]), seed))
    if not math.isfinite(other["seconds"]):
        return f"{name} does not reach it in the time that it was given; its workers {does}"
    longer = other["ratio"]
    return (
        f"{name} takes {longer:.2f} times as long: it computes {samples:.2f} times as many samples, at "
        f"{samples / longer:.2f} times the samples per second; its workers {does}"
    )


def number(value: float) -> str:
    """Returns a number with three digits as text, or "never" for infinity.

    >>> number(12.345), number(math.inf)
    ('12.3', 'never')
    """
    return f"{value:.3g}" if math.isfinite(value) else "never"


def _doing(share: pd.Series) -> str:
    """Returns the activities that take at least a twentieth of the time, in words.

    >>> _doing(pd.Series({"compute": 0.6, "wait": 0.38, "pull": 0.02}))
    'compute 60% of the time and wait for others 38%'
    """
    large = share[share >= 0.05]
    parts = [f"{DOING[str(kind)]} {part:.0%}" for kind, part in large.items()]
    parts[:1] = [f"{parts[0]} of the time"] if parts else ["do nothing that takes time"]
    return in_words(parts)


def in_words(names: Sequence[str]) -> str:
    """Returns names as a list in words.

    >>> in_words(["BSP"]), in_words(["BSP", "SSP", "ASP"])
    ('BSP', 'BSP, SSP and ASP')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
