"""The report: one page with all claims and figures. Pictures are part of it, so that it opens offline."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from dmlcore import files
from dmlcore.reproduce import claims, manifest
from dmlcore.reproduce.chapters import chapters
from dmlcore.reproduce.claims import show
from dmlcore.reproduce.claims.tally import GROUPS
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.paper import FULL, Paper


def ledgers(
    folders: Folders, papers: Mapping[str, Paper], *, local: bool = False
) -> tuple[list[claims.Ledger], list[str]]:
    """Returns all ledgers below the folder of figures, and messages about files that are not valid.

    The order is that of the registry, with quick scale before full scale for each paper. With `local`, the
    ledger of the last run on this machine replaces a published ledger with other parameters.
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
    """Returns the paths of every claims.json of both scales, full scale last."""
    return [*sorted(figures.glob("*/claims.json")), *sorted(figures.glob(f"{FULL}/*/claims.json"))]


def write(folders: Folders, papers: Mapping[str, Paper], failed: Iterable[str] = ()) -> Path:
    """Writes two pages from the contents of the folders, and returns the path of the complete page.

    `figures/report.html` has nothing about the machine: the same figures and ledgers give the same bytes.
    `runs/report.html` also has the processor, the versions and the time of the runs on this machine. For runs
    that have `failed`, named by the place of their results, it says that the previous results are shown.
    """
    _page(folders.figures / "report.html", folders, papers, [], local=False)
    return _page(folders.runs / "report.html", folders, papers, [*failed], local=True)


def _page(
    path: Path, folders: Folders, papers: Mapping[str, Paper], failed: list[str], *, local: bool
) -> Path:
    import jinja2

    found, _ = ledgers(folders, papers, local=local)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    tallies = {tally.group: tally for tally in claims.tallies(claims.standing(found))}
    page = environment.get_template("report.html.jinja").render(
        show=show,
        tallies={source: tallies[group] for source, group in GROUPS.items() if group in tallies},
        chapters=chapters(found, folders, papers, local=local, failed=failed),
    )
    files.write(path, page)
    return path
