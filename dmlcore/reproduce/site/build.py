"""`paper_repro.py docs`: runs the notebooks that have no finished run, then the site, whole or not at all."""

import argparse
import contextlib
import io
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from dmlcore.reproduce import manifest, runner
from dmlcore.reproduce.manifest import Folders, PaperJob
from dmlcore.reproduce.paper import Paper
from dmlcore.reproduce.progress import Display
from dmlcore.reproduce.site import results

SITE = Path("build/site")


class SiteFailed(Exception):
    """The site is not as it should be; the message has a line for each fault."""


def build(root: Path, papers: Mapping[str, Paper]) -> Path:
    """Builds the site from what the repository holds, and returns its first page.

    Args:
        root: of the repository; the site is in its folder `build/site`, and stays as it was if this fails.
        papers: the registry.

    Raises:
        SiteFailed: Sphinx warns of something, such as a link that leads nowhere.
    """
    from dmlcore.reproduce.site import source  # imported here because it needs all of dmlcore

    place = root / SITE
    place.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix="site.partial-", dir=place.parent))
    try:
        source.gather(root, staging / "source", papers)
        if faults := _sphinx(staging):
            raise SiteFailed("\n".join(faults))
        _put(staging / "html", place, staging / "old")
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return place / "index.html"


def _sphinx(staging: Path) -> list[str]:
    """Runs Sphinx; returns its warnings, with the files as they are in the repository."""
    from sphinx.cmd.build import build_main

    pages, doctrees = staging / "source", staging / "doctrees"
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = build_main(["-qEN", "-d", str(doctrees), str(pages), str(staging / "html")])
    lines = said.getvalue().splitlines() or ["Sphinx failed"] * bool(code)
    return [line.replace(f"{pages}{os.sep}", "docs/") for line in lines if line.strip()]


def _put(new: Path, place: Path, aside: Path) -> None:
    if place.exists():
        os.replace(place, aside)
    os.replace(new, place)


def docs(
    console: Console, given: argparse.Namespace, root: Path, papers: Mapping[str, Paper], parallel: int
) -> int:
    """Builds the site, or writes the results into the pages; returns the exit code."""
    if given.pages:
        for path in results.write(root, papers):
            console.print(f"written: {path}", soft_wrap=True)
        return 0
    from dmlcore.reproduce.site import source

    if not given.no_run and (failed := run(console, source.jobs(papers), Folders.below(root), parallel)):
        told = f"failed: {', '.join(failed)}; `docs --no-run` builds the site without running anything"
        console.print(told, style="red", markup=False, soft_wrap=True)
        return 1
    console.print("building the site, which takes a minute or two")
    try:
        page = build(root, papers)
    except SiteFailed as error:
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
