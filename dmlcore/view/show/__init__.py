"""Notebook displays of runs, traces, clusters, policies and problems.

One HTML template renders all of them, so that all text is escaped. Text and tables follow the notebook's
theme; pictures have a white background.
"""

from dmlcore.view.show.cards import html

__all__ = ["html"]
