"""H-PS, a heterogeneity-aware parameter server (Xian et al. 2024): its claims, and what would show them.

Only the abstract is available to us: training takes 1.4 to 3.5 times less than with existing methods, workers
finish together, and transfers cost less time and fewer bytes. It does not say which methods, clusters and
models. Our rivals are those that every parameter server has. So the claim is judged as a curve over the
communication ratio c, direction and size separately, with both readings of the pipeline. `H1-size` asks where
"1.4 to 3.5" holds.

An earlier version judged everything at c = 0.5, by the time to an accuracy at which digits are saturated. It
required that scheduling halve a spread that a perfect scheduler would not halve, and it fixed the bits. Its
claims H1-epoch and H4-accuracy were removed, as was the comparison with one rate for all methods.

The exploration before the ranges were declared, on seeds from 100 on, which judge nothing, was about rates,
targets, s from 2 to 128 (beyond 32 nothing was faster), slow episodes, and all claims at quick scale on five
such seeds. H-PS was then the fastest from c = 2 on. Each rival took 1.4 to 3.5 times as long at c = 4 (late
by one) and, on three seeds, at c = 2 (own steps). The shares of the gain in H6 were 0.78 to 1.02, and
scheduling was within 15% of a perfect scheduler. H2-perfect was drafted as 1.25 and made narrower; no other
range was changed.

The following was changed after a first run at quick scale, to halve its time, and judged again: s = 8, which
was never the best, is not tried any more; there are two tuning seeds instead of three; tasks have at least 9
samples, a bound that no task had been below; and in H6 the subsets with quantization have the same number of
updates as the runs without it, because 8 bits had cost none. Ranges and everything else did not change.

Later a search by hand gave way to `dml.study`. So that its runs take no longer, the target at quick scale is
a loss of 0.3 and no longer 0.1, and SSP has s = 2 from c = 4 on, since a larger s asks more of a link than it
carries. The target and the values of s were fixed before the first run of the studies; no range was changed.
The budget of 20 runs and the order of s (2, 32) are those of a first run. We went back to them after a try
with 18 runs and the order 32, 2 had been seen. Then the first runs of `dml.study` were mended for all
notebooks, and all was judged again: only SSP at c = 2 changed, which became faster, and H1-size, which had
held on every seed, holds on four of five with each reading.

One more thing was changed after results had been seen: H1-size, a claim of an abstract, had "on some cluster
of the sweep" in its statement, which the abstract does not say. This is now in the metric only; the
measurement and the range did not change.

`tests/test_hps.py` tries settings in which each claim comes out the other way:

- H1-BSP, H1-SSP, H1-ASP, H1-server, H1-BSP-data, H1-SSP-data, H1-ASP-data: free links and equal workers
  without jitter, where late gradients cost updates and save nothing.
- H1-size, H1-size-data: links so slow that all rivals take more than 3.5 times as long.
- H2: equal workers with jitter, which disturbs a rule that follows the last tasks.
- H2-perfect: a rule that never learns.
- H3: free links and equal workers without jitter.
- H4-loss: 1 bit.
- H4-bytes: 16 bits.
- H5-hide: all bits on slow links.
- H5-error: 8 bits on slow links.
- H6: equal workers, with which scheduling saves nothing, and fast links, on which quantization saves little.
- H6-pipeline: free links.
- H-model: tasks with jitter.
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
from dmlcore.reproduce.papers.hps_findings import FINDINGS, SUMMARY

RIVALS = ("BSP", "SSP", "ASP")
READINGS = ("late by one", "own steps")  # of the pipeline
LEAST, MOST = 1.4, 3.5  # range of speed-ups that the abstract reports
WIDTHS = (32, 8, 4)  # bits per value of a transfer
RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # communication ratios c of the sweep
SERVED = (0.1, 0.5, 2.0)  # c of clusters with a shared link of the server
REAL = ("MNIST", "CIFAR-10")
REAL_RATIOS = (0.5, 2.0, 4.0)  # communication ratios c of the sweep at full scale


class HpsParameters(Parameters):
    """Parameters of notebooks/04_hps.ipynb; `workers` is n."""

    workers: int = Field(8, ge=3)


SWEPT = tuple(f"{reading}, c = {c:g}" for c in RATIOS for reading in READINGS)
TAKES = "time to the target loss: {} / H-PS, each at its best settings from other seeds"
EACH = "ratios c, of {}, at which every existing method takes 1.4 to 3.5 times as long as H-PS"
SWEPT_REAL = tuple(f"{name}, {swept}, c = {c:g}" for name in REAL for swept in READINGS for c in REAL_RATIOS)
ON_DATA = {"parts": SWEPT_REAL, "data": ", ".join(REAL)}

CLAIMS = {
    **{
        f"H1-{rival}": abstract(
            f"H-PS takes less training time than {rival}", TAKES.format(rival), parts=SWEPT, data="digits"
        )
        for rival in RIVALS
    },
    "H1-size": abstract(
        "Training takes 1.4 to 3.5 times less than with existing methods",
        EACH.format("0.25, 0.5, 1, 2, 4 and 8"),
        unit="ratios",
        parts=READINGS,
        data="digits",
    ),
    "H1-server": ours(
        "H-PS is faster than each existing method where all workers share the server's link, too",
        TAKES.format("the fastest rival"),
        parts=tuple(f"{reading}, c = {c:g}" for c in SERVED for reading in READINGS),
    ),
    **{
        f"H1-{rival}-data": ours(
            f"H-PS takes less training time than {rival} on MNIST and CIFAR-10 (full scale)",
            TAKES.format(rival),
            **ON_DATA,
        )
        for rival in RIVALS
    },
    "H1-size-data": ours(
        "It takes 1.4 to 3.5 times less on some cluster of the sweep on MNIST and CIFAR-10 (full scale)",
        EACH.format("0.5, 2 and 4"),
        unit="ratios",
        parts=tuple(f"{name}, {reading}" for name in REAL for reading in READINGS),
        data=", ".join(REAL),
    ),
    "H2": abstract(
        "Workers complete their tasks at the same time: closer together than with equal batches",
        "median spread of a round's finish times: H-PS / equal batches",
        expected=(None, 1),
        data="none",
    ),
    "H2-perfect": ours(
        "Its scheduling is within a fifth of a perfect scheduler's",
        "median spread of a round's finish times: H-PS / a scheduler that knows each worker's mean speed",
        expected=(None, 1.2),
        data="none",
    ),
    "H3": abstract(
        "The pipeline lets workers compute for a larger share of the time",
        "share of the time computing, with the pipeline minus without",
        expected=(0.1, None),
        unit="points",
        parts=("c = 0.25", "c = 8"),
        data="none",
    ),
    "H4-loss": ours(
        "Fewer bits cost hardly any updates",
        "updates to the target loss: fewer bits / 32 bits, each at its best rate",
        expected=(None, 1.1),
        parts=tuple(f"{reading}, {bits} bits" for reading in READINGS for bits in WIDTHS[1:]),
    ),
    "H4-bytes": conformance(
        "An update of 8 bits a value has less than a third of the bytes",
        "bytes of an update: 8 bits / 32 bits",
        expected=(None, 1 / 3),
    ),
    "H5-hide": ours(
        "The most bits that hide behind computing are about the best width at every c",
        "time to the target loss: width by the rule / the best fixed width",
        expected=(None, 1.1),
        parts=SWEPT,
    ),
    "H5-error": ours(
        "So are the fewest bits with a relative error of at most 0.1",
        "time to the target loss: width by the rule / the best fixed width",
        expected=(None, 1.1),
        parts=SWEPT,
    ),
    "H6": ours(
        "At a low c most of the gain is that of scheduling, at a high c that of quantization",
        "share of the logarithm of the speed-up over BSP; own steps, 8 bits",
        expected=(0.5, None),
        unit="",
        parts=("scheduling, c = 0.25", "quantization, c = 8"),
    ),
    "H6-pipeline": ours(
        "Added to scheduling and quantization, the pipeline saves time",
        "time to the target loss: scheduling and quantization / all three, own steps, 8 bits",
        parts=("c = 0.25", "c = 8"),
    ),
    "H-model": theory(
        "A round is (h + c) / max(1, c k / 32) times faster than with BSP, without jitter",
        "largest deviation from the model, over h, c and k",
        expected=(None, 3),
        unit="%",
        data="none",
        deterministic=True,
    ),
}

PAPER = Paper(
    key="hps",
    title="Heterogeneous-aware parameter server for distributed neural network training",
    reference="Xian, Liu, Wang, Liu, Computer Engineering and Design 2024",
    notebook="04_hps.ipynb",
    parameters=HpsParameters,
    summary=SUMMARY,
    claims=declare("hps", CLAIMS, findings=FINDINGS, unit="x", expected=(1, None), data="any"),
    figures={
        "timelines.png": "What four workers do in the first rounds: under BSP, with each of the three "
        "mechanisms, and with all three.",
        "scheduling.png": "Left: the batch of each worker over the rounds; two workers change their "
        "speed. Right: the spread of finish times, in percent of the round, for three load rules and a "
        "perfect scheduler.",
        "plane.png": "Speed-up of a round over the plane of heterogeneity and communication: the model as "
        "colour, with the paper's 1.4 (dashed) and 3.5 as lines, and simulated clusters as points.",
        "speedup.png": "Time to the target loss of BSP, SSP and ASP over that of H-PS, against the "
        "communication ratio c, for both readings of the pipeline: medians, and ranges of the seeds. The "
        "abstract's 1.4 to 3.5 is a band.",
        "places.png": "Communication ratios of four models on links of 1, 10 and 100 Gb/s, from assumed "
        "sizes and step times; the bars below show what the sweep says about H-PS at these ratios.",
        "curves.png": "Training loss against time of BSP, SSP, ASP and both readings of H-PS at the least "
        "and the largest communication ratio.",
        "server.png": "The same ratios of times as in speedup.png, but all workers share the server's "
        "link, against the server load.",
        "widths.png": "Time to the target with 32, 8 and 4 bits over that with the best number of bits "
        "on the same seed, against the communication ratio; and the number of bits that the rule "
        "chooses.",
        "ablations.png": "Time to the target of BSP, each mechanism and each pair over that of all three "
        "on the same seed, at the least and the largest communication ratio.",
    },
    full_figures={
        "data.png": "Time to the target loss of BSP, SSP and ASP over that of H-PS on MNIST and CIFAR-10, "
        "against the communication ratio.",
    },
    comparisons=(  # with the abstract, the only part of the paper that is available to us
        Comparison(
            "Overall training time against existing methods: 1.4 to 3.5 times less",
            "speedup.png, server.png, H1-size",
            "differs",
            "the range holds at a communication ratio of 4 (late by one) or 2 (own steps), each on four "
            "seeds of five; H-PS gains less at smaller ratios and more at larger ones",
        ),
        Comparison("Workers complete their tasks at the same time", "scheduling.png, H2", "same"),
        Comparison("Workers compute during transfers", "timelines.png, H3", "same"),
        Comparison(
            "Flexible quantization",
            "widths.png, H5-hide",
            "differs",
            "4 bits on all links are as good as the number of bits that is chosen for each link",
        ),
    ),
    data={"full": ("mnist", "cifar10")},
    quick_seconds=70,
)
