"""Learning curves of methods, and quantities as functions of a parameter: medians and ranges over seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from dmlcore import checks, tables
from dmlcore.view.plot.style import axes, dashes, label, log_axis, markers, palette, styled

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
