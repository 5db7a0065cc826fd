"""`explore`: a cluster and a policy to play with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure

from dmlcore.checks import check_kind
from dmlcore.problems import digits_mlp
from dmlcore.problems.problem import Problem
from dmlcore.view.explorer import picture
from dmlcore.view.explorer.settings import Settings

if TYPE_CHECKING:
    from dmlcore.view.explorer.panel import Panel


class Explorer:
    """A run that follows its settings; in a notebook it has sliders.

    Attributes:
        settings: of the run that is shown.
        run: trace, history and parameters.
        figure: its timeline and loss, a matplotlib figure.
    """

    def __init__(self, problem: Problem, settings: Settings):
        self.problem = problem
        self.settings = settings
        self.run = settings.run(problem)
        self.figure = picture.draw(self.run)
        self._panel: Panel | None = None

    def update(self, **settings: Any) -> Figure:
        """Changes some settings, trains, and draws; the sliders follow where there are any.

        Guarantee: another staleness, learning rate, jitter or slow episode compiles nothing (but for the
        limits that `dmlcore.training.loop.compilations` names). After an error all is as before.

        Args:
            **settings: fields of `Settings`.

        Returns:
            The figure, with the loss before in grey.

        Raises:
            ValueError: there is no such setting, or it is out of its range.
        """
        changed = self.settings.changed(settings)
        if changed != self.settings:
            run = changed.run(self.problem)
            self.figure = picture.draw(run, before=self.run)
            self.settings, self.run = changed, run
            if self._panel is not None:
                self._panel.follow()
        return self.figure

    @property
    def panel(self) -> Panel:
        """The sliders and the picture, made when first asked for."""
        if self._panel is None:
            from dmlcore.view.explorer.panel import Panel  # ipywidgets are for notebooks only

            self._panel = Panel(self)
        return self._panel

    def _repr_mimebundle_(self, **options: Any) -> Mapping[str, Any] | None:
        return self.panel.box._repr_mimebundle_(**options)

    def __repr__(self) -> str:
        return f"Explorer({self.problem.name}, {self.settings})"


def explore(problem: Problem | None = None, **settings: Any) -> Explorer:
    """Opens an explorer: sliders for the cluster and the policy, and the timeline and loss that follow.

    It trains anew at each move, a few seconds of virtual time. Without a notebook, `update` moves the sliders
    and `figure` is the picture.

    Args:
        problem: what is trained. Default: `digits_mlp()`.
        **settings: to begin with, fields of `dmlcore.view.explorer.Settings`: workers, slowest, jitter,
            slow_tasks, slowdown, policy, staleness, k, learning_rate, seconds, seed.

    Returns:
        The explorer; as the last line of a cell it shows itself.

    Raises:
        ValueError: there is no such setting, or it is out of its range.

    >>> explorer = explore(policy="BSP")
    >>> figure = explorer.update(policy="SSP", staleness=4)
    >>> explorer.run.trace.metadata["policy"]
    'ssp(staleness=4)'
    """
    problem = digits_mlp() if problem is None else problem
    check_kind("problem", problem, Problem)
    return Explorer(problem, Settings().changed(settings))
