"""Placeholder until the paper is written."""

from dmlcore.papers.paper import Paper

PAPER = Paper(key="ssp", title="Stale synchronous parallel", reference="Ho 2013", notebook="01_ssp.ipynb")
