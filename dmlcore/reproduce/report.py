"""The report: one page with all claims and figures. Pictures are part of it, so that it opens offline."""

from collections.abc import Collection, Mapping
from pathlib import Path

from dmlcore import files, pages
from dmlcore.reproduce import claims, manifest
from dmlcore.reproduce.chapters import chapters
from dmlcore.reproduce.claims.tally import GROUPS
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.paper import SCALES, Paper


def ledgers(
    folders: Folders, papers: Mapping[str, Paper], *, local: bool = False
) -> tuple[list[claims.Ledger], list[str]]:
    """Returns the ledgers of the papers, in their order, and messages about files that are not valid.

    They are the published ones. With `local`, what the last runs on this machine have measured at other
    parameters, or on more seeds, replaces what is published.
    """
    found: dict[str, claims.Ledger] = {}
    faults = []
    paths = ledger_paths(folders.figures)
    if local:
        places = [manifest.place(key, scale) for key in papers for scale in SCALES]
        made = [manifest.made(place, folders) for place in places if manifest.latest(place, folders)]
        paths += [folder / "claims.json" for folder in made]
    for path in filter(Path.is_file, paths):
        try:
            ledger = claims.read(path)
        except ValueError as error:
            faults.append(str(error))
        else:
            found[ledger.paper] = claims.merge(found.get(ledger.paper), ledger, again=False)
    return [found[key] for key in papers if key in found], faults


def ledger_paths(figures: Path) -> list[Path]:
    """Returns the paths of all published ledgers, one for each paper."""
    return sorted(figures.glob("*/claims.json"))


def write(folders: Folders, papers: Mapping[str, Paper], failed: Collection[str] = ()) -> Path:
    """Writes `runs/report.html`, and returns its path: the last runs here, and what is published of the rest.

    It has the processor, the versions and the time of the runs on this machine. For runs that have `failed`,
    named by the place of their results, it says that the previous results are shown.
    """
    found, _ = ledgers(folders, papers, local=True)
    every = [result for ledger in found for result in ledger.claims]
    tallies = {tally.group: tally for tally in claims.tallies(every)}
    page = pages.template(__file__, "report.html.jinja").render(
        tallies={source: tallies[group] for source, group in GROUPS.items() if group in tallies},
        settings=claims.settings(every),
        chapters=chapters(found, folders, papers, local=True, failed=failed),
    )
    path = folders.runs / "report.html"
    files.write(path, page)
    return path
