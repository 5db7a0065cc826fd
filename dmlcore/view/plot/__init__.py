"""Plots of runs. Every function takes an optional `ax` and returns the Axes that it drew on, as in seaborn.

A method has the same colour in all figures (`palette`), the text is large enough for a projector, and `save`
writes the same bytes for the same picture.
"""

from dmlcore.view.plot.bars import staleness, time_breakdown
from dmlcore.view.plot.curves import loss_curves, sweep
from dmlcore.view.plot.studies import recommendation, regimes, study
from dmlcore.view.plot.style import METHOD_COLORS, PHASE_COLORS, STYLE, palette, save
from dmlcore.view.plot.timelines import tasks, timeline
