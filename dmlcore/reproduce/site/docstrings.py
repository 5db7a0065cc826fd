"""Docstrings as autodoc reads them: plain text in which only code, sections and doctests mean something."""

from __future__ import annotations

import re
from typing import Any

import dmlcore as dml
from dmlcore.reproduce.site import reference

_CODE_OR_MARK = re.compile(r"(`+)[\s\S]*?\1|[|*]|(?<=\w)_(?!\w)")


def plain(text: str) -> str:
    r"""Returns a docstring whose bars, stars and underscores are themselves, but in code and doctests.

    >>> print(plain("The norm |g|, of `a|b` with **options.\n\n>>> 1 | 2\n3"))
    The norm \|g\|, of `a|b` with \*\*options.
    <BLANKLINE>
    >>> 1 | 2
    3
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


def resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Links a name that is documented under another one: as pages write it, or by the module it is made in."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target.startswith(("dml.", "dmlcore.")):
        return None
    public = (
        f"dmlcore.{target.removeprefix('dml.')}" if target.startswith("dml.") else homes().get(target, "")
    )
    python = env.domains.python_domain
    if public == target or public not in python.objects:
        return None
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", public, node, content)


def homes() -> dict[str, str]:
    """Returns the public name of each function and class by the module that it is made in."""
    return {
        f"{value.__module__}.{value.__qualname__}": name
        for members in reference.entries().values()
        for name, value in members.items()
        if hasattr(value, "__qualname__")
    } | {getattr(dml, name).__name__: f"dmlcore.{name}" for name in dml.__all__ if reference.is_module(name)}
