"""`paper_repro.py docs`: runs the notebooks that have no finished run, then builds the site."""

import argparse
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from dmlcore.reproduce import manifest, runner
from dmlcore.reproduce.manifest import Folders, PaperJob
from dmlcore.reproduce.paper import Paper
from dmlcore.reproduce.progress import Display
from dmlcore.reproduce.site import results


def docs(
    console: Console, given: argparse.Namespace, root: Path, papers: Mapping[str, Paper], parallel: int
) -> int:
    """Builds the site, or writes the results into the pages; returns the exit code."""
    if given.pages:
        for path in results.write(root, papers):
            console.print(f"written: {path}", soft_wrap=True)
        return 0
    from dmlcore.reproduce.site import build, source  # Sphinx and all of dmlcore

    if not given.no_run and (failed := run(console, source.jobs(papers), Folders.below(root), parallel)):
        told = f"failed: {', '.join(failed)}; `docs --no-run` builds the site without running anything"
        console.print(told, style="red", markup=False, soft_wrap=True)
        return 1
    console.print("building the site, which takes a minute or two")
    try:
        page = build.build(root, papers)
    except build.SiteFailed as error:
        console.print(f"{error}\nthe site was not built", style="red", markup=False, soft_wrap=True)
        return 1
    console.print(f"site: {page}", soft_wrap=True)
    return 0


def run(console: Console, jobs: Sequence[PaperJob], folders: Folders, parallel: int) -> list[str]:
    """Runs the notebooks that have no finished run; returns the keys of those that failed."""
    logging.getLogger("papermill").setLevel(logging.ERROR)  # the tour lacks parameters that papers have
    todo = [job for job in jobs if not manifest.finished(job, folders)]
    with Display(console) as display:
        outcomes = runner.run(todo, folders, display, parallel=parallel) if todo else []
    return [outcome.key for outcome in outcomes if outcome.status == "failed"]
