"""How objects are shown: by their name, or in a notebook as `dmlcore.view.show` says."""

import importlib
from typing import Any


def html(item: Any) -> str:
    """Returns an object as HTML, for its `_repr_html_`; a program without a notebook imports no pictures.

    >>> from dmlcore.methods.policies import ssp
    >>> "at most 3 clocks ahead of the slowest" in html(ssp(3))
    True
    """
    return importlib.import_module("dmlcore.view.show").html(item)


def by_name(item: Any) -> str:
    """Returns an object's name, which is the call that makes it, for its `__repr__`."""
    return str(item.name)
