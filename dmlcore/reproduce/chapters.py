"""What the report says of each paper: a claim and a picture have one place, with both scales side by side."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dmlcore import files
from dmlcore.reproduce import claims, manifest
from dmlcore.reproduce.claims import Ledger, Part, Result, Source
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.paper import FULL, Paper
from dmlcore.reproduce.progress import seconds
from dmlcore.reproduce.summary import Summary

# Headings of the groups of claims, in their order.
HEADINGS: Mapping[Source, str] = {
    "abstract": "What the abstract claims",
    "ours": "Further claims, put into numbers by us",
    "theory": "Comparisons with theory",
    "conformance": "Checks of the implementation against the definition",
}
TYPES = {".png": "image/png", ".svg": "image/svg+xml"}


class Run(NamedTuple):
    """A run whose results are shown."""

    ledger: Ledger
    place: str  # of its results
    name: str  # of its scale
    seconds: str  # how long it takes, in words
    machine: Mapping[str, Any] | None  # on which it was made, where that is told


class Stated(NamedTuple):
    """A claim with its results."""

    anchor: str
    result: Result  # at full scale where it was run there, else at quick scale
    results: Sequence[tuple[str, Result]]  # by name of the scale
    finding: str
    repeats: str  # id of the earlier claim that has the same runs, or nothing

    @property
    def settings(self) -> list[tuple[str, list[tuple[str, Result, Part | None]]]]:
        """The parts by label, each as (name of the scale, result, part or None where that scale lacks it)."""
        parts = [{part.label: part for part in result.parts} for _, result in self.results]
        return [
            (label, [(*found, own.get(label)) for found, own in zip(self.results, parts, strict=True)])
            for label in dict.fromkeys(label for own in parts for label in own)
        ]


class Group(NamedTuple):
    """The claims of one source."""

    source: Source
    claims: Sequence[Stated]
    counts: Sequence[tuple[str, int]]  # how many have each verdict; those that repeat others are not counted

    @property
    def heading(self) -> str:
        return HEADINGS[self.source]

    @property
    def folded(self) -> bool:
        """Whether a reader has to unfold it: it checks our work, and says nothing about the paper."""
        return self.source in ("theory", "conformance")


class Picture(NamedTuple):
    """A figure as part of the page."""

    anchor: str
    caption: str
    shots: Sequence[Shot]  # one for each scale, full scale first


class Shot(NamedTuple):
    """A figure at one scale; one of several panels side by side is `wide`."""

    scale: str
    source: str
    size: tuple[int, int] | None  # pixels, where the file tells
    wide: bool


class Compared(NamedTuple):
    """A figure of the paper and ours, whose names are links where the page has them."""

    paper: str
    ours: Sequence[tuple[str, str]]  # (text, anchor or nothing)
    verdict: str
    because: str


@dataclass(frozen=True)
class Chapter:
    """Everything that the report shows of a paper."""

    key: str
    title: str
    reference: str
    summary: Summary | None
    groups: Sequence[Group]
    comparisons: Sequence[Compared]
    pictures: Sequence[Picture]
    runs: Sequence[Run]
    failed: Sequence[str]  # names of the scales whose newest run failed


def chapters(
    ledgers: Iterable[Ledger],
    folders: Folders,
    papers: Mapping[str, Paper],
    failed: Iterable[str] = (),
) -> list[Chapter]:
    """Returns a chapter for each paper that has a ledger.

    Args:
        ledgers: of both scales, in the order of the papers.
        folders: where their figures are, those of the last runs here before published ones.
        papers: the registry.
        failed: places whose newest run failed.
    """
    by_paper: dict[str, list[Ledger]] = {}
    for ledger in ledgers:
        by_paper.setdefault(ledger.paper, []).append(ledger)
    return [_chapter(key, found, folders, papers.get(key), {*failed}) for key, found in by_paper.items()]


def _chapter(
    key: str, ledgers: list[Ledger], folders: Folders, paper: Paper | None, failed: set[str]
) -> Chapter:
    runs = [_run(ledger, folders, paper) for ledger in ledgers]
    stated = _stated(key, runs, paper.findings if paper else {})
    pictures = _pictures(key, runs, folders, paper)
    known = [each.result.id for each in stated] + [*pictures]
    return Chapter(
        key,
        title=paper.title if paper else key,
        reference=paper.reference if paper else "",
        summary=paper.summary if paper else None,
        groups=_groups(stated),
        comparisons=[
            Compared(each.paper, _links(key, each.ours, known), each.verdict, each.because)
            for each in (paper.comparisons if paper else ())
        ],
        pictures=[*pictures.values()],
        runs=runs,
        failed=[run.name for run in runs if run.place in failed],
    )


def _run(ledger: Ledger, folders: Folders, paper: Paper | None) -> Run:
    place = manifest.place(ledger.paper, ledger.scale)
    told, machine = "not recorded", None
    if paper and ledger.scale == "quick":
        told = f"about {seconds(paper.quick_seconds)} on two CPU cores"
    if made := manifest.latest(place, folders):
        told, machine = seconds(sum(made["cell_seconds"])), made.get("machine")
    return Run(
        ledger, place, f"{ledger.scale} scale" if ledger.scale else "scale not recorded", told, machine
    )


def _stated(key: str, runs: Sequence[Run], findings: Mapping[str, str]) -> list[Stated]:
    standing = claims.standing(run.ledger for run in runs)
    repeats = claims.repeats(standing)
    results: dict[str, list[tuple[str, Result]]] = {result.id: [] for result in standing}
    for run in runs:
        for result in run.ledger.claims:
            results[result.id].append((run.name, result))
    return [
        Stated(
            f"{key}-{each.id}", each, results[each.id], findings.get(each.id, ""), repeats.get(each.id, "")
        )
        for each in standing
    ]


def _groups(stated: Sequence[Stated]) -> list[Group]:
    groups = []
    for source in HEADINGS:
        if found := [each for each in stated if each.result.source == source]:
            tallies = claims.tallies([each.result for each in found if not each.repeats])
            groups.append(Group(source, found, tallies[0].counts if tallies else ()))
    return groups


def _links(key: str, text: str, known: Sequence[str]) -> list[tuple[str, str]]:
    return [(word, f"{key}-{word}" if word in known else "") for word in text.split(", ")]


def _pictures(key: str, runs: Sequence[Run], folders: Folders, paper: Paper | None) -> dict[str, Picture]:
    """Returns the figures by file name, in the order of their captions."""
    captions = paper.captions(FULL) if paper else {}
    shots: dict[str, list[Shot]] = {name: [] for name in captions}
    for run in runs:
        for path in files.tree(manifest.results(run.place, folders)):
            if path.suffix in TYPES:
                shots.setdefault(path.name, []).insert(0, _shot(path, run.name))
    return {
        name: Picture(f"{key}-{name}", captions.get(name, Path(name).stem), each)
        for name, each in shots.items()
        if each
    }


def _shot(path: Path, scale: str) -> Shot:
    content = path.read_bytes()
    # A PNG begins with its size; the page then keeps the place free while it decodes the picture.
    size = struct.unpack(">II", content[16:24]) if content.startswith(b"\x89PNG") else None
    source = f"data:{TYPES[path.suffix]};base64,{base64.b64encode(content).decode()}"
    return Shot(scale, source, size, wide=size is not None and size[0] > 2.5 * size[1])
