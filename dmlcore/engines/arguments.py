"""Checks of what every run is given, whatever its engine: the kind of each part, and the seed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dmlcore import checks

MAX_SEED = 2**32 - 1


def check_kind(name: str, value: Any, kind: type) -> None:
    """Raises ValueError unless `value` is a `kind`.

    >>> check_kind("policy", "bsp", dict)
    Traceback (most recent call last):
    ValueError: policy: got 'bsp', allowed is a dict
    """
    if not isinstance(value, kind):
        hint = "; was it called?" if callable(value) else ""
        checks.fail(name, value, f"a {kind.__name__}{hint}")


def check_seed(name: str, value: Any) -> int:
    """Returns `value` if it is a seed: a whole number of 32 bits, as more would wrap around in JAX's keys.

    >>> check_seed("seed", 2**32)
    Traceback (most recent call last):
    ValueError: seed: got 4294967296, allowed is a whole number from 0 to 4294967295 (32 bits)
    """
    return checks.integer(name, value, low=0, high=MAX_SEED, why="32 bits")


def several(name: str, values: Any) -> list[Any]:
    """Returns `values` as a list if there are some, all different."""
    if not isinstance(values, Iterable):
        checks.fail(name, values, "several, such as a list or a range")
    listed = [*values]
    if not listed or len({*listed}) < len(listed):
        checks.fail(name, values, "at least one, all different")
    return listed
