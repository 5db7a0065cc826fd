"""`explore`: settings of a cluster and a policy, and a picture of their run.

The picture is an SVG file with a light and a dark look. A browser shows the dark one where the `color-scheme`
of the image is dark, and `STYLE` sets that by the theme of JupyterLab or VS Code. Both looks have a
background of their own, so that a page which sets no scheme shows a readable picture, too.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from dmlcore.checks import check_kind
from dmlcore.experiments.runs import Run
from dmlcore.problems import digits_mlp
from dmlcore.problems.problem import Problem
from dmlcore.trace import metrics
from dmlcore.trace.metrics.times import busiest_part
from dmlcore.view.explorer.settings import Settings
from dmlcore.view.plot import loss_curves, timeline
from dmlcore.view.plot.curves import DIVERGED
from dmlcore.view.plot.style import styled

if TYPE_CHECKING:
    from dmlcore.view.explorer.panel import Panel


PAGE = "#111111"  # that of JupyterLab's dark theme
INK = "#e0e0e0"

# Only black, white and greys change: the other colours are readable on both pages, and mean what they mean.
DARK: Mapping[str, str] = {
    "#ffffff": PAGE,  # background, and the edge between two computations
    "#000000": INK,  # updates of the server
    "#262626": INK,  # text and axes
    "#dddddd": "#3d3d3d",  # waiting
}
CLASS = "dml-picture"
THEMES = ('[data-jp-theme-light="false"]', ".vscode-dark", ".vscode-high-contrast", '[data-theme="dark"]')
_dark = ", ".join(f"body{theme} .{CLASS}" for theme in THEMES)
STYLE = f"<style>.{CLASS} {{color-scheme: light}} {_dark} {{color-scheme: dark}}</style>"


def with_dark_look(svg: bytes) -> bytes:
    """Returns an SVG file of matplotlib that has a dark look besides its own.

    >>> both = with_dark_look(b'<svg><path style="stroke: #000000"/></svg>')
    >>> both.startswith(b'<svg><path style="stroke: #000000"/><style>@media (prefers-color-scheme: dark)')
    True
    """
    # Matplotlib writes colours into the style of each element, above which stands only what is important.
    rules = "".join(
        f'[style*="{part}: {color}"] {{{part}: {other} !important}} '
        for color, other in DARK.items()
        for part in ("fill", "stroke")
    )
    before, end, after = svg.rpartition(b"</svg>")
    style = f"<style>@media (prefers-color-scheme: dark) {{ {rules}}}</style>"
    return before + style.encode() + end + after


def summary(run: Run) -> str:
    """Returns the main numbers of a run as text."""
    trace, last = run.trace, run.history.iloc[-1]
    computing = metrics.time_breakdown(trace)["compute_share"].mean()
    late = metrics.staleness(trace).mean() if len(trace.updates) else 0.0
    speed = f"{len(trace.updates)} updates in {trace.end_time:g} s"
    work = f"workers compute {computing:.0%} of the time; mean staleness {late:.3g} updates"
    busy = ""
    if "utilisation" in last:
        busy = f"; the {busiest_part(last)} of the server is busy {last['utilisation']:.0%} of the time"
    return f"{speed}; {work}{busy}; loss {last['loss']:.3g}"


@styled
def draw(run: Run, before: Run | None = None) -> Figure:
    """Draws the timeline of the first eighth of a run, and its loss; the loss of the run before is grey."""
    # The margins are fixed. To fit them to the text would double the drawing time and move the axes.
    layout: Any = "none"  # the type hints of matplotlib lack this value
    figure = Figure(figsize=(10, 6.4), layout=layout)
    margins = {"left": 0.13, "right": 0.98, "bottom": 0.1, "top": 0.93, "hspace": 0.4}
    lanes, curves = figure.subplots(2, 1, height_ratios=[3, 2], gridspec_kw=margins)
    end = run.trace.end_time
    timeline(run.trace, end=end / 8, ax=lanes)
    lanes.set_title(run.trace.metadata["policy"])
    loss_curves(run.history.assign(method=run.trace.metadata["policy"]), logy=True, ax=curves)
    diverged = " (diverged)" * (len(curves.lines) > 1)  # then a thin line shows the diverged run
    curves.lines[0].set_label(f"now{diverged}")
    if before is not None:
        old = before.history
        old = old[old["loss"] <= DIVERGED * old["loss"].iloc[0]]  # larger values would flatten the new curve
        curves.plot(old["time"], old["loss"], color="0.6", linewidth=1.5, zorder=1, label="before")
    curves.legend()
    curves.set_xlim(0, end)
    return figure


@styled
def svg(figure: Figure) -> bytes:
    """Returns a figure as the bytes of an SVG file: sharp at any size, and faster to make than a PNG.

    It has a light and a dark look, see `with_dark_look`.
    """
    buffer = io.BytesIO()
    # After saving, matplotlib sets the layout engine of its settings on a figure that has none.
    with mpl.rc_context({"figure.constrained_layout.use": False}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return with_dark_look(buffer.getvalue())


class Explorer:
    """A run that is trained again whenever its settings change; a notebook shows it with sliders.

    Attributes:
        run: the current run: trace, history and parameters.
        figure: the timeline and the loss of that run, a matplotlib figure.

    Args:
        problem: the problem to train.
        settings: the settings of the first run.

    >>> from dmlcore.problems import linear_regression
    >>> problem = linear_regression(num_samples=20, num_features=3)
    >>> explorer = Explorer(problem, Settings(workers=2, policy="ASP", learning_rate=0.001, seconds=1.0))
    >>> explorer.run.trace.num_workers, len(explorer.figure.axes)
    (2, 2)
    """

    def __init__(self, problem: Problem, settings: Settings):
        self.problem = problem
        self.settings = settings
        self.run = settings.run(problem)
        self.figure = draw(self.run)

    def update(self, **settings: Any) -> Figure:
        """Changes settings and trains again; the sliders move to the new settings.

        Guarantees: a change of staleness, learning rate, jitter, slow episodes, links or server load compiles
        nothing, apart from the limits that `dmlcore.training.loop.compilations` names, and loads under which
        workers finish hardly any task. After an error, the settings and the run are as before.

        Args:
            **settings: the fields of `Settings` to change.

        Returns:
            The new figure, with the loss of the run before in grey.

        Raises:
            ValueError: `Settings` has no such field, or a value is out of its range.

        >>> from dmlcore.problems import linear_regression
        >>> problem = linear_regression(num_samples=20, num_features=3)
        >>> explorer = Explorer(problem, Settings(workers=2, policy="ASP", learning_rate=0.001, seconds=1.0))
        >>> explorer.update(learning_rate=0.002) is explorer.figure
        True
        """
        changed = self.settings.changed(settings)
        if changed != self.settings:
            run = changed.run(self.problem)
            self.figure = draw(run, before=self.run)
            self.settings, self.run = changed, run
            if "panel" in vars(self):
                self.panel.follow()
        return self.figure

    @cached_property
    def panel(self) -> Panel:
        """The sliders and the picture, made at the first access."""
        from dmlcore.view.explorer.panel import Panel  # imported here because only notebooks need ipywidgets

        return Panel(self)

    def _repr_mimebundle_(self, **options: Any) -> Mapping[str, Any] | None:
        return self.panel.box._repr_mimebundle_(**options)

    def __repr__(self) -> str:
        return f"Explorer({self.problem.name}, {self.settings})"


def explore(problem: Problem | None = None, **settings: Any) -> Explorer:
    """Opens an explorer: sliders for the cluster and the policy, with the timeline and the loss of the run.

    Each move of a slider trains again, for a few seconds of virtual time. A notebook shows the explorer if it
    is the last line of a cell. Without a notebook, `update` changes the settings and `figure` is the picture.

    Args:
        problem: the problem to train. Default: `digits_mlp()`.
        **settings: initial values of fields of `dmlcore.view.explorer.Settings`: workers, slowest, jitter,
            slow_tasks, slowdown, communication_ratio, server_load, policy, staleness, k, deadline,
            learning_rate, seconds, seed.

    Returns:
        The explorer.

    Raises:
        ValueError: there is no such setting, or a value is out of its range.

    >>> explorer = explore(policy="BSP")
    >>> figure = explorer.update(policy="SSP", staleness=4)
    >>> explorer.run.trace.metadata["policy"]
    'ssp(staleness=4)'
    """
    problem = digits_mlp() if problem is None else problem
    check_kind("problem", problem, Problem)
    return Explorer(problem, Settings().changed(settings))
