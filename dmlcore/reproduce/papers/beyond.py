"""Methods beyond the five papers: what their theory promises, and what would show it.

This is not one paper: the claims go back to several. They are ours, because the statements of a theorem or a
paper must be put into numbers. B1-bound is a check of theory: a theorem on a timeline without randomness,
which gives one number for all seeds. Searches use seed 1000, and other seeds judge.

docs/papers/beyond.md tells what was explored before and what was changed after results had been seen.
"""

from pydantic import Field

from dmlcore.reproduce.paper import TunedParameters, declare

LAWS = {"i": 1.0, "sqrt(i)": 0.5}  # law of the i-th worker's seconds per gradient -> the power of i
EXTREMES = (
    "Rennala, shortest round",
    "Rennala, longest round",
    "Ringmaster, shortest 2 R updates",
    "Ringmaster, longest R updates",
)
SHARDS = ("IID", "Dirichlet(0.1)")


class BeyondParameters(TunedParameters):
    """Parameters of notebooks/07_beyond.ipynb; `workers` is the largest number in section 1."""

    workers: int = Field(10_000, ge=400, multiple_of=100)


PAPER = declare(globals(), BeyondParameters)
