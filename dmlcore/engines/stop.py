"""When a run ends: after so many updates, seconds or samples."""

from __future__ import annotations

import math
from typing import NamedTuple

from dmlcore import checks


class Stop(NamedTuple):
    """Exactly one of the three is finite.

    Args:
        updates: server updates.
        seconds: of the engine's clock.
        samples: samples in applied updates.
    """

    updates: float = math.inf
    seconds: float = math.inf
    samples: float = math.inf


def stop_rule(updates: int | None = None, seconds: float | None = None, samples: int | None = None) -> Stop:
    """Returns the stopping rule that was given.

    Raises:
        ValueError: none or more than one was given, or it is out of range.

    >>> stop_rule(updates=100).updates
    100
    >>> stop_rule(updates=100, seconds=1.0)
    Traceback (most recent call last):
    ValueError: updates, seconds: got two stopping rules, allowed is exactly one of updates, seconds, samples
    """
    given = {"updates": updates, "seconds": seconds, "samples": samples}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) != 1:
        count = {0: "no stopping rule", 2: "two stopping rules"}.get(len(given), "three stopping rules")
        names = ", ".join(given) or "updates, seconds, samples"
        raise ValueError(f"{names}: got {count}, allowed is exactly one of updates, seconds, samples")
    if updates is not None:
        return Stop(updates=checks.integer("updates", updates, low=1))
    if samples is not None:
        return Stop(samples=checks.integer("samples", samples, low=1))
    return Stop(seconds=checks.real("seconds", seconds, above=0, high=1e300))
