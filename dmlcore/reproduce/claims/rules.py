"""From numbers to verdicts: the rule is code, no verdict is chosen by hand."""

import math
import statistics
from collections.abc import Mapping, Sequence, Sized
from typing import Any

from dmlcore import checks
from dmlcore.reproduce.claims.model import ANY, NONE, Claim, Part, Range, Result, Verdict

SEPARATOR = ", "  # between the data sets of a claim
Samples = Sequence[float | None] | None


def rule(samples: Sequence[float | None], expected: Range, *, deterministic: bool = False) -> Verdict:
    """Returns the verdict on samples: every one inside the expected range, some, or none.

    Both ends of the range are inclusive; None leaves one open. `reproduced` needs every seed measured, and at
    least two of them, or one where the number is `deterministic`. Without any measurement: `not run`.

    >>> rule([1.2, 1.4], (1.0, None)), rule([0.9, 1.4], (1.0, None)), rule([0.7, 0.9], (1.0, None))
    ('reproduced', 'mixed', 'not reproduced')
    >>> rule([1.2], (1.0, None)), rule([1.2, None], (1.0, None)), rule([None], (1.0, None))
    ('mixed', 'mixed', 'not run')
    """
    values = [value for value in samples if value is not None]
    if not values:
        return "not run"
    inside = within(values, expected)
    if not inside:
        return "not reproduced"
    enough = len(samples) > 1 or deterministic
    return "reproduced" if enough and inside == len(samples) else "mixed"


def within(samples: Sequence[float | None], expected: Range) -> int:
    """Returns how many samples lie inside the expected range; None, a seed not measured, does not."""
    low, high = expected
    least, most = (-math.inf if low is None else low), (math.inf if high is None else high)
    return sum(value is not None and least <= value <= most for value in samples)


def combine(verdicts: Sequence[Verdict]) -> Verdict:
    """Returns the verdict on a claim from those on its parts, decided over the parts that were run.

    `reproduced` needs every part run and reproduced. Where each part that was run is `not reproduced`, so is
    the claim. Where none was run, the claim was `not run`. All else is `mixed`.

    >>> combine(["reproduced", "reproduced"]), combine(["reproduced", "not run"])
    ('reproduced', 'mixed')
    >>> combine(["not reproduced", "not run"]), combine(["not reproduced", "mixed"])
    ('not reproduced', 'mixed')
    """
    found = {*verdicts} - {"not run"}
    if not found:
        return "not run"
    if found == {"not reproduced"}:
        return "not reproduced"
    return "reproduced" if {*verdicts} == {"reproduced"} else "mixed"


def comparable(claim: Claim | Result, measured_on: str | None) -> bool:
    """Returns whether samples from these data say something about the claim; other data do not.

    A claim with parts may be about several data sets, separated by commas: each that was measured on must be
    one of them.
    """
    if claim.data in (ANY, NONE, measured_on):
        return True
    return bool(claim.parts and measured_on) and {*_names(measured_on)} <= {*_names(claim.data)}


def _names(data: str | None) -> list[str]:
    return (data or "").split(SEPARATOR)


def judge(
    claim: Claim,
    samples: Samples | Mapping[str, Samples],
    measured_on: str | Mapping[str, str] | None = None,
) -> Result:
    """Returns the outcome of a claim from one sample per seed.

    Guarantees: the same samples give the same result, kept to six significant digits. `measured` is their
    median, `spread` the least and the most. Samples from other data than the claim is about are kept, and the
    claim counts as not run.

    `inf` is a measurement, the largest: a target that is never reached takes `inf` seconds. None and NaN say
    that a seed was not measured. A ratio of two infinities is NaN: decide before what it counts as.

    A claim with parts has the verdict that `combine` makes of theirs, and the spread of their medians.

    Args:
        claim: declared before the run.
        samples: one number per seed; for a claim with parts, these by label. What is missing was not run.
        measured_on: the data set that the samples come from, compared with `claim.data`; may be left out
            where that is `none`. For a claim with parts it may be a mapping by label: then the result names
            the data sets of the parts that have samples, and no other.

    Raises:
        ValueError: labels that the claim does not declare, a sample that is no number, or data not named.
    """
    stated = claim.model_dump(exclude={"parts", "finding"})
    if not claim.parts:
        if isinstance(measured_on, Mapping):
            checks.fail(f"data of {claim.id}", measured_on, "one name: this claim declares no parts")
        if isinstance(samples, Mapping):
            checks.fail(f"samples of {claim.id}", list(samples), "a sequence: this claim declares no parts")
        source = _source(claim, samples, measured_on)
        return Result(**stated, measured_on=source, **_measured(claim, samples, source))
    samples = {} if samples is None else samples
    if not isinstance(samples, Mapping) or set(samples) - set(claim.parts):
        given = list(samples) if isinstance(samples, Mapping) else samples
        checks.fail(f"samples of {claim.id}", given, f"a mapping with the labels {list(claim.parts)}")
    if isinstance(measured_on, Mapping):
        measured_on = _measured_on(claim, samples, measured_on)
    source = _source(claim, samples, measured_on)
    parts = tuple(Part(label=label, **_measured(claim, samples.get(label), source)) for label in claim.parts)
    return Result(**stated, measured_on=source, **summary(parts), parts=parts)


def summary(parts: Sequence[Part]) -> dict[str, Any]:
    """Returns the outcome of a claim from its parts: the spread of their medians, the combined verdict."""
    medians = [part.measured for part in parts if part.measured is not None]
    spread = (min(medians), max(medians)) if medians else None
    return {"measured": None, "spread": spread, "verdict": combine([part.verdict for part in parts])}


def outcome(
    samples: Sequence[float | None], claim: Claim | Result, measured_on: str | None
) -> dict[str, Any]:
    """Returns what follows from the samples of a claim, or of one of its parts, as a ledger keeps them."""
    values = [value for value in samples if value is not None]
    if not values:
        return {"measured": None, "spread": None, "verdict": "not run"}
    verdict = rule(samples, claim.expected, deterministic=claim.deterministic)
    return {
        "measured": rounded(statistics.median(values)),
        "spread": (min(values), max(values)),
        "verdict": verdict if comparable(claim, measured_on) else "not run",
    }


def _measured_on(claim: Claim, samples: Mapping[str, Samples], data: Mapping[str, str]) -> str:
    """Returns the data sets of the parts that have samples, each once, in the order of the parts."""
    for label in data:
        checks.choice(f"part of {claim.id} in the data", label, dict.fromkeys(claim.parts))
    found = []
    for label in claim.parts:
        given = samples.get(label)
        if given is None or not any(_sample(claim, value) is not None for value in given):
            continue
        if not data.get(label):
            named = f"data of {claim.id}, {label}"
            checks.fail(named, data.get(label), "the name of the data set that was measured on")
        found += _names(data[label])
    return SEPARATOR.join(dict.fromkeys(found))


def _source(claim: Claim, samples: Sized | None, measured_on: str | None) -> str | None:
    """Returns the data that samples come from; None without samples, NONE where the claim involves none."""
    if samples is None or not len(samples):
        return None
    if claim.data == NONE:
        return NONE
    if not measured_on:
        checks.fail(f"data of {claim.id}", measured_on, "the name of the data set that was measured on")
    return measured_on


def _measured(claim: Claim, samples: Samples, measured_on: str | None) -> dict[str, Any]:
    kept = tuple(_sample(claim, value) for value in (() if samples is None else samples))
    return {"samples": kept, **outcome(kept, claim, measured_on)}


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
