"""Timelines: what each worker does at which time, one lane per worker; and the tasks of a log."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from dmlcore import checks
from dmlcore.reading import TaskLog
from dmlcore.trace import Trace, metrics, starts
from dmlcore.view.plot.style import HATCHES, PHASE_COLORS, axes, palette, styled, without_axis

MOST_LANES = 48  # more lanes cannot be distinguished
MOST_LABELS = 16


@styled
def timeline(
    trace: Trace | Mapping[str, Trace],
    start: float | None = None,
    end: float | None = None,
    ax: Axes | None = None,
    *,
    lanes: int = MOST_LANES,
) -> Any:
    """Draws what each worker did, and when the server made updates.

    Args:
        trace: a trace; or several by name, which are stacked in a new figure with one time axis.
        start: start of the window in seconds. Default: None, 0.
        end: end of the window in seconds, `math.inf` for the whole run. Default: None, after about a dozen
            clocks.
        ax: the Axes to draw one trace on. Default: None, a new figure.
        lanes: the largest number of workers to draw; of more workers, evenly spaced ones are drawn.

    Returns:
        The Axes, or an array of them for several traces.

    Raises:
        ValueError: the window is empty, or `ax` is given with several traces.

    >>> import dmlcore as dml
    >>> ax = timeline(dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=10), end=8)
    >>> ax.get_xlabel()
    'time (s)'
    """
    several = isinstance(trace, Mapping)
    traces = dict(trace) if isinstance(trace, Mapping) else {"": trace}
    if not traces or (several and ax is not None):
        checks.fail("trace", list(traces), "one trace with ax=, or at least one trace by name without ax=")
    for each in traces.values():
        if not hasattr(each, "tasks"):
            checks.fail("trace", each, "a trace, such as run.trace, or a mapping of names to traces")
    left = checks.real("start", 0.0 if start is None else start, low=0)
    default = min(default_end(each, left) for each in traces.values())
    right = default if end is None else checks.real("end", end, above=left)
    right = checks.real("end", min(right, max(each.end_time for each in traces.values())), above=left)
    drawn = np.array([ax])
    if ax is None:
        rows = [min(each.num_workers, lanes) + 2.5 for each in traces.values()]
        height = 1.2 + 0.32 * min(sum(rows), MOST_LANES)
        size: dict[str, Any] = {"figsize": (11, height), "height_ratios": rows}
        drawn = plt.subplots(len(traces), sharex=True, squeeze=False, **size)[1][:, 0]
    kinds: set[str] = set()
    for axis, (name, each) in zip(drawn, traces.items(), strict=True):
        kinds |= _draw(axis, each, left, right, min(each.num_workers, lanes))
        axis.set(title=name, xlim=(left, right))
    drawn[-1].set_xlabel("time (s)")
    handles = [Patch(label=kind, **_look(kind)) for kind in PHASE_COLORS if kind in kinds]
    place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0.2}
    drawn[0].legend(handles=handles, ncols=len(handles), handlelength=1.2, **place)
    return drawn if several else drawn[0]


def default_end(trace: Trace, start: float) -> float:
    """Returns the time in seconds at which about a dozen clocks after `start` are over."""
    tasks_per_worker = max(len(trace.tasks) / trace.num_workers, 1)
    return start + trace.end_time * 12 / tasks_per_worker


def _draw(ax: Axes, trace: Trace, start: float, end: float, lanes: int) -> set[str]:
    """Draws the phases of the workers and returns the kinds that occurred."""
    workers = np.linspace(0, trace.num_workers - 1, lanes).round().astype(int).tolist()
    cut = _phases(trace, workers, end).query("start < @end and end > @start and worker in @workers")
    for kind, part in cut.groupby("kind"):  # one collection per kind: fewer parts draw faster
        middles = part["worker"].map(workers.index).to_numpy()
        x = part[["start", "start", "end", "end"]].to_numpy()
        y = middles[:, None] + np.array([-0.4, 0.4, 0.4, -0.4])
        ax.add_collection(PolyCollection([*np.stack([x, y], axis=2)], **_look(str(kind))), autolim=False)
    times = trace.updates["time"]
    times = times[times.between(start, end)].drop_duplicates()
    server = lanes + 0.4
    ax.vlines(times, server - 0.4, server + 0.4, color="black", linewidth=1.2)
    labelled = range(0, lanes, -(-lanes // MOST_LABELS))
    ax.set_yticks([*labelled, server], [*(str(workers[lane]) for lane in labelled), "updates"])
    what = "worker" if lanes == trace.num_workers else f"{lanes} of {trace.num_workers} workers"
    ax.set(ylim=(server + 0.7, -0.7), ylabel=what)
    without_axis(ax)
    return set(cut["kind"])


def _phases(trace: Trace, workers: list[int], end: float) -> pd.DataFrame:
    """Returns the phases of some workers until `end`, in a time that does not grow with the trace."""
    tasks = trace.tasks[trace.tasks["worker"].isin(workers)]
    later = starts(tasks) > end
    # The first task of each worker after `end` shows whether the task before it was cancelled.
    following = tasks[later].sort_values("clock").groupby("worker").head(1)
    return metrics.phases(replace(trace, tasks=pd.concat([tasks[~later], following])))


def _look(kind: str) -> dict[str, Any]:
    # A white edge separates successive computations; transfers are too short to have one.
    edge = 0.6 if kind in ("compute", "cancelled") else 0.0
    look = {"facecolor": PHASE_COLORS[kind], "hatch": HATCHES.get(kind), "linewidth": edge}
    return look | {"edgecolor": "white" if edge else "none"}


MOST = 8  # workers that the legend names


@styled
def tasks(log: TaskLog, *, ax: Axes | None = None) -> Axes:
    """Draws the seconds of every task of a log, one colour per worker: slow workers, pauses, first tasks.

    Args:
        log: what `read_tasks` returns.
        ax: the Axes to draw on. Default: None, a new figure.

    Returns:
        The Axes.

    Raises:
        ValueError: `log` is not a `TaskLog`.

    >>> from dmlcore.reading import read_tasks
    >>> tasks(read_tasks({"worker": [0, 1, 0], "seconds": [0.3, 0.5, 0.31]})).get_ylabel()
    'computing (s)'
    """
    checks.check_kind("log", log, TaskLog)
    ax = axes(ax)
    colors = palette(log.names)
    for worker, name in enumerate(log.names):
        rows = log.tasks[log.tasks["worker"] == worker]
        x = rows["compute_start"] if log.timed else np.arange(len(rows))
        label = str(name) if len(log.names) <= MOST else None
        ax.plot(x, rows["seconds"], ".", ms=4, color=colors[name], label=label)
    ax.set(xlabel="start (s)" if log.timed else "number of the task", ylabel="computing (s)")
    ax.set_ylim(bottom=0)
    median = log.tasks.groupby("worker")["seconds"].median()
    ax.set_title(f"{len(log.names)} workers, median task {median.min():.3g} to {median.max():.3g} s")
    if len(log.names) <= MOST:
        ax.legend()
    return ax
