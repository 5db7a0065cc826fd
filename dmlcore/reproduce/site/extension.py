"""What the site adds to Sphinx; `docs/conf.py` names this module among its extensions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from dmlcore.reproduce.site import docstrings, formulas
from dmlcore.reproduce.site.directives import DIRECTIVES


def setup(app: Sphinx) -> dict[str, Any]:
    """Adds directives, formulas, and the folder of the repository as a setting."""
    app.add_config_value("dmlcore_root", str(Path(app.confdir).parent), "env", (str,))
    for name, directive in DIRECTIVES.items():
        app.add_directive(name, directive)
    app.add_html_math_renderer("mathml", (formulas.inline, None), (formulas.block, None))
    app.connect("autodoc-process-docstring", docstrings.process, priority=100)
    app.connect("missing-reference", docstrings.resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
