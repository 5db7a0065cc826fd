"""Pictures on cards: those of `dmlcore.view.plot`, small, as data URIs."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dmlcore.trace import Trace
from dmlcore.view.plot import loss_curves
from dmlcore.view.plot import timeline as plot_timeline
from dmlcore.view.plot.style import PHASE_COLORS, styled
from dmlcore.view.plot.timelines import default_end

LANES = 16  # of a timeline
WIDTH = 8  # inches
DPI = 110  # of screens with small pixels


class Picture(NamedTuple):
    """A picture as part of a page."""

    label: str  # what it shows, for readers who cannot see it, and below it
    source: str  # its content, as a data URI


@styled
def picture(label: str, height: float, draw: Callable[[Axes], object]) -> Picture:
    """Returns what a function draws: the same bytes for the same picture.

    The background is white, so that it is readable in a dark notebook as well. SVG, with a path for each
    task, and PNG take several times as many bytes as WebP without loss.
    """
    figure, content = Figure(figsize=(WIDTH, height)), io.BytesIO()
    draw(figure.subplots())
    figure.savefig(content, format="webp", dpi=DPI, pil_kwargs={"lossless": True})
    return Picture(label, f"data:image/webp;base64,{base64.b64encode(content.getvalue()).decode()}")


def timeline(trace: Trace) -> Picture:
    """Returns what each worker does in about the first dozen clocks of a run; the label says until when."""
    end = min(default_end(trace, 0.0), trace.end_time)
    part = "all" if end >= trace.end_time else f"the first {end:.3g} s"
    label = f"Timeline of the workers: {part} of {trace.end_time:.4g} s"
    height = 1.2 + 0.22 * min(trace.num_workers + 2, LANES)
    return picture(label, height, lambda ax: plot_timeline(trace, end=end, lanes=LANES, ax=ax))


def loss(history: pd.DataFrame) -> Picture:
    """Returns the training loss over time."""
    first, last = history["loss"].iloc[[0, -1]]
    label = f"Training loss over time: {first:.3g} at the start, {last:.3g} at the end"
    return picture(label, 2.2, lambda ax: loss_curves(history, ax=ax))


def bars(values: Sequence[float], name: str) -> Picture:
    """Returns one bar for each worker."""

    def draw(ax: Axes) -> None:
        width = min(max(50 * WIDTH / len(values), 0.5), 24)  # points
        ax.vlines(range(len(values)), 0, values, color=PHASE_COLORS["compute"], linewidth=width)
        ax.set(xlabel="worker", ylabel=name, xlim=(-0.7, len(values) - 0.3), ylim=(0, 1.05 * max(values)))
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))

    least, most = min(values), max(values)
    label = f"{name[0].upper()}{name[1:]} of each worker, " + (
        f"{least:.4g} all" if math.isclose(least, most) else f"{least:.4g} to {most:.4g}"
    )
    return picture(label, 1.9, draw)
