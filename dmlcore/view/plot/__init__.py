"""Plots of runs. Every function takes an optional `ax` and returns the Axes that it drew on, as in seaborn.

A method has the same colour in all figures (`palette`), the text is large enough for a projector, and `save`
writes the same bytes for the same picture.
"""

from dmlcore.view.plot.bars import staleness as staleness
from dmlcore.view.plot.bars import time_breakdown as time_breakdown
from dmlcore.view.plot.curves import loss_curves as loss_curves
from dmlcore.view.plot.studies import recommendation as recommendation
from dmlcore.view.plot.studies import regimes as regimes
from dmlcore.view.plot.studies import study as study
from dmlcore.view.plot.style import METHOD_COLORS as METHOD_COLORS
from dmlcore.view.plot.style import PHASE_COLORS as PHASE_COLORS
from dmlcore.view.plot.style import STYLE as STYLE
from dmlcore.view.plot.style import palette as palette
from dmlcore.view.plot.style import save as save
from dmlcore.view.plot.sweeps import sweep as sweep
from dmlcore.view.plot.timelines import timeline as timeline
