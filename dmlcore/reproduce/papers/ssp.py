"""Stale synchronous parallel (Ho et al. 2013): what is claimed, and what would show it.

Only what the abstract says has the source `abstract`.

Every expected range was declared before the run that judged it, and none was loosened. After the first
results were seen, this changed, and all was run again:

- S2-links was added; its second part, each method at its best rate, has the two lower rates of the grid.
- S4 was made stricter: ASP is an unbounded end too, and the best s is chosen on the other seeds. Its grid of
  s gave up 2 and 5 and gained 32 and 64.
- The grids of learning rates: matrix factorization was extended to 64, then trimmed to 16, 32, 64; digits
  lost 0.25 and has 0.5, 1, 2; MNIST at full scale lost 0.05.
- The engine: a worker that keeps its copy goes on when it has computed, without waiting for its push.
- Lasso, LDA, S5 and S8 were added later; the others' numbers stayed what they were. To save time, Lasso went
  from 5120 features (1024 in S8) to 1280, and S5 from T = 20 (s + 1) P to 18 (s + 1) P. That changed two
  outcomes: S4 on Lasso where SSP has no bound was partly (1.27x, 0 to 1.37), and S8 was not reproduced
  (0.94x, 0.78 to 0.96).
- To save more, runs are given up sooner (matrix factorization and digits after 24 s instead of 30, Lasso
  after 8 instead of 10), figures gave up ESSP on Lasso and LDA, and SSP 3 on slow links, and 16 and 256
  workers have two seeds in S8. Rates are tuned, and S7-robustness is judged, on the first three seeds.
- S2-topics was added when its first seed was known (0.90 for all three methods); the 0.9 is older.
"""

from pydantic import Field

from dmlcore.reproduce.paper import FAIR, Paper, Parameters, abstract, declare, ours

PROBLEMS = ("matrix factorization", "digits")
ADDITIVE = ("Lasso", "LDA")  # tasks are updates, not gradients
RIVALS = tuple(f"{problem}, against {rival}" for problem in PROBLEMS + ADDITIVE for rival in ("BSP", "ASP"))
SOONER = "time to the target objective: rival / SSP, transient stragglers"


class SSPParameters(Parameters):
    """Parameters of notebooks/01_ssp.ipynb; `staleness` is s of the SSP that is compared, clocks."""

    staleness: int = Field(3, ge=1)
    workers: int = Field(16, ge=2)


CLAIMS = {
    "S1": abstract(
        "No schedule breaks the bound: clock gap <= s, and every read holds all updates of clocks "
        "<= c - s - 1",
        "tasks outside the read window, plus clocks of lead beyond s, over s in {0, 1, 3, 8}",
        expected=(0, 0),
        unit="",
        parts=("SSP", "ESSP"),
    ),
    "S2-paper": abstract(
        "SSP reaches a target objective sooner than BSP and fully asynchronous, "
        "all at the learning rate that suits BSP best",
        SOONER,
        parts=RIVALS,
    ),
    "S2-fair": ours(FAIR, SOONER, parts=RIVALS),
    "S2-links": ours(
        "Where a transfer takes longer than a task, the cached copy makes SSP sooner than ASP",
        "time to the target objective: ASP / SSP with s = 8; digits, 100 ms a transfer",
        parts=("one rate for all", "each at its best rate"),
    ),
    "S2-topics": ours(
        "However stale its counts, Gibbs sampling finds the true topics",
        "mean cosine of the true topics, which are bars, and those found",
        expected=(0.9, None),
        unit="",
        parts=("BSP", "SSP", "ASP"),
    ),
    "S3": abstract(
        "Workers spend a larger share of their time computing, the larger s is",
        "smallest rise of the computing share between neighbours of s = 0, 1, 3, 8",
        expected=(0.001, None),
        unit="",
    ),
    "S4": ours(
        "The best s is interior: sooner than no staleness and than no bound",
        "time to the target: the better of the two ends / s between, best on the other seeds",
        parts=tuple(
            f"{each}, no bound {end}" for each in (*PROBLEMS, "Lasso") for end in ("for SSP", "is ASP")
        ),
    ),
    "S5": ours(
        "With the step sizes of theorem 1, the regret of stale reads stays within its bound",
        "measured / bound, largest over s in {0, 1, 3, 8, 32} and P in {2, 8, 32}",
        expected=(None, 1),
        parts=("regret", "distance to the optimum, as presumed", "updates that a read lacks or has early"),
    ),
    "S6": ours(
        "A persistent straggler leaves nothing to gain: the makespan is that of BSP for every s",
        "makespan of BSP / of SSP, largest over s = 1, 3, 8; one worker 3x slower, free links",
        expected=(0.98, 1.02),
    ),
    "S7-staleness": ours(
        "ESSP's reads are fresher than SSP's at the same s",
        "mean clocks by which a read lags: SSP - ESSP",
        expected=(0.001, None),
        unit="clocks",
    ),
    "S7-robustness": ours(
        "ESSP bears larger steps than SSP at the same s",
        "learning rates of the grid at which the target is reached: ESSP - SSP",
        unit="rates",
        parts=PROBLEMS,
    ),
    "S8": ours(
        "The more workers, the larger SSP's lead over BSP",
        "time to the target: (BSP / best SSP) of 64 workers over that of 4; Lasso, transient "
        "stragglers, best s on the other seeds",
    ),
}

PAPER = Paper(
    key="ssp",
    title="More effective distributed ML via a stale synchronous parallel parameter server",
    reference="Ho, Cipar, Cui, Kim, Lee, Gibbons, Gibson, Ganger, Xing, NIPS 2013",
    notebook="01_ssp.ipynb",
    parameters=SSPParameters,
    claims=declare("ssp", CLAIMS, unit="x", expected=(1, None)),
    figures={
        "timelines.png": "Timelines of eight workers under BSP, SSP and ASP with the same stragglers. Under "
        "BSP all wait for the slowest in every round, under SSP only when it falls behind by s clocks, under "
        "ASP never.",
        "objective.png": "Left: objective against virtual time for BSP, SSP and ASP on matrix "
        "factorization, digits and Lasso, and ESSP on the first two, all at the learning rate that suits BSP "
        "best. Right: time to the target against the learning rate.",
        "lda.png": "Above: perplexity of LDA against virtual time for BSP, SSP and ASP. Below: the "
        "true topics, which are bars, and those that BSP, SSP and ASP have found at the end, on one seed.",
        "links.png": "Time to the target on digits against the latency of the links, for BSP, SSP and ASP.",
        "breakdown.png": "Share of time that workers compute, transfer and wait, against the staleness s.",
        "interior_optimum.png": "Clocks per second rise with s, progress per clock falls, and the time to "
        "the target is least in between.",
        "stragglers.png": "Time for the same number of clocks against s: s helps against transient "
        "stragglers and not against a persistent one.",
        "staleness.png": "By how many clocks reads lag behind, as a histogram, for SSP and ESSP at one s.",
        "theorem.png": "Measured over bound against s, for 2, 8 and 32 workers: the regret of theorem 1, the "
        "distance that it presumes, and the updates out of turn of lemma 1.",
        "scaling.png": "Time to the target of Lasso against the number of workers for BSP, SSP with the best "
        "s, and ASP, next to one worker's divided by their number, with transient stragglers and, on two "
        "seeds, with persistent ones; 16 and 256 workers have two seeds in both.",
    },
    data={"full": ("mnist", "movielens_small")},
    quick_seconds=100,
)
