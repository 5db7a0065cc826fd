"""How runs, traces, clusters, policies and problems show themselves in a notebook.

HTML and SVG are built as trees of elements, so that all text is escaped and all tags are closed. Colours
follow the notebook's theme: text is in the current colour, and no background is set.
"""

from dmlcore.view.show.cards import html

__all__ = ["html"]
