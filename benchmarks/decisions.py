"""How often the rule of `metrics.decide` is wrong, and how many seeds a true difference takes.

.venv/bin/python benchmarks/decisions.py
.venv/bin/python benchmarks/decisions.py docs/_static/decisions.png    # the picture of the page on studies

Simulated comparisons, each looked at after 8, 16, 32, 64 and 128 seeds until it is decided, as `dml.study`
does. Ratios of times are log-normal with the given coefficient of variation (cv); in the last rows, 5% of the
runs of each method do not reach the target.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timing import console

from dmlcore.trace.metrics.decision import LEVEL, LOOKS, decide
from dmlcore.view.plot import STYLE, palette, save

EQUAL, DIFFERENT = 2000, 400  # comparisons of equal methods, and of different ones
SPREADS = (0.1, 0.2, 0.3, 0.5)
GAPS = (0.05, 0.1, 0.2, 0.5)
MISSED = 0.05  # of the runs of each method


def samples(rng: np.random.Generator, gap: float, spread: float, missed: float) -> np.ndarray:
    """Ratios of 128 seeds, whose median is 1 + gap."""
    found = (1 + gap) * np.exp(np.sqrt(np.log1p(spread**2)) * rng.normal(size=LOOKS[-1]))
    slow, fast = rng.uniform(size=(2, LOOKS[-1])) < missed
    found[slow], found[fast], found[slow & fast] = np.inf, 0.0, np.nan
    return found


def decided(ratios: np.ndarray) -> tuple[str, int]:
    """The outcome of a comparison, and the seeds that it took."""
    for look in LOOKS:
        outcome = decide(ratios[:look]).outcome
        if outcome != "undecided":
            return outcome, look
    return "undecided", LOOKS[-1]


def compared(gap: float, spread: float, missed: float, count: int) -> tuple[Counter[str], float]:
    """How often each outcome was found, and the mean number of seeds."""
    rng = np.random.default_rng([int(1000 * gap), int(1000 * spread), int(1000 * missed)])
    found = [decided(samples(rng, gap, spread, missed)) for _ in range(count)]
    return Counter(outcome for outcome, _ in found), float(np.mean([seeds for _, seeds in found]))


def draw(path: str) -> None:
    """Draws how the intervals of four comparisons shrink with the seeds, until each is decided."""
    figure, axes = plt.subplots(1, 4, figsize=(12, 3.4), sharey=True)
    for ax, (gap, spread, seed) in zip(
        axes, ((0.5, 0.2, 1), (-0.2, 0.3, 3), (0.0, 0.1, 0), (0.04, 0.5, 5)), strict=True
    ):
        ratios = samples(np.random.default_rng(seed), gap, spread, 0.0)
        ax.axhspan(1 - LEVEL, 1 + LEVEL, color="0.9", zorder=0)
        ax.axhline(1, color="0.6", linewidth=1)
        outcome, last = decided(ratios)
        for place, look in enumerate(LOOKS):
            if look > last:
                break
            known = decide(ratios[:look])
            color = palette(["BSP"])["BSP"] if look == last else "0.45"
            ax.vlines(place, known.low, known.high, color=color, linewidth=3)
            ax.plot(place, known.median, "o", color=color)
        ax.set_xticks(range(len(LOOKS)), [f"{look}" for look in LOOKS])
        ax.set_xlim(-0.5, len(LOOKS) - 0.5)
        ax.set_title(f"{outcome}\nafter {last} seeds", fontsize="medium")
        ax.set_xlabel("seeds")
    axes[0].set_yscale("log")
    axes[0].set_yticks([0.5, 0.7, 1, 1.4, 2], ["0.5", "0.7", "1", "1.4", "2"])
    axes[0].minorticks_off()
    axes[0].set_ylabel("time of A / time of B")
    save(figure, path)


def main() -> None:
    table = Table(title="Simulated comparisons, decided by metrics.decide", title_justify="left")
    for name in ("cv of the ratio", "slower by", "faster", "slower", "level", "undecided", "mean seeds"):
        table.add_column(name, justify="right")
    for missed in (0.0, MISSED):
        for spread in SPREADS:
            for gap in (0.0, *GAPS):
                count = DIFFERENT if gap else EQUAL
                outcomes, seeds = compared(gap, spread, missed, count)
                shares = [
                    f"{outcomes[name] / count:.1%}" for name in ("faster", "slower", "level", "undecided")
                ]
                what = f"{spread:.0%}" + (", with misses" if missed else "")
                table.add_row(what, f"{gap:.0%}" if gap else "equal", *shares, f"{seeds:.0f}")
    console.print(table)


if __name__ == "__main__":
    with plt.rc_context(STYLE):
        draw(sys.argv[1]) if len(sys.argv) > 1 else main()
