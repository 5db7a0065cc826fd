"""Results as Markdown for the pages of papers: claims with their findings, pictures, tables of verdicts."""

from __future__ import annotations

import re
from typing import Any

from dmlcore import checks, pages
from dmlcore.reproduce import report
from dmlcore.reproduce.chapters import chapters
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.papers import PAPERS


def escaped(text: str) -> str:
    r"""Returns plain text as Markdown, in which nothing of it means anything.

    >>> escaped("s_max * 2 <= |x|")
    's\\_max \\* 2 \\<\\= \\|x\\|'
    """
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(text.split()))


def text(part: str, key: str, folders: Folders) -> str:
    """Returns a part of the committed results as Markdown.

    Args:
        part: "claims", "summary" or "pictures" of a paper, or "verdicts" on all.
        key: of the paper.
        folders: where the results are.

    Raises:
        ValueError: there is no such paper, or it has no summary.
    """
    found = chapters(report.ledgers(folders, PAPERS)[0], folders, PAPERS)
    macros: Any = pages.template(__file__, "results.md.jinja", escaped=escaped).module
    if part == "verdicts":
        return macros.verdicts(found)
    paper = checks.choice("paper", key, PAPERS)
    if part == "summary":
        return (paper.summary or checks.fail("paper", key, "one that has a summary")).markdown()
    return "".join(getattr(macros, part)(chapter) for chapter in found if chapter.paper == paper)
