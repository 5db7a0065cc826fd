"""One page with all claims and figures that opens offline: pictures are part of it, nothing is fetched."""

import base64
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from dmlcore import files
from dmlcore.reproduce import claims, manifest
from dmlcore.reproduce.claims import show
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.paper import Paper
from dmlcore.reproduce.progress import seconds

TYPES = {".png": "image/png", ".svg": "image/svg+xml"}


def ledgers(figures: Path, papers: Mapping[str, Paper]) -> tuple[list[claims.Ledger], list[str]]:
    """Returns all ledgers below a folder, in the order of the registry, and what is wrong with the rest."""
    found, faults = [], []
    for path in sorted(figures.glob("*/claims.json")):
        try:
            found.append(claims.read(path))
        except ValueError as error:
            faults.append(str(error))
    order = list(papers)
    found.sort(key=lambda ledger: order.index(ledger.paper) if ledger.paper in papers else len(order))
    return found, faults


def write(folders: Folders, papers: Mapping[str, Paper], failed: Iterable[str] = ()) -> Path:
    """Writes `report.html` from what the folders hold: the same files give the same bytes.

    Of papers that have `failed` it says that what they show is of the run before.
    """
    import jinja2

    found, _ = ledgers(folders.figures, papers)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    source = Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8")
    page = environment.from_string(source).render(
        show=show,
        failed=[*failed],
        counts=counts,
        claims=[result for ledger in found for result in ledger.claims],
        sections=[_section(ledger, folders, papers.get(ledger.paper)) for ledger in found],
    )
    path = folders.figures / "report.html"
    files.write(path, page)
    return path


def counts(results: Iterable[claims.Result]) -> list[tuple[str, int]]:
    """Returns how many claims have each verdict, without the verdicts that none has."""
    counted = Counter(result.verdict for result in results)
    return [(verdict, counted[verdict]) for verdict in get_args(claims.Verdict) if counted[verdict]]


def _section(ledger: claims.Ledger, folders: Folders, paper: Paper | None) -> dict[str, Any]:
    captions = paper.figures if paper else {}
    names = list(captions)
    pictures = [path for path in files.tree(folders.figures / ledger.paper) if path.suffix in TYPES]
    pictures.sort(key=lambda path: names.index(path.name) if path.name in captions else len(names))
    return {
        "ledger": ledger,
        "title": paper.title if paper else ledger.paper,
        "reference": paper.reference if paper else "",
        "run_time": _run_time(ledger, folders, paper),
        "figures": [_picture(path, captions.get(path.name, path.stem)) for path in pictures],
    }


def _run_time(ledger: claims.Ledger, folders: Folders, paper: Paper | None) -> str:
    """Returns how long the run took, or should take where that was not recorded."""
    took = manifest.seconds(ledger.paper, folders)
    if took is not None:
        return seconds(took)
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
