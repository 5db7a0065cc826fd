"""Timing as ratios: contenders take turns within one run, so that a busy machine slows all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from dmlcore.reproduce import claims

console = Console(width=110)


def race(
    contenders: Mapping[str, Callable[[], Any]], repeats: int, prepared: bool = False
) -> dict[str, np.ndarray]:
    """Returns seconds of each contender, `repeats` of them, after one round that does not count.

    Every other round runs backwards, so that no contender always runs right after the same other one. With
    `prepared` a contender returns the function that is timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(repeats + 1):
        for name, run in list(contenders.items())[:: -1 if number % 2 else 1]:
            timed = run() if prepared else run
            begun = time.perf_counter()
            timed()
            seconds[name].append(time.perf_counter() - begun)
    return {name: np.array(values[1:]) for name, values in seconds.items()}


def show_race(title: str, seconds: Mapping[str, np.ndarray], work: int, unit: str, baseline: str) -> None:
    """Prints work per second of each contender and its ratio to the baseline: median and quartiles."""
    table = Table(title=title, title_justify="left")
    for column in ("", f"{unit} per second", "of the baseline", "quartiles"):
        table.add_column(column, justify="left" if not column else "right")
    for name, values in seconds.items():
        ratio = seconds[baseline] / values
        _, middle, _ = quartiles(ratio)
        table.add_row(name, f"{work / np.median(values):,.0f}", f"{middle:.2f}", spread(ratio))
    console.print(table)


def quartiles(values: Any) -> np.ndarray:
    """Returns lower quartile, median and upper quartile."""
    return np.percentile(values, [25, 50, 75])


def spread(values: Any, digits: int = 2) -> str:
    """Returns the quartiles in words."""
    low, _, high = quartiles(values)
    return f"{low:,.{digits}f} to {high:,.{digits}f}"


def verdict(what: str, measured: Any, least: float) -> None:
    """Prints whether the median of what was measured meets a requirement, and its quartiles."""
    middle = quartiles(measured)[1]
    digits = 0 if middle >= 1000 else 2
    between = f" ({spread(measured, digits)})" if np.size(measured) > 1 else ""
    met = "met    " if middle >= least else "NOT met"
    console.print(f"{met}  {what}: {middle:,.{digits}f}{between}, at least {least:,g}", highlight=False)


def within(what: str, measured: float, most: float) -> None:
    """Prints whether a deviation stays within what is allowed."""
    met = "met    " if measured <= most else "NOT met"
    console.print(f"{met}  {what} {measured:.1%}, at most {most:.0%}", highlight=False)


@contextmanager
def reported(name: str) -> Iterator[None]:
    """Prints what runs, on what, and at the end whether others used the machine meanwhile."""
    hardware, versions = claims.hardware(), claims.versions()
    before = os.getloadavg()[0]
    console.print(
        f"{name}: {', '.join(f'{key} {value}' for key, value in hardware.items())}; "
        f"{', '.join(f'{package} {versions[package]}' for package in ('python', 'jax', 'jaxlib', 'numpy'))}; "
        f"load average {before:.2f} at the start; seed 0; contenders take turns; medians over the rounds, "
        "with quartiles",
        highlight=False,
    )
    yield
    after = os.getloadavg()[0]
    seen = before > 0.5 or after > int(hardware["cores"]) + 0.5
    console.print(
        f"load average {before:.2f} at the start, {after:.2f} at the end with this run's own: "
        f"{'other' if seen else 'no other'} load was seen",
        highlight=False,
    )
