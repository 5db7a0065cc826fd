"""The rule that turns numbers into verdicts; no verdict is chosen by hand."""

import math
import statistics
from collections.abc import Mapping, Sequence, Sized
from typing import Any

from dmlcore import checks
from dmlcore.reproduce.claims.model import ANY, NONE, Claim, Part, Range, Result, Verdict

SEPARATOR = ", "  # between the data sets of a claim
Samples = Sequence[float | None] | None


def rule(samples: Sequence[float | None], expected: Range, *, deterministic: bool = False) -> Verdict:
    """Returns the verdict on samples: "reproduced" if all are in the expected range, or another one.

    It is "not reproduced" if no measured sample is in the range, "not run" if no seed was measured, and
    "mixed" otherwise. "reproduced" requires that every seed was measured, and at least two seeds, or one if
    the number is `deterministic`.

    Args:
        samples: one sample per seed, S numbers in the unit of the metric. None: the seed was not measured.
        expected: (low, high), both ends included. None: no bound at that end.
        deterministic: whether one sample is enough, because the number does not depend on the seed.

    Returns:
        The verdict.

    Raises:
        TypeError: a sample is neither a number nor None.

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
    """Returns the number of samples in the expected range; None, a seed not measured, does not count."""
    low, high = expected
    least, most = (-math.inf if low is None else low), (math.inf if high is None else high)
    return sum(value is not None and least <= value <= most for value in samples)


def combine(verdicts: Sequence[Verdict]) -> Verdict:
    """Combines the verdicts on the parts of a claim into the verdict on the claim.

    It is "reproduced" if every part is; "not run" if no part was run; "not reproduced" if every part that was
    run is "not reproduced"; and "mixed" otherwise.

    Args:
        verdicts: one per part.

    Returns:
        The verdict on the claim.

    Raises:
        TypeError: `verdicts` is not a sequence.

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
    """Returns whether samples from these data are about the data of the claim.

    A claim with parts may name several data sets, separated by commas; every data set of the samples must be
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

    Guarantees: the same samples give the same result, with six significant digits. `measured` is the median
    of the samples, `spread` their smallest and largest value. If the samples come from other data than those
    of the claim, the result has the samples and the verdict "not run".

    `inf` is the largest measurement: a target that is never reached takes `inf` seconds. None and NaN mean
    that a seed was not measured. A ratio of two infinities is NaN, so decide beforehand what it stands for.

    A claim with parts has the verdict that `combine` returns, and the spread of the medians of its parts.

    Args:
        claim: the claim, declared before the run.
        samples: one number per seed, S numbers; for a claim with parts, label -> S numbers. Parts that are
            missing were not run.
        measured_on: the data set that the samples come from, to compare with `claim.data`. For a claim with
            parts it may be label -> data set; the result then names only the data sets of parts with samples.
            Default: None, for a claim whose data are "none".

    Returns:
        The result.

    Raises:
        ValueError: the claim does not declare a label, a sample is not a number, or `measured_on` is missing.

    >>> claim = Claim(id="e-1", paper="e", statement="No worker waits under ASP", source="ours", data="none",
    ...               metric="smallest share of time that a worker computes", expected=(0.99, 1))
    >>> result = judge(claim, [1.0, 0.98, 1.0])
    >>> result.measured, result.spread, result.verdict
    (1.0, (0.98, 1.0), 'mixed')
    """
    stated = claim.model_dump(exclude={"parts", "finding"})
    if not claim.parts:
        if isinstance(measured_on, Mapping):
            checks.fail(f"data of {claim.id}", measured_on, "one name (this claim declares no parts)")
        if isinstance(samples, Mapping):
            checks.fail(f"samples of {claim.id}", list(samples), "a sequence (this claim declares no parts)")
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
    """Returns the fields of a ledger that follow from the samples of a claim, or of one of its parts."""
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
            checks.fail(named, data.get(label), "the name of the data set of the measurement")
        found += _names(data[label])
    return SEPARATOR.join(dict.fromkeys(found))


def _source(claim: Claim, samples: Sized | None, measured_on: str | None) -> str | None:
    """Returns the data of the samples; None without samples, NONE if the claim uses no data set."""
    if samples is None or not len(samples):
        return None
    if claim.data == NONE:
        return NONE
    if not measured_on:
        checks.fail(f"data of {claim.id}", measured_on, "the name of the data set of the measurement")
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
        checks.fail(f"samples of {claim.id}", value, "a number > -inf, or None")
    return None if math.isnan(number) else rounded(number)


def rounded(number: float) -> float:
    """Rounds a number to six significant digits, so that it does not depend on a platform's last bits."""
    return float(f"{number:.6g}")
