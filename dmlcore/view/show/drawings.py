"""Small SVG drawings that follow a notebook's light or dark theme."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from dmlcore.trace import Trace, metrics, starts
from dmlcore.view.plot.style import PHASE_COLORS
from dmlcore.view.show.elements import Element, element

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from numpy.typing import ArrayLike

WIDTH = 640
LANES = 16  # rows of a timeline
CLOCKS = 12  # of a timeline, about
BARS = 600  # of a timeline, at most
POINTS = 120  # of a curve, at most
LEFT, RIGHT = 56, 632  # of the drawn area; what is left of it is for labels
# Cancelled work, besides its colour, is half as high as work that counts.
HEIGHTS = {"cancelled": 0.5}
SOFT = {"wait": ("currentColor", 0.15), "away": ("none", 0.0)}


def drawing(height: float, label: str, *children: Element) -> Element:
    """Returns an SVG as wide as there is room, up to 640 px, with a label for those who cannot see it."""
    return element(
        "svg",
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        aria_label=label,
        style=f"display:block;width:100%;max-width:{WIDTH}px;height:auto;color:inherit",
        font_family="sans-serif",
        font_size="12",
        fill="currentColor",
    )


def words(x: float, y: float, said: str, anchor: str = "start") -> Element:
    """Returns text whose baseline is at `y`."""
    return element("text", said, x=x, y=y, text_anchor=anchor)


def window(trace: Trace) -> tuple[pd.DataFrame, float]:
    """Returns the phases that a timeline shows, and until when it goes: as long as bars and clocks last.

    Only the tasks that it needs are looked at, so that it is as quick for long traces.
    """
    workers = _evenly(trace.num_workers, LANES)
    tasks_each = max(len(trace.tasks) / trace.num_workers, 1)
    end = min(trace.end_time, trace.end_time * CLOCKS / tasks_each)
    tasks = trace.tasks[trace.tasks["worker"].isin(workers)]
    begun = starts(tasks).sort_values(kind="stable")
    shown = tasks.loc[begun.index]
    # The task after the last tells whether that was cancelled.
    following = shown[(begun > end).to_numpy()].groupby("worker").head(1)
    shown = pd.concat([shown[(begun <= end).to_numpy()], following])
    cut = metrics.phases(Trace(shown, trace.updates, trace.metadata))
    cut = cut[cut["worker"].isin(workers) & (cut["start"] < end)].sort_values("start", kind="stable")
    if len(cut) > BARS:
        end = float(cut["start"].iloc[BARS])
        cut = cut[cut["start"] < end]
    return cut.assign(end=cut["end"].clip(upper=end), lane=np.searchsorted(workers, cut["worker"])), end


def timeline(trace: Trace) -> Element:
    """Returns who did what at the beginning of a run, one row for each worker, and when updates were made.

    Of more than 16 workers 16 are drawn, evenly spaced; below it says how much of the run this is.
    """
    if not trace.end_time > 0:
        return element("p", "An empty run: it took no time.")
    cut, end = window(trace)
    workers = _evenly(trace.num_workers, LANES)
    row = 14
    x = _scale(0, end, LEFT, RIGHT)
    height = row * len(workers)
    parts = [words(LEFT - 6, row * lane + 11, str(worker), "end") for lane, worker in enumerate(workers)]
    kinds = [kind for kind in PHASE_COLORS if kind in set(cut["kind"])]
    for kind in kinds:
        part = cut[cut["kind"] == kind]
        high = 11 * HEIGHTS.get(kind, 1)
        tops = row * part["lane"] + 7 - high / 2
        # A hair less wide, so that one task is told from the next.
        widths = np.maximum(np.diff(x(part[["start", "end"]].to_numpy())).ravel() - 0.5, 0.3)
        path = "".join(
            f"M{left:.1f} {top:g}h{width:.1f}v{high:g}h-{width:.1f}z"
            for left, top, width in zip(x(part["start"].to_numpy()), tops, widths, strict=True)
        )
        color, opacity = SOFT.get(kind, (PHASE_COLORS[kind], 1.0))
        parts.append(element("path", element("title", kind), d=path, fill=color, fill_opacity=opacity))
    times = np.unique(trace.updates["time"].to_numpy())
    ticks = np.unique(x(times[times <= end]).round())  # a pixel each
    path = "".join(f"M{tick:g} {height + 4}v8" for tick in ticks)
    parts.append(element("path", element("title", "update"), d=path, stroke="currentColor", stroke_width=1))
    parts += [words(LEFT - 6, height + 12, "updates", "end"), *_time_axis(height + 16, end)]
    parts += _legend(height + 42, kinds)
    said = f"{'all' if end >= trace.end_time else f'the first {end:.3g} s'} of {trace.end_time:.4g} s"
    if len(workers) < trace.num_workers:
        said += f", {len(workers)} of {trace.num_workers} workers"
    parts.append(words(RIGHT, height + 52, said, "end"))
    return drawing(height + 58, f"Timeline of the workers: {said}", *parts)


def curve(times: ArrayLike, values: ArrayLike, name: str) -> Element:
    """Returns a quantity over time; values that are not finite are left out."""
    at, value = np.asarray(times, float), np.asarray(values, float)
    keep = _evenly(len(at), POINTS)
    at, value = at[keep], value[keep]
    finite = np.isfinite(value)
    if not finite.any():
        return element("p", f"{name}: never finite")
    low, high, end = float(value[finite].min()), float(value[finite].max()), float(at[-1])
    x, y = _scale(0, end, LEFT, RIGHT), _scale(low, high, 84, 10)
    pieces = []
    for sound, group in itertools.groupby(range(len(at)), key=lambda i: bool(finite[i])):
        if sound:
            pieces.append("M" + "L".join(f"{x(at[i]):.1f} {y(value[i]):.1f}" for i in group))
    line = element("path", d="".join(pieces), fill="none", stroke=PHASE_COLORS["compute"], stroke_width=2)
    labels = [words(LEFT - 6, 14, f"{high:.3g}", "end"), words(LEFT - 6, 88, f"{low:.3g}", "end")]
    said = f"{name} over time: {value[0]:.3g} at the start, {value[-1]:.3g} at the end"
    return drawing(118, said, line, *labels, *_time_axis(90, end), words(RIGHT, 14, name, "end"))


def bars(values: Sequence[float], name: str) -> Element:
    """Returns one bar for each worker, or for 64 of them, evenly spaced."""
    workers = _evenly(len(values), 64)
    wide = min(24.0, (RIGHT - LEFT) / len(workers))
    high = max(values)
    parts = [words(LEFT - 6, 14, f"{high:.4g}", "end"), words(LEFT - 6, 60, "0", "end")]
    for place, worker in enumerate(workers):
        tall = 50 * values[worker] / high
        tip = element("title", f"worker {worker}: {values[worker]:.4g} {name}")
        spot = {"x": LEFT + place * wide, "y": 60 - tall, "width": wide * 0.8, "height": tall}
        parts.append(element("rect", tip, fill=PHASE_COLORS["compute"], **spot))
    said = name if len(workers) == len(values) else f"{name}, {len(workers)} of {len(values)} workers"
    return drawing(82, f"{said}: {min(values):.4g} to {high:.4g}", *parts, words(LEFT, 76, said))


def _legend(top: float, kinds: Sequence[str]) -> list[Element]:
    parts = []
    left = LEFT
    for kind in kinds:
        color, opacity = SOFT.get(kind, (PHASE_COLORS[kind], 1.0))
        key = element("rect", x=left, y=top, width=11, height=11, fill=color, fill_opacity=opacity)
        if kind == "away":
            key.set("stroke", "currentColor")
        parts += [key, words(left + 15, top + 10, kind)]
        left += 39 + 7 * len(kind)
    return parts


def _time_axis(top: float, end: float) -> list[Element]:
    line = element("path", d=f"M{LEFT} {top}H{RIGHT}", stroke="currentColor", stroke_opacity=0.5)
    labels = [words(LEFT, top + 15, "0"), words(RIGHT, top + 15, f"{end:.3g} s", "end")]
    return [line, *labels]


def _scale(low: float, high: float, first: float, last: float) -> Callable[[Any], Any]:
    """The linear map from [low, high] to [first, last]; where the former is a point, to `last`."""
    return lambda value: last + (value - high) * ((last - first) / (high - low) if high > low else 0.0)


def _evenly(count: int, most: int) -> list[int]:
    """At most `most` of `count` numbers, evenly spaced, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist()
