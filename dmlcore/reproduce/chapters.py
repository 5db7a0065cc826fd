"""What the report says of each paper: each claim and each picture has one place."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dmlcore import files
from dmlcore.reproduce import claims, manifest
from dmlcore.reproduce.claims import Ledger, Made, Result, Source
from dmlcore.reproduce.claims.ledger import commands as commands_of
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.paper import FULL, SCALES, Paper
from dmlcore.reproduce.progress import seconds
from dmlcore.reproduce.texts import Summary

# Headings of the groups of claims, in their order.
HEADINGS: Mapping[Source, str] = {
    "abstract": "What the abstract claims",
    "ours": "Further claims, put into numbers by us",
    "theory": "Comparisons with theory",
    "conformance": "Checks of the implementation against the definition",
}
TYPES = {".png": "image/png", ".svg": "image/svg+xml"}


class Run(NamedTuple):
    """A run that has measured some of the settings."""

    made: Made
    settings: int  # how many
    seconds: str  # how long it takes, in words


class Stated(NamedTuple):
    """A claim with its result."""

    anchor: str
    result: Result
    finding: str
    quote: str  # the sentence of the abstract, or nothing
    picture: str  # anchor of the picture that shows it best, or nothing
    commands: Sequence[str]  # of the runs that measured it
    repeats: str  # id of the earlier claim that has the same runs, or nothing


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
    """A result of the paper and ours, whose names are links where the page has them."""

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
    failed: Sequence[str]  # scales whose newest run failed


def chapters(
    ledgers: Iterable[Ledger],
    folders: Folders,
    papers: Mapping[str, Paper],
    failed: Iterable[str] = (),
) -> list[Chapter]:
    """Returns a chapter for each ledger.

    Args:
        ledgers: one for each paper, in the order of the papers.
        folders: where their figures are, those of the last runs here before published ones.
        papers: the registry.
        failed: places whose newest run failed.
    """
    return [_chapter(ledger, folders, papers.get(ledger.paper), {*failed}) for ledger in ledgers]


def _chapter(ledger: Ledger, folders: Folders, paper: Paper | None, failed: set[str]) -> Chapter:
    key = ledger.paper
    pictures = _pictures(key, folders, paper)
    stated = _stated(ledger, paper, pictures)
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
        runs=[_run(place, ledger, folders, paper) for place in range(len(ledger.runs))],
        failed=[scale for scale in SCALES if manifest.place(key, scale) in failed],
    )


def _run(place: int, ledger: Ledger, folders: Folders, paper: Paper | None) -> Run:
    made, told = ledger.runs[place], "not recorded"
    if paper and made.scale == "quick" and made.seeds == paper.parameters.defaults()["seeds"]:
        told = f"about {seconds(paper.quick_seconds)} on two CPU cores"
    last = manifest.latest(manifest.place(ledger.paper, made.scale), folders)
    if last and last["inputs"]["parameters"] == made.parameters:
        told = seconds(sum(last["cell_seconds"]))
    parts = [part for result in ledger.claims for part in result.parts]
    return Run(made, sum(part.run == place and part.outcome != "not run" for part in parts), told)


def _stated(ledger: Ledger, paper: Paper | None, pictures: Mapping[str, Picture]) -> list[Stated]:
    again = claims.repeats(ledger.claims)
    declared = {claim.id: claim for claim in paper.claims} if paper else {}
    found = []
    for each in ledger.claims:
        own = declared.get(each.id)
        picture = f"{ledger.paper}-{own.picture}" if own and own.picture in pictures else ""
        finding, quote = (own.finding, own.quote) if own else ("", "")
        name, commands = f"{ledger.paper}-{each.id}", commands_of(ledger, each)
        found.append(Stated(name, each, finding, quote, picture, commands, again.get(each.id, "")))
    return found


def _groups(stated: Sequence[Stated]) -> list[Group]:
    groups = []
    for source in HEADINGS:
        if found := [each for each in stated if each.result.source == source]:
            tallies = claims.tallies([each.result for each in found if not each.repeats])
            groups.append(Group(source, found, tallies[0].counts if tallies else ()))
    return groups


def _links(key: str, text: str, known: Sequence[str]) -> list[tuple[str, str]]:
    return [(word, f"{key}-{word}" if word in known else "") for word in text.split(", ")]


def _pictures(key: str, folders: Folders, paper: Paper | None) -> dict[str, Picture]:
    """Returns the figures by file name, in the order of their captions."""
    captions = paper.captions(FULL) if paper else {}
    shots: dict[str, list[Shot]] = {name: [] for name in captions}
    for scale in SCALES:
        for path in files.tree(manifest.results(manifest.place(key, scale), folders)):
            if path.suffix in TYPES:
                shots.setdefault(path.name, []).insert(0, _shot(path, f"{scale} scale"))
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
