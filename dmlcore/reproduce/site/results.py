"""Results in the pages of the repository: parts between marks, written as plain Markdown from the ledgers.

A part begins with a comment that names it, such as `<!-- claims ssp -->`, and ends with `<!-- end -->`.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dmlcore import checks, files, pages
from dmlcore.reproduce import claims
from dmlcore.reproduce.chapters import Chapter, chapters
from dmlcore.reproduce.manifest import Folders
from dmlcore.reproduce.paper import FULL, Paper

PART = re.compile(r"^<!-- (\w+)(?: (\S+))? -->\n(.*?)^<!-- end -->$", re.DOTALL | re.MULTILINE)
FOR_HANDS = "contents"  # the part that is a list by hand, of which the site makes its navigation
_OF_ONE, _OF_ALL = ("claims", "summary", "pictures", "picture"), ("verdicts", "tally", "gallery", "slides")


def escaped(text: str) -> str:
    r"""Returns plain text as Markdown, in which nothing of it means anything.

    >>> escaped("s_max * 2 <= |x|, [1]")
    's_max \\* 2 \\<= \\|x\\|, \\[1\\]'
    """
    return re.sub(r"[\\`*|<\[\]$~]|(?<!\w)_|_(?!\w)", r"\\\g<0>", " ".join(text.split()))


def sentence(text: str) -> str:
    """Returns the first sentence of a text.

    >>> sentence("Left: loss. Right: time.")
    'Left: loss.'
    """
    return re.split(r"(?<=[.!?]) (?=[A-Z])", " ".join(text.split()))[0]


def filled(text: str, page: str, found: Sequence[Chapter], papers: Mapping[str, Paper]) -> str:
    """Returns a page whose parts are written anew.

    Args:
        text: of the page.
        page: its path in the repository, from which links go out.
        found: the results, by paper.
        papers: the registry.

    Raises:
        ValueError: there is no such part, paper or picture, or the paper has no summary.
    """
    parts = pages.template(__file__, "results.md.jinja", escaped=escaped, sentence=sentence)
    shown = {key for name, key, _ in PART.findall(text) if name == "picture"}

    def link(path: str) -> str:
        return posixpath.relpath(path, posixpath.dirname(page) or ".")

    told = claims.told([result for chapter in found for result in chapter.ledger.claims])
    macros: Any = parts.make_module({"link": link, "shown": shown, "told": told})

    def written(match: re.Match[str]) -> str:
        name, key = match[1], match[2] or ""
        if name == FOR_HANDS:
            return match[0]
        checks.choice("part", name, dict.fromkeys((*_OF_ONE, *_OF_ALL)))
        if name in _OF_ALL:
            content = getattr(macros, name)(found)
        else:
            full, place = key.startswith(f"{FULL}/"), key.removeprefix(f"{FULL}/")
            paper = checks.choice("paper", place.partition("/")[0], papers)
            if name == "summary":
                content = (paper.summary or checks.fail("paper", key, "one that has a summary")).markdown()
            elif name == "picture":
                named = {each.name: each for c in found if c.paper == paper for each in c.pictures}
                picture = checks.choice("picture", place.partition("/")[2], named)
                content = macros.picture(paper, picture, picture.shots[0 if full else -1])
            else:
                content = "".join(getattr(macros, name)(each) for each in found if each.paper == paper)
        return f"<!-- {' '.join(filter(None, (name, key)))} -->\n{content.strip()}\n<!-- end -->"

    return PART.sub(written, text)


def old(root: Path, papers: Mapping[str, Paper]) -> Iterator[tuple[Path, str]]:
    """Returns each page of a repository that has other results than the ledgers, and its text with theirs.

    Raises:
        ValueError: as for `filled`; the message names the page.
    """
    found = chapters(Folders.below(root), papers)
    for path in (*root.glob("README.md"), *sorted(root.glob("docs/**/*.md"))):
        text, page = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
        try:
            new = filled(text, page, found, papers)
        except ValueError as error:
            raise ValueError(f"{page}: {error}") from None
        if new != text:
            yield path, new


def write(root: Path, papers: Mapping[str, Paper]) -> list[Path]:
    """Writes the results into the pages of a repository; returns those that have changed."""
    changed = dict(old(root, papers))
    for path, text in changed.items():
        files.write(path, text)
    return [*changed]
