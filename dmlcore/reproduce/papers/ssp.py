"""Stale synchronous parallel (Ho et al. 2013): its claims, and what would show them.

`dml.study` searches the rate of every method and the s of SSP on tuning seeds; other seeds judge the times to
a target. S9 maps from which load of the server on SSP is faster than ASP. S5 and S9-theory compare
measurements with theory, and S1 and S7-staleness check the implementation against definitions.

docs/papers/ssp.md tells what was explored before and what was changed after results had been seen, and
tests/test_ssp_claims.py shows that each claim can fail.
"""

from pydantic import Field

from dmlcore.reproduce.paper import TunedParameters, abstract, conformance, declare, ours, theory

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


CLAIMS = {
    "S1": conformance(expected=(0, 0), unit="", data="none", parts=("SSP", "ESSP"), always=True),
    "S2-BSP": abstract(parts=SMALL),
    "S2-ASP": abstract(parts=SMALL),
    "S2-BSP-data": ours(parts=REAL),
    "S2-ASP-data": ours(parts=REAL),
    "S2-clock-BSP": ours(parts=READINGS),
    "S2-clock-ASP": ours(parts=READINGS),
    "S2-topics": ours(expected=(-0.05, None), unit="", parts=("SSP", "ASP")),
    "S3": abstract(expected=(0.001, None), unit="", data="none", parts=SERVERS),
    "S3-waits": ours(data="none", parts=SERVERS),
    "S3-even": ours(expected=(0.5, 2), data="none", parts=SERVERS),
    "S5-growth": theory(expected=(None, 0.5), unit="", data="none", parts=("s = 0", "s = 1", "s = 3")),
    "S5-bound": theory(
        expected=(None, 1),
        data="none",
        parts=("regret", "updates missing from a read or in it early"),
        always=True,
    ),
    "S5-order": theory(
        expected=(0.4, 0.6), unit="", data="none", parts=("s + 1, for P = 16", "P, for s = 0")
    ),
    "S6": theory(expected=(0.98, 1.02), data="none", always=True),
    "S7-staleness": conformance(expected=(0.001, None), unit="clocks", data="none"),
    "S8": ours(parts=("free server", f"shared server, {EQUAL}", f"shared server, {CHEAP}")),
    "S8-rare": ours(parts=("one task in 100 is slow", "one task in ten is slow")),
    "S9-crossover": ours(expected=(1 / 1.5, 1.5), unit="", parts=SMALL),
    "S9-theory": theory(
        expected=(1 / 1.5, 1.5),
        parts=SMALL,
        repeats="S9-crossover",  # divided by a constant per problem
    ),
    "S9-dear": ours(expected=(None, 4), unit="", parts=SMALL),
    "S9-saturated-BSP": ours(parts=SMALL),
    "S9-saturated-ASP": ours(parts=SMALL),
}

PAPER = declare(
    __file__,
    CLAIMS,
    {"unit": "x", "expected": (1, None), "data": "any"},
    notebook="01_ssp.ipynb",
    parameters=SSPParameters,
    data={"full": ("mnist", "movielens_small")},
    quick_seconds=90,
)
