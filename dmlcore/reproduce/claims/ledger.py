"""claims.json: writing, reading with checks, merging runs, and checking that outcomes follow from samples."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dmlcore import files
from dmlcore.reproduce.claims.model import TEXTS, Claim, Ledger, Made, Part, Result, first_fault
from dmlcore.reproduce.claims.rules import combine, outcome

LEDGER = "claims.json"  # the file, in a folder of results


def write(path: Path, ledger: Ledger) -> None:
    """Writes claims.json, completely or not at all: strict JSON, the same bytes for the same ledger.

    Args:
        path: path of the file.
        ledger: the ledger; its digest is made anew.

    Raises:
        OSError: the file cannot be written.

    >>> write(Path("claims.json"), ledger)  # doctest: +SKIP
    """
    content = ledger.model_dump(mode="json") | {"digest": digest(ledger)}
    files.write(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def digest(ledger: Ledger) -> str:
    """Returns a digest of all that a ledger says, so that a change of a single sample is noticed."""
    return hashed(ledger.model_dump(mode="json", exclude={"digest"}))


def hashed(content: Any) -> str:
    """Returns a digest of JSON values."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def read(path: Path) -> Ledger:
    """Reads claims.json.

    Args:
        path: path of the file.

    Returns:
        The ledger.

    Raises:
        ValueError: the file is not a ledger; the message names its first fault.
        OSError: the file cannot be read.

    >>> read(Path("figures/ssp/claims.json")).paper  # doctest: +SKIP
    'ssp'
    """
    try:
        return Ledger.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ValueError(f"{path}: {first_fault(error)}") from None


def known(folder: Path) -> Ledger | None:
    """Returns the ledger in a folder, if there is one.

    Args:
        folder: of a paper's results, such as `figures/ssp`.

    Returns:
        The ledger; None if there is no file, or `read` rejects it.

    >>> known(Path("no such folder")) is None
    True
    """
    try:
        return read(folder / LEDGER)
    except (OSError, ValueError):
        return None


def merge(old: Ledger | None, new: Ledger, *, again: bool = True) -> Ledger:
    """Returns the ledger of a new run, with the settings of an older one that it does not measure better.

    A setting is taken from the older ledger if its claim is declared alike, and the new run did not measure
    it, or measured it on fewer seeds, unless it did so at the same scale with other parameters.

    Args:
        old: the older ledger. None: there is none.
        new: the ledger of the new run.
        again: whether a setting that both measured on as many seeds is taken from the new run.

    Returns:
        The ledger, with those runs of both that have measured something.

    Raises:
        AttributeError: `new` is not a `Ledger`.

    >>> merge(None, Ledger(paper="e", runs=(), claims=())).claims
    ()
    """
    known = {result.id: result for result in old.claims} if old else {}
    runs: dict[str, Made] = {}
    claims = []
    for result in new.claims:
        earlier = known.get(result.id)
        parts = []
        for i, part in enumerate(result.parts):
            ledger, chosen = new, part
            if old and earlier and declaration(earlier) == declaration(result):
                ledger, chosen = _better((old, earlier.parts[i]), (new, part), again)
            if chosen.outcome != "not run":
                made = ledger.runs[chosen.run]
                runs.setdefault(made.model_dump_json(), made)
                chosen = chosen.model_copy(update={"run": [*runs].index(made.model_dump_json())})
            parts.append(chosen)
        verdict = combine([part.outcome for part in parts])
        claims.append(result.model_copy(update={"parts": tuple(parts), "verdict": verdict}))
    return new.model_copy(update={"runs": tuple(runs.values()), "claims": tuple(claims)})


def _better(old: tuple[Ledger, Part], new: tuple[Ledger, Part], again: bool) -> tuple[Ledger, Part]:
    if "not run" in (old[1].outcome, new[1].outcome):
        return new if old[1].outcome == "not run" else old
    first, second = (ledger.runs[part.run] for ledger, part in (old, new))
    changed = first.scale == second.scale and first.asked != second.asked
    seeds = len(new[1].samples) - len(old[1].samples)
    return new if changed or seeds > 0 or (again and not seeds) else old


def commands(ledger: Ledger, result: Result) -> list[str]:
    """Returns the command lines of the runs that have measured a claim."""
    runs = {part.run for part in result.parts if part.outcome != "not run"}
    return [ledger.runs[run].command for run in sorted(runs)]


def recheck(path: Path, declared: Sequence[Claim] | None = None) -> list[str]:
    """Returns the faults of a claims.json: an empty list if everything in it follows from its samples.

    It computes medians, intervals, outcomes, verdicts and the digest again, and compares the claims with the
    declared ones, word for word.

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
    ledger = read(path)
    found = [f"{path}: {fault}" for result in ledger.claims for fault in _faults(result)]
    if (own := digest(ledger)) != ledger.digest:
        found.append(f"{path}: digest is {ledger.digest!r}, but the contents give {own!r}: they were edited")
    if declared is not None:
        stored = {result.id: declaration(result) for result in ledger.claims}
        for claim in declared:
            if stored.pop(claim.id, None) != declaration(claim):
                found.append(f"{path}: {claim.id}: missing, or differs from its declaration of today")
        found += [f"{path}: {name}: not declared" for name in stored]
    return found


def _faults(result: Result) -> Iterator[str]:
    for part in result.parts:
        where = ", ".join(filter(None, (result.id, part.label)))
        for name, value in outcome(part.samples, result).items():
            if (said := getattr(part, name)) != value:
                yield f"{where}: {name} is {said!r}, but its samples give {value!r}"
    if result.verdict != (expected := combine([part.outcome for part in result.parts])):
        yield f"{result.id}: verdict is {result.verdict!r}, but its settings give {expected!r}"


def declaration(claim: Claim | Result) -> dict[str, Any]:
    """Returns what was declared before the run."""
    labels = [part.label if isinstance(part, Part) else part for part in claim.parts]
    return claim.model_dump(include={*Claim.model_fields} - {*TEXTS}) | {"parts": labels}
