"""Stale synchronous parallel (Ho et al. 2013): its claims, and what would show them.

`dml.study` searches the rate of every method and the s of SSP on tuning seeds; other seeds judge the times to
a target. S9 maps from which load of the server on SSP is faster than ASP. S5 and S9-theory compare
measurements with theory, and S1 and S7-staleness check the implementation against definitions.

docs/papers/ssp.md tells what was explored before and what was changed after results had been seen, and
tests/test_ssp_claims.py shows that each claim can fail.
"""

from pydantic import Field

from dmlcore.reproduce.paper import (
    Comparison,
    Paper,
    Parameters,
    abstract,
    conformance,
    declare,
    ours,
    theory,
)
from dmlcore.reproduce.papers.ssp_findings import FINDINGS, SUMMARY
from dmlcore.reproduce.papers.ssp_map import CHEAP, EQUAL, MAP, PROBLEMS

SMALL = (*PROBLEMS, "Lasso", "LDA")
REAL = ("MovieLens", "MNIST", "Lasso, 40,000 features", "LDA, a UCI corpus")  # only at full scale
READINGS = ("one mini-batch", "a pass")  # two meanings of a clock
CLOCK = "time to the target: {} / SSP; matrix factorization, best s from other seeds"
FASTER = "time to the target: {} / SSP; each at its best rate, best s, both from other seeds; free server"

MAP_CAPTION = (
    "The map for {}: time of a rival over that of SSP, against the server load and the staleness s, each "
    "s at the better one of the best learning rates of BSP and SSP. Colours and numbers are medians of "
    "three tuning seeds; `never` names the method that does not reach the target in that median before the "
    "runs end, after four times the median time of the fastest method. Purple: SSP is "
    "faster. A frame marks the s that is chosen for each load. Triangles: where SSP overtakes ASP, "
    "measured on other seeds (black) and, for cheap pushes, by theory (white); a panel lacks one where that "
    "is at no load up to 4."
)


class SSPParameters(Parameters):
    """Parameters of notebooks/01_ssp.ipynb; `staleness` is the s of SSP in timelines, in clocks."""

    seeds: int = Field(6, ge=2)
    staleness: int = Field(3, ge=1)
    workers: int = Field(16, ge=5)


REGIMES = {  # by how the ids of claims begin
    "": "each problem, 16 workers with slow episodes, a free server; the abstract names no cluster",
    "S1": "every s, with slow episodes and with one slow worker",
    "S2-clock": "both readings of a clock, 16 workers with slow episodes, a free server; ours",
    "S2-topics": "LDA with slow episodes and a free server; ours",
    "S3": "16 workers with slow episodes, a free and a saturated server; the abstract names none",
    "S5": "convex and Lipschitz losses, steps of theorem 1, 4 workers; the theorem's own",
    "S6": "one slow worker, always the same, no jitter, free links; ours",
    "S7": "16 workers with slow episodes, s = 3; ours",
    "S8": "4 to 64 workers with slow episodes, three kinds of server; ours",
    "S9": "16 workers with slow episodes, server loads up to 4; ours",
}

QUOTES = {  # of the abstract, by how the ids of its claims begin
    "S2": (
        "the SSP model achieves faster algorithm convergence on several different ML problems, "
        "compared to fully-synchronous and asynchronous schemes",
        "objective.png",
    ),
    "S3": (
        "This significantly increases the proportion of time workers spend computing, as opposed to waiting.",
        "breakdown.png",
    ),
}

CLAIMS = {
    "S1": conformance(
        "No schedule breaks the bound: clock gap <= s, and every read holds all updates of clocks "
        "<= c - s - 1",
        "tasks outside the read window, plus clocks of lead beyond s, over s in {0, 1, 3, 8}",
        expected=(0, 0),
        unit="",
        data="none",
        parts=("SSP", "ESSP"),
        always=True,
    ),
    "S2-BSP": abstract(
        "SSP reaches a target objective faster than BSP, on several problems",
        FASTER.format("BSP"),
        parts=SMALL,
    ),
    "S2-ASP": abstract(
        "SSP reaches a target objective faster than fully asynchronous training, on several problems",
        FASTER.format("ASP"),
        parts=SMALL,
    ),
    "S2-BSP-data": ours("S2-BSP on data of the paper's kind (full scale)", FASTER.format("BSP"), parts=REAL),
    "S2-ASP-data": ours("S2-ASP on data of the paper's kind (full scale)", FASTER.format("ASP"), parts=REAL),
    "S2-clock-BSP": ours(
        "SSP is faster than BSP for either reading of a clock, on data of the worker's own",
        CLOCK.format("BSP"),
        parts=READINGS,
    ),
    "S2-clock-ASP": ours(
        "SSP is faster than ASP for either reading of a clock, on data of the worker's own",
        CLOCK.format("ASP"),
        parts=READINGS,
    ),
    "S2-topics": ours(
        "However stale its counts, Gibbs sampling finds the true topics as well as with BSP",
        "mean cosine of the true topics, which are bars, and those found: method - BSP, on the same seed",
        expected=(-0.05, None),
        unit="",
        parts=("SSP", "ASP"),
    ),
    "S3": abstract(
        "Workers spend a larger share of their time computing, the larger s is",
        "smallest rise of the computing share from one s to the next, of s = 0, 1, 3, 8",
        expected=(0.001, None),
        unit="",
        data="none",
        parts=("free server", "server load 2, cheap pushes"),
    ),
    "S5-growth": theory(
        "With the step sizes of theorem 1, the regret of stale reads grows no faster than the root of T",
        "slope of log regret over log T, T from 16 to 128 times 16 (s + 1) P, P = 4",
        expected=(None, 0.5),
        unit="",
        data="none",
        parts=("s = 0", "s = 1", "s = 3"),
    ),
    "S5-bound": theory(
        "Theorem 1 and lemma 1 hold on the schedules of the simulator",
        "measured / bound, largest; regret: s in {0, 1, 3}, T from 16 to 128 times 16 (s + 1) P; lemma: s in "
        "{1, 3}; P = 4",
        expected=(None, 1),
        data="none",
        parts=("regret", "updates missing from a read or in it early"),
        always=True,
    ),
    "S6": theory(
        "A persistent straggler leaves nothing to gain: the makespan is that of BSP for every s",
        "makespan of BSP / of SSP, the ratio farthest from 1 of those for s = 1, 3, 8; one worker 3x slower, "
        "free links, no jitter",
        expected=(0.98, 1.02),
        data="none",
        always=True,
    ),
    "S7-staleness": conformance(
        "ESSP's reads are fresher than SSP's at the same s",
        "mean clocks by which a read lags: SSP - ESSP",
        expected=(0.001, None),
        unit="clocks",
        data="none",
    ),
    "S8": ours(
        "The more workers, the larger SSP's lead over BSP",
        "time to the target: (BSP / best SSP) of 64 workers over that of 4; Lasso, transient "
        "stragglers, best s from other seeds",
        parts=("free server", f"shared server, {EQUAL}", f"shared server, {CHEAP}"),
    ),
    **MAP,
}

PAPER = Paper(
    key="ssp",
    title="More effective distributed ML via a stale synchronous parallel parameter server",
    reference="Ho, Cipar, Cui, Kim, Lee, Gibbons, Gibson, Ganger, Xing, NIPS 2013",
    notebook="01_ssp.ipynb",
    parameters=SSPParameters,
    summary=SUMMARY,
    claims=declare(
        "ssp",
        CLAIMS,
        regimes=REGIMES,
        quotes=QUOTES,
        findings=FINDINGS,
        unit="x",
        expected=(1, None),
        data="any",
    ),
    figures={
        "timelines.png": "Timelines of eight workers under BSP, SSP and ASP with the same stragglers. "
        "Under BSP all workers wait for the slowest in every round, under SSP only for a worker that is "
        "s clocks behind, and under ASP never.",
        "objective.png": "Left: objective against virtual time on a free server for BSP, SSP with the best s "
        "and ASP on matrix factorization, digits and Lasso, each at its best rate. Right: time to the target "
        "over that of the fastest method, median and interval; the order is sure where 1 is outside.",
        "lda.png": "Above: perplexity of LDA against virtual time for BSP, SSP and ASP. Below: the true "
        "topics, which are bars, and the topics that BSP, SSP and ASP found by the end, on one seed.",
        "map_factorization.png": MAP_CAPTION.format("matrix factorization"),
        "map_digits.png": MAP_CAPTION.format("digits"),
        "crossover.png": "Above: time of ASP over that of SSP against the server load; the best s of "
        "SSP is chosen on other seeds, and SSP is faster above 1. The golden band is the expected range "
        "of the crossover for cheap pushes. Below: the server load of real clusters, from assumed sizes "
        "and speeds.",
        "breakdown.png": "Seconds of computing, of transfers and of waiting for 200 clocks of every "
        "worker, against the staleness s, with a free server and with a loaded one.",
        "interior_optimum.png": "Clocks per second rise with s, progress per clock mostly falls, and "
        "the time to the target is shortest in between. Every s has the better one of the best learning "
        "rates of BSP and SSP.",
        "stragglers.png": "Time for 200 clocks of all workers against s: a larger s helps against "
        "transient stragglers, but not against a persistent one.",
        "staleness.png": "Histogram of the number of clocks by which reads lag behind, for SSP and ESSP "
        "at one s.",
        "theorem.png": "Regret against the number of updates T for s of 0, 1 and 3, with the decreasing "
        "steps of theorem 1, whose bound grows with the square root of T, and with constant steps.",
        "scaling.png": "Time to the target of Lasso against the number of workers for BSP, SSP with the best "
        "s, and ASP, with a free server and with one that all workers share.",
    },
    full_figures={
        "data.png": "Objective against virtual time on a free server for BSP, SSP with the best s and ASP, "
        "each at its best rate, on MovieLens, MNIST, Lasso with 40,000 features (generated data), and LDA on "
        "a UCI corpus.",
    },
    comparisons=(
        Comparison(
            "Objective against time of BSP, SSP and asynchronous training",
            "objective.png, lda.png",
            "differs",
            "on a free server asynchronous training is the fastest; map_factorization.png and "
            "map_digits.png show where it is not",
        ),
        Comparison("Seconds of computing and of waiting, against the staleness", "breakdown.png", "same"),
        Comparison(
            "Clocks per second, progress per clock, and their product, against the staleness",
            "interior_optimum.png",
            "same",
        ),
        Comparison(
            "Time to the objective against the number of machines",
            "scaling.png",
            "differs",
            "SSP's lead over BSP does not grow with the number of workers",
        ),
    ),
    data={"full": ("mnist", "movielens_small")},
    quick_seconds=140,
)
