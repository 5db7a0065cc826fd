"""Sizes, rates and times with units, such as 5.2GB, 25Gb/s and 50us, as text of a command or an argument."""

import math
import re
from typing import Any

from dmlcore import checks

TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
PREFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
PREFIXES |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
BYTES = {f"{prefix}B": float(factor) for prefix, factor in PREFIXES.items()}
BITS = {f"{prefix}b": factor / 8 for prefix, factor in PREFIXES.items()}
RATES = {f"{unit}/s": factor for unit, factor in {**BYTES, **BITS}.items()}
RATES |= {f"{unit}ps": factor for unit, factor in BITS.items()}
KINDS = {"size": (BYTES, "'5.2GB'"), "rate": (RATES, "'25Gb/s'"), "time": (TIMES, "'50us'")}
BASE = {"size": "bytes", "rate": "bytes/s", "time": "seconds"}


def quantity(name: str, given: Any, kind: str) -> float:
    """Returns a size in bytes, a rate in bytes/s or a time in seconds, from a number or a text with a unit.

    Prefixes are those of the SI (k, M, G, T) and their binary ones (Ki, Mi, Gi, Ti); b or bit are bits, B
    bytes.

    >>> quantity("link", "25Gbit/s", "rate"), quantity("model", "5.2GB", "size"), quantity("delay", 3, "time")
    (3125000000.0, 5200000000.0, 3.0)
    >>> quantity("link", "25Gb", "rate")
    Traceback (most recent call last):
    ValueError: link: expected a number > 0 in bytes/s, or one with a unit, such as '25Gb/s', got '25Gb'
    """
    units, example = KINDS[kind]
    value = given
    if isinstance(given, str):
        parts = re.fullmatch(r"\s*((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([A-Za-zµ/]*)\s*", given)
        number, unit = parts.groups() if parts else ("nan", "")
        unit = unit.replace("µ", "u").replace("bit", "b")
        unit = unit if "Ki" in unit else unit.replace("K", "k")
        value = float(number) * (units.get(unit, math.nan) if unit else 1.0)
    try:
        return checks.positive(name, value)
    except ValueError:
        expected = f"a number > 0 in {BASE[kind]}, or one with a unit, such as {example}"
        raise ValueError(checks.message(name, checks.shown(given), expected)) from None
