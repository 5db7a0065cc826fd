"""The rule that turns numbers into outcomes, and the tally of verdicts; no verdict is chosen by hand."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from dmlcore import checks
from dmlcore.reproduce.claims.model import ANY, NONE, TEXTS, Claim, Outcome, Part, Result, Source, Verdict

Samples = Sequence[float | None] | None


def outcome(samples: Sequence[float | None], claim: Claim | Result) -> dict[str, Any]:
    """Returns the fields of a setting that follow from its samples: median, interval and outcome.

    The claim holds if the interval of the samples' median, by `metrics.decide`, is in the expected range, and
    fails if it is outside. Otherwise it is undecided, as always with fewer than eight seeds. A claim that
    must hold always holds if every seed has a sample in the range, and fails if one is outside.

    Args:
        samples: one per seed, S numbers in the unit of the metric. None: there is no number on that seed.
        claim: whose range is expected.

    Returns:
        `measured`, `interval` and `outcome`.

    Raises:
        TypeError: a sample is neither a number nor None.

    >>> claim = Claim(id="e-1", paper="e", statement="A is faster", source="ours", data="none", regime="any",
    ...               metric="time of B / time of A", expected=(1.0, None))
    >>> outcome([1.2] * 7 + [1.4], claim)
    {'measured': 1.2, 'interval': (1.2, 1.4), 'outcome': 'holds'}
    >>> [outcome(samples, claim)["outcome"] for samples in ([1.2] * 7, [0.9] * 8, [0.9] + [1.2] * 7, [None])]
    ['undecided', 'fails', 'undecided', 'not run']
    """
    from dmlcore.trace.metrics.decision import LOOKS, decide  # slow to import; a command line may not need it

    values = [value for value in samples if value is not None]
    if not values:
        return {"measured": None, "interval": None, "outcome": "not run"}
    low, high = claim.expected
    if claim.always:
        ends = min(values), max(values)
        inside = (low is None or low <= ends[0]) and (high is None or ends[1] <= high)
        said = "fails" if not inside else "holds" if len(values) == len(samples) else "undecided"
    else:
        found = decide(values, low, high)
        ends, said = (found.low, found.high), found.outcome
    known = claim.always or len(values) >= LOOKS[0]
    interval = (rounded(ends[0]), rounded(ends[1])) if known else None
    return {"measured": rounded(statistics.median(values)), "interval": interval, "outcome": said}


def combine(outcomes: Sequence[str]) -> Verdict:
    """Combines the outcomes in the settings of a claim's regime into the verdict on the claim.

    It is "reproduced" if the claim holds in every setting, and "in part" if it holds in some. If it holds in
    none, it is "not reproduced" if it fails in some, "not run" if no setting was run, and else "undecided".

    Args:
        outcomes: one per setting.

    Returns:
        The verdict on the claim.

    Raises:
        TypeError: `outcomes` is not a sequence.

    >>> combine(["holds", "holds"]), combine(["holds", "fails"]), combine(["holds", "not run"])
    ('reproduced', 'in part', 'in part')
    >>> combine(["fails", "undecided"]), combine(["undecided", "not run"]), combine(["not run"])
    ('not reproduced', 'undecided', 'not run')
    """
    counts = Counter(outcomes)
    if counts["holds"]:
        return "reproduced" if counts["holds"] == len(outcomes) else "in part"
    if counts["fails"]:
        return "not reproduced"
    return "undecided" if counts["undecided"] else "not run"


def judge(
    claim: Claim, samples: Samples | Mapping[str, Samples], measured_on: str | Mapping[str, str] | None = None
) -> Result:
    """Returns the outcomes of a claim from one sample per seed and setting.

    Guarantees: the same samples give the same result, with six significant digits. Samples that come from
    other data than those of the claim are left out: the claim was not run there.

    `inf` is the largest measurement: a target that is never reached takes `inf` seconds. None and NaN mean
    that there is no number on a seed. A ratio of two infinities is NaN.

    Args:
        claim: the claim, declared before the run.
        samples: one number per seed, S numbers; for a claim with several settings, label -> S numbers.
            Settings that are missing were not run.
        measured_on: the data set that the samples come from, to compare with `claim.data`; or label -> data
            set. Default: None, for a claim whose data are "none".

    Returns:
        The result.

    Raises:
        ValueError: the claim does not declare a label, a sample is not a number, or `measured_on` is missing.

    >>> claim = Claim(id="e-1", paper="e", statement="No worker waits under ASP", source="ours", data="none",
    ...               metric="smallest share of time spent computing", expected=(0.99, 1), regime="any")
    >>> judge(claim, [1.0, 0.98, 1.0]).verdict, judge(claim, [1.0] * 8).verdict
    ('undecided', 'reproduced')
    """
    single = claim.parts == ("",)
    if single:
        if isinstance(measured_on, Mapping):
            checks.fail(f"data of {claim.id}", measured_on, "one name (this claim declares no parts)")
        if isinstance(samples, Mapping):
            checks.fail(f"samples of {claim.id}", list(samples), "a sequence (this claim declares no parts)")
    by_label: Any = {"": samples} if single else {} if samples is None else samples
    if not isinstance(by_label, Mapping) or set(by_label) - set(claim.parts):
        given = list(by_label) if isinstance(by_label, Mapping) else by_label
        checks.fail(f"samples of {claim.id}", given, f"a mapping with the labels {list(claim.parts)}")
    if isinstance(measured_on, Mapping):
        for label in measured_on:
            checks.choice(f"part of {claim.id} in the data", label, dict.fromkeys(claim.parts))
    else:
        measured_on = dict.fromkeys(claim.parts, measured_on or "")
    parts = tuple(_part(claim, label, by_label.get(label), measured_on) for label in claim.parts)
    stated = claim.model_dump(exclude={*TEXTS})
    return Result(**stated, verdict=combine([part.outcome for part in parts]), parts=parts)


def _part(claim: Claim, label: str, samples: Samples, measured_on: Mapping[str, str]) -> Part:
    kept = tuple(_sample(claim, value) for value in (() if samples is None else samples))
    data = NONE if claim.data == NONE else measured_on.get(label)
    if all(value is None for value in kept):
        kept, data = (), None
    elif not data:
        named = ", ".join(filter(None, (f"data of {claim.id}", label)))
        checks.fail(named, data or None, "the name of the data set of the measurement")
    elif claim.data not in (ANY, NONE) and not {*data.split(", ")} <= {*claim.data.split(", ")}:
        kept, data = (), None
    return Part(label=label, samples=kept, data=data, **outcome(kept, claim))


def _sample(claim: Claim, value: Any) -> float | None:
    try:
        number = math.nan if value is None else float(value)
    except (TypeError, ValueError):
        number = -math.inf
    if number == -math.inf:
        checks.fail(f"samples of {claim.id}", value, "a number > -inf, or None")
    return None if math.isnan(number) else rounded(number)


def rounded(number: float) -> float:
    """Rounds a number to six significant digits, so that it does not depend on a platform's last bits."""
    return float(f"{number:.6g}")


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
