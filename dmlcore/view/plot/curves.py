"""Learning curves of methods: a median line and a band over seeds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from dmlcore import checks, tables
from dmlcore.view.plot.style import axes, dashes, label, log_axis, palette, styled

BANDS = {"range": (0.0, 1.0), "interquartile": (0.25, 0.75)}
DIVERGED = 10.0  # a run has diverged if its last value exceeds the worst first value by this factor
POINTS = 400


@styled
def loss_curves(
    runs: pd.DataFrame,
    x: str = "time",
    y: str = "loss",
    *,
    hue: str = "method",
    order: list[str] | None = None,
    band: str = "range",
    logx: bool = False,
    logy: bool = False,
    target: float | None = None,
    colors: Mapping[Any, str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws a quantity against time, updates or samples: the median over seeds, and a band around it.

    The curves of a method's seeds are interpolated to a common grid that ends where the median seed ended; a
    seed that ended earlier keeps its last value. A seed has diverged if its last value is not finite, or more
    than ten times the worst first value. A diverged seed is drawn as a separate thin line, is not part of the
    median and the band, and is counted in the legend.

    Args:
        runs: the frame that `compare` returns, or the history of one run. From the frame of a grid of
            learning rates, `metrics.fair` selects a rate for each method.
        x: column of the horizontal axis: "time" (seconds), "update" or "samples".
        y: column of the vertical axis.
        hue: column with one colour per value.
        order: values of `hue` to draw, in this order. Default: None, all in the order of the frame.
        band: "range", from the smallest to the largest seed, or "interquartile".
        logx: whether the horizontal axis is logarithmic.
        logy: whether the vertical axis is logarithmic.
        target: a level to mark, such as the loss of `metrics.time_to`. Default: None, no mark.
        colors: colours of some values of `hue`, instead of those of `palette`. Default: None.
        ax: the Axes to draw on. Default: None, a new figure.

    Returns:
        The Axes.

    Raises:
        ValueError: the frame lacks a column, a curve would have several learning rates or methods, or an
            argument is not one of those listed.

    >>> history = pd.DataFrame({"time": [0.0, 1.0, 2.0], "loss": [2.0, 1.0, 0.5]})
    >>> loss_curves(history, logy=True).get_ylabel()
    'training loss'
    """
    tables.check_frame("runs", runs, expected="a frame, such as dml.compare returns, or run.history")
    quantiles = checks.choice("band", band, BANDS)
    for argument, column in (("x", x), ("y", y)):
        tables.check_column(argument, column, runs)
    runs = runs if hue in runs else runs.assign(**{hue: label(y)})
    names = list(dict.fromkeys(runs[hue])) if order is None else list(order)
    if not set(names) <= set(runs[hue]):
        there = ", ".join(map(str, runs[hue].unique()))
        checks.fail("order", names, f"values of the column {hue!r}: {there}")
    curves = {name: _by_seed(name, runs[runs[hue] == name]) for name in names}
    first = max(float(curve[y].iloc[0]) for group in curves.values() for curve in group)
    ax = axes(ax)
    colors, styles = palette(names) | dict(colors or {}), dashes(names)
    lost: list[tuple[str, pd.DataFrame]] = []
    for name, group in curves.items():
        sound = [curve for curve in group if abs(curve[y].iloc[-1]) <= DIVERGED * abs(first)]
        away = [curve for curve in group if not abs(curve[y].iloc[-1]) <= DIVERGED * abs(first)]
        lost += [(name, curve) for curve in away]
        look: dict[str, Any] = {"color": colors[name], "linestyle": styles[name]}
        look["label"] = f"{name} ({len(away)} of {len(group)} diverged)" if away else name
        if not sound:
            ax.plot([], [], **look)
            continue
        grid, values = _resample(sound, x, y, logx)
        low, middle, high = np.quantile(values, [quantiles[0], 0.5, quantiles[1]], axis=0)
        ax.plot(grid, middle, **look)
        if len(sound) > 1:
            ax.fill_between(grid, low, high, color=colors[name], alpha=0.18, linewidth=0)
    if target is not None:
        ax.axhline(target, color="black", linestyle=(0, (2, 2)), linewidth=1.2, label=f"target {target:.3g}")
    for which in ["x"] * logx + ["y"] * logy:
        log_axis(ax, which)
    if lost:
        # The other curves set the scale, so that a diverged curve leaves the picture at the top.
        bottom, top = ax.get_ylim() if len(lost) < sum(map(len, curves.values())) else (None, 0.0)
        for name, curve in lost:
            ax.plot(curve[x], curve[y], color=colors[name], linewidth=1, alpha=0.7)
        ax.set_ylim(bottom, max(top, 1.5 * first))
    ax.set(xlabel=label(x), ylabel=label(y))
    if len(names) > 1 or lost or target is not None:
        ax.legend()
    return ax


def _by_seed(name: Any, part: pd.DataFrame) -> list[pd.DataFrame]:
    for column in ("method", "learning_rate"):
        if column in part and part[column].nunique(dropna=False) > 1:
            hint = "metrics.fair to pick a learning rate, or hue= to draw a curve for each"
            checks.fail(f"{column} of {name}", part[column].unique().tolist(), "one for each curve", hint)
    return [curve for _, curve in part.groupby("seed")] if "seed" in part else [part]


def _resample(curves: list[pd.DataFrame], x: str, y: str, logx: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns the common grid, and one row of values per curve, shape (curves, grid)."""
    start = max(curve[x].iloc[0] for curve in curves)
    end = float(np.median([curve[x].iloc[-1] for curve in curves]))
    if logx:
        start = max(start, min(curve.loc[curve[x] > 0, x].min() for curve in curves))
    grid = np.geomspace(start, end, POINTS) if logx else np.linspace(start, end, POINTS)
    return grid, np.array([np.interp(grid, curve[x], curve[y]) for curve in curves])
