"""The API reference: a page for each group of public names, as reStructuredText that autodoc fills in."""

import functools
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import dmlcore as dml
from dmlcore import files
from dmlcore.pages import template

NAMES: list[str] = vars(dml)["__all__"]


class Page(NamedTuple):
    """A page of the reference: its title, a line that introduces it, and what is documented there."""

    title: str
    intro: str
    names: list[str]  # of `dmlcore`, or below it; of a module all public names are meant


PAGES = {name: Page(**page) for name, page in files.table(__file__, "reference").items()}


def entries() -> dict[str, dict[str, Any]]:
    """Returns, by page, what is documented there: objects by the name that users write.

    What `dmlcore` itself names has that short name, and each object is documented once.

    Raises:
        ValueError: a public name is on no page.
    """
    short = {id(value): name for name in NAMES if _is_defined(value := getattr(dml, name))}
    found: dict[str, dict[str, Any]] = {}
    known: set[int] = set()
    for page, (_, _, names) in PAGES.items():
        found[page] = {}
        for name, value in _named(names):
            if id(value) not in known:
                found[page][f"dmlcore.{short.get(id(value), name)}"] = value
            known |= {id(value)} if _is_defined(value) else set()
    modules = {name for page in PAGES.values() for name in page.names}
    lost = [name for name in NAMES if id(getattr(dml, name)) not in known and name not in modules]
    if lost:
        raise ValueError(f"no page of the API reference has {', '.join(lost)}; add each to reference.toml")
    return found


def _named(names: list[str]) -> Iterator[tuple[str, Any]]:
    for name in names:
        value = pkgutil.resolve_name(f"dmlcore.{name}")
        if isinstance(value, ModuleType):
            yield from ((f"{name}.{each}", member) for each, member in public(value).items())
        else:
            yield name, value


def is_module(name: str) -> bool:
    """Whether a name of `dmlcore` is a module."""
    return isinstance(getattr(dml, name), ModuleType)


def _is_defined(value: Any) -> bool:
    """Whether it is a function or class of dmlcore: what other modules name, too, is the same object."""
    return callable(value) and getattr(value, "__module__", "").startswith("dmlcore")


def public(module: ModuleType) -> dict[str, Any]:
    """Returns the public names of a module: those it declares, or the functions and classes made in it."""
    if names := getattr(module, "__all__", None):
        found = {name: getattr(module, name) for name in names}
        return {name: value for name, value in found.items() if not isinstance(value, ModuleType)}
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and _is_defined(value) and value.__module__.startswith(module.__name__)
    }


def pages() -> dict[str, str]:
    """Returns the text of each page of the reference by its name, and that of `index`, which lists them."""
    known = {"is_defined": _is_defined, "is_class": inspect.isclass, "methods_of": _methods}
    known |= {"first_line": _first_line, "told": _told}
    macros: Any = template(__file__, "reference.rst.jinja").make_module(known)
    texts = {"index": macros.index(PAGES)}
    for page, members in entries().items():
        title, intro, names = PAGES[page]
        modules = [name for name in names if name in NAMES and is_module(name)]
        texts[page] = macros.page(title, intro, modules, members)
    return texts


def _first_line(value: Any) -> str:
    return plain(" ".join(inspect.cleandoc(value.__doc__ or "").split("\n\n")[0].split()))


def _methods(kind: type) -> list[str]:
    """Returns the methods and properties of a class that have a docstring of their own."""
    kinds = (FunctionType, property, functools.cached_property, classmethod, staticmethod)
    own = {name: member for name, member in vars(kind).items() if not name.startswith("_")}
    return [name for name, member in own.items() if isinstance(member, kinds) and member.__doc__]


def _told(value: Any) -> str:
    """Returns what a constant is: the names of a table, or the value itself."""
    if isinstance(value, Mapping):
        return f"A table of all, by name: {', '.join(f'``{name}``' for name in value)}."
    return f"``{value!r}``" if isinstance(value, str) else f"The type ``{value}``.".replace("typing.", "")


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
