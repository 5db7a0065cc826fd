"""From numbers to verdicts: the rule is code, no verdict is chosen by hand."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dmlcore import checks
from dmlcore.reproduce.claims.model import Claim, Part, Range, Result, Verdict

Samples = Sequence[float | None] | None


def rule(interval: tuple[float, float] | None, expected: Range) -> Verdict:
    """Returns the verdict: the interval lies inside the expected range, apart from it, or across its edge.

    Both ends of both are inclusive. No interval: nothing was measured; None leaves an end of a range open.

    >>> rule((1.2, 1.4), (1.0, None)), rule((0.9, 1.4), (1.0, None)), rule((0.7, 0.9), (1.0, None))
    ('reproduced', 'partly', 'not reproduced')
    """
    if interval is None:
        return "not run"
    (least, most), (low, high) = interval, _bounds(expected)
    if low <= least and most <= high:
        return "reproduced"
    return "not reproduced" if most < low or high < least else "partly"


def combine(verdicts: Sequence[Verdict]) -> Verdict:
    """Returns the verdict on a claim from those on its parts.

    All reproduced: reproduced. None even partly: not reproduced. Otherwise partly, as where one was not run.

    >>> combine(["reproduced", "not reproduced"])
    'partly'
    """
    for uniform in ("reproduced", "not run"):
        if all(verdict == uniform for verdict in verdicts):
            return uniform
    return "partly" if {"reproduced", "partly"} & set(verdicts) else "not reproduced"


def judge(claim: Claim, samples: Samples | Mapping[str, Samples]) -> Result:
    """Returns the outcome of a claim from one sample per seed.

    Guarantees: the same samples give the same result, kept to six significant digits. The interval is the 95%
    percentile bootstrap of the median over seeds; with a single seed it has no width.

    `inf` is a measurement, the largest: a target that is never reached takes `inf` seconds. None and NaN say
    that a seed was not measured: the claim is then at best `partly`, since what is missing might have spoken
    against it, and without any measurement it was not run. A ratio of two infinities is NaN: decide before
    what it counts as.

    A claim with parts shows the numbers of its weakest, which is farthest toward failing; its verdict
    combines theirs.

    Args:
        claim: declared before the run.
        samples: one number per seed; for a claim with parts, these by label. What is missing was not run.

    Raises:
        ValueError: labels that the claim does not declare, or a sample that is no number.
    """
    stated = claim.model_dump(exclude={"parts"})
    if not claim.parts:
        if isinstance(samples, Mapping):
            checks.fail(f"samples of {claim.id}", list(samples), "a sequence: this claim declares no parts")
        return Result(**stated, **_measured(claim, samples))
    samples = {} if samples is None else samples
    if not isinstance(samples, Mapping) or set(samples) - set(claim.parts):
        given = list(samples) if isinstance(samples, Mapping) else samples
        checks.fail(f"samples of {claim.id}", given, f"a mapping with the labels {list(claim.parts)}")
    parts = tuple(Part(label=label, **_measured(claim, samples.get(label))) for label in claim.parts)
    return Result(**stated, **summary(parts, claim.expected), parts=parts)


def summary(parts: Sequence[Part], expected: Range) -> dict[str, Any]:
    """Returns the outcome of a claim from its parts: the numbers of the weakest, the combined verdict."""
    weakest = min(parts, key=lambda part: _strength(part, expected))
    verdict = combine([part.verdict for part in parts])
    return {"measured": weakest.measured, "interval": weakest.interval, "verdict": verdict}


def outcome(samples: Sequence[float | None], expected: Range) -> dict[str, Any]:
    """Returns what follows from the samples of a claim, or of one of its parts, as a ledger keeps them.

    >>> outcome([1.5, None, 2.0], (1.0, None))
    {'measured': 1.75, 'interval': (1.5, 2.0), 'verdict': 'partly'}
    """
    values = [value for value in samples if value is not None]
    if not values:
        return {"measured": None, "interval": None, "verdict": "not run"}
    from dmlcore.trace.metrics import interval  # not above: the command line reads ledgers without numerics

    measured, low, high = map(rounded, interval(values))
    verdict = rule((low, high), expected)
    if verdict == "reproduced" and len(values) < len(samples):
        verdict = "partly"
    return {"measured": measured, "interval": (low, high), "verdict": verdict}


def _measured(claim: Claim, samples: Samples) -> dict[str, Any]:
    kept = tuple(_sample(claim, value) for value in (() if samples is None else samples))
    return {"samples": kept, **outcome(kept, claim.expected)}


def _sample(claim: Claim, value: Any) -> float | None:
    try:
        number = math.nan if value is None else float(value)
    except (TypeError, ValueError):
        number = -math.inf
    if number == -math.inf:
        checks.fail(f"samples of {claim.id}", value, "a number above -inf, or None")
    return None if math.isnan(number) else rounded(number)


def rounded(number: float) -> float:
    """Returns a number to six significant digits, so that the last bits of a platform leave no mark."""
    return float(f"{number:.6g}")


def _bounds(expected: Range) -> tuple[float, float]:
    low, high = expected
    return (-math.inf if low is None else low), (math.inf if high is None else high)


def _strength(part: Part, expected: Range) -> tuple[int, float]:
    """Smallest for the part that is farthest toward failing; parts that were not run come last."""
    rank = ("not reproduced", "partly", "reproduced", "not run").index(part.verdict)
    if part.interval is None:
        return rank, 0.0
    (least, most), (low, high) = part.interval, _bounds(expected)
    return rank, min(least - low, math.inf if high == math.inf else high - most)
