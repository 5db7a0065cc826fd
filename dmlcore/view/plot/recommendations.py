"""Plots of recommendations: times to a target by method, and the best method over two axes."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from dmlcore import checks, tables
from dmlcore.experiments.recommendation.ranking import BEST, level
from dmlcore.view.plot.style import axes, label, palette, styled


@styled
def recommendation(found: Any, *, ax: Axes | None = None) -> Axes:
    """Draws each method's time to the target: a point for each seed, and a line at the median.

    The points of methods that are not clearly slower than the best are filled, those of slower ones hollow.

    Args:
        found: a `Recommendation`, as `dml.recommend` returns it.
        ax: the Axes to draw on. Default: None, a new figure.

    Returns:
        The Axes.

    Raises:
        ValueError: `found` is not a `Recommendation`.

    >>> recommendation(dml.recommend(problem, cluster, {"loss": 0.1}))  # doctest: +SKIP
    """
    for name in ("table", "seconds", "question"):
        if not hasattr(found, name):
            checks.fail("found", found, "what dml.recommend returns")
    table, colors = found.table, palette(found.table.index)
    ax = axes(ax, height=1.4 + 0.34 * len(table))
    for place, (name, row) in enumerate(table.iterrows()):
        times = found.seconds.loc[name].dropna().to_numpy(float)
        seeds = len(times)
        times, color = times[np.isfinite(times)], colors[name]
        inside = color if name in (table.index[0], *level(table)) else "white"
        ax.scatter(times, np.full(len(times), place), s=46, facecolor=inside, edgecolor=color)
        if np.isfinite(row["seconds"]):
            ax.vlines(row["seconds"], place - 0.34, place + 0.34, color=color, linewidth=3)
        if len(times) < seeds:
            text = f"{len(times)} of {seeds} seeds"
            ax.annotate(text, (1, place), (6, 0), xycoords=("axes fraction", "data"), annotation_clip=False,
                        textcoords="offset points", ha="left", va="center", fontsize="small")  # fmt: skip
    ax.set_yticks(range(len(table)), table.index)
    ax.set_ylim(len(table) - 0.4, -0.6)
    if np.isfinite(found.seconds.to_numpy(float)).any():
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    ax.set_xlabel(f"time to {found.question} (s)")
    ax.set_title(_headline(table), fontsize="medium")
    return ax


def _headline(table: pd.DataFrame) -> str:
    first = table.iloc[0]
    if first["verdict"] != BEST:
        return "no method reaches the target on most seeds"
    count, clear = len(level(table)), "clearly " if not level(table) and len(table) > 1 else ""
    others = f";\n{count} other{'s are' if count > 1 else ' is'} level with it" if count else ""
    return f"{table.index[0]} is {clear}first, in {first['seconds']:.3g} s{others}"


@styled
def regimes(frame: pd.DataFrame, x: str, y: str, *, ax: Axes | None = None) -> Axes:
    """Draws the best method over two axes, such as the number of workers and the communication ratio.

    A cell has the colour and the name of the method with the smallest median time. It is hatched if another
    method is not clearly slower.

    Args:
        frame: a frame that `Recommendation.over` returns.
        x: the column along the horizontal axis.
        y: the column along the vertical axis.
        ax: the Axes to draw on. Default: None, a new figure.

    Returns:
        The Axes.

    Raises:
        ValueError: a column is missing, or a cell has two rows.

    >>> frame = pd.DataFrame({"workers": [4, 8], "c": [1.0, 1.0], "method": ["BSP", "ASP"],
    ...                       "seconds": [2.0, 1.0], "uncertain": [False, True], "tuned": True})
    >>> regimes(frame, "workers", "c").get_xlabel()
    'workers'
    """
    tables.check_frame(
        "frame", frame, dict.fromkeys(("method", "uncertain", "seconds", "tuned"), "of a plan")
    )
    for argument, column in (("x", x), ("y", y)):
        tables.check_column(argument, column, frame)
    if frame.duplicated([x, y]).any():
        pair = frame.loc[frame.duplicated([x, y]), [x, y]].iloc[0].tolist()
        checks.reject("frame", f"several for {pair}", f"one row for each pair of {x} and {y}")
    xs, ys = sorted(frame[x].unique()), sorted(frame[y].unique())
    names = [*dict.fromkeys(frame["method"])]
    colors = palette(names)
    if ax is None:
        ax = plt.subplots(figsize=(max(6.4, 2.2 + 1.7 * len(xs)), 2.2 + 0.9 * len(ys)))[1]
    for row in frame.to_dict("records"):
        left, low = xs.index(row[x]), ys.index(row[y])
        look: dict[str, Any] = {"facecolor": colors[row["method"]], "edgecolor": "white", "linewidth": 2}
        hatch = "//" if row["uncertain"] else None
        ax.add_patch(Rectangle((left - 0.5, low - 0.5), 1, 1, alpha=0.85, hatch=hatch, **look))
        text = row["method"].replace(" ", "\n") if np.isfinite(row["seconds"]) else "not reached"
        ax.text(left, low, text, ha="center", va="center", fontsize="small", color="black",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 2})  # fmt: skip
    ax.set_xticks(range(len(xs)), [f"{value:g}" for value in xs])
    ax.set_yticks(range(len(ys)), [f"{value:g}" for value in ys])
    ax.set(xlim=(-0.5, len(xs) - 0.5), ylim=(-0.5, len(ys) - 0.5))
    ax.set_xlabel(AXES.get(x, label(x)))
    ax.set_ylabel(AXES.get(y, label(y)))
    count, open_cells = len(names), int(frame["uncertain"].sum())
    least = f"{count} methods have the least median" if count > 1 else f"{names[0]} has the least median"
    told = [f"{least} somewhere" if count > 1 else f"{least} everywhere"]
    if open_cells:
        told.append(f"hatched, {open_cells} of {len(frame)}: others are level with it")
    if not frame["tuned"].all():
        told.append("tuned for one cluster, not in each cell")
    ax.set_title("\n".join(told), fontsize="medium")
    return ax


AXES = {
    "workers": "workers",
    "c": "communication ratio c",
    "rho": "server load ρ",
    "slowdown": "slow episodes, times slower",
}
