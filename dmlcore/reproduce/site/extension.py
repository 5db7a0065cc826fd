"""What the site adds to Sphinx; `docs/conf.py` names this module among its extensions."""

import functools
import re
from typing import Any, get_args

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

import dmlcore as dml
from dmlcore.reproduce.claims.model import Outcome, Verdict
from dmlcore.reproduce.site import reference

VERDICTS = {*get_args(Verdict), *get_args(Outcome)}


def setup(app: Sphinx) -> dict[str, Any]:
    """Adds formulas, and what a page of plain Markdown cannot say."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    app.connect("autodoc-process-docstring", reference.process, priority=100)
    app.connect("doctree-read", _dressed)
    app.connect("missing-reference", _resolve)
    app.connect("html-page-context", _own_page, priority=100)  # before the theme asks for it
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _dressed(app: Any, doctree: nodes.document) -> None:
    """Colours verdicts, and loads pictures when they come into view."""
    for word in doctree.findall(nodes.strong):
        if word.astext() in VERDICTS:
            word["classes"] += ["verdict", word.astext().replace(" ", "-")]
    for picture in doctree.findall(nodes.image):
        picture["loading"] = "lazy"


def _resolve(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Links a name that is documented under another one: as pages write it, or by the module it is in."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target.startswith(("dml.", "dmlcore.")):
        return None
    public = (
        f"dmlcore.{target.removeprefix('dml.')}" if target.startswith("dml.") else _homes().get(target, "")
    )
    python = env.domains.python_domain
    if public == target or public not in python.objects:
        return None
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", public, node, content)


@functools.cache
def _homes() -> dict[str, str]:
    """Returns the public name of each function and class by the module that it is made in."""
    return {
        f"{value.__module__}.{value.__qualname__}": name
        for members in reference.entries().values()
        for name, value in members.items()
        if hasattr(value, "__qualname__")
    } | {
        getattr(dml, name).__name__: f"dmlcore.{name}"
        for name in reference.NAMES
        if reference.is_module(name)
    }


def _own_page(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> str | None:
    """Makes a deck of the slides, and mends the pages of source code.

    viewcode links back to one name of a module, where an object may be documented under another. Pages of
    source code have no table of contents, since it takes long to make.
    """
    if page.startswith("_modules/"):
        context["body"] = re.sub(r'<a class="viewcode-back".*?</a>', "", context["body"])
        context["toctree"] = lambda **options: ""
    return "deck.html" if page == "slides" else None


def inline(translator: Any, node: nodes.math) -> None:
    """Writes a formula within a line."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    """Writes a formula on lines of its own."""
    translator.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>\n')
    raise nodes.SkipNode
