"""Timing as ratios: contenders take turns within one run, so that a busy machine slows all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
from rich.console import Console
from rich.table import Table

from dmlcore import claims

console = Console(width=110)


def race(contenders: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, np.ndarray]:
    """Returns seconds of each contender, `repeats` of them, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats + 1):
        for name, run in contenders.items():
            begun = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begun)
    return {name: np.array(values[1:]) for name, values in seconds.items()}


def show_race(title: str, seconds: Mapping[str, np.ndarray], work: int, unit: str, baseline: str) -> None:
    """Prints work per second of each contender and its ratio to the baseline: median and quartiles."""
    table = Table(title=title, title_justify="left")
    for column in ("", f"{unit} per second", "of the baseline", "quartiles"):
        table.add_column(column, justify="left" if not column else "right")
    for name, values in seconds.items():
        ratio = seconds[baseline] / values
        low, middle, high = np.percentile(ratio, [25, 50, 75])
        table.add_row(name, f"{work / np.median(values):,.0f}", f"{middle:.2f}", f"{low:.2f} to {high:.2f}")
    console.print(table)


def verdict(what: str, measured: float, least: float) -> None:
    """Prints whether a requirement is met."""
    console.print(
        f"{'met    ' if measured >= least else 'NOT met'}  {what}: {measured:,.2f}, at least {least:,g}"
    )


def header(name: str) -> None:
    """Prints what runs, on what."""
    hardware = ", ".join(f"{key} {value}" for key, value in claims.hardware().items())
    console.print(f"{name}: {hardware}; seed 0; contenders take turns, medians over the rounds")
