"""The search for the best settings and rates: magnitudes, successive halving, then steps of the leading.

All methods have equally many runs on the same tuning seeds (common random numbers), until the methods that
cannot become the best are left behind.

Source: Karnin et al. 2013, "Almost optimal exploration in multi-armed bandits", sequential halving; Jamieson
and Talwalkar 2016.
"""

import collections
import contextlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from dmlcore import checks
from dmlcore.experiments.study.goal import Goal, Outcome
from dmlcore.experiments.study.space import Candidate, Candidates, Trial, as_json
from dmlcore.experiments.study.spending import Spending
from dmlcore.types import Method

MAGNITUDES = [4.0**power for power in range(-7, 5)]  # learning rates of the first runs
AROUND = [4.0**power for power in range(-2, 3)]  # longer runs try the best magnitude times these factors
FIRST_ROUNDS = 32  # rounds of BSP in the first runs
LENGTHS = 10  # largest number of times that first runs are made twice as long
SPREAD = 4.0  # the first rates are at most this factor above or below the rate where the search begins
SHARE = 3  # smallest number of trials per setting in the first rung
LEAST = 2  # runs of each method after the longest first runs: a trial, and a seed that judges it
FEWEST = 3  # trials of the last rung: the best, and a rate on either side of it
LONGEST = 4.0  # longest run, as a multiple of the best time to the target so far
RACING, LEADING = 2.0, 1.5  # a method is in the race, or leads, up to this multiple of the best median
STEPS = 4  # largest number of steps towards better settings and rates
FARTHEST, CLOSEST = 2.0, 1.1  # new rates are between sqrt(FARTHEST) and CLOSEST times above or below the best
HALVED = 6  # trials of a leading method that are halved with those of the others
MORE = 2, 4, 8  # seeds of the rungs of these, as multiples of those of the steps
FIRST = [1, 3, *(6 * 2**power for power in range(8))]  # possible numbers of trials in the first rung
PART = 0.6  # part of a search's budget for the rungs of all methods; the rest is for those that lead
WHOLE = 1.4  # runs of a search of all methods, over those before the leading ones go on
CORES = 0.8  # fraction of the cores that runs use on average
Pair = tuple[Trial, int]  # a trial and a seed


@dataclass
class Search:
    """A search within a budget.

    Args:
        goal: what is asked.
        candidates: the methods by name.
        seeds: for tuning.
        spending: what it may spend.
        reserve: runs of each method that the search leaves for judging.
        about: cluster time in which a good run reaches the target; 0: not known yet.
        found: outcomes by trial and seed.
        whole: whether the budget was large enough for all of the search.
    """

    goal: Goal
    candidates: Candidates
    seeds: Sequence[int]
    spending: Spending
    reserve: int
    about: float = 0.0
    found: dict[Trial, dict[int, Outcome]] = field(default_factory=dict)
    whole: bool = True

    def of(self, name: str) -> list[Trial]:
        """Returns the trials of a method, the best one first."""
        return sorted((trial for trial in self.found if trial.method == name), key=self.rank)

    def rank(self, trial: Trial) -> tuple[int, float, float]:
        """Returns a sort key: more seeds first, then smaller median time, then better median last value."""
        runs = self.found[trial].values()
        seconds, last = np.median([(run.seconds, run.last) for run in runs], axis=0)
        return -len(runs), float(seconds), float(last)

    def best(self) -> dict[str, Trial]:
        """Returns the best trial of each method that has one."""
        return {name: ranked[0] for name in self.candidates if (ranked := self.of(name))}

    def seconds(self) -> dict[str, float]:
        """Returns the median seconds to the target of each method's best trial."""
        return {name: self.rank(trial)[1] for name, trial in self.best().items()}

    def longest(self) -> float:
        """Returns the length of the longest run that could still become the best."""
        return LONGEST * min(self.seconds().values())

    def leading(self, within: float) -> list[str]:
        """Returns the methods within a multiple of the best median; none if no method reaches the target."""
        seconds = self.seconds()
        return [name for name, own in seconds.items() if own <= within * min(seconds.values()) < math.inf]

    def tuned(self) -> frozenset[int]:
        """Returns the seeds of the trials."""
        return frozenset().union(*self.found.values())

    def outcomes(self, pairs: Sequence[Pair], seconds: float) -> dict[Pair, Outcome]:
        """Makes runs of trials; after Ctrl-C, those that are finished."""
        names = {str(trial): trial for trial, _ in pairs}
        methods = {name: self.candidates[trial.method].method(trial) for name, trial in names.items()}
        seeds = {name: [seed for other, seed in pairs if other == trial] for name, trial in names.items()}
        # A coarse grid, the same for all rates of a method, finds its best one, too, in a third of the time.
        runs, stopped = self.goal.runs(methods, seeds, seconds, self.about or seconds, resolve=False)
        self.spending.interrupted |= stopped
        if runs is None:
            return {}
        rows: Any = self.goal.measured(runs).itertuples()
        found = {(names[name], int(seed)): Outcome(*row) for (name, seed), *row in rows}
        if any(run.seconds == 0 for run in found.values()):
            expected = "a target that the initial parameters do not reach (with some seed they do)"
            checks.fail("target", {self.goal.metric: self.goal.target}, expected)
        self.spending.count(collections.Counter(trial.method for trial, _ in found))
        return found

    def rung(self, key: str, trials: Iterable[Trial], count: int, seconds: float) -> bool:
        """Runs trials on the first `count` seeds, as far as they have not run there.

        Args:
            key: of the decision whether the budget allows it. "": it is the first rung, which is run anyway.
            trials: of all methods.
            count: number of seeds.
            seconds: longest run, in cluster time.

        Returns:
            False, and nothing is added, if the budget does not allow it or it was interrupted: to compare a
            part of them would not be fair. Of the first rung a part is added.
        """
        every = ((trial, seed) for trial in trials for seed in self.seeds[:count])
        lacking = [(trial, seed) for trial, seed in every if seed not in self.found.get(trial, ())]
        wanted = collections.Counter(trial.method for trial, _ in lacking)
        if key and not self.spending.affords(key, wanted, self.reserve):
            return False
        made = self.outcomes(lacking, seconds) if lacking else {}
        whole = len(made) == len(lacking)
        if whole or not key:
            for (trial, seed), outcome in made.items():
                self.found.setdefault(trial, {})[seed] = outcome
        return whole


def tune(search: Search, first: int | None = None) -> None:
    """Searches the best settings of all methods, until the budget ends or Ctrl-C is pressed.

    Args:
        search: to which the outcomes are added; if it knows the time of a good run, rates are known, too.
        first: trials of each method in the first rung. None: as many as the budget allows.

    Raises:
        ValueError: no method reaches the target.
    """
    spending, rates = search.spending, {name: each.start for name, each in search.candidates.items()}
    try:
        if not search.about:
            rates, search.about = magnitudes(search, max(1, (spending.room() - search.reserve) // 3))
        halve(search, rates, first or spending.once("first", lambda: affordable(search)))
        search.whole = not spending.interrupted and improve(search)
    except KeyboardInterrupt:
        spending.interrupted = True


def question(search: Search) -> str:
    """Returns a text that tells a search from others: what is asked, methods, knobs, where rates begin."""
    firsts, spaces = dict[str, Method](), dict[str, Any]()
    for name, each in search.candidates.items():
        firsts[name] = each.method(Trial(name, each.settings[0], each.start))
        spaces[name] = {k: [*map(as_json, v)] for k, v in each.space.knobs.items()}, each.space.rate
    return search.goal.key(firsts, spaces)


def recorded(search: Search) -> dict[str, Any]:
    """Returns what a search has found, by its question, as JSON values for `recalled`."""
    best = {}
    for name, trial in search.best().items():
        _, *reached = search.rank(trial)
        knobs = {k: as_json(v) for k, v in search.candidates[name].knobs(trial.setting).items()}
        best[name] = knobs, trial.rate, *map(str, reached)
    known = {"about": search.about, "seeds": sorted(search.tuned()), "whole": search.whole, "best": best}
    return {question(search): known}


def recalled(search: Search, settings: Mapping[str, Any]) -> bool:
    """Puts the best trials of an earlier search of the same question in place of a search.

    Args:
        search: has no outcomes yet.
        settings: of `recorded`, by question.

    Returns:
        Whether there is a record with all methods, whose settings can be made here.
    """
    record: Any = settings.get(question(search))
    found: dict[Trial, dict[int, Outcome]] = {}
    with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):  # none, or a damaged one
        for name, candidate in search.candidates.items():
            knobs, rate, seconds, last = record["best"][name]
            outcome = Outcome(float(seconds), float(last), math.nan, math.nan)
            found[candidate.trial(knobs, rate)] = dict.fromkeys(record["seeds"], outcome)
        search.about, search.whole = float(record["about"]), bool(record["whole"])
        search.found = found
    return bool(search.found)


def magnitudes(search: Search, most: int = len(MAGNITUDES)) -> tuple[dict[str, float], float]:
    """Tries rates of all magnitudes with each first setting, in runs twice as long until one arrives.

    A method whose search begins at a known rate tries that one only.

    Args:
        search: has no outcomes yet.
        most: largest number of rates.

    Returns:
        The best rate of each method, and the cluster time until the fastest run reached the target.

    Raises:
        ValueError: the target is reached from the start, or not at all.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    goal, spending, seed = search.goal, search.spending, search.seeds[0]
    own = MAGNITUDES[max(0, 5 - (most + 1) // 2) :][:most]  # the likeliest
    trials: dict[str, list[Trial]] = {}
    for name, each in search.candidates.items():
        rates = [None] if not each.rated else [each.space.rate] if each.space.rate else own
        trials[name] = [Trial(name, each.settings[0], rate) for rate in rates]
    for number in range(LENGTHS):
        seconds = goal.rounds(FIRST_ROUNDS * 2**number, seed).end_time
        made = search.outcomes([(trial, seed) for each in trials.values() for trial in each], seconds)
        if spending.interrupted:
            raise KeyboardInterrupt
        best: dict[str, tuple[Trial, Outcome]] = {}
        for (trial, _), run in sorted(made.items(), key=lambda each: each[1][:2]):
            best.setdefault(trial.method, (trial, run))
        reached = min(run.seconds for _, run in best.values())
        if math.isfinite(reached):
            break
        for name, (trial, _) in best.items():
            if trial.rate and not search.candidates[name].space.rate:
                trials[name] = [trial._replace(rate=trial.rate * factor) for factor in AROUND]
        over = spending.once(f"length {number}", lambda: spending.left() < 0)
        if over or number == LENGTHS - 1 or spending.room() < max(map(len, trials.values())) + LEAST:
            fail_to_reach(goal, {name: run.last for name, (_, run) in best.items()}, seconds)
    return {name: trial.rate or 1.0 for name, (trial, _) in best.items()}, reached


def runs_of(first: int) -> int:
    """Returns the largest number of runs of a method for a first rung of `first` trials.

    >>> [runs_of(first) for first in (6, 12, 24)]
    [11, 30, 74]
    """
    total, width, seeds = first, first, 1
    while width > FEWEST:
        width, seeds = max(FEWEST, width // 2), 2 * seeds
        total += (width - 2) * seeds // 2 + 2 * seeds
    return total


def affordable(search: Search) -> int:
    """Returns the number of `FIRST` that the budget allows as trials of each method in the first rung."""
    spending, methods = search.spending, search.candidates.values()
    cores = max(1.0, CORES * len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else [0]))
    per_run = spending.per_run / 2  # so far, half of the time went into compiling
    per_program = spending.spent / max(sum(map(bool, spending.made.values())), 1)
    for first in reversed(FIRST):
        settings = (min(len(each.settings), max(1, first // SHARE)) for each in methods)
        runs = WHOLE * len(methods) * (runs_of(first) + search.reserve)
        seconds = (sum(settings) * per_program + runs * per_run) / cores
        if runs_of(first) <= PART * (spending.room() - search.reserve) and seconds <= spending.left():
            return first
    return FEWEST if spending.runs is None else FIRST[0]


def first_trials(candidate: Candidate, rate: float, count: int) -> list[Trial]:
    """Returns the trials of the first rung: settings in their order, each with rates over the same range.

    A method without knobs has all its trials at different rates, which are closer to each other; a method
    without a rate has one for each setting.
    """
    if not candidate.rated:
        return [Trial(candidate.name, setting) for setting in candidate.settings[:count]]
    settings, trials = candidate.settings[: max(1, count // SHARE)], []
    for number, setting in enumerate(settings):
        rates = count // len(settings) + (number < count % len(settings))
        step = SPREAD ** (2 / (rates - 1)) if rates > 1 else 1.0
        own = [rate * step ** (i - (rates - 1) / 2) for i in range(rates)]
        trials += [Trial(candidate.name, setting, each) for each in own]
    return trials


def neighbours(best: Trial, tried: Iterable[Trial], farthest: float = SPREAD**2) -> list[Trial]:
    """Returns new trials at rates next to a trial's, with the same setting; none if it has no rate.

    Args:
        best: the trial.
        tried: trials of the method, this one among them.
        farthest: a new rate is halfway, on a logarithmic scale, to a rate that was tried, or to one this many
            times as large or small if that is closer. So the range grows while its end is the best.

    >>> one, other = Trial("BSP", (), 0.25), Trial("BSP", (), 1.0)
    >>> [trial.rate for trial in neighbours(other, [one, other])]
    [0.5, 4.0]
    """
    if best.rate is None:
        return []
    rates = sorted(trial.rate for trial in tried if trial.setting == best.setting and trial.rate)
    place = rates.index(best.rate)
    below = max([*rates[:place], best.rate / farthest])
    above = min([*rates[place + 1 :], best.rate * farthest])
    return [best._replace(rate=math.sqrt(best.rate * other)) for other in (below, above)]


def next_trials(candidate: Candidate, ranked: Sequence[Trial], count: int) -> list[Trial]:
    """Returns the trials of the next rung: the best so far, and new ones next to the best one.

    These are a rate on either side, and, if the rung is wide enough, another value of a knob or two.
    """
    best = ranked[0]
    beside = [trial for trial in candidate.beside(best) if trial not in ranked][: count // 4]
    new = (neighbours(best, ranked) + beside)[: count - 1]
    return [*ranked[: count - len(new)], *new]


def halve(search: Search, rates: Mapping[str, float], first: int) -> None:
    """Tunes all methods: each rung has half as many trials as the last one, on twice as many seeds.

    No run lasts longer than `LONGEST` times the best median so far, because it could not become the best.

    Args:
        search: to which the outcomes are added.
        rates: where the search for each method's rate begins.
        first: trials of each method in the first rung.
    """
    width, seeds, limit, methods = first, 1, LONGEST * search.about, search.candidates.items()
    trials = [trial for name, each in methods for trial in first_trials(each, rates[name], first)]
    key = ""
    while search.rung(key, trials, seeds, limit) and width > FEWEST:
        width, seeds, limit = max(FEWEST, width // 2), 2 * seeds, min(limit, search.longest())
        trials = [trial for name, each in methods for trial in next_trials(each, search.of(name), width)]
        key = f"rung on {seeds} seeds"


def improve(search: Search) -> bool:
    """Improves the methods in the race in up to `STEPS` steps, then halves the best trials of the leading.

    A step tries the trials next to the best one of each: in a knob's value, or in the rate.

    Returns:
        Whether the budget was large enough for all of it.
    """
    count = max(map(len, search.found.values()))
    for step in range(STEPS):
        near = [_nearby(search, name) for name in search.leading(RACING)]
        # The same number for all, so that many knobs of one method do not stop the others.
        tried = ([trial for each in near for trial in each[:most]] for most in (8, 4, 2, 1))
        if not any(search.rung(f"step {step}, {len(t)}", t, count, search.longest()) for t in tried):
            return False
    limit = search.longest()
    ranked = [trial for name in search.leading(LEADING) for trial in search.of(name)[:HALVED]]
    trials = [trial for trial in ranked if len(search.found[trial]) == count]
    for more in MORE:
        trials = sorted(trials, key=search.rank)[: max(2, len(trials) // 2)]
        if not search.rung(f"leading, {more}", trials, more * count, limit):
            return False
    return True


def _nearby(search: Search, name: str) -> list[Trial]:
    best, *_ = ranked = search.of(name)
    rates: Any = neighbours(best, ranked, FARTHEST)
    apart = [each for each in rates if abs(math.log(each.rate / best.rate)) > math.log(CLOSEST)]
    return [*apart, *search.candidates[name].beside(best)]


def fail_to_reach(goal: Goal, last: Mapping[str, float], seconds: float) -> NoReturn:
    """Raises ValueError that says how close each method came to the target that none reached."""
    came = sorted(last.items(), key=lambda each: each[1])
    told = ", ".join(f"{name} came to {goal.sign * value:.4g}" for name, value in came)
    expected = f"a target that a method reaches (in {seconds:.3g} s of the cluster's time {told})"
    checks.fail("target", {goal.metric: goal.target}, expected, "a larger budget or an easier target")
