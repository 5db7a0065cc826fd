"""How a run agrees with the published ledger: which numbers are equal, and whether any outcome changes."""

import functools
import math
import operator
from collections.abc import Iterable
from typing import NamedTuple

from dmlcore.reproduce.claims import Ledger, outcome
from dmlcore.reproduce.claims.ledger import declaration

RELATIVE = 1e-4  # numbers are equal up to rounding if they differ by at most this fraction of the larger one


def same(one: float | None, other: float | None) -> bool:
    """Returns whether two numbers agree: |a - b| <= 1e-4 max(|a|, |b|), or both infinite, or both missing.

    >>> same(2.0, 2.0001), same(2.0, 2.001), same(0.0, 1e-9), same(None, None), same(None, 1.0)
    (True, False, False, True, False)
    """
    return one == other if one is None or other is None else math.isclose(one, other, rel_tol=RELATIVE)


class Difference(NamedTuple):
    """A published number, or an outcome, that a run changes."""

    where: str  # paper, claim, label of the setting, and seed
    published: str
    here: str

    def __str__(self) -> str:
        return f"{self.where}: published {self.published}, here {self.here}"


class Agreement(NamedTuple):
    """How many of the published numbers a run repeats, and which outcomes it changes."""

    numbers: int  # published samples of the seeds and settings that were run
    equal: int
    rounded: int  # further ones that are equal up to rounding
    settings: int
    changed: tuple[Difference, ...]  # outcomes, with the numbers of this run in place of those seeds
    differences: tuple[Difference, ...]  # of numbers

    def __str__(self) -> str:
        differ, changed = len(self.differences) or "none", len(self.changed) or "none"
        return (
            f"{self.equal} of {self.numbers} numbers equal, {self.rounded} equal up to rounding, "
            f"{differ} different; outcomes that change: {changed} of {self.settings}"
        )


def agreement(published: Ledger, here: Ledger) -> Agreement | None:
    """Returns how a run agrees with the published ledger, or None if it measured nothing that is published.

    Samples are compared by claim, setting and seed, where the published ones were made at the same scale with
    the same parameters. The run may have fewer seeds, and settings.
    """
    known = {result.id: result for result in published.claims}
    numbers = equal = near = settings = 0
    wrong, changed = [], []
    for result in here.claims:
        old = known.get(result.id)
        if old is None or declaration(old) != declaration(result):
            continue
        for before, part in zip(old.parts, result.parts, strict=True):
            if "not run" in (before.outcome, part.outcome):
                continue
            made, making = published.runs[before.run], here.runs[part.run]
            if (made.scale, made.asked) != (making.scale, making.asked):
                continue
            where = ", ".join(filter(None, (f"{here.paper} {result.id}", part.label)))
            pairs = [*zip(before.samples, part.samples, strict=False)]
            settings, numbers = settings + 1, numbers + len(pairs)
            for seed, (a, b) in enumerate(pairs):
                if a == b:
                    equal += 1
                elif same(a, b):
                    near += 1
                else:
                    wrong.append(Difference(f"{where}, seed {seed}", _shown(a), _shown(b)))
            put = [*part.samples[: len(pairs)], *before.samples[len(pairs) :]]
            if (now := outcome(put, result)["outcome"]) != before.outcome:
                changed.append(Difference(where, before.outcome, now))
    if not settings:
        return None
    return Agreement(numbers, equal, near, settings, tuple(changed), tuple(wrong))


def total(agreements: Iterable[Agreement]) -> Agreement:
    """Returns the sum over papers."""
    return Agreement(*(functools.reduce(operator.add, column) for column in zip(*agreements, strict=True)))


def _shown(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.6g}"
