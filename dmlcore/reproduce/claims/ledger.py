"""claims.json: writing, reading with checks, and checking that its verdicts follow from its samples."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dmlcore import files
from dmlcore.reproduce.claims.model import Claim, Ledger, Part, Result
from dmlcore.reproduce.claims.rules import outcome, summary


def write(path: Path, ledger: Ledger) -> None:
    """Writes claims.json, completely or not at all: strict JSON, the same bytes for the same ledger.

    Args:
        path: path of the file.
        ledger: the ledger.

    Raises:
        OSError: the file cannot be written.

    >>> write(Path("claims.json"), ledger)  # doctest: +SKIP
    """
    text = json.dumps(ledger.model_dump(mode="json"), indent=2, ensure_ascii=False, allow_nan=False)
    files.write(path, text + "\n")


def read(path: Path) -> Ledger:
    """Reads claims.json.

    Args:
        path: path of the file.

    Returns:
        The ledger.

    Raises:
        ValueError: the file is not a ledger; the message names its first fault.
        OSError: the file cannot be read.

    >>> read(Path("figures/ssp/claims.json")).scale  # doctest: +SKIP
    'quick'
    """
    try:
        return Ledger.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ValueError(f"{path}: {where}: {first['msg']}") from None


def recheck(path: Path, declared: Sequence[Claim] | None = None) -> list[str]:
    """Returns the faults of a claims.json: an empty list if everything in it follows from its samples.

    It computes medians, spreads and verdicts again, and compares the claims with the declared ones, word for
    word.

    Args:
        path: path of the file.
        declared: the claims that the paper declares now. Default: None, the claims are not compared.

    Returns:
        One sentence per fault.

    Raises:
        ValueError: the file is not a ledger.

    >>> recheck(Path("figures/ssp/claims.json"))  # doctest: +SKIP
    []
    """
    results = read(path).claims
    found = [f"{path}: {fault}" for result in results for fault in _faults(result)]
    if declared is not None:
        stored = {result.id: _declaration(result) for result in results}
        for claim in declared:
            if stored.pop(claim.id, None) != _declaration(claim):
                found.append(f"{path}: {claim.id}: missing, or differs from its declaration of today")
        found += [f"{path}: {name}: not declared" for name in stored]
    return found


def _faults(result: Result) -> Iterator[str]:
    for part in result.parts or (result,):
        where = f"{result.id}, {part.label}" if isinstance(part, Part) else result.id
        for name, value in outcome(part.samples, result, result.measured_on).items():
            if (said := getattr(part, name)) != value:
                yield f"{where}: {name} is {said!r}, but its samples give {value!r}"
    if result.parts:
        given = {name: getattr(result, name) for name in ("measured", "spread", "verdict")}
        expected = summary(result.parts)
        if given != expected:
            yield f"{result.id}: says {given}, but its parts give {expected}"


def _declaration(claim: Claim | Result) -> dict[str, Any]:
    labels = [part.label if isinstance(part, Part) else part for part in claim.parts]
    stated = {*Claim.model_fields} - {"parts", "finding"}
    return claim.model_dump(include=stated) | {"parts": labels}
