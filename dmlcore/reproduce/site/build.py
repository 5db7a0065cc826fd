"""Builds the site: all of it aside, and in place in one step when it is whole."""

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from dmlcore.reproduce.paper import Paper
from dmlcore.reproduce.site import source

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
