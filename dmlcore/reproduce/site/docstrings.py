"""Docstrings as autodoc reads them: plain text in which only code, sections and doctests mean something."""

from __future__ import annotations

import re
from typing import Any

_CODE_OR_MARK = re.compile(r"(`+)[\s\S]*?\1|[|*]|(?<=\w)_(?!\w)")


def plain(text: str) -> str:
    r"""Returns a docstring whose bars, stars and underscores are themselves, but in code and doctests.

    >>> plain("The norm |g|, of `a|b` with **options.\n\n>>> 1 | 2")
    'The norm \\|g\\|, of `a|b` with \\*\\*options.\n\n>>> 1 | 2'
    """
    parts = re.split(r"(^ *>>> [\s\S]*?(?:\n\s*\n|\Z))", text, flags=re.MULTILINE)
    for number in range(0, len(parts), 2):  # a doctest and what it prints stand between
        parts[number] = _CODE_OR_MARK.sub(
            lambda found: found[0] if found[1] else f"\\{found[0]}", parts[number]
        )
    return "".join(parts)


def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Makes a docstring plain: called by autodoc, before napoleon reads the sections."""
    lines[:] = plain("\n".join(lines)).split("\n")
