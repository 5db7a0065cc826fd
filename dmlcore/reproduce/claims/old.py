"""Ledgers of format 1, which earlier revisions wrote: reading them, and checking them by their own rule.

That rule compared the 95% bootstrap interval of the median with the expected range. Inside the range meant
`reproduced`, outside `not reproduced`, and across its edge `partly`. A claim with parts had the verdict of
its weakest part.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dmlcore.reproduce.claims.model import ANY, Claim, Ledger
from dmlcore.reproduce.claims.rules import judge, rounded

UNKNOWN = "not recorded"  # `measured_on` of samples from a ledger of format 1
RANKS = ("not reproduced", "partly", "reproduced", "not run")  # from the weakest verdict


def written(content: Any) -> bool:
    """Returns whether the content of a claims.json has format 1: no format number, but package versions."""
    return isinstance(content, dict) and "format" not in content and "versions" in content


def upgraded(content: Mapping[str, Any]) -> Ledger:
    """Returns the ledger in the current format: the same samples, judged by the current rule."""
    results = []
    for row in content["claims"]:
        outcome = {"parts", "measured", "interval", "verdict", "samples"}
        fields = {name: value for name, value in row.items() if name not in outcome}
        claim = Claim(**fields, data=ANY, parts=tuple(part["label"] for part in row["parts"]))
        by_label = {part["label"]: part["samples"] for part in row["parts"]}
        results.append(judge(claim, by_label or row["samples"], UNKNOWN))
    run = {name: content[name] for name in ("paper", "command", "scale", "seeds", "parameters")}
    return Ledger(**run, tuned_on=None, claims=tuple(results))


def faults(content: Mapping[str, Any]) -> Iterator[str]:
    """Yields the values of a ledger of format 1 that do not follow from its samples by the earlier rule."""
    for row in content["claims"]:
        bounds = [-math.inf if row["expected"][0] is None else row["expected"][0]]
        bounds += [math.inf if row["expected"][1] is None else row["expected"][1]]
        told = {part.get("label", ""): _outcome(part["samples"], bounds) for part in row["parts"] or [row]}
        for part in row["parts"] or [row]:
            where = ", ".join(filter(None, (row["id"], part.get("label"))))
            yield from _compared(where, part, told[part.get("label", "")])
        if row["parts"]:
            yield from _compared(f"{row['id']}, all parts", row, _weakest([*told.values()], bounds))


def _compared(where: str, said: Mapping[str, Any], follows: Mapping[str, Any]) -> Iterator[str]:
    for name, value in follows.items():
        if _numbers(said[name]) != value:
            yield f"{where}: {name} is {said[name]!r}, but its samples give {value!r} by the rule of format 1"


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(each) for each in value]
    return math.inf if value == "inf" else value


def _outcome(samples: Sequence[Any], bounds: Sequence[float]) -> dict[str, Any]:
    values = [value for value in _numbers(list(samples)) if value is not None]
    if not values:
        return {"measured": None, "interval": None, "verdict": "not run"}
    from dmlcore.trace.metrics import interval  # here: the command line reads ledgers without NumPy

    measured, least, most = map(rounded, interval(values))
    verdict = "partly"
    if bounds[0] <= least and most <= bounds[1] and len(values) == len(samples):
        verdict = "reproduced"
    elif most < bounds[0] or bounds[1] < least:
        verdict = "not reproduced"
    return {"measured": measured, "interval": [least, most], "verdict": verdict}


def _weakest(parts: Sequence[dict[str, Any]], bounds: Sequence[float]) -> dict[str, Any]:
    def strength(part: dict[str, Any]) -> tuple[int, float]:
        if part["interval"] is None:
            return RANKS.index(part["verdict"]), 0.0
        least, most = part["interval"]
        above = math.inf if bounds[1] == math.inf else bounds[1] - most
        return RANKS.index(part["verdict"]), min(least - bounds[0], above)

    verdicts = {part["verdict"] for part in parts}
    verdict = "partly" if {"reproduced", "partly"} & verdicts else "not reproduced"
    if len(verdicts) == 1 and verdicts <= {"reproduced", "not run"}:
        (verdict,) = verdicts
    return min(parts, key=strength) | {"verdict": verdict}
