"""One page with all claims and figures that opens offline: pictures are part of it, nothing is fetched."""

import base64
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dmlcore import files
from dmlcore.reproduce import claims, manifest
from dmlcore.reproduce.claims import show
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.paper import FULL, Paper
from dmlcore.reproduce.progress import seconds

SOURCES = {
    "abstract": "from the abstract",
    "ours": "our own claim",
    "theory": "check of theory",
    "conformance": "conformance check",
}
TYPES = {".png": "image/png", ".svg": "image/svg+xml"}


def ledgers(
    folders: Folders, papers: Mapping[str, Paper], *, local: bool = False
) -> tuple[list[claims.Ledger], list[str]]:
    """Returns all ledgers below the folder of figures, and what is wrong with the rest.

    They come in the order of the registry, a paper's quick scale before its full one. With `local`, one of
    the last run made here takes the place of the published one that has other parameters.
    """
    found, faults = [], []
    for path in ledger_paths(folders.figures):
        if local:
            path = manifest.results(path.parent.relative_to(folders.figures).as_posix(), folders) / path.name
        try:
            found.append(claims.read(path))
        except ValueError as error:
            faults.append(str(error))
    order = list(papers)
    found.sort(key=lambda ledger: order.index(ledger.paper) if ledger.paper in papers else len(order))
    return found, faults


def ledger_paths(figures: Path) -> list[Path]:
    """Returns every claims.json of both scales, those of full scale last."""
    return [*sorted(figures.glob("*/claims.json")), *sorted(figures.glob(f"{FULL}/*/claims.json"))]


def write(folders: Folders, papers: Mapping[str, Paper], failed: Iterable[str] = ()) -> Path:
    """Writes two pages from what the folders hold, and returns where the complete one is.

    `figures/report.html` says nothing of the machine: the same figures and ledgers give the same bytes.
    `runs/report.html` also tells processor, versions and time of the runs made here; of those that
    have `failed`, named by the place of their results, it says that what they show is of the run before.
    """
    _page(folders.figures / "report.html", folders, papers, [], local=False)
    return _page(folders.runs / "report.html", folders, papers, [*failed], local=True)


def _page(
    path: Path, folders: Folders, papers: Mapping[str, Paper], failed: list[str], *, local: bool
) -> Path:
    import jinja2

    found, _ = ledgers(folders, papers, local=local)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    source = Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8")
    page = environment.from_string(source).render(
        show=show,
        failed=failed,
        tallies=claims.tallies,
        sources=SOURCES,
        claims=claims.standing(found),
        sections=[_section(ledger, folders, papers.get(ledger.paper), local) for ledger in found],
    )
    files.write(path, page)
    return path


def _section(ledger: claims.Ledger, folders: Folders, paper: Paper | None, local: bool) -> dict[str, Any]:
    captions = paper.captions(ledger.scale) if paper else {}
    names = list(captions)
    place = manifest.place(ledger.paper, ledger.scale)
    here = manifest.results(place, folders) if local else folders.figures / place
    pictures = [path for path in files.tree(here) if path.suffix in TYPES]
    pictures.sort(key=lambda path: names.index(path.name) if path.name in captions else len(names))
    scale = " (full scale)" if ledger.scale == FULL else ""
    return {
        "ledger": ledger,
        "place": place,
        "title": (paper.title if paper else ledger.paper) + scale,
        "reference": paper.reference if paper else "",
        "findings": paper.findings if paper else {},
        "comparisons": paper.comparisons if paper else (),
        "summary": paper.summary if paper and ledger.scale != FULL else None,
        "repeats": claims.repeats(ledger.claims),
        "run_time": _declared_time(ledger, paper),
        "machine": None,
        **(_run(ledger, folders) if local else {}),
        "figures": [_picture(path, captions.get(path.name, path.stem)) for path in pictures],
    }


def _run(ledger: claims.Ledger, folders: Folders) -> dict[str, Any]:
    """Returns how long the run made here took and what it ran on, or nothing where there was none."""
    made = manifest.latest(manifest.place(ledger.paper, ledger.scale), folders)
    return {"run_time": seconds(sum(made["cell_seconds"])), "machine": made.get("machine")} if made else {}


def _declared_time(ledger: claims.Ledger, paper: Paper | None) -> str:
    """Returns how long a run should take."""
    if paper and ledger.scale == "quick":
        return f"about {seconds(paper.quick_seconds)} on two CPU cores"
    return "not recorded"


def _picture(path: Path, caption: str) -> dict[str, Any]:
    """Returns a picture as part of the page; one of several panels side by side is `wide`."""
    content = path.read_bytes()
    # A PNG begins with its size; the page then keeps the place free while it decodes the picture.
    size = struct.unpack(">II", content[16:24]) if content.startswith(b"\x89PNG") else None
    source = f"data:{TYPES[path.suffix]};base64,{base64.b64encode(content).decode()}"
    wide = size is not None and size[0] > 2.5 * size[1]
    return {"source": source, "caption": caption, "size": size, "wide": wide}
