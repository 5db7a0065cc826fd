"""Successive halving over each method's settings and learning rates, with equally many runs per method."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from dmlcore.experiments.recommendation.library import Family, Trial
from dmlcore.experiments.recommendation.question import Outcome
from dmlcore.experiments.recommendation.runner import LONGEST

SPREAD = 4.0  # the first rates are at most this factor above or below a method's initial rate
FEWEST = 3  # trials of the last rung: the best, and a rate on either side of it
MOST = 2**12  # largest number of trials in the first rung
SHARE = 3  # smallest number of trials per setting in the first rung


Pairs = Sequence[tuple[Trial, int]]  # trials, each with a seed
Measure = Callable[[Pairs, float], Mapping[tuple[Trial, int], Outcome]]


@dataclass
class Outcomes:
    """The outcomes of all runs, by trial and seed."""

    outcomes: dict[Trial, dict[int, Outcome]] = field(default_factory=dict)

    def add(self, measured: Mapping[tuple[Trial, int], Outcome]) -> None:
        for (trial, seed), outcome in measured.items():
            self.outcomes.setdefault(trial, {})[seed] = outcome

    def rank(self, trial: Trial) -> tuple[int, float, float]:
        """Returns a sort key: more seeds first, then smaller median time, then better median last value."""
        runs = self.outcomes[trial].values()
        seconds, last = np.median([(run.seconds, run.last) for run in runs], axis=0)
        return -len(runs), float(seconds), float(last)

    def best(self, method: str) -> Trial:
        """Returns the best trial of a method."""
        return min((trial for trial in self.outcomes if trial.method == method), key=self.rank)

    def seconds(self, trial: Trial) -> float:
        """Returns the median seconds to the target of a trial."""
        return self.rank(trial)[1]

    def outcomes_of(self, trials: Mapping[str, Trial]) -> pd.DataFrame:
        """Returns the outcomes of one trial per method, by method and seed, for the seeds that all have."""
        seeds = set.intersection(*({*self.outcomes[trial]} for trial in trials.values()))
        rows = {(name, seed): self.outcomes[trial][seed] for name, trial in trials.items() for seed in seeds}
        index = pd.MultiIndex.from_tuples(rows, names=["method", "seed"])
        return pd.DataFrame([*rows.values()], index, columns=Outcome._fields)

    def of(self, method: str) -> list[Trial]:
        """Returns the trials of a method."""
        return [trial for trial in self.outcomes if trial.method == method]


def runs_of(first: int) -> int:
    """Returns the total number of runs of each method for a first rung of `first` trials.

    >>> [runs_of(first) for first in (6, 12, 24)]
    [11, 30, 74]
    """
    total, width, seeds = first, first, 1
    while width > FEWEST:
        width, seeds = max(FEWEST, width // 2), 2 * seeds
        total += (width - 2) * seeds // 2 + 2 * seeds
    return total


def settings_tried(family: Family, first: int) -> int:
    """Returns the number of settings that a first rung of `first` trials tries."""
    return min(len(family.settings), max(1, first // SHARE))


def first_trials(method: str, family: Family, count: int) -> list[Trial]:
    """Returns the trials of the first rung: settings in their order, each with rates over the same range.

    A method without knobs has all its trials at different rates, which are closer to each other.

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


def next_trials(found: Outcomes, method: str, count: int) -> list[Trial]:
    """Returns the trials of the next rung: the best so far, and a new rate on either side of the best one.

    A new rate is halfway, on a logarithmic scale, to the next rate that was tried. If the best rate is the
    largest or smallest one, the new rate on that side is beyond it.
    """
    ranked = sorted(found.of(method), key=found.rank)
    return ranked[: count - 2] + neighbours(ranked[0], ranked)


def neighbours(best: Trial, tried: Iterable[Trial], farthest: float = SPREAD**2) -> list[Trial]:
    """Returns two new trials next to a trial, with the same setting.

    Args:
        best: the trial.
        tried: trials of the method, this one among them.
        farthest: a new rate is halfway to a rate that was tried, or to one this many times as large or small
            if that is closer.

    >>> one, other = Trial("BSP", 0, 0.25), Trial("BSP", 0, 1.0)
    >>> [trial.rate for trial in neighbours(other, [one, other])]
    [0.5, 4.0]
    """
    rates = sorted(trial.rate for trial in tried if trial.setting == best.setting)
    place = rates.index(best.rate)
    below = max([*rates[:place], best.rate / farthest])
    above = min([*rates[place + 1 :], best.rate * farthest])
    return [best._replace(rate=math.sqrt(best.rate * other)) for other in (below, above)]


def halve(
    families: Mapping[str, Family],
    first: int,
    seeds: Sequence[int],
    limit: float,
    measure: Measure,
    affords: Callable[[int], bool],
) -> Outcomes:
    """Tunes all methods: each rung has half as many trials as the last one, on twice as many seeds.

    All methods have equally many runs in every rung, on the same seeds (common random numbers). No run lasts
    longer than `LONGEST` times the best median so far, because it could not become the best.

    Args:
        families: by name.
        first: trials of each method in the first rung, >= `FEWEST`.
        seeds: tuning seeds, at least as many as the last rung needs.
        limit: longest run of the first rung, in seconds of cluster time.
        measure: (trial, seed) pairs, longest run in seconds -> outcomes; interrupted runs are missing.
        affords: number of runs of the next rung -> whether to make it; the first one is made in any case.

    Returns:
        The outcomes. If a rung was interrupted, its outcomes do not count for the best trials.

    Reference: Karnin et al. 2013, "Almost optimal exploration in multi-armed bandits", sequential halving;
    Jamieson and Talwalkar 2016.
    """
    found, width, rung = Outcomes(), first, 0
    trials = [trial for name, family in families.items() for trial in first_trials(name, family, first)]
    while True:
        count = 2**rung
        fresh = [trial for trial in trials if trial not in found.outcomes]
        known = [trial for trial in trials if trial in found.outcomes]
        pairs = [(trial, seed) for trial in fresh for seed in seeds[:count]]
        pairs += [(trial, seed) for trial in known for seed in seeds[count // 2 : count]]
        if rung and not affords(len(pairs)):
            break
        measured = measure(pairs, limit)
        if len(measured) == len(pairs) or not rung:  # comparing part of a rung would not be fair
            found.add(measured)
        if len(measured) < len(pairs) or width <= FEWEST:
            break
        limit = min(limit, LONGEST * min(found.seconds(found.best(name)) for name in families))
        width, rung = max(FEWEST, width // 2), rung + 1
        trials = [trial for name in families for trial in next_trials(found, name, width)]
    return found
