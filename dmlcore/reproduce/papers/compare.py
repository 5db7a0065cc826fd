"""All methods on five clusters that differ in one respect each: which policy for which cluster?

This is not a paper: its claims are ours. They put common advice into numbers, as directions without sizes,
and W6 asks whether the advice carries over to another problem. `dml.study` tunes every method on each cluster
with the same number of runs, and other seeds judge the times to a target.

docs/papers/compare.md tells what was explored before and what was changed after results had been seen, and
tests/test_compare.py shows that each claim can fail.
"""

from pydantic import Field

from dmlcore.reproduce.paper import TunedParameters, declare

REGIMES = ("even", "uneven speeds", "slow episodes", "slow links", "saturated server")
AGAIN = REGIMES[2:]  # clusters for matrix factorization, at both scales


class CompareParameters(TunedParameters):
    """Parameters of notebooks/06_compare.ipynb; `workers` is the number of workers of each cluster."""

    workers: int = Field(8, ge=5)


PAPER = declare(globals(), CompareParameters)
