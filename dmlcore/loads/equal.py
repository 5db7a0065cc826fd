"""Load rules: how the batch is shared out over the workers."""

from __future__ import annotations

from dmlcore import checks
from dmlcore.types import Load


def equal() -> Load:
    """Every worker's task has the same number of samples: the total batch over the number of workers.

    Returns:
        The load rule.

    Example:
        >>> load = equal()
        >>> load.size(load.init(8, 256), 0)
        32
    """
    return Load("equal()", lambda num_workers, total: total // num_workers, lambda state, worker: state)


LOADS = {"equal": equal}


def resolve(load: Load | str | None) -> Load:
    """Returns a load rule from an object, a registered name or None (`equal`)."""
    if load is None:
        return equal()
    if isinstance(load, Load):
        return load
    return checks.choice("load", load, LOADS)()
