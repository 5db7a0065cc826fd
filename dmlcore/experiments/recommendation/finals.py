"""The final rungs: successive halving over the leading trials of all methods together, on more seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Real

from dmlcore.experiments.recommendation.library import Family, Trial
from dmlcore.experiments.recommendation.runner import LONGEST
from dmlcore.experiments.recommendation.trials import FEWEST, Measure, Outcomes

LEADING = 1.5  # a method leads if its median is at most this multiple of the best median
MORE = 8  # the last of these rungs has this many times as many seeds as the first


def play(
    found: Outcomes,
    families: Mapping[str, Family],
    seeds: Sequence[int],
    measure: Measure,
    enough: Callable[[int, int], bool],
) -> None:
    """Tunes the leading methods further, and adds the outcomes to `found`.

    The first rung has the best trials of every method whose best median is at most `LEADING` times the best
    of all, and trials with neighbouring settings, on as many seeds as the last rung of `trials.halve`. Each
    later rung has the better half of them, of whichever method, on twice as many seeds.

    Args:
        found: outcomes of `trials.halve`.
        families: by name.
        seeds: tuning seeds.
        measure: (trial, seed) pairs, longest run in seconds -> outcomes; interrupted runs are missing.
        enough: number of a rung, from 0, and the runs that it would make -> whether to stop before it.
    """
    first = count = max(map(len, found.outcomes.values()))
    finalists, rung = leading(found, families), 0
    while len(finalists) > 1:
        known = [{*found.outcomes.get(trial, ())} for trial in finalists]
        pairs = [
            (trial, seed)
            for trial, had in zip(finalists, known, strict=True)
            for seed in seeds[:count]
            if seed not in had
        ]
        if pairs:
            if enough(rung, len(pairs)):
                return
            best = min(found.seconds(trial) for trial in finalists if trial in found.outcomes)
            measured = measure(pairs, LONGEST * best)
            if len(measured) < len(pairs):
                return
            found.add(measured)
            rung += 1
        if count == MORE * first:
            return
        finalists = sorted(finalists, key=found.rank)[: max(2, len(finalists) // 2)]
        count *= 2


def leading(found: Outcomes, families: Mapping[str, Family]) -> list[Trial]:
    """Returns the trials of the first rung; none if no method reaches the target."""
    best = {name: found.best(name) for name in families}
    least = min(found.seconds(trial) for trial in best.values())
    trials: list[Trial] = []
    for name, trial in best.items():
        if found.seconds(trial) <= LEADING * least < float("inf"):
            tried = sorted(found.of(name), key=found.rank)[:FEWEST]
            near = (trial._replace(setting=setting) for setting in neighbours(families[name], trial.setting))
            trials += dict.fromkeys([*tried, *near])
    return trials


def neighbours(family: Family, setting: int) -> Iterator[int]:
    """Yields the settings that differ from one in a single knob, whose value is the next larger or smaller.

    Values that are not numbers have the order in which they are tried.

    >>> family = Family(dict, 1.0, [{"k": 4}, {"k": 2}, {"k": 6}, {"k": 7}], None)
    >>> [family.settings[i] for i in neighbours(family, 0)]
    [{'k': 2}, {'k': 6}]
    """
    here = family.settings[setting]
    for knob, value in here.items():
        values = [*dict.fromkeys(each[knob] for each in family.settings)]
        if all(isinstance(each, Real) for each in values):
            values.sort()
        place = values.index(value)
        for other in values[max(place - 1, 0) : place] + values[place + 1 : place + 2]:
            changed = {**here, knob: other}
            if changed in family.settings:  # `usable` may have left it out
                yield family.settings.index(changed)
