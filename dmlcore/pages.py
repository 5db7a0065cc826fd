"""Templates of pages and displays, each beside the module that fills it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import jinja2


def template(module: str, name: str, **filters: Callable[[str], str]) -> jinja2.Template:
    """Returns a template in the folder of a module; one of HTML escapes the texts that it is given.

    Args:
        module: `__file__` of the module.
        name: of the file.
        **filters: functions from texts to texts, for the template.
    """
    import jinja2  # imported here because most command lines write no page

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(module).parent),
        autoescape=".html." in name,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(filters)
    return environment.get_template(name)
