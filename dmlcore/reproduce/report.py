"""The report: one page with all claims and figures. Pictures are part of it, so that it opens offline."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from dmlcore import files
from dmlcore.reproduce import claims, manifest
from dmlcore.reproduce.chapters import chapters
from dmlcore.reproduce.claims import show
from dmlcore.reproduce.claims.tally import GROUPS
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.paper import FULL, SCALES, Paper


def ledgers(
    folders: Folders, papers: Mapping[str, Paper], *, local: bool = False
) -> tuple[list[claims.Ledger], list[str]]:
    """Returns all published ledgers, and messages about files that are not valid.

    The order is that of the registry, with quick scale before full scale for each paper. With `local`, the
    ledger of the last run on this machine replaces the published one.
    """
    found, faults = [], []
    paths = ledger_paths(folders.figures)
    if local:
        places = [path.parent.relative_to(folders.figures).as_posix() for path in paths]
        places += [manifest.place(key, scale) for key in papers for scale in SCALES]
        paths = [manifest.results(place, folders) / "claims.json" for place in dict.fromkeys(places)]
    for path in filter(Path.is_file, paths):
        try:
            found.append(claims.read(path))
        except ValueError as error:
            faults.append(str(error))
    order = {key: number for number, key in enumerate(papers)}
    found.sort(key=lambda ledger: (order.get(ledger.paper, len(order)), ledger.scale == FULL))
    return found, faults


def ledger_paths(figures: Path) -> list[Path]:
    """Returns the paths of every claims.json of both scales, full scale last."""
    return [*sorted(figures.glob("*/claims.json")), *sorted(figures.glob(f"{FULL}/*/claims.json"))]


def write(folders: Folders, papers: Mapping[str, Paper], failed: Iterable[str] = ()) -> Path:
    """Writes `runs/report.html`, and returns its path: the last runs here, and what is published of the rest.

    It has the processor, the versions and the time of the runs on this machine. For runs that have `failed`,
    named by the place of their results, it says that the previous results are shown.
    """
    import jinja2

    found, _ = ledgers(folders, papers, local=True)
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
        chapters=chapters(found, folders, papers, failed=failed),
    )
    path = folders.runs / "report.html"
    files.write(path, page)
    return path
