"""Plot of the tasks of a log."""

import numpy as np
from matplotlib.axes import Axes

from dmlcore import checks
from dmlcore.reading import TaskLog
from dmlcore.view.plot.style import axes, palette, styled

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
