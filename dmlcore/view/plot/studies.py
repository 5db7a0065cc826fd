"""Plots of studies: how methods compare on one cluster, on several, and over two axes of clusters."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle

from dmlcore import checks, tables
from dmlcore.trace.metrics.decision import LEVEL
from dmlcore.view.plot.style import AXES, axes, label, log_axis, palette, styled

MOST = 4.0  # largest ratio that a map tells apart


@styled
def study(found: Any, *, ax: Axes | None = None) -> Axes:
    """Draws how long each method takes compared with the best one; of several clusters, a map.

    On one cluster, a point for the median ratio of each method, seed by seed, and a line for its interval, by
    `metrics.decide`. Filled points are not known to be slower; the band is within 5% of the best. On several,
    a cell for each method and cluster, hatched where the method is not known to be slower than the best.

    Args:
        found: a `Study`, as `dml.study` returns it.
        ax: the Axes to draw on. Default: None, a new figure.

    Returns:
        The Axes.

    Raises:
        ValueError: `found` is not a `Study`.

    >>> study(dml.study(methods, problem, cluster, {"loss": 0.1}))  # doctest: +SKIP
    """
    if not hasattr(found, "answers"):
        checks.fail("found", found, "what dml.study returns")
    return _map(found, ax) if found.several else _ratios(found, ax)


def _lanes(table: pd.DataFrame, ax: Axes | None) -> Axes:
    """Returns Axes with a lane for each method and a title that says how they compare."""
    ax = axes(ax, height=1.4 + 0.34 * len(table))
    ax.set_yticks(range(len(table)), table.index)
    ax.set(ylim=(len(table) - 0.4, -0.6))
    ax.set_title(_headline(table), fontsize="medium")
    return ax


def _methods(table: pd.DataFrame) -> Iterator[tuple[int, pd.Series, dict[str, Any]]]:
    """Yields the lane and the row of each method, and the look of its points: hollow if it is slower."""
    colors = palette(table.index)
    for place, (name, row) in enumerate(table.iterrows()):
        hollow = row["outcome"] in ("slower", "not reached")
        yield place, row, {"facecolor": "white" if hollow else colors[name], "edgecolor": colors[name]}


def _ratios(found: Any, ax: Axes | None) -> Axes:
    table = found.table
    reached = table[np.isfinite(table["ratio"])]
    ends = reached["ratio_high"].where(np.isfinite(reached["ratio_high"]), reached["ratio"])
    right = max(1.25, float(ends.max()) * 1.1)
    ax = _lanes(table, ax)
    ax.axvspan(1 / (1 + LEVEL), 1 + LEVEL, color="0.9", zorder=0)
    for place, row, look in _methods(table):
        if not np.isfinite(row["ratio"]):
            ax.text(right, place, "not reached ", ha="right", va="center", fontsize="small")
            continue
        color = look["edgecolor"]
        ax.hlines(place, max(row["ratio_low"], 0.01), min(row["ratio_high"], right), color=color, linewidth=3)
        if row["ratio_high"] > right:
            ax.plot(right, place, marker=">", color=color, clip_on=False)
        ax.scatter(row["ratio"], place, s=60, linewidth=2, zorder=3, **look)
    ax.set_xscale("log")
    ax.set_xlim(right=right)
    low, _ = ax.get_xlim()
    marks = [mark for mark in (0.25, 0.5, 0.7, 0.85, 1, 1.2, 1.5, 2, 3, 4, 5) if low <= mark <= right]
    ax.set_xticks(marks, [f"{mark:g}" for mark in marks])
    ax.minorticks_off()
    ax.set_xlabel(f"time to {next(iter(found.answers.values())).goal}, times that of {table.index[0]}")
    return ax


def _map(found: Any, ax: Axes | None) -> Axes:
    ratios, outcomes = (
        found.table[name].unstack("cluster")[[*found.answers]] for name in ("ratio", "outcome")
    )
    order = ratios.clip(upper=MOST).mean(axis=1).sort_values().index
    ratios, outcomes = ratios.loc[order], outcomes.loc[order]
    texts = ratios.map(lambda ratio: f"{ratio:.2f}" if np.isfinite(ratio) else f"> {MOST:g}")
    texts = texts.mask(outcomes == "best", "best")
    ax = axes(ax, max(6.4, 2.6 + 1.3 * ratios.shape[1]), 2 + 0.45 * len(ratios))
    look: dict[str, Any] = {"cmap": "cividis_r", "norm": LogNorm(1, MOST), "annot": texts, "fmt": ""}
    sns.heatmap(ratios.clip(1, MOST), ax=ax, cbar_kws={"label": "times the best there"}, **look)
    bar: Any = ax.collections[0].colorbar
    bar.set_ticks([1, 1.5, 2, 3, MOST], labels=["1", "1.5", "2", "3", f"{MOST:g} or more"])
    bar.minorticks_off()
    close = np.argwhere(outcomes.isin(["level", "undecided"]).to_numpy())
    for row, column in close:
        ax.add_patch(Rectangle((column, row), 1, 1, fill=False, hatch="//", edgecolor="0.5", linewidth=0))
    first = (outcomes == "best").sum(axis=1).sort_values(ascending=False, kind="stable")
    told = f"{first.index[0]} is first on {first.iloc[0]} of {ratios.shape[1]} clusters"
    told += ";\nhatched: not known to be slower than the best" if len(close) else ""
    ax.set(xlabel=None, ylabel=None)
    ax.tick_params(axis="y", rotation=0)
    ax.set_title(told, fontsize="medium")
    return ax


@styled
def recommendation(found: Any, *, ax: Axes | None = None) -> Axes:
    """Draws each method's time to the target: a point for each seed, and a line at the median.

    The points of methods that are not known to be slower than the best are filled, those of others hollow.

    Args:
        found: a `Recommendation`, as `dml.recommend` returns it.
        ax: the Axes to draw on. Default: None, a new figure.

    Returns:
        The Axes.

    Raises:
        ValueError: `found` is not a `Recommendation`.

    >>> recommendation(dml.recommend(problem, cluster, {"loss": 0.1}))  # doctest: +SKIP
    """
    if not hasattr(found, "answer"):
        checks.fail("found", found, "what dml.recommend returns")
    table, seconds = found.table, found.answer.seconds
    ax = _lanes(table, ax)
    for place, row, look in _methods(table):
        times = seconds.loc[row.name].dropna().to_numpy(float)
        seeds = len(times)
        times = times[np.isfinite(times)]
        ax.scatter(times, np.full(len(times), place), s=46, **look)
        if np.isfinite(row["seconds"]):
            ax.vlines(row["seconds"], place - 0.34, place + 0.34, color=look["edgecolor"], linewidth=3)
        if len(times) < seeds:
            text = f"{len(times)} of {seeds} seeds"
            ax.annotate(text, (1, place), (6, 0), xycoords=("axes fraction", "data"), annotation_clip=False,
                        textcoords="offset points", ha="left", va="center", fontsize="small")  # fmt: skip
    if np.isfinite(seconds.to_numpy(float)).any():
        log_axis(ax, "x")
    ax.set_xlabel(f"time to {found.answer.goal} (s)")
    return ax


def _headline(table: pd.DataFrame) -> str:
    if not np.isfinite(table["seconds"].iloc[0]):
        return "no method reaches the target on most seeds"
    told = f"{table.index[0]} is first, in {table['seconds'].iloc[0]:.3g} s"
    counts = table["outcome"].value_counts()
    known = [
        f"{counts[word]} {word}" for word in ("level", "undecided", "slower", "not reached") if word in counts
    ]
    return f"{told};\nothers: {', '.join(known)}" if known else told


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
    names = [*dict.fromkeys(frame["method"][frame["method"] != "none"])]
    colors = palette(names) | {"none": "white"}
    ax = axes(ax, max(6.4, 2.2 + 1.7 * len(xs)), 2.2 + 0.9 * len(ys))
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
    everywhere = f"{names[0] if names else 'no method'} has the least median everywhere"
    told = [f"{count} methods have the least median somewhere" if count > 1 else everywhere]
    if open_cells:
        told.append(f"hatched, {open_cells} of {len(frame)}: others are level with it")
    if not frame["tuned"].all():
        told.append("tuned for one cluster, not in each cell")
    ax.set_title("\n".join(told), fontsize="medium")
    return ax
