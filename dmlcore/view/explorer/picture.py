"""The explorer's picture of a run: the timeline of its start, and its loss."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from dmlcore.trace import metrics
from dmlcore.view.plot import loss_curves, timeline
from dmlcore.view.plot.curves import DIVERGED
from dmlcore.view.plot.style import styled

if TYPE_CHECKING:
    from dmlcore.experiments.runs import Run

SIZE = (10.0, 6.4)  # inches
SHOWN = 1 / 8  # of the run, in the timeline


def summary(run: Run) -> str:
    """Returns the run in numbers.

    >>> from dmlcore.view.explorer import Settings
    >>> from dmlcore.problems import digits_mlp
    >>> summary(Settings(policy="BSP", jitter=0, slow_tasks=0).run(digits_mlp()))
    '58 updates in 4 s; workers compute 53% of the time; mean staleness 0 updates; loss ...'
    """
    trace, last = run.trace, run.history.iloc[-1]
    computing = metrics.time_breakdown(trace)["compute_share"].mean()
    late = metrics.staleness(trace).mean() if len(trace.updates) else 0.0
    speed = f"{len(trace.updates)} updates in {trace.end_time:g} s"
    work = f"workers compute {computing:.0%} of the time; mean staleness {late:.3g} updates"
    return f"{speed}; {work}; loss {last['loss']:.3g}"


@styled
def draw(run: Run, before: Run | None = None) -> Figure:
    """Draws the timeline of the first eighth of a run, and its loss; that of the run before in grey.

    >>> from dmlcore.view.explorer import Settings
    >>> from dmlcore.problems import digits_mlp
    >>> [ax.get_xlabel() for ax in draw(Settings(policy="BSP").run(digits_mlp())).axes]
    ['time (s)', 'time (s)']
    """
    # The margins are fixed: to fit them to the text takes as long as all the rest, and pictures would jump.
    figure = Figure(figsize=SIZE)
    figure.set_layout_engine("none")
    margins = {"left": 0.13, "right": 0.98, "bottom": 0.1, "top": 0.93, "hspace": 0.4}
    lanes, curves = figure.subplots(2, 1, height_ratios=[3, 2], gridspec_kw=margins)
    end = run.trace.end_time
    timeline(run.trace, end=end * SHOWN, ax=lanes)
    lanes.set_title(run.trace.metadata["policy"])
    loss_curves(run.history.assign(method=run.trace.metadata["policy"]), logy=True, ax=curves)
    diverged = len(curves.lines) > 1  # then there is a thin line besides
    curves.lines[0].set_label("now (diverged)" if diverged else "now")
    if before is not None:
        old = before.history
        old = old[old["loss"] <= DIVERGED * old["loss"].iloc[0]]  # more would flatten the other
        curves.plot(old["time"], old["loss"], color="0.6", linewidth=1.5, zorder=1, label="before")
    curves.legend()
    curves.set_xlim(0, end)
    return figure


@styled
def svg(figure: Figure) -> bytes:
    """Returns a figure as the bytes of an SVG file: sharp at any size, and faster to make than a PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
