"""Further tuning of the leading methods: steps to better settings and rates, and successive halving."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from dmlcore.experiments.recommendation.library import Family, Trial
from dmlcore.experiments.recommendation.runner import LONGEST
from dmlcore.experiments.recommendation.trials import FEWEST, Measure, Outcomes, neighbours

LEADING = 1.5  # a method leads if its median is at most this multiple of the best median
STEPS = 4  # largest number of steps towards better settings and rates
FARTHEST, CLOSEST = 2.0, 1.1  # new rates are between sqrt(FARTHEST) and CLOSEST times above or below the best
MOST = 2 * FEWEST  # trials of a method among those that are halved
MORE = 8  # the last rung has at most this many times as many seeds as the steps
Affords = Callable[[int], bool]  # number of runs -> whether to make them


def improve_leading(
    found: Outcomes, families: Mapping[str, Family], seeds: Sequence[int], measure: Measure, affords: Affords
) -> bool:
    """Improves the settings and rates of the leading methods in up to `STEPS` steps.

    A step tries the trials next to the best one of each, on as many seeds as the last rung of `trials.halve`.

    Args:
        found: outcomes of `trials.halve`, to which those of the steps are added.
        families: by name.
        seeds: tuning seeds.
        measure: (trial, seed) pairs, longest run in seconds -> outcomes; interrupted runs are missing.
        affords: whether to make the next step.

    Returns:
        Whether all steps were made.
    """
    count = max(map(len, found.outcomes.values()))
    for _ in range(STEPS):
        near = [trial for name in leading(found, families) for trial in nearby(found, name, families[name])]
        if not _run(found, near, seeds[:count], _longest(found, families), measure, affords):
            return False
    return True


def halve_leading(
    found: Outcomes, families: Mapping[str, Family], seeds: Sequence[int], measure: Measure, affords: Affords
) -> bool:
    """Halves the `MOST` best trials of each leading method together.

    Each rung has the better half of them, of whichever method, on twice as many seeds.

    Args:
        found: outcomes so far, to which those of the rungs are added.
        families: by name.
        seeds: tuning seeds.
        measure: (trial, seed) pairs, longest run in seconds -> outcomes; interrupted runs are missing.
        affords: whether to make the next rung.

    Returns:
        Whether all rungs were made.
    """
    count, limit = max(map(len, found.outcomes.values())), _longest(found, families)
    trials = [
        trial
        for name in leading(found, families)
        for trial in sorted(found.of(name), key=found.rank)[:MOST]
        if len(found.outcomes[trial]) == count
    ]
    for _ in range(int(math.log2(MORE))):
        trials, count = sorted(trials, key=found.rank)[: max(2, len(trials) // 2)], 2 * count
        if not _run(found, trials, seeds[:count], limit, measure, affords):
            return False
    return True


def _longest(found: Outcomes, families: Mapping[str, Family]) -> float:
    return LONGEST * min(found.seconds(found.best(name)) for name in families)


def _run(
    found: Outcomes,
    trials: Sequence[Trial],
    seeds: Sequence[int],
    limit: float,
    measure: Measure,
    affords: Affords,
) -> bool:
    """Adds the outcomes of trials on seeds; returns False, and adds none, if not all runs are made."""
    lacking = [
        (trial, seed) for trial in trials for seed in seeds if seed not in found.outcomes.get(trial, ())
    ]
    if not lacking:
        return True
    if not affords(len(lacking)):
        return False
    measured = measure(lacking, limit)
    if len(measured) < len(lacking):
        return False
    found.add(measured)
    return True


def leading(found: Outcomes, families: Mapping[str, Family]) -> list[str]:
    """Returns the methods that lead; none if no method reaches the target."""
    seconds = {name: found.seconds(found.best(name)) for name in families}
    return [name for name in families if seconds[name] <= LEADING * min(seconds.values()) < math.inf]


def nearby(found: Outcomes, name: str, family: Family) -> list[Trial]:
    """Returns the trials next to a method's best one: in one knob's value, or in the rate."""
    best = found.best(name)
    rates = neighbours(best, found.of(name), FARTHEST)
    near = [trial for trial in rates if abs(math.log(trial.rate / best.rate)) > math.log(CLOSEST)]
    return [*near, *(best._replace(setting=other) for other in next_settings(family, best.setting))]


def next_settings(family: Family, setting: int) -> Iterator[int]:
    """Yields the settings that differ from one in a single knob, whose value is the next smaller or larger.

    >>> family = Family(dict, 1.0, [{"k": 4}, {"k": 2}, {"k": 6}, {"k": 7}], None)
    >>> [family.settings[i] for i in next_settings(family, 0)]
    [{'k': 2}, {'k': 6}]
    """
    here, others = family.settings[setting], [*enumerate(family.settings)]
    for knob, value in here.items():
        rest = {name: given for name, given in here.items() if name != knob}
        along = [(each[knob], i) for i, each in others if all(each[name] == rest[name] for name in rest)]
        if below := [place for place in along if place[0] < value]:
            yield max(below)[1]
        if above := [place for place in along if place[0] > value]:
            yield min(above)[1]
