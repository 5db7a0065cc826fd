"""All methods on five clusters that differ in one respect each: which policy for which cluster?

This is not a paper: its claims are ours. They put common advice into numbers, as directions without sizes,
and W6 asks whether the advice carries over to another problem. `dml.study` tunes every method on each cluster
with the same number of runs, and other seeds judge the times to a target.

docs/papers/compare.md tells what was explored before and what was changed after results had been seen, and
tests/test_compare.py shows that each claim can fail.
"""

from pydantic import Field

from dmlcore.reproduce.paper import Paper, TunedParameters, declare, ours
from dmlcore.reproduce.papers.compare_findings import FINDINGS, SUMMARY

EVEN, UNEVEN, EPISODES = "even", "uneven speeds", "slow episodes"
LINKS, SERVER = "slow links", "saturated server"
REGIMES = (EVEN, UNEVEN, EPISODES, LINKS, SERVER)
AGAIN = (EPISODES, LINKS, SERVER)  # clusters for matrix factorization, at both scales


class CompareParameters(TunedParameters):
    """Parameters of notebooks/06_compare.ipynb; `workers` is the number of workers of each cluster."""

    workers: int = Field(8, ge=4)


CLAIMS = {
    "W1": ours(
        "Where machines are even and links fast, BSP is hard to beat: no method is faster",
        "time to the target: BSP / the method that the tuning seeds found fastest, BSP aside",
        expected=(None, 1),
    ),
    "W2": ours(
        "Where workers are slow and links fast, an asynchronous method is faster than every method that "
        "waits for all workers",
        "time to the target: fastest method that waits for all, seed by seed / the one that waits for none "
        "that the tuning seeds found fastest",
        parts=(UNEVEN, EPISODES),
    ),
    "W3": ours(
        "Where links are slow or the server is saturated, a method that sends less is faster than every "
        "method that sends each gradient whole",
        "time to the target: fastest method that sends all, seed by seed / the one that sends less that the "
        "tuning seeds found fastest",
        parts=(LINKS, SERVER),
    ),
    "W4": ours(
        "Where the server is saturated, SSP, which reads it less often, is faster than ASP",
        "time to the target: ASP / SSP with the s that tuning seeds chose",
    ),
    "W5": ours(
        "To choose k and the load while training (adaptive load) is faster than a fixed k (K-sync)",
        "time to the target: K-sync with the k that tuning seeds chose / adaptive load",
        parts=REGIMES,
    ),
    "W6": ours(
        "Advice carries over: what is fastest on one problem is faster than BSP on another",
        "time to the target of matrix factorization: BSP / the method that the tuning seeds of the first "
        "problem found fastest, of those run on both",
        parts=AGAIN,
    ),
}

PAPER = Paper(
    key="compare",
    title="All methods, side by side",
    reference="which policy for my cluster?",
    notebook="06_compare.ipynb",
    parameters=CompareParameters,
    summary=SUMMARY,
    claims=declare(
        "compare",
        CLAIMS,
        regimes={"": "the clusters that the sentence names, of five; ours"},
        findings=FINDINGS,
        expected=(1, None),
        data="any",
    ),
    figures={
        "compare.png": "Time to the target over that of BSP, for every method (rows) on five clusters "
        "(columns), and on some of them for a second problem: less than 1 is faster. A thick frame marks "
        "the best method, dashed frames those that the rule does not tell apart from it.",
    },
    data={"full": ("mnist",)},
    quick_seconds=175,
)
