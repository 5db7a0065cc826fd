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
    TunedParameters,
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


class SSPParameters(TunedParameters):
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
    "S1": (
        "the SSP model ensures ML algorithm correctness by limiting the maximum age of the stale values",
        "staleness.png",
    ),
    "S5-bound": ("We provide a proof of correctness under SSP", "theorem.png"),
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
    comparisons=(  # each says where it is from; what is recollected is from memory, not from the text
        Comparison(
            "Rule 1: the slowest and the fastest worker are at most s clocks apart, else the fastest waits "
            "(from its sources)",
            "S1, timelines.png, tests/test_ssp.py",
            "same",
            "counted in the clocks that workers work on",
        ),
        Comparison(
            "Rule 2: an update that a worker commits at clock c is stamped c (from its sources)",
            "S1, tests/test_conformance.py",
            "same",
        ),
        Comparison(
            "Rule 3: a read at clock c sees every update stamped <= c - s - 1, and possibly newer ones (from "
            "its sources)",
            "S1, staleness.png, tests/test_ssp.py",
            "same",
        ),
        Comparison(
            "Rule 4, read-my-writes: a worker always sees its own updates (from its sources)",
            "tests/hello.py",
            "same",
            "read by workers on threads and in processes; what threads record replays to the same bits in "
            "the arithmetic of the simulator",
        ),
        Comparison(
            "Updates are additive, x <- x + u; for LDA u is a change of counts and no gradient (from its "
            "sources; derived)",
            "lda.png, tests/test_additive.py, tests/test_lda.py",
            "same",
            "a task turns a view of the parameters, a batch and a key into an update; a gradient step is one "
            "case",
        ),
        Comparison(
            "Cache rule: the cached copy is used if its clock is >= c - s, else it is fetched; reads block, "
            "the end of a clock does not (from its sources)",
            "S1, tests/test_ssp.py, tests/test_conformance.py",
            "same",
        ),
        Comparison(
            "Interface: read a row at a staleness, add to an element, end a clock (from its sources)",
            "dml.ssp, dml.train",
            "differs",
            "a task reads all parameters and pushes one update at the end of its clock, and s is one number "
            "for a run",
        ),
        Comparison(
            "A worker that blocks at a read has finished up to s + 1 clocks more than the slowest (derived)",
            "tests/hello.py",
            "same",
            "our workers block before a read",
        ),
        Comparison(
            "s = 0 is exactly BSP (derived)",
            "tests/test_exactness.py",
            "same",
            "in every bit",
        ),
        Comparison(
            "In 400 clocks the slowest worker fetches 400, 200, 100 and 45 times at s = 0, 1, 3 and 8, and "
            "the fastest at nearly every clock (derived)",
            "tests/test_theory.py",
            "same",
            "401, 201, 101 and 45 times",
        ),
        Comparison(
            "The conformance test of the original system: one row holds every worker's clock, and each "
            "worker checks it at every read (from its sources)",
            "tests/hello.py, on threads and on Ray",
            "same",
            "with shorter sleeps; where time is simulated no worker reads during a task, so S1 and "
            "tests/test_conformance.py check every read in the trace instead",
        ),
        Comparison(
            "A known fault: the cache is checked against the clock of the slowest worker, or not renewed "
            "after a push (from the sources of a public system)",
            "S1",
            "differs",
            "ours has no such fault: with a cache that is kept one clock too long, or for good, S1 fails",
        ),
        Comparison(
            "Theorem 1: the regret of stale reads is at most 4 F L sqrt(2 (s + 1) P T) (the paper's theorem)",
            "S5-bound, S5-growth, theorem.png",
            "same",
            "far below the bound, and growing more slowly",
        ),
        Comparison(
            "Lemma 1: a read differs from the sequential order by at most 2 s (P - 1) updates (the paper's "
            "lemma, recollected)",
            "S5-bound, tests/test_regret.py",
            "differs",
            "for s = 1 and 3 it holds, and the number is reached; for s = 0 it would be 0, but a read of BSP "
            "lacks up to P - 1 updates that come before it",
        ),
        Comparison(
            "Eager variant: its reads are fresher, and lag by about one clock instead of by up to s (Dai et "
            "al. 2015; derived)",
            "S7-staleness, staleness.png",
            "same",
            "at s = 3 most reads of SSP lag by one clock as well; our eager workers pull at every clock, and "
            "nothing is pushed to them",
        ),
        Comparison(
            "Eager variant: it tolerates larger steps than SSP (our question)",
            "nothing",
            "not made",
            "a claim about it was removed: on a grid of rates both diverged at the same rate",
        ),
        Comparison(
            "A persistent straggler: the makespan is the same for every s (derived)",
            "S6, stragglers.png, tests/test_theory.py",
            "same",
        ),
        Comparison(
            "Random delays, tasks of 0.5 plus an exponential time, mean 1: 8 workers finish 400 clocks after "
            "742, 506, 451 and 415 s at s = 0, 1, 3 and 8 (derived)",
            "stragglers.png, tests/test_theory.py",
            "same",
            "751, 505, 437 and 418 s on one seed",
        ),
        Comparison(
            "Finding 1: SSP reaches an objective earlier than BSP (the abstract; recollected: directions "
            "only)",
            "S2-BSP, S2-BSP-data, objective.png, lda.png",
            "same",
            "on the data of full scale five seeds leave it undecided",
        ),
        Comparison(
            "Finding 1: SSP reaches an objective earlier than asynchronous training (the abstract; "
            "recollected: directions only)",
            "S2-ASP, S2-ASP-data, S9-crossover, objective.png, lda.png, map_factorization.png, "
            "map_digits.png",
            "differs",
            "on a free server asynchronous training is the faster one; with cheap pushes SSP overtakes it at "
            "server loads of 1.5 and 1.9",
        ),
        Comparison(
            "Finding 2: the seconds of computing do not depend on s, and the seconds of waiting fall (the "
            "abstract; recollected: directions only)",
            "S3, breakdown.png",
            "same",
        ),
        Comparison(
            "Finding 2: at 32 machines BSP waits about 6 times as long as it computes; the best s makes this "
            "about 1 (recollected: directions only)",
            "breakdown.png",
            "differs",
            "BSP waits 2.4 times as long as it computes on a free server, and SSP with s = 8 half as long; "
            "our 16 workers have slow episodes of our choice",
        ),
        Comparison(
            "Finding 3: clocks per second rise with s, progress per clock falls, and the best s is neither 0 "
            "nor infinite (recollected: directions only)",
            "interior_optimum.png, map_factorization.png, map_digits.png",
            "same",
            "by the pictures, on three tuning seeds, and progress per clock falls for most s only; no claim "
            "judges it",
        ),
        Comparison(
            "Finding 4: the gap grows with the number of machines (recollected: directions only)",
            "S8, scaling.png",
            "differs",
            "SSP's lead over BSP shrinks with the number of workers",
        ),
        Comparison(
            "Finding 4: the gap grows if a clock has fewer samples (recollected: directions only)",
            "S2-clock-BSP",
            "same",
            "BSP takes 1.8 times as long as SSP with a mini-batch as a clock, and 1.2 times with a pass",
        ),
        Comparison(
            "Compared methods: BSP, which is s = 0, the best SSP with s >= 1, fully asynchronous "
            "(recollected)",
            "S2-BSP, S2-ASP",
            "same",
            "s and the learning rates are chosen on other seeds; asynchronous workers pull at every clock",
        ),
        Comparison(
            "One worker alone, as a baseline (asked for by its reviewers)",
            "nothing",
            "not made",
            "a single worker neither waits nor reads stale parameters, so it tells no methods apart; "
            "scaling.png begins with four workers",
        ),
        Comparison(
            "Cluster: 8 to 32 machines of 8 cores, 10 Gb/s Ethernet (recollected)",
            "timelines.png, scaling.png, crossover.png",
            "differs",
            "simulated: 16 workers, 4 to 64 in S8, with slow episodes; crossover.png has estimates of the "
            "server load of such machines",
        ),
        Comparison(
            "Clock: a pass over the worker's own data, or a tenth of it (recollected)",
            "S2-clock-BSP, S2-clock-ASP",
            "differs",
            "a clock is a mini-batch of data that all share; these two claims measure a pass as well",
        ),
        Comparison(
            "LDA: collapsed Gibbs sampling, New York Times, 100 million tokens, 100 topics (recollected), "
            "alpha = beta = 0.1 (from its sources)",
            "lda.png, S2-topics, data.png",
            "differs",
            "16,000 generated tokens of 25 words and ten topics; at full scale a corpus of speeches and 20 "
            "topics; alpha and beta are the same",
        ),
        Comparison(
            "Matrix factorization: SGD, Netflix, 100 million ratings, rank 100 (recollected), steps 0.5 (100 "
            "+ t)^-0.5 at clock t, parameters from [-1, 1) (from its sources)",
            "objective.png, data.png",
            "differs",
            "10,800 generated ratings at rank 5; at full scale MovieLens with 100,836 at rank 20; constant "
            "steps, searched for every method, and smaller initial parameters",
        ),
        Comparison(
            "Lasso: parallel coordinate descent, generated, 500 samples of 400,000 features (recollected)",
            "objective.png, scaling.png, data.png",
            "differs",
            "500 samples of 1,280 features; 40,000 at full scale",
        ),
        Comparison(
            "The public Lasso program keeps the residual in each process, so that several workers do not "
            "solve the joint problem (from its sources)",
            "tests/test_lasso.py",
            "differs",
            "w = X beta is on the server, and each worker pushes its changes of w",
        ),
        Comparison(
            "DSSP, a bound that varies: its controller (Zhao et al. 2019)",
            "tests/test_ssp.py",
            "same",
            "on an example computed by hand",
        ),
        Comparison(
            "DSSP on CIFAR-100: 3016 s to an accuracy of 0.67, ASP 2993 s, SSP 5565 to 5704 s, BSP 6159 s "
            "(Zhao et al. 2019)",
            "nothing",
            "not made",
            "it needs ResNet-110 on two GPUs of different speeds; DSSP is a rival of adaptive sync in that "
            "chapter",
        ),
    ),
    data={"full": ("mnist", "movielens_small")},
    quick_seconds=140,
)
