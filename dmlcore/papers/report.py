"""One page with all claims and figures that opens offline: pictures are part of it, nothing is fetched."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from dmlcore import claims, files
from dmlcore.claims import show
from dmlcore.papers.paper import Paper

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


def write(figures: Path, papers: Mapping[str, Paper]) -> Path:
    """Writes `report.html` from what the folder holds: the same files give the same bytes.

    Args:
        figures: folder with one folder per paper.
        papers: titles, captions and the order come from here.

    Returns:
        The page.
    """
    import jinja2

    found, _ = ledgers(figures, papers)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.globals |= {"number": show.number, "expectation": show.expectation, "interval": show.interval}
    source = Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8")
    counted = Counter(result.verdict for ledger in found for result in ledger.claims)
    page = environment.from_string(source).render(
        counts=[(verdict, counted[verdict]) for verdict in get_args(claims.Verdict) if counted[verdict]],
        sections=[_section(ledger, figures / ledger.paper, papers.get(ledger.paper)) for ledger in found],
    )
    path = figures / "report.html"
    files.write(path, page)
    return path


def _section(ledger: claims.Ledger, folder: Path, paper: Paper | None) -> dict[str, Any]:
    captions = paper.figures if paper else {}
    names = list(captions)
    pictures = [path for path in files.tree(folder) if path.suffix in TYPES]
    pictures.sort(key=lambda path: names.index(path.name) if path.name in captions else len(names))
    return {
        "ledger": ledger,
        "title": paper.title if paper else ledger.paper,
        "reference": paper.reference if paper else "",
        "rows": show.rows(ledger.claims),
        "figures": [(_inline(path), captions.get(path.name, path.stem)) for path in pictures],
    }


def _inline(path: Path) -> str:
    return f"data:{TYPES[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
