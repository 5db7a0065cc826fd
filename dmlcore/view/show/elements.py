"""Trees of HTML and SVG elements."""

from __future__ import annotations

from collections.abc import Iterable
from xml.etree import ElementTree as ET

Element = ET.Element
Child = Element | str


def element(tag: str, *children: Child, **attributes: str | float) -> Element:
    """Returns an element. In names of attributes `_` stands for `-`, as in `fill_opacity`; one at the end
    sets a name apart from Python's, as in `class_`.

    >>> text(element("b", "1 < 2", class_="warm"))
    '<b class="warm">1 &lt; 2</b>'
    """
    made = ET.Element(tag, {name.rstrip("_").replace("_", "-"): _shown(v) for name, v in attributes.items()})
    extend(made, children)
    return made


def extend(parent: Element, children: Iterable[Child]) -> None:
    """Adds elements and text at the end of an element."""
    for child in children:
        if isinstance(child, Element):
            parent.append(child)
        elif len(parent):
            parent[-1].tail = (parent[-1].tail or "") + child
        else:
            parent.text = (parent.text or "") + child


def text(root: Element) -> str:
    """Returns an element as text that is HTML and well-formed XML at once."""
    return ET.tostring(root, encoding="unicode", short_empty_elements=False)


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"
