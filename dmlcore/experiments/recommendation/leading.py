"""Successive halving over the leading methods together: their best trials, and neighbouring settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from dmlcore.experiments.recommendation.library import Family, Trial
from dmlcore.experiments.recommendation.runner import LONGEST
from dmlcore.experiments.recommendation.trials import FEWEST, Measure, Outcomes

LEADING = 1.5  # a method leads if its median is at most this multiple of the best median
MORE = 8  # the last rung has at most this many times as many seeds as the first


def halve_leading(
    found: Outcomes,
    families: Mapping[str, Family],
    seeds: Sequence[int],
    measure: Measure,
    affords: Callable[[int], bool],
) -> None:
    """Tunes the leading methods further, and adds the outcomes to `found`.

    The first rung has the best trials of every method whose median is at most `LEADING` times the best one,
    and trials with neighbouring settings, on as many seeds as the last rung of `trials.halve`. Each later
    rung has the better half of them, of whichever method, on twice as many seeds.

    Args:
        found: outcomes of `trials.halve`.
        families: by name.
        seeds: tuning seeds.
        measure: (trial, seed) pairs, longest run in seconds -> outcomes; interrupted runs are missing.
        affords: number of runs of the next rung -> whether to make it.
    """
    first = count = max(map(len, found.outcomes.values()))
    trials, limit = leading_trials(found, families), math.inf
    while len(trials) > 1:
        pairs = [
            (trial, seed)
            for trial in trials
            for seed in seeds[:count]
            if seed not in found.outcomes.get(trial, ())
        ]
        if pairs:
            limit = min(limit, LONGEST * min(found.seconds(found.best(name)) for name in families))
            if not affords(len(pairs)):
                return
            measured = measure(pairs, limit)
            if len(measured) < len(pairs):
                return
            found.add(measured)
        if count == MORE * first:
            return
        trials = sorted(trials, key=found.rank)[: max(2, len(trials) // 2)]
        count *= 2


def leading_trials(found: Outcomes, families: Mapping[str, Family]) -> list[Trial]:
    """Returns the trials of the first rung; none if no method reaches the target."""
    best = {name: found.best(name) for name in families}
    least = min(found.seconds(trial) for trial in best.values())
    trials: list[Trial] = []
    for name, trial in best.items():
        if found.seconds(trial) <= LEADING * least < math.inf:
            tried = sorted(found.of(name), key=found.rank)[:FEWEST]
            near = (trial._replace(setting=other) for other in next_settings(families[name], trial.setting))
            trials += dict.fromkeys([*tried, *near])
    return trials


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
