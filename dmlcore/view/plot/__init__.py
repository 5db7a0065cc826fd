"""Pictures of runs. Every function takes an optional `ax` and returns the Axes it drew on, as in seaborn.

A method keeps its colour in all figures (`palette`), the text is large enough to be projected, and `save`
writes the same bytes for the same picture.
"""

from dmlcore.view.plot.bars import staleness, time_breakdown
from dmlcore.view.plot.curves import loss_curves
from dmlcore.view.plot.style import METHOD_COLORS, PHASE_COLORS, STYLE, palette, save
from dmlcore.view.plot.sweeps import sweep
from dmlcore.view.plot.timelines import timeline

__all__ = [
    "METHOD_COLORS",
    "PHASE_COLORS",
    "STYLE",
    "loss_curves",
    "palette",
    "save",
    "staleness",
    "sweep",
    "time_breakdown",
    "timeline",
]
