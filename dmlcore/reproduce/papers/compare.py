"""All methods of all papers on the same clusters and problems: who is sooner where.

Not a paper: its claims are ours. Their ranges were declared before the first run. After it DBW and adaptive
load were given rates half as large, since their best ones were the least of those tried; all was run again.
Rounds with a deadline were added later, of a length chosen before the run; claims and ranges stayed.
"""

from pydantic import Field

from dmlcore.reproduce.paper import Paper, Parameters, declare, ours

PROBLEMS = ("digits", "matrix factorization")
CLUSTERS = ("even", "uneven", "unstable", "both")


class CompareParameters(Parameters):
    """Parameters of notebooks/06_compare.ipynb; `workers` are those of each cluster."""

    seeds: int = Field(2, ge=1)
    workers: int = Field(8, ge=4)


CLAIMS = {
    "W1": ours(
        "No method is the soonest everywhere",
        "of eight pairs of cluster and problem, those where the method that is soonest on the whole, "
        "by the geometric mean of its times over the soonest, is not the soonest",
        unit="pairs",
    ),
    "W2": ours(
        "The worse the stragglers, the more is lost by waiting for all of them",
        "time to the target, BSP / soonest method: on the cluster with both troubles / on the even one",
        unit="x",
        parts=PROBLEMS,
    ),
}

# What was found, by claim; written after the run.
FINDINGS = {
    "W1": (
        "Which method is fastest depends on the cluster and the problem. With so many methods chance alone "
        "would give this result, so that it says little."
    ),
    "W2": (
        "Waiting for all workers costs more where there are stragglers, on both problems. The fastest method "
        "is chosen after the fact, so that this could hardly fail."
    ),
}

PAPER = Paper(
    key="compare",
    title="All methods, side by side",
    reference="of all papers here, each at its own best learning rate",
    notebook="06_compare.ipynb",
    parameters=CompareParameters,
    claims=declare("compare", CLAIMS, findings=FINDINGS, expected=(1, None), data="any"),
    figures={
        "compare.png": "Time to the target over that of BSP, for every method (rows) on four clusters "
        "(columns) and two problems (panels): less than 1 is sooner. The soonest method of each column "
        "is framed."
    },
    data={"full": ("mnist",)},
    quick_seconds=120,
)
