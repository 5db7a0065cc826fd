"""The style of all figures: colours, text sizes, labels with units, and files with reproducible bytes."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from dmlcore import checks, files

_LOOK = files.table(__file__, "style")
_COLORS: Mapping[str, str] = _LOOK["colors"]
METHOD_COLORS: Mapping[str, str] = {
    name: {"black": "#000000", **_COLORS}[color]
    for color, names in _LOOK["families"].items()
    for name in names
}
"""Colour of each family of methods. Those that share one do not meet in any paper's figures."""

PHASE_COLORS: Mapping[str, str] = _LOOK["phases"]
"""Colour of each phase of a worker (Okabe and Ito); cancelled work is hatched besides."""

HATCHES: Mapping[str, str] = _LOOK["hatches"]
LABELS: Mapping[str, str] = _LOOK["labels"]
AXES: Mapping[str, str] = _LOOK["axes"]  # labels of what clusters differ in

STYLE: dict[Any, Any] = {
    **sns.axes_style("ticks"),
    **sns.plotting_context("notebook", font_scale=1.2),
    **_LOOK["settings"],
}

# Loads the backend now. The backend of a notebook switches the display of figures on when it is loaded. If
# that happened with the first figure, inside a context of settings, the context's end would switch it off.
plt.draw_if_interactive()

styled = mpl.rc_context(STYLE)
"""Decorates a plot function: our style inside, the caller's settings untouched."""


def label(column: str) -> str:
    """Returns the axis label of a column, with its unit."""
    return LABELS.get(column, column.replace("_", " "))


def family(method: Any) -> str:
    """Returns the entry of `METHOD_COLORS` with which a method's name begins, or the name itself.

    >>> family("SSP (s=3)"), family("k_sync(4)"), family("mine")
    ('SSP', 'K-sync', 'mine')
    """
    plain = re.sub(r"[\s_-]+", "-", str(method)).lower()
    for known in sorted(METHOD_COLORS, key=len, reverse=True):
        if re.match(re.escape(known.replace(" ", "-").lower()) + r"(?![a-z])", plain):
            return known
    return str(method)


def palette(methods: Iterable[Any]) -> dict[Any, str]:
    """Returns the colour of each method: a fixed one for known families, the next free one for others.

    Other methods first get the colours that BSP, SSP, ESSP and ASP do not have.

    Args:
        methods: names such as "SSP (s=3)" or "k_sync(4)", or other values to distinguish.

    Returns:
        Name -> hexadecimal colour.

    Raises:
        TypeError: `methods` cannot be iterated over.

    >>> palette(["BSP", "SSP s=1", "SSP s=8"])["SSP s=1"] == palette(["SSP"])["SSP"]
    True
    """
    colors = {name: METHOD_COLORS.get(family(name)) for name in methods}
    every = [*_COLORS.values()]
    free = cycle([color for color in every if color not in colors.values()] or every)
    return {name: color or next(free) for name, color in colors.items()}


def dashes(methods: Iterable[Any]) -> dict[Any, Any]:
    """Returns a line style for each method; methods of the same colour have different ones."""
    return _in_turn(methods, ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)), (0, (8, 3))))


def markers(methods: Iterable[Any]) -> dict[Any, Any]:
    """Returns a marker for each method; methods of the same colour have different ones."""
    return _in_turn(methods, "osDvP")


def _in_turn(methods: Iterable[Any], looks: Sequence[Any]) -> dict[Any, Any]:
    """Assigns the styles `looks` in turn to the methods of each colour."""
    colors = palette(methods)
    used = [*colors.values()]
    return {name: looks[used[:i].count(color) % len(looks)] for i, (name, color) in enumerate(colors.items())}


def axes(ax: Axes | None, width: float = 8, height: float = 4.5) -> Axes:
    """Returns the given Axes, or the Axes of a new figure of this size in inches."""
    return plt.subplots(figsize=(width, height))[1] if ax is None else ax


def without_axis(ax: Axes) -> None:
    """Hides the line and the marks of the vertical axis, which only names lanes."""
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def log_axis(ax: Axes, which: str) -> None:
    """Makes the "x" or "y" axis logarithmic, with plain numbers as labels if they are short."""
    ax.set(**{f"{which}scale": "log"})
    axis = ax.xaxis if which == "x" else ax.yaxis
    low, high = axis.get_view_interval()
    few = high < 300 * low
    if few or (low >= 1e-4 and high <= 1e5):
        axis.set_major_formatter("{x:g}")
    if few:
        axis.set_minor_locator(LogLocator(subs=(2, 5)))
        axis.set_minor_formatter("{x:g}")


def save(figure: Figure | Axes, path: str | os.PathLike[str], dpi: float = 150) -> Path:
    """Writes a figure so that the same picture gives the same bytes.

    Args:
        figure: a Figure, or any of its Axes.
        path: path of the file; its suffix selects png, svg or pdf.
        dpi: pixels per inch.

    Returns:
        The path.

    Raises:
        ValueError: the path has another suffix.

    >>> save(plt.figure(), "curve.gif")
    Traceback (most recent call last):
    ValueError: suffix of the path: expected one of '.png', '.svg', '.pdf', got '.gif'
    """
    path = Path(path)
    undated = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    metadata = checks.choice("suffix of the path", path.suffix, undated)
    drawn = figure.get_figure(root=True) if isinstance(figure, Axes) else figure
    if drawn is None:
        checks.fail("figure", figure, "Axes that belong to a figure")
    with files.aside(path) as partial, mpl.rc_context({"svg.hashsalt": STYLE["svg.hashsalt"]}):
        drawn.savefig(partial, format=path.suffix[1:], dpi=dpi, metadata=metadata, bbox_inches="tight")
    return path
