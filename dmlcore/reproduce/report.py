"""The report: one page with all claims and figures. Pictures are part of it, so that it opens offline."""

from collections.abc import Collection, Mapping
from pathlib import Path

from dmlcore import files, pages
from dmlcore.reproduce import claims
from dmlcore.reproduce.chapters import chapters
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.paper import Paper


def write(folders: Folders, papers: Mapping[str, Paper], failed: Collection[str] = ()) -> Path:
    """Writes `runs/report.html`, and returns its path: the last runs here, and what is published of the rest.

    It has the processor, the versions and the time of the runs on this machine. For runs that have `failed`,
    named by the place of their results, it says that the previous results are shown.
    """
    found = chapters(folders, papers, local=True, failed=failed)
    every = [result for chapter in found for result in chapter.ledger.claims]
    page = pages.template(__file__, "report.html.jinja").render(
        tallies=claims.tallies(every),
        settings=claims.settings(every),
        chapters=found,
    )
    path = folders.runs / "report.html"
    files.write(path, page)
    return path
