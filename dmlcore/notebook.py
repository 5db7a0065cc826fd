"""Notebook displays: objects ask here, and `dmlcore.view.show` answers."""

import importlib
from typing import Any


def html(item: Any) -> str:
    """Returns an object as HTML, for its `_repr_html_`; a program without a notebook imports no pictures.

    >>> from dmlcore.methods.policies import ssp
    >>> "at most 3 clocks ahead of the slowest" in html(ssp(3))
    True
    """
    return importlib.import_module("dmlcore.view.show").html(item)
