"""How many claims have each verdict: those of the papers' abstracts first, and the others apart."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, get_args

from dmlcore.reproduce.claims.model import Ledger, Result, Source, Verdict

GROUPS: dict[Source, str] = {
    "abstract": "from the papers' abstracts",
    "ours": "our own",
    "theory": "against theory",
    "conformance": "of conformance",
}

ROUNDING = 1e-5  # ratios of samples, which have six significant digits, that differ by less are the same


class Tally(NamedTuple):
    """The claims of one source, counted by verdict."""

    group: str  # in words
    counts: list[tuple[str, int]]  # (verdict, how many), without the verdicts that none has
    total: int


def standing(ledgers: Iterable[Ledger]) -> list[Result]:
    """Returns one result per claim: of full scale where the claim was run there, else of quick scale.

    They come in the order in which their claims are first met.
    """
    found: dict[tuple[str, str], Result] = {}
    for ledger in sorted(ledgers, key=lambda ledger: ledger.scale == "full"):  # stable; full scale last
        for result in ledger.claims:
            key = (ledger.paper, result.id)
            if key not in found or result.verdict != "not run":
                found[key] = result
    return [*found.values()]


def tallies(results: Iterable[Result]) -> list[Tally]:
    """Returns the counts of each source that occurs, abstracts first.

    A claim that repeats an earlier one (`repeats`) is the same experiment, and is not counted again.
    """
    found = list(results)
    again = repeats(found)
    once = [result for result in found if result.id not in again]
    tallied = []
    for source, group in GROUPS.items():
        counted = Counter(result.verdict for result in once if result.source == source)
        counts = [(verdict, counted[verdict]) for verdict in get_args(Verdict) if counted[verdict]]
        if counts:
            tallied.append(Tally(group, counts, counted.total()))
    return tallied


def told(results: Iterable[Result]) -> list[str]:
    """Returns the tallies in words, a line for each source."""
    return [
        f"{total} {group}: " + ", ".join(f"{count} {verdict}" for verdict, count in counts)
        for group, counts, total in tallies(results)
    ]


def repeats(results: Sequence[Result]) -> dict[str, str]:
    """Returns, by claim, an earlier claim with the same samples and labels that it tells again.

    It has the same expected range and unit, as where two ways to choose learning rates chose the same ones;
    or it declares with `repeats` that it tells that claim again, with a range of its own, or its samples
    divided by a constant, which may be another for each part.
    """
    first: dict[tuple, str] = {}
    measured: dict[str, Result] = {}
    again = {}
    for result in results:
        parts = tuple((part.label, part.samples) for part in result.parts)
        if result.measured_on is None:
            continue
        measured[result.id] = result
        experiment = (result.paper, result.samples, parts, result.unit, result.expected)
        known = first.setdefault(experiment, result.id)
        if (declared := measured.get(result.repeats)) and _scaled(declared, result):
            known = declared.id
        if known != result.id:
            again[result.id] = known
    return again


def _scaled(one: Result, other: Result) -> bool:
    """Whether two claims of a paper have the same samples, but for a constant factor of each part."""
    if (one.paper, [part.label for part in one.parts]) != (other.paper, [part.label for part in other.parts]):
        return False
    pairs = [(one.samples, other.samples)]
    pairs += [(a.samples, b.samples) for a, b in zip(one.parts, other.parts, strict=True)]
    return all(_proportional(a, b) for a, b in pairs)


def _proportional(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    ratios = []
    for a, b in zip(one, other, strict=False):
        if a in (None, 0, math.inf) or b in (None, 0, math.inf):
            if a != b:
                return False
        else:
            ratios.append(b / a)
    same = all(math.isclose(ratio, ratios[0], rel_tol=ROUNDING) for ratio in ratios)
    return len(one) == len(other) and same
