"""The explorer's sliders. A move is answered by the kernel's event loop; of several the latest wins."""

from __future__ import annotations

import asyncio
import html
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from dmlcore.view.explorer import picture
from dmlcore.view.explorer.settings import POLICIES, RANGES

if TYPE_CHECKING:
    from dmlcore.view.explorer.explorer import Explorer

DELAY = 0.05  # seconds; moves that come within are answered once

CLUSTER = {
    "workers": "workers",
    "slowest": "speed of worker 0",
    "jitter": "jitter",
    "slow_tasks": "slow episodes",
    "slowdown": "how slow they are",
}
METHOD = {"policy": "policy", "staleness": "staleness", "k": "k", "learning_rate": "learning rate"}
STEPS = {"slowest": 0.01, "jitter": 0.01, "slow_tasks": 0.01, "slowdown": 0.1}
RATES = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
FORMATS = {"slowest": ".0%", "jitter": ".0%", "slow_tasks": ".0%", "slowdown": ".1f"}


class Panel:
    """Sliders that move an explorer, and the picture that follows.

    Attributes:
        controls: the widget of each setting.
        image: the picture.
        note: the run in numbers, or what was wrong with a setting.
        box: all of them.
    """

    def __init__(self, explorer: Explorer):
        self.explorer = explorer
        self.controls = {name: _control(name, label) for name, label in {**CLUSTER, **METHOD}.items()}
        self.image = widgets.Image(format="svg+xml", layout=widgets.Layout(width="100%", max_width="60rem"))
        self.note = widgets.HTML()
        columns = [
            widgets.VBox([self.controls[name] for name in names], layout=widgets.Layout(flex="1 1 22rem"))
            for names in (CLUSTER, METHOD)
        ]
        rows = widgets.HBox(columns, layout=widgets.Layout(flex_flow="row wrap", max_width="60rem"))
        self.box = widgets.VBox([rows, self.note, self.image])
        self._waiting: asyncio.TimerHandle | None = None
        self._following = False
        self.follow()
        for control in self.controls.values():
            control.observe(self._moved, names="value")

    def follow(self) -> None:
        """Puts sliders and picture to where the explorer is."""
        settings = self.explorer.settings
        self._following = True
        try:
            self.controls["k"].max = settings.workers
            self.controls["learning_rate"].options = _rates(settings.learning_rate)
            for name, control in self.controls.items():
                control.value = getattr(settings, name)
        finally:
            self._following = False
        goes_by = POLICIES[settings.policy].goes_by
        for name in ("staleness", "k"):
            self.controls[name].disabled = name != goes_by
        self.image.value = picture.svg(self.explorer.figure)
        self.note.value = html.escape(picture.summary(self.explorer.run))

    def _moved(self, change: Any) -> None:
        """Answers soon: until then more moves may come. Without an event loop, at once."""
        if self._following:
            return
        if change["owner"] is self.controls["workers"]:
            self.controls["k"].max = change["new"]  # which may move k
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._answer()
        else:
            if self._waiting is None:
                self._waiting = loop.call_later(DELAY, self._answer)

    def _answer(self) -> None:
        self._waiting = None
        try:
            self.explorer.update(**{name: control.value for name, control in self.controls.items()})
        except ValueError as error:
            self.note.value = html.escape(str(error))


def _rates(*more: float) -> list[tuple[str, float]]:
    """Returns what to choose from: 1, 2 and 5 of each decade, and more that are set by hand."""
    return [(f"{rate:g}", rate) for rate in sorted({*RATES, *more})]


def _control(name: str, label: str) -> Any:
    look: dict[str, Any] = {"description": label, "style": {"description_width": "9rem"}}
    look["layout"] = widgets.Layout(width="98%")
    if name == "policy":
        return widgets.Dropdown(options=list(POLICIES), **look)
    low, high = RANGES[name]
    if name == "learning_rate":
        return widgets.SelectionSlider(options=_rates(), **look)
    if name in STEPS:
        look |= {"step": STEPS[name], "readout_format": FORMATS[name]}
        return widgets.FloatSlider(min=low, max=high, value=high, **look)
    return widgets.IntSlider(min=int(low), max=int(high), **look)
