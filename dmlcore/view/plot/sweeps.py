"""Plots of a quantity as a function of a parameter."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from dmlcore import checks, tables
from dmlcore.view.plot.style import dashes, label, log_axis, markers, palette, styled


@styled
def sweep(
    data: pd.DataFrame,
    x: str,
    y: str | Sequence[str],
    *,
    hue: str | None = None,
    logy: bool = False,
    ax: Axes | None = None,
) -> Any:
    """Draws a quantity against a parameter: the median over seeds, with bars over the range of the seeds.

    A triangle at the top stands for a median of infinity, and a small triangle ends a bar that reaches
    infinity.

    Args:
        data: a frame with one row per run.
        x: column of the parameter. Its values are spaced evenly and may include infinity. Values that are
            names keep the order of the frame, without lines between them.
        y: column of the quantity; a list of columns makes one panel for each, side by side.
        hue: column with one colour per value. Default: None, one colour.
        logy: whether the vertical axis is logarithmic.
        ax: the Axes to draw one quantity on. Default: None, a new figure.

    Returns:
        The Axes, or an array of them for several quantities.

    Raises:
        ValueError: the frame lacks a column, a quantity is NaN or -inf, or `ax` is given with several
            quantities.

    >>> data = pd.DataFrame({"staleness": [0, 0, 1, 1], "clocks_per_second": [1.0, 1.1, 1.6, 1.5]})
    >>> sweep(data, x="staleness", y="clocks_per_second").get_ylabel()
    'clocks per second and worker'
    """
    several = not isinstance(y, str)
    names = list(y) if several else [str(y)]
    tables.check_frame("data", data)
    for argument, column in [("x", x), *(("y", name) for name in names), *([("hue", hue)] if hue else [])]:
        tables.check_column(argument, column, data)
    if several and ax is not None:
        checks.fail("ax", ax, "None (y names several quantities)")
    drawn = np.array([ax])
    if ax is None:
        drawn = plt.subplots(1, len(names), figsize=(6.5 * len(names) + 1, 4.5), squeeze=False)[1][0]
    for axis, name in zip(drawn, names, strict=True):
        _panel(axis, data, x, name, hue, logy)
    return drawn if several else drawn[0]


def _panel(ax: Axes, data: pd.DataFrame, x: str, y: str, hue: str | None, logy: bool) -> None:
    values = data[x].unique().tolist()
    named = any(isinstance(value, str) for value in values)
    values = values if named else sorted(values)
    ticks = [str(value) if named else "∞" if value == np.inf else f"{value:g}" for value in values]
    groups = {label(y): data} if hue is None else dict(list(data.groupby(hue, sort=False)))
    colors, styles, shapes = palette(groups), dashes(groups), markers(groups)
    if not (data[y] > -np.inf).all():
        checks.fail("samples", data[y].tolist(), "one or more numbers > -inf, without NaN")
    found = {name: part.groupby(x)[y].agg(["median", "min", "max"]) for name, part in groups.items()}
    every = pd.concat(found.values()).to_numpy()
    # Infinite values are drawn above all finite ones: a target that was never reached.
    ceiling = 1.15 * every[np.isfinite(every)].max() if np.isfinite(every).any() else 1.15
    unreached: set[int] = set()
    for i, (name, part) in enumerate(found.items()):
        at = np.array([values.index(value) for value in part.index]) + 0.08 * (i - (len(found) - 1) / 2)
        numbers = part.to_numpy(float).T
        never, endless = np.isinf(numbers[0]), np.isinf(numbers[2])
        median, low, high = np.minimum(numbers, ceiling)
        color, line = colors[name], "none" if named else styles[name]
        look: dict[str, Any] = {"color": color, "linestyle": line, "marker": shapes[name], "label": name}
        bars = np.abs([median - low, high - median])[:, ~never]
        ax.errorbar(at[~never], median[~never], bars, capsize=4, elinewidth=1.5, **look)
        for which, size in ((never, 9), (endless & ~never, 6)):
            ax.plot(at[which], high[which], "^", color=color, markerfacecolor="white", markersize=size)
        unreached |= {values.index(value) for value in part.index[never]}
    for tick in unreached:
        ax.annotate("never", (tick, ceiling), (0, 8), textcoords="offset points", ha="center")
    if logy:
        log_axis(ax, "y")
    ax.set_xticks(range(len(values)), ticks)
    ax.set(xlim=(-0.4, len(values) - 0.6), xlabel=label(x), ylabel=label(y))
    if hue is not None:
        ax.legend(title=None if hue == "method" else label(hue))
