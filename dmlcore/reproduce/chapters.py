"""What the report and the site say of each paper: each claim and each picture has one place.

The report is one page that opens offline, because its pictures are part of it.
"""

import base64
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dmlcore import files, pages
from dmlcore.reproduce import claims, manifest
from dmlcore.reproduce.claims import Ledger, Made, Result, Source, show
from dmlcore.reproduce.claims.ledger import commands as commands_of
from dmlcore.reproduce.claims.rules import verdicts
from dmlcore.reproduce.claims.show import Row
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.paper import FULL, SCALES, Paper
from dmlcore.reproduce.progress import seconds

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

    result: Result
    row: Row
    settings: Sequence[Row]  # none if there is only one
    finding: str
    quote: str  # the sentence of the abstract, or nothing
    picture: str  # name of the picture that shows it best, or nothing
    commands: Sequence[str]  # of the runs that measured it
    repeats: str  # id of the earlier claim that has the same runs, or nothing


class Group(NamedTuple):
    """The claims of one source."""

    source: Source
    claims: Sequence[Stated]

    @property
    def heading(self) -> str:
        return HEADINGS[self.source]

    @property
    def folded(self) -> bool:
        """Whether a reader has to unfold it: it checks our work, and says nothing about the paper."""
        return self.source in ("theory", "conformance")


@dataclass(frozen=True)
class Shot:
    """A figure at one scale."""

    scale: str
    place: str  # folder of the results
    path: Path

    @property
    def source(self) -> str:
        """The picture as a data URI."""
        content = base64.b64encode(self.path.read_bytes()).decode()
        return f"data:{TYPES[self.path.suffix]};base64,{content}"

    @property
    def size(self) -> tuple[int, int] | None:
        """Pixels, where the file tells: the page then keeps the place free while it decodes the picture."""
        start = self.path.read_bytes()[:24]
        return struct.unpack(">II", start[16:]) if start.startswith(b"\x89PNG") else None

    @property
    def wide(self) -> bool:
        """Whether it has several panels side by side."""
        return self.size is not None and self.size[0] > 2.5 * self.size[1]


class Picture(NamedTuple):
    """A figure of the notebook."""

    name: str
    caption: str
    shots: Sequence[Shot]  # one for each scale, full scale first


@dataclass(frozen=True)
class Chapter:
    """Everything that is shown of a paper."""

    paper: Paper
    ledger: Ledger
    groups: Sequence[Group]
    pictures: Sequence[Picture]
    kinds: Mapping[str, str]  # word -> "claim" or "picture", where it is the id or the name of one of these
    runs: Sequence[Run]
    failed: Sequence[str]  # scales whose newest run failed

    @property
    def scales(self) -> dict[str, list[tuple[Picture, Shot]]]:
        """The pictures by scale."""
        shots = {
            scale: [(each, shot) for each in self.pictures for shot in each.shots if shot.scale == scale]
            for scale in SCALES
        }
        return {scale: found for scale, found in shots.items() if found}

    @property
    def told(self) -> list[str]:
        """The tallies of its claims, in words."""
        return claims.told(self.ledger.claims)

    def counts(self, *sources: Source) -> dict[str, int]:
        """Returns how many claims have each verdict, of some sources; by default of all."""
        return verdicts(self.ledger.claims, *sources)


def ledgers(
    folders: Folders, papers: Mapping[str, Paper], *, local: bool = False
) -> tuple[list[Ledger], list[str]]:
    """Returns the ledgers of the papers, in their order, and messages about files that are not valid.

    They are the published ones. With `local`, what the last runs on this machine have measured at other
    parameters, or on more seeds, replaces what is published.
    """
    found: dict[str, Ledger] = {}
    faults = []
    paths = sorted(folders.figures.glob(f"*/{claims.LEDGER}"))
    if local:
        places = [manifest.place(key, scale) for key in papers for scale in SCALES]
        made = [manifest.made(place, folders) for place in places if manifest.latest(place, folders)]
        paths += [folder / claims.LEDGER for folder in made]
    for path in filter(Path.is_file, paths):
        try:
            ledger = claims.read(path)
        except ValueError as error:
            faults.append(str(error))
        else:
            found[ledger.paper] = claims.merge(found.get(ledger.paper), ledger, again=False)
    return [found[key] for key in papers if key in found], faults


def chapters(
    folders: Folders, papers: Mapping[str, Paper], *, local: bool = False, failed: Collection[str] = ()
) -> list[Chapter]:
    """Returns a chapter for each paper that has a ledger.

    Args:
        folders: where ledgers and figures are.
        papers: the registry.
        local: whether the last runs on this machine come before what is published.
        failed: places whose newest run failed.
    """
    found = []
    for ledger in ledgers(folders, papers, local=local)[0]:
        paper = papers[ledger.paper]
        pictures = _pictures(paper, folders, local)
        stated = _stated(ledger, paper, pictures)
        by_source = {source: [each for each in stated if each.result.source == source] for source in HEADINGS}
        groups = [Group(source, each) for source, each in by_source.items() if each]
        kinds = dict.fromkeys(pictures, "picture") | {each.row.claim: "claim" for each in stated}
        runs = [_run(place, ledger, folders, paper, local) for place in range(len(ledger.runs))]
        lost = [scale for scale in SCALES if manifest.place(paper.key, scale) in failed]
        found.append(Chapter(paper, ledger, groups, [*pictures.values()], kinds, runs, lost))
    return found


def _run(place: int, ledger: Ledger, folders: Folders, paper: Paper, local: bool) -> Run:
    made, told = ledger.runs[place], "not recorded"
    if made.scale == "quick" and made.seeds == paper.parameters.defaults()["seeds"]:
        told = f"about {seconds(paper.quick_seconds)} on two CPU cores"
    last = manifest.latest(manifest.place(ledger.paper, made.scale), folders) if local else None
    if last and last.inputs.get("parameters") == made.parameters:
        told = seconds(sum(last.cell_seconds))
    parts = [part for result in ledger.claims for part in result.parts]
    return Run(made, sum(part.run == place and part.outcome != "not run" for part in parts), told)


def _stated(ledger: Ledger, paper: Paper, pictures: Mapping[str, Picture]) -> list[Stated]:
    again = claims.repeats(ledger.claims)
    declared = {claim.id: claim for claim in paper.claims}
    found = []
    for each in ledger.claims:
        own = declared.get(each.id)
        finding, quote, picture = (own.finding, own.quote, own.picture) if own else ("", "", "")
        shown = picture if picture in pictures else ""
        rows = show.row(each), show.settings(each)
        repeated = again.get(each.id, "")
        found.append(Stated(each, *rows, finding, quote, shown, commands_of(ledger, each), repeated))
    return found


def _pictures(paper: Paper, folders: Folders, local: bool) -> dict[str, Picture]:
    """Returns the figures by file name, in the order of their captions."""
    captions = paper.captions(FULL)
    shots: dict[str, list[Shot]] = {name: [] for name in captions}
    for scale in SCALES:
        place = manifest.place(paper.key, scale)
        for path in files.tree(manifest.results(place, folders) if local else folders.figures / place):
            if path.suffix in TYPES:
                shots.setdefault(path.name, []).insert(0, Shot(scale, place, path))
    return {
        name: Picture(name, captions.get(name, Path(name).stem), each) for name, each in shots.items() if each
    }


def report(folders: Folders, papers: Mapping[str, Paper], failed: Collection[str] = ()) -> Path:
    """Writes `runs/report.html`, and returns its path: the last runs here, and what is published of the rest.

    It has the processor, the versions and the time of the runs on this machine. For runs that have `failed`,
    named by the place of their results, it says that the previous results are shown.
    """
    found = chapters(folders, papers, local=True, failed=failed)
    every = [result for chapter in found for result in chapter.ledger.claims]
    page = pages.template(__file__, "report.html.jinja").render(
        tallies=claims.tallies(every), settings=claims.settings(every), chapters=found
    )
    path = folders.runs / "report.html"
    files.write(path, page)
    return path
