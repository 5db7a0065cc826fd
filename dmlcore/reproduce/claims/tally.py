"""The tally: the number of claims with each verdict, separately for abstracts and for each other source."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args

from dmlcore.reproduce.claims.model import Outcome, Result, Source, Verdict

GROUPS: dict[Source, str] = {
    "abstract": "from the papers' abstracts",
    "ours": "our own",
    "theory": "against theory",
    "conformance": "of conformance",
}

ROUNDING = 1e-5  # tolerance for ratios of samples, which have six significant digits


class Tally(NamedTuple):
    """The claims of one source, counted by verdict."""

    source: Source
    counts: dict[str, int]  # verdict -> number of claims, without zeros

    @property
    def group(self) -> str:
        """The source in words."""
        return GROUPS[self.source]

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def tallies(results: Iterable[Result]) -> list[Tally]:
    """Returns the tally of each source, abstracts first.

    A claim that repeats an earlier one, by `repeats`, is the same experiment and is not counted again.

    Args:
        results: one per claim.

    Returns:
        One tally per source that occurs.

    Raises:
        AttributeError: an element of `results` is not a `Result`.

    >>> from dmlcore.reproduce.claims import Claim, judge
    >>> claim = Claim(id="e-1", paper="e", statement="No worker waits under ASP", source="ours", data="none",
    ...               metric="smallest share of time spent computing", expected=(0.99, 1), regime="any")
    >>> [(tally.counts, tally.total) for tally in tallies([judge(claim, [1.0] * 8)])]
    [({'reproduced': 1}, 1)]
    """
    results = [*results]
    found = [Tally(source, verdicts(results, source)) for source in GROUPS]
    return [tally for tally in found if tally.counts]


def verdicts(results: Sequence[Result], *sources: Source) -> dict[str, int]:
    """Returns how many claims of some sources, by default of all, have each verdict; see `tallies`."""
    own = [result for result in once(results) if result.source in (sources or GROUPS)]
    return counts(Verdict, [result.verdict for result in own])


def counts(kind: Any, words: Iterable[str]) -> dict[str, int]:
    """Returns how often each word of a kind, `Outcome` or `Verdict`, is there: in their order, no zeros."""
    found = Counter(words)
    return {word: found[word] for word in get_args(kind) if found[word]}


def once(results: Sequence[Result]) -> list[Result]:
    """Returns the results without those that repeat an earlier one."""
    again = repeats(results)
    return [result for result in results if result.id not in again]


def told(results: Iterable[Result]) -> list[str]:
    """Returns the tallies as text.

    Args:
        results: one per claim.

    Returns:
        One line per source.

    Raises:
        AttributeError: an element of `results` is not a `Result`.

    >>> from dmlcore.reproduce.claims import Claim, judge
    >>> claim = Claim(id="e-1", paper="e", statement="No worker waits under ASP", source="ours", data="none",
    ...               metric="smallest share of time spent computing", expected=(0.99, 1), regime="any")
    >>> told([judge(claim, [1.0] * 8)])
    ['1 our own: 1 reproduced', '1 setting: holds in 1']
    """
    results = [*results]
    lines = []
    for tally in tallies(results):
        listed = ", ".join(f"{count} {verdict}" for verdict, count in tally.counts.items())
        lines.append(f"{tally.total} {tally.group}: {listed}")
    if found := settings(results):
        listed = ", ".join(f"{outcome} in {count}" for outcome, count in found.items())
        lines.append(f"{sum(found.values())} setting{'s' * (sum(found.values()) != 1)}: {listed}")
    return lines


def settings(results: Sequence[Result]) -> dict[str, int]:
    """Returns how many settings have each outcome; claims that repeat an earlier one are not counted again.

    Args:
        results: one per claim.

    Returns:
        Outcome -> number of settings, without zeros.

    Raises:
        AttributeError: an element of `results` is not a `Result`.

    >>> settings([])
    {}
    """
    return counts(Outcome, [part.outcome for result in once(results) for part in result.parts])


def repeats(results: Sequence[Result]) -> dict[str, str]:
    """Finds the claims that repeat an earlier claim, with the same samples and labels.

    One kind has the same expected range and unit as the earlier claim; this happens if two ways to choose
    learning rates chose the same ones. The other kind declares the earlier claim with `repeats`. It may have
    its own range, or samples that are divided by a constant for each part.

    Args:
        results: one per claim, in their order.

    Returns:
        id of the claim -> id of the earlier claim.

    Raises:
        AttributeError: an element of `results` is not a `Result`.

    >>> from dmlcore.reproduce.claims import Claim, judge
    >>> claim = Claim(id="e-1", paper="e", statement="No worker waits under ASP", source="ours", data="none",
    ...               metric="smallest share of time spent computing", expected=(0.99, 1), regime="any")
    >>> again = claim.model_copy(update={"id": "e-2", "repeats": "e-1"})
    >>> repeats([judge(claim, [1.0, 0.9]), judge(again, [1.0, 0.9])])
    {'e-2': 'e-1'}
    """
    first: dict[tuple, str] = {}
    measured: dict[str, Result] = {}
    again = {}
    for result in results:
        parts = tuple((part.label, part.samples) for part in result.parts)
        if result.verdict == "not run":
            continue
        measured[result.id] = result
        known = first.setdefault((result.paper, parts, result.unit, result.expected), result.id)
        if (declared := measured.get(result.repeats)) and _scaled(declared, result):
            known = declared.id
        if known != result.id:
            again[result.id] = known
    return again


def _scaled(one: Result, other: Result) -> bool:
    """Returns whether two claims of a paper have the same samples up to a constant factor per setting."""
    if (one.paper, [part.label for part in one.parts]) != (other.paper, [part.label for part in other.parts]):
        return False
    return all(_proportional(a.samples, b.samples) for a, b in zip(one.parts, other.parts, strict=True))


def _proportional(one: Sequence[float | None], other: Sequence[float | None]) -> bool:
    ratios = []
    for a, b in zip(one, other, strict=False):
        if not a or not b or math.inf in (a, b):
            if a != b:
                return False
        else:
            ratios.append(b / a)
    same = all(math.isclose(ratio, ratios[0], rel_tol=ROUNDING) for ratio in ratios)
    return len(one) == len(other) and same
