"""dmlcore: ways of synchronising distributed training, modelled in JAX, measured, compared with their papers.

`__init__.pyi` lists the names and where they come from. Each is imported when first used, so that the
command line and the policies do not wait for JAX.
"""

import ast
import importlib
import sys
from pathlib import Path
from typing import Any

from dmlcore.collecting import paused

__version__ = "0.1.0"

# As `lazy_loader.attach_stub` does, which would be one more dependency and finds no module of a subpackage.
_HOME = {
    alias.name: str(statement.module)
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(statement, ast.ImportFrom)
    for alias in statement.names
}

__all__ = [*_HOME]
_REPLACED = {"tune": "dml.study, which finds the best settings and learning rate of each method"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        use = f": use {_REPLACED[name]}" if name in _REPLACED else ""
        # For an AttributeError, `from dmlcore import` would have its own words.
        importing = use and sys._getframe(1).f_code.co_name == "_handle_fromlist"
        raise (ImportError if importing else AttributeError)(
            f"module 'dmlcore' has no attribute {name!r}{use}"
        )
    with paused():  # the collector would scan all that is imported, which takes a tenth of the time
        found = vars(importlib.import_module(_HOME[name]))
        value = found[name] if name in found else importlib.import_module(f"{_HOME[name]}.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
