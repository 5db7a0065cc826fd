"""Plots of how workers spend their time, and of the staleness of their reads: one lane per method."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.container import BarContainer
from matplotlib.ticker import MaxNLocator

from dmlcore import checks
from dmlcore.trace import Trace, metrics
from dmlcore.view.plot.style import HATCHES, PHASE_COLORS, axes, palette, styled, without_axis

Traces = Mapping[str, Trace | Sequence[Trace]]
LINE = 52  # characters of a title that fit in the width of a new figure


def _measured(traces: Traces, measure: Callable[[Trace], Any]) -> dict[str, Any]:
    """Returns by method the measurements of its traces, concatenated."""
    if not isinstance(traces, Mapping) or not traces:
        expected = "a mapping of names to a trace or a list of traces (one per seed), such as {'BSP': trace}"
        checks.fail("traces", traces, expected)
    groups = {name: given if isinstance(given, Sequence) else [given] for name, given in traces.items()}
    return {name: pd.concat([measure(trace) for trace in group]) for name, group in groups.items()}


@styled
def time_breakdown(traces: Traces, *, share: bool = False, ax: Axes | None = None) -> Axes:
    """Draws how long a worker computes, transfers and waits, as one bar per method.

    The number in a bar is the fraction of time that workers spend on useful computing, which was not
    cancelled. The title names the smallest and the largest such fraction; with one method, it also names what
    takes most of the rest. The time that the server needs for a message counts as part of that message:
    reading a push as push, answering a pull as pull, both without the time in queues. While the server makes
    an update, workers wait.

    Args:
        traces: by name of the method, a trace or one trace per seed; bars show the mean over workers and
            seeds.
        share: True: draws per cent of the run. False: draws seconds.
        ax: the Axes to draw on. Default: None, a new figure.

    Returns:
        The Axes.

    Raises:
        ValueError: `traces` is not a dictionary, or is empty.

    >>> import dmlcore as dml
    >>> time_breakdown({"BSP": dml.simulate(dml.bsp(), dml.Cluster.uniform(2), updates=9)}).get_xlabel()
    'mean time of a worker (s)'

    Reference: the figures of computing and waiting time in Ho et al. 2013, section 5.
    """
    measured = _measured(traces, metrics.time_breakdown)
    table = pd.DataFrame({name: found.mean() for name, found in measured.items()}).T
    shown = [kind for kind in metrics.PHASES if table[kind].any()]
    bars = table[[f"{kind}_share" for kind in shown]] * 100 if share else table[shown]
    bars.columns = shown
    ax = axes(ax, height=1.6 + 0.6 * len(bars))
    style: dict[str, Any] = {"color": [PHASE_COLORS[kind] for kind in shown], "width": 0.7}
    bars.plot.barh(stacked=True, ax=ax, edgecolor="white", linewidth=0.8, **style)
    for container, kind in zip(ax.containers, shown, strict=True):
        plt.setp(list(container), hatch=HATCHES.get(kind))
        if kind == "compute" and isinstance(container, BarContainer):
            numbers = [f"{part:.0%}" if part > 0.06 else "" for part in table["compute_share"]]
            ax.bar_label(container, numbers, label_type="center", color="white", fontweight="bold")
    ax.invert_yaxis()
    without_axis(ax)
    ax.set_xlabel("share of a worker's time (%)" if share else "mean time of a worker (s)")
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2}
    columns = len(shown) if len(shown) <= 5 else 3
    legend = ax.legend(ncols=columns, handlelength=1.2, **place)
    height = legend.get_window_extent().height * 72 / ax.figure.dpi  # points
    ax.set_title(_where_time_goes(table), fontsize="medium", pad=height + 8)
    return ax


def _where_time_goes(table: pd.DataFrame) -> str:
    """Returns a title of one or two lines for the mean shares of time, given by method."""
    useful = {str(name): float(share) for name, share in table["compute_share"].items()}
    most, least = max(useful, key=useful.__getitem__), min(useful, key=useful.__getitem__)
    high, low = f"{useful[most]:.0%}", f"{useful[least]:.0%}"
    if len(table) == 1:
        rest = table[[f"{kind}_share" for kind in metrics.PHASES[1:]]].iloc[0]
        kind = str(rest.idxmax()).removesuffix("_share")
        parts = [f"{most}: {high} of the time is useful computing", f"{rest.max():.0%} {kind}"]
    elif high == low:
        parts = [f"Useful computing: {high} of the time with every method"]
    else:
        parts = [f"Useful computing: {low} of the time with {least}", f"{high} with {most}"]
    line = ", ".join(parts)
    return line if len(line) <= LINE else ",\n".join(parts)


@styled
def staleness(traces: Traces, *, unit: str = "versions", tasks: int = 20_000, ax: Axes | None = None) -> Axes:
    """Draws a histogram of each method's staleness, scaled to its own peak, up to the 99th percentile.

    Args:
        traces: by name of the method, a trace or one trace per seed.
        unit: "versions", the number of updates between a task's read and its own update; or "clocks", the
            clock differential, the newest clock seen of another worker minus the reader's own.
        tasks: for "clocks", the largest number of tasks to use from each trace.
        ax: the Axes to draw on. Default: None, a new figure.

    Returns:
        The Axes.

    Raises:
        ValueError: `traces` is not a dictionary or is empty, or there is no such unit.

    >>> import dmlcore as dml
    >>> staleness({"ASP": dml.simulate(dml.asp(), dml.Cluster.uniform(4), updates=99)}).get_xlabel()
    'staleness (versions)'

    Reference: Dai et al. 2015, figure 1 (left), for clocks.
    """
    clocks = "newest clock seen minus own clock (clocks)"
    units = {
        "versions": ("staleness (versions)", "tasks", lambda trace: metrics.staleness(trace).value_counts()),
        "clocks": (clocks, "reads", lambda trace: metrics.clock_staleness(trace, tasks)),
    }
    xlabel, what, count = checks.choice("unit", unit, units)
    measured = _measured(traces, count)
    colors = palette(measured)
    ax = axes(ax, height=1.4 + 0.9 * len(measured))
    low, high = 0.0, 0.0
    for lane, (name, found) in enumerate(measured.items()):
        counts = found.groupby(level=0).sum()
        value, share = counts.index.to_numpy(), counts.to_numpy() / counts.sum()
        # Each lane is scaled to its own peak: a method with one value of staleness would flatten the others.
        ax.bar(value, -0.85 * share / share.max(), 1.0, bottom=lane + 0.45, color=colors[name])
        note = f"mean {value @ share:.2g}\n{value[0]} to {value[-1]}"
        ax.text(1.01, lane, note, transform=ax.get_yaxis_transform(), va="center", fontsize="small")
        low, high = min(low, value[0]), max(high, value[np.searchsorted(share.cumsum(), 0.99)])
        ax.axhline(lane + 0.45, color="black", linewidth=0.8)
    margin = 0.02 * (high - low + 1)
    ax.set(xlim=(low - 0.5 - margin, high + 0.5 + margin), ylim=(len(measured) - 0.45, -0.55))
    ax.set(xlabel=xlabel, ylabel=f"share of {what}\n(each to its peak)")
    ax.set_yticks(range(len(measured)), list(measured))
    without_axis(ax)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    return ax
