"""claims.json: written whole, read back checked, and held against its own rule."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dmlcore import files
from dmlcore.reproduce.claims.model import Claim, Ledger, Part, Result
from dmlcore.reproduce.claims.rules import outcome, summary


def write(path: Path, ledger: Ledger) -> None:
    """Writes claims.json, whole or not at all: strict JSON, the same bytes for the same outcome."""
    text = json.dumps(ledger.model_dump(mode="json"), indent=2, ensure_ascii=False, allow_nan=False)
    files.write(path, text + "\n")


def read(path: Path) -> Ledger:
    """Reads claims.json; raises ValueError that names its first fault where the file is no ledger."""
    try:
        return Ledger.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ValueError(f"{path}: {where}: {first['msg']}") from None


def recheck(path: Path, declared: Sequence[Claim] | None = None) -> list[str]:
    """Returns what disagrees in a claims.json: an empty list if all of it follows from the samples.

    Medians, intervals and verdicts are computed again. Claims must be those `declared`, word for word.

    Raises:
        ValueError: the file is no ledger.
    """
    results = read(path).claims
    found = [f"{path}: {fault}" for result in results for fault in _faults(result)]
    if declared is not None:
        stored = {result.id: _declaration(result) for result in results}
        for claim in declared:
            if stored.pop(claim.id, None) != _declaration(claim):
                found.append(f"{path}: {claim.id}: missing, or differs from its declaration")
        found += [f"{path}: {name}: not declared" for name in stored]
    return found


def _faults(result: Result) -> Iterator[str]:
    for part in result.parts or (result,):
        where = f"{result.id}, {part.label}" if isinstance(part, Part) else result.id
        for name, value in outcome(part.samples, result.expected).items():
            if (said := getattr(part, name)) != value:
                yield f"{where}: {name} is {said!r}, but its samples give {value!r}"
    if result.parts:
        given = {name: getattr(result, name) for name in ("measured", "interval", "verdict")}
        expected = summary(result.parts, result.expected)
        if given != expected:
            yield f"{result.id}: says {given}, but its parts give {expected}"


def _declaration(claim: Claim | Result) -> dict[str, Any]:
    labels = [part.label if isinstance(part, Part) else part for part in claim.parts]
    return claim.model_dump(include={*Claim.model_fields} - {"parts"}) | {"parts": labels}
