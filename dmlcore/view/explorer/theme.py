"""The explorer's picture in a dark notebook.

The picture is an SVG file with both looks. A browser shows the dark one where the `color-scheme` of the image
is dark, and `STYLE` sets that by the theme of JupyterLab or VS Code. Both looks have a background of their
own, so that a page which sets no scheme shows a readable picture, too.
"""

from collections.abc import Mapping

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
