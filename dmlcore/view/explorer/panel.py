"""The explorer's sliders. The kernel's event loop handles moves, and uses only the latest of several."""

import asyncio
import gc
import html
from typing import Any

import ipywidgets as widgets

from dmlcore import files
from dmlcore.collecting import paused
from dmlcore.view.explorer.explorer import CLASS, STYLE, Explorer, summary, svg
from dmlcore.view.explorer.settings import POLICIES, RANGES, most_load

DELAY = 0.05  # seconds; all moves within this time lead to one training
PAUSE = 2.0  # seconds without a move after which the garbage collector runs

CLUSTER = ("workers", "slowest", "jitter", "slow_tasks", "slowdown")
NETWORK = ("communication_ratio", "server_load")
OWN = ("staleness", "k", "deadline")  # settings that only some policies have
METHOD = ("policy", *OWN, "learning_rate")
SLIDERS = files.table(__file__, "panel")
LABELS, VALUES = SLIDERS["labels"], SLIDERS["values"]


class Panel:
    """Sliders that change the settings of an explorer, and its picture."""

    def __init__(self, explorer: Explorer):
        self.explorer = explorer
        self.controls = {name: _control(name) for name in CLUSTER + METHOD + NETWORK}
        self.image = widgets.Image(format="svg+xml", layout=widgets.Layout(width="100%", max_width="60rem"))
        self.image.add_class(CLASS)
        self.note = widgets.HTML()  # the main numbers of the run, or an error message
        columns = [
            widgets.VBox([self.controls[name] for name in names], layout=widgets.Layout(flex="1 1 22rem"))
            for names in (CLUSTER, METHOD + NETWORK)
        ]
        rows = widgets.HBox(columns, layout=widgets.Layout(flex_flow="row wrap", max_width="60rem"))
        self.box = widgets.VBox([widgets.HTML(STYLE), rows, self.note, self.image])
        self._waiting: asyncio.TimerHandle | None = None
        self._following = False
        self._collecting: asyncio.TimerHandle | None = None
        self.follow()
        for control in self.controls.values():
            control.observe(self._moved, names="value")

    def follow(self) -> None:
        """Updates the sliders and the picture to the explorer's current settings and run."""
        settings = self.explorer.settings
        self._following = True
        try:
            self._limit(settings.workers)
            for name in VALUES:
                self.controls[name].options = _options(name, getattr(settings, name))
            for name, control in self.controls.items():
                control.value = getattr(settings, name)
        finally:
            self._following = False
        goes_by = POLICIES[settings.policy].goes_by
        for name in OWN:
            self.controls[name].disabled = name != goes_by
        self.image.value = svg(self.explorer.figure)
        self.note.value = html.escape(summary(self.explorer.run))

    def _limit(self, workers: int) -> None:
        """Sets the largest values of k and of the server load for this number of workers."""
        self.controls["k"].max = workers
        self.controls["server_load"].max = most_load(workers)

    def _moved(self, change: Any) -> None:
        """Trains again after a short delay, to wait for further moves; without an event loop, immediately."""
        if self._following:
            return
        if change["owner"] is self.controls["workers"]:
            self._limit(change["new"])
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._answer()
        else:
            self._waiting = self._waiting or loop.call_later(DELAY, self._answer)
            if self._collecting is not None:
                self._collecting.cancel()
            self._collecting = loop.call_later(PAUSE, gc.collect)

    def _answer(self) -> None:
        self._waiting = None
        with paused():  # a full collection takes longer than a move, so it runs at the next pause
            try:
                self.explorer.update(**{name: control.value for name, control in self.controls.items()})
            except ValueError as error:
                self.note.value = html.escape(str(error))


def _options(name: str, *more: float) -> list[tuple[str, float]]:
    """Returns the (label, value) options of a slider, with `more` values that were set in code."""
    return [(f"{value:g}", value) for value in sorted({*VALUES[name], *more})]


def _control(name: str) -> Any:
    look: dict[str, Any] = {"description": LABELS.get(name, name.replace("_", " "))}
    look |= {"style": {"description_width": "9rem"}, "layout": widgets.Layout(width="98%")}
    if name == "policy":
        return widgets.Dropdown(options=list(POLICIES), **look)
    if name in VALUES:
        return widgets.SelectionSlider(options=_options(name), **look)
    low, high = RANGES[name]
    if isinstance(low, int):
        return widgets.IntSlider(min=low, max=high, **look)
    step, readout = (0.01, ".0%") if high <= 1 else (0.1, ".1f")  # for a fraction, or for a factor
    return widgets.FloatSlider(min=low, max=high, value=high, step=step, readout_format=readout, **look)
