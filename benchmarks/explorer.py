"""How soon the explorer answers a move of a slider: training, timeline and picture.

Run `python benchmarks/explorer.py`. Each slider goes through its values twice; the first time may compile.
"""

from __future__ import annotations

import time

import numpy as np
from rich.table import Table
from timing import console, reported, verdict

import dmlcore as dml

ASKED = 0.3  # seconds
MOVES = {
    "staleness": [0, 1, 2, 4, 8, 16],
    "learning_rate": [0.05, 0.1, 0.2, 0.5, 1.0],
    "slow_tasks": [0.05, 0.2, 0.1],
    "slowdown": [1.0, 2.0, 4.0],
    "communication_ratio": [0.0, 0.5, 1.0, 0.125],
    "server_load": [0.5, 0.9, 1.5, 0.0],
    "workers": [4, 12, 16, 8],
    "policy": ["BSP", "ASP", "SSP"],
}


def main() -> None:
    explorer = dml.explore()
    panel = explorer.panel
    seconds: dict[str, list[list[float]]] = {name: [] for name in MOVES}
    for _ in range(2):
        for name, values in MOVES.items():
            taken = []
            for value in values:
                begun = time.perf_counter()
                panel.controls[name].value = value
                taken.append(time.perf_counter() - begun)
                assert getattr(explorer.settings, name) == value
            seconds[name].append(taken)
    table = Table(title="Seconds from a move to its picture: median (longest)", title_justify="left")
    for column in ("slider", "first time", "again"):
        table.add_column(column, justify="left" if column == "slider" else "right")
    for name, rounds in seconds.items():
        table.add_row(name, *(f"{np.median(taken):.2f} ({max(taken):.2f})" for taken in rounds))
    console.print(table)
    again = np.array([value for rounds in seconds.values() for value in rounds[1]])
    console.print(f"{np.mean(again <= ASKED):.0%} of {len(again)} moves within {ASKED} s")
    verdict(f"{ASKED} s / a move", ASKED / again, 1)


if __name__ == "__main__":
    with reported("explorer"):
        main()
