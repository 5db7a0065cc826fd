"""Successive halving: each method's settings and rates are tried, under one equal budget of runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from dmlcore.experiments.recommendation.goal import Outcome
from dmlcore.experiments.recommendation.library import Family, Trial
from dmlcore.experiments.recommendation.runner import LONGEST

SPREAD = 4.0  # factor on either side of a method's first rate within which the first ones lie
FEWEST = 3  # trials of the last rung: the best, and a rate on either side of it
MOST = 2**12  # trials of the first rung
SHARE = 3  # trials of the first rung for each setting, at least


Pairs = Sequence[tuple[Trial, int]]  # trials, each with a seed
Measure = Callable[[Pairs, float], Mapping[tuple[Trial, int], Outcome]]


@dataclass
class Found:
    """What all runs came to, by trial and seed."""

    outcomes: dict[Trial, dict[int, Outcome]] = field(default_factory=dict)

    def add(self, measured: Mapping[tuple[Trial, int], Outcome]) -> None:
        for (trial, seed), outcome in measured.items():
            self.outcomes.setdefault(trial, {})[seed] = outcome

    def rank(self, trial: Trial) -> tuple[int, float, float]:
        """Trials of more seeds first, then the least median time, then the best median of the last value."""
        runs = pd.DataFrame(self.outcomes[trial].values(), columns=Outcome._fields)
        return -len(runs), float(runs["seconds"].median()), float(runs["last"].median())

    def best(self, method: str) -> Trial:
        """Returns the best trial of a method."""
        return min((trial for trial in self.outcomes if trial.method == method), key=self.rank)

    def seconds(self, trial: Trial) -> float:
        """Returns the median time to the target of a trial."""
        return self.rank(trial)[1]

    def outcomes_of(self, trials: Mapping[str, Trial]) -> pd.DataFrame:
        """Returns what one trial of each method came to, by method and seed, on the seeds that all have."""
        seeds = set.intersection(*({*self.outcomes[trial]} for trial in trials.values()))
        rows = {(name, seed): self.outcomes[trial][seed] for name, trial in trials.items() for seed in seeds}
        index = pd.MultiIndex.from_tuples(rows, names=["method", "seed"])
        return pd.DataFrame([*rows.values()], index, columns=Outcome._fields)

    def of(self, method: str) -> list[Trial]:
        """Returns the trials of a method."""
        return [trial for trial in self.outcomes if trial.method == method]


def runs_of(first: int) -> int:
    """Returns how many runs each method has in all, where its first rung has so many trials.

    >>> [runs_of(first) for first in (6, 12, 24)]
    [11, 30, 74]
    """
    total, width, seeds = first, first, 1
    while width > FEWEST:
        width, seeds = max(FEWEST, width // 2), 2 * seeds
        total += (width - 2) * seeds // 2 + 2 * seeds
    return total


def settings_tried(family: Family, first: int) -> int:
    """Returns how many settings are tried, with so many trials in the first rung."""
    return min(len(family.settings), max(1, first // SHARE))


def first_trials(method: str, family: Family, count: int) -> list[Trial]:
    """Returns the trials of the first rung: settings in their order, each at rates spread over one range.

    A method without knobs has all its trials at different rates, closer to each other.

    >>> from dmlcore.methods import policies
    >>> family = Family(policies.k_sync, 1.0, [{"k": 4}, {"k": 2}], None)
    >>> [(trial.setting, trial.rate) for trial in first_trials("K-sync", family, 6)]
    [(0, 0.25), (0, 1.0), (0, 4.0), (1, 0.25), (1, 1.0), (1, 4.0)]
    """
    settings, trials = settings_tried(family, count), []
    for setting in range(settings):
        rates = count // settings + (setting < count % settings)
        step = SPREAD ** (2 / (rates - 1)) if rates > 1 else 1.0
        middle = (rates - 1) / 2
        trials += [Trial(method, setting, family.rate * step ** (i - middle)) for i in range(rates)]
    return trials


def next_trials(found: Found, method: str, count: int) -> list[Trial]:
    """Returns the trials of the next rung: the best so far, and a new rate on either side of the very best.

    The new rates lie half-way, on a logarithmic scale, to the next ones that were tried; where the best rate
    is at an end, beyond it.
    """
    ranked = sorted(found.of(method), key=found.rank)
    return ranked[: count - 2] + neighbours(ranked[0], ranked)


def neighbours(best: Trial, tried: Iterable[Trial]) -> list[Trial]:
    """Returns two new trials next to one, at the same setting.

    >>> one, other = Trial("BSP", 0, 0.25), Trial("BSP", 0, 1.0)
    >>> [trial.rate for trial in neighbours(other, [one, other])]
    [0.5, 4.0]
    """
    rates = sorted(trial.rate for trial in tried if trial.setting == best.setting)
    place = rates.index(best.rate)
    below = rates[place - 1] if place else best.rate / SPREAD**2
    above = rates[place + 1] if place + 1 < len(rates) else best.rate * SPREAD**2
    return [best._replace(rate=math.sqrt(best.rate * other)) for other in (below, above)]


def halve(
    families: Mapping[str, Family],
    first: int,
    seeds: Sequence[int],
    measure: Measure,
    limit: float,
    enough: Callable[[int, int], bool],
) -> Found:
    """Tunes all methods: each rung has half of the trials of the last, on twice the seeds.

    All methods have equally many runs in every rung, on the same seeds (common random numbers). No run lasts
    longer than `LONGEST` times the best median so far, since it could not win.

    Args:
        families: by name.
        first: trials of each method in the first rung, >= `FEWEST`.
        seeds: to tune on, at least as many as the last rung needs.
        measure: trials with their seeds, seconds at most -> outcomes; those missing were interrupted.
        limit: seconds of the cluster's time, at most, for the first rung.
        enough: number of a rung, 1 or more, and runs that it would make -> whether it is left out.

    Returns:
        What was found. Where something is missing, the best of each method is that of the whole rungs.

    Source: Karnin et al. 2013, "Almost optimal exploration in multi-armed bandits", sequential halving;
    Jamieson and Talwalkar 2016.
    """
    found, width, rung = Found(), first, 0
    trials = [trial for name, family in families.items() for trial in first_trials(name, family, first)]
    while True:
        count = 2**rung
        fresh = [trial for trial in trials if trial not in found.outcomes]
        known = [trial for trial in trials if trial in found.outcomes]
        pairs = [(trial, seed) for trial in fresh for seed in seeds[:count]]
        pairs += [(trial, seed) for trial in known for seed in seeds[count // 2 : count]]
        if rung and enough(rung, len(pairs)):
            break
        measured = measure(pairs, limit)
        if len(measured) == len(pairs) or not rung:  # a part of a rung would be no fair comparison
            found.add(measured)
        if len(measured) < len(pairs) or width <= FEWEST:
            break
        limit = min(limit, LONGEST * min(found.seconds(found.best(name)) for name in families))
        width, rung = max(FEWEST, width // 2), rung + 1
        trials = [trial for name in families for trial in next_trials(found, name, width)]
    return found
