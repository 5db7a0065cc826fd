"""claims.json: written whole, read back checked, and held against its own rule."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dmlcore import files
from dmlcore.reproduce.claims import old
from dmlcore.reproduce.claims.model import Claim, Ledger, Part, Result
from dmlcore.reproduce.claims.rules import outcome, summary


def write(path: Path, ledger: Ledger) -> None:
    """Writes claims.json, whole or not at all: strict JSON, the same bytes for the same outcome."""
    text = json.dumps(ledger.model_dump(mode="json"), indent=2, ensure_ascii=False, allow_nan=False)
    files.write(path, text + "\n")


def read(path: Path) -> Ledger:
    """Reads claims.json; raises ValueError that names its first fault where the file is no ledger.

    One of the earlier format is judged again, by today's rule.
    """
    return parse(path.read_bytes(), path)


def parse(text: bytes, path: Path) -> Ledger:
    """Reads the content of a claims.json; `path` is for the message where it is no ledger (ValueError)."""
    try:
        if (content := _earlier(text)) is not None:
            return old.upgraded(content)
        return Ledger.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ValueError(f"{path}: {where}: {first['msg']}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(_not_whole(path, error)) from None


def earlier(path: Path) -> bool:
    """Returns whether a claims.json has the earlier format, whose rule and words of verdict were others."""
    return _earlier(path.read_bytes()) is not None


def recheck(path: Path, declared: Sequence[Claim] | None = None) -> list[str]:
    """Returns what disagrees in a claims.json: an empty list if all of it follows from the samples.

    Medians, spreads and verdicts are computed again. Claims must be those `declared`, word for word. One of
    the earlier format is held against the rule of its time, and not against today's declarations.

    Raises:
        ValueError: the file is no ledger.
    """
    text = path.read_bytes()
    results = parse(text, path).claims
    if (content := _earlier(text)) is not None:
        try:
            return [f"{path}: {fault}" for fault in old.faults(content)]
        except (KeyError, TypeError, AttributeError) as error:  # what only the rule of that time reads
            raise ValueError(_not_whole(path, error)) from None
    found = [f"{path}: {fault}" for result in results for fault in _faults(result)]
    if declared is not None:
        stored = {result.id: _declaration(result) for result in results}
        for claim in declared:
            if stored.pop(claim.id, None) != _declaration(claim):
                found.append(f"{path}: {claim.id}: missing, or differs from its declaration")
        found += [f"{path}: {name}: not declared" for name in stored]
    return found


def _earlier(text: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(text)
    except ValueError:
        return None
    return content if old.written(content) else None


def _not_whole(path: Path, error: Exception) -> str:
    what = f"lacks {error}" if isinstance(error, KeyError) else f"has a value of a wrong kind ({error})"
    return f"{path}: of format 1, but {what}"


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
