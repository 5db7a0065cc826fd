"""The rule that decides whether a run gives the published numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dmlcore.reproduce.claims import Ledger

RELATIVE = 1e-4  # two numbers are the same if they differ by at most this fraction of the larger one


def same(one: float | None, other: float | None) -> bool:
    """Returns whether two numbers agree: |a - b| <= 1e-4 max(|a|, |b|), or both infinite, or both missing.

    >>> same(2.0, 2.0001), same(2.0, 2.001), same(0.0, 1e-9), same(None, None), same(None, 1.0)
    (True, False, False, True, False)
    """
    if one is None or other is None or one == other:
        return one == other
    return abs(one - other) <= RELATIVE * max(abs(one), abs(other)) < float("inf")


class Difference(NamedTuple):
    """One published number or verdict that a run does not reproduce."""

    where: str  # paper, claim, label of the part, seed
    published: str
    here: str

    def __str__(self) -> str:
        return f"{self.where}: published {self.published}, here {self.here}"


class Agreement(NamedTuple):
    """How many of the published numbers and verdicts a run reproduces."""

    numbers: int  # published samples, one per claim, part and seed
    same_numbers: int
    verdicts: int  # published verdicts, one per claim
    same_verdicts: int
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        return (
            f"{self.same_numbers} of {self.numbers} published numbers, "
            f"{self.same_verdicts} of {self.verdicts} verdicts"
        )


def agreement(published: Ledger, here: Ledger) -> Agreement | None:
    """Returns how a run agrees with the published one, or None if its scale, seeds or parameters differ.

    Every published sample is looked up by claim, part and seed, and compared by `same`. Claims that only the
    new run has are not counted.
    """
    if _run(published) != _run(here):
        return None
    numbers, made = dict(_samples(published)), dict(_samples(here))
    wrong = [
        Difference(where, _shown(value), _shown(made[where]) if where in made else "missing")
        for where, value in numbers.items()
        if where not in made or not same(value, made[where])
    ]
    verdicts, judged = (
        {f"{ledger.paper} {result.id}": str(result.verdict) for result in ledger.claims}
        for ledger in (published, here)
    )
    other = [
        Difference(where, verdict, judged.get(where, "missing"))
        for where, verdict in verdicts.items()
        if judged.get(where) != verdict
    ]
    counts = (len(numbers), len(numbers) - len(wrong), len(verdicts), len(verdicts) - len(other))
    return Agreement(*counts, (*wrong, *other))


def total(agreements: Iterable[Agreement]) -> Agreement:
    """Returns the sum over papers."""
    found = list(agreements)
    return Agreement(
        sum(each.numbers for each in found),
        sum(each.same_numbers for each in found),
        sum(each.verdicts for each in found),
        sum(each.same_verdicts for each in found),
        tuple(difference for each in found for difference in each.differences),
    )


def _run(ledger: Ledger) -> tuple[Any, ...]:
    return ledger.paper, ledger.scale, ledger.seeds, ledger.parameters


def _samples(ledger: Ledger) -> Iterator[tuple[str, float | None]]:
    for result in ledger.claims:
        for label, samples in [("", result.samples), *((part.label, part.samples) for part in result.parts)]:
            named = ", ".join(filter(None, (f"{ledger.paper} {result.id}", label)))
            for seed, value in enumerate(samples):
                yield f"{named}, seed {seed}", value


def _shown(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.6g}"
