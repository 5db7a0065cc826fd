"""Links of a page in the repository, as links of the site: a page is read in both places."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable

# Code is passed over: what stands in it is no link.
_CODE_OR_LINK = re.compile(
    r"(?P<fence>`+)[\s\S]*?(?<!`)(?P=fence)(?!`)|\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)\)"
)
HOME = {"README.md": "/index.md", "CONTRIBUTING.md": "/contributing.md", "notebooks": "/notebooks.md"}


def rewritten(text: str, page: str, kind: Callable[[str], str], wanted: Callable[[str], None]) -> str:
    """Returns a page of Markdown with its links to files of the repository as links to pages of the site.

    Args:
        text: of the page.
        page: its path in the repository.
        kind: "file", "folder" or "" of a path in the repository.
        wanted: called with the path of each file that is no page, which the site must have under `files/`.

    >>> kinds = {"docs/faults.md": "file", "notebooks/01_ssp.ipynb": "file", "tests": "folder"}.get
    >>> text = "[faults](faults.md#crash), [SSP](../notebooks/01_ssp.ipynb), [tests](../tests), `[x](y)`"
    >>> rewritten(text, "docs/loads.md", lambda path: kinds(path, ""), print)
    '[faults](/faults.md#crash), [SSP](/notebooks/01_ssp.ipynb), tests, `[x](y)`'
    """

    def replaced(match: re.Match[str]) -> str:
        target = match["target"]
        if target is None or re.match(r"[a-z]+:|#|/", target):
            return match[0]
        name, hash_, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), name))
        if kind(path) == "folder" and path not in HOME:
            return match["text"]
        if kind(path) == "":
            return match[0]  # Sphinx says that it is broken
        # The README is the home page of the repository: its headings are not those of the site's.
        site = HOME.get(path) or _place(path, wanted)
        return f"[{match['text']}]({site}{'' if path == 'README.md' else hash_ + anchor})"

    return _CODE_OR_LINK.sub(replaced, text)


def _place(path: str, wanted: Callable[[str], None]) -> str:
    first, _, rest = path.partition("/")
    if first == "docs":
        return f"/{rest}"
    if first == "notebooks" or (first == "figures" and path.endswith(".png")):
        return f"/{path}"
    wanted(path)
    return f"/files/{path}"
