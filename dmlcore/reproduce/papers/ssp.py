"""Stale synchronous parallel (Ho et al. 2013): parameters and settings of its claims.

`dml.study` searches the rate of every method and the s of SSP on tuning seeds; other seeds judge the times to
a target. S9 maps from which load of the server on SSP is faster than ASP. S5 and S9-theory compare
measurements with theory, and S1 and S7-staleness check the implementation against definitions.

docs/papers/ssp.md tells what was explored before and what was changed after results had been seen, and
tests/test_ssp_claims.py shows that each claim can fail.
"""

from pydantic import Field

from dmlcore.reproduce.paper import TunedParameters, declare

CHEAP, EQUAL = "cheap pushes", "pushes as costly as pulls"
PUSHES = {CHEAP: 0.1, EQUAL: 0.5}  # share of the push in the server's time for a push and a pull
SMALL = ("matrix factorization", "digits", "Lasso", "LDA")
REAL = ("MovieLens", "MNIST", "Lasso, 40,000 features", "LDA, a UCI corpus")  # only at full scale
SERVERS = ("free server", f"server load 2, {CHEAP}")
READINGS = ("one mini-batch", "a pass")  # two meanings of a clock


class SSPParameters(TunedParameters):
    """Parameters of notebooks/01_ssp.ipynb; `staleness` is the s of SSP in timelines, in clocks."""

    seeds: int = Field(4, ge=2)
    staleness: int = Field(3, ge=1)
    workers: int = Field(16, ge=5)


PAPER = declare(globals(), SSPParameters)
