"""H-PS, a heterogeneity-aware parameter server (Xian et al. 2024): its claims, and what would show them.

Only the abstract is available to us: training takes 1.4 to 3.5 times less than with existing methods, workers
finish together, and transfers cost less time and fewer bytes. The claim is judged as a curve over the
communication ratio c, direction and size separately, with both readings of the pipeline, against rivals that
every parameter server has.

docs/papers/hps.md tells what was explored before and what was changed after results had been seen, and
tests/test_hps.py shows that each claim can fail.
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
from dmlcore.reproduce.papers.hps_findings import FINDINGS, SUMMARY

RIVALS = ("BSP", "SSP", "ASP")
READINGS = ("late by one", "own steps")  # of the pipeline
LEAST, MOST = 1.4, 3.5  # range of speed-ups that the abstract reports
WIDTHS = (32, 8, 4)  # bits per value of a transfer
RATIOS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # communication ratios c of the sweep
SERVED = (0.1, 0.5, 2.0)  # c of clusters with a shared link of the server
REAL = ("MNIST", "CIFAR-10")
REAL_RATIOS = (0.5, 2.0, 4.0)  # communication ratios c of the sweep at full scale


class HpsParameters(TunedParameters):
    """Parameters of notebooks/04_hps.ipynb; `workers` is n."""

    workers: int = Field(8, ge=3)


SWEPT = tuple(f"{reading}, c = {c:g}" for c in RATIOS for reading in READINGS)
TAKES = "time to the target loss: {} / H-PS, each at its best settings from other seeds"
EACH = "ratios c, of {}, at which every existing method takes 1.4 to 3.5 times as long as H-PS"
SWEPT_REAL = tuple(f"{name}, {swept}, c = {c:g}" for name in REAL for swept in READINGS for c in REAL_RATIOS)
ON_DATA = {"parts": SWEPT_REAL, "data": ", ".join(REAL)}

REGIMES = {  # by how the ids of claims begin
    "": "c of 0.25 to 8 and both readings of the pipeline; the abstract names no cluster",
    "H1-server": "all workers share the server's link, at three loads; ours",
    "H1-BSP-data": "communication ratios c of 0.5, 2 and 4, both readings of the pipeline; ours",
    "H1-SSP-data": "as H1-BSP-data",
    "H1-ASP-data": "as H1-BSP-data",
    "H1-size-data": "as H1-BSP-data",
    "H2": "8 workers whose speeds differ and change: the abstract's heterogeneous environment",
    "H3": "the least and the largest c of the sweep; the abstract names none",
    "H4-loss": "both readings of the pipeline, 8 and 4 bits; ours",
    "H4-bytes": "every update: the definition",
    "H6": "the least and the largest c of the sweep; ours",
    "H-model": "a grid of clusters without jitter; ours",
}

QUOTES = {  # of the abstract, by how the ids of its claims begin
    "H4-bytes": (
        "A flexible quantization scheme was proposed to reduce the communication overhead between the "
        "parameter server and workers by compressing the parameters of the neural network model.",
        "widths.png",
    ),
    "H1": (
        "H-PS reduces the overall training time by 1.4x-3.5x when compared with existing methods",
        "speedup.png",
    ),
    "H2": (
        "dynamically scheduling tasks based on the current status of the workers so that the workers "
        "completed their tasks at the same time",
        "scheduling.png",
    ),
    "H3": (
        "continuously model training of workers during the time of parameters transmitting between "
        "parameter server and workers",
        "timelines.png",
    ),
}

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
        always=True,
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
        always=True,
    ),
}

PAPER = Paper(
    key="hps",
    title="Heterogeneous-aware parameter server for distributed neural network training",
    reference="Xian, Liu, Wang, Liu, Computer Engineering and Design 2024",
    notebook="04_hps.ipynb",
    parameters=HpsParameters,
    summary=SUMMARY,
    claims=declare(
        "hps",
        CLAIMS,
        regimes=REGIMES,
        quotes=QUOTES,
        findings=FINDINGS,
        unit="x",
        expected=(1, None),
        data="any",
    ),
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
        "widths.png": "Time to the target with 32, 8 and 4 bits over that with the number of bits whose "
        "median is least, against the communication ratio: medians of the ratios by seed. Circles: the "
        "number of bits that the rule chooses.",
        "ablations.png": "Time to the target of BSP, each mechanism and each pair over that of all three "
        "on the same seed, at the least and the largest communication ratio: medians, and ranges of the "
        "seeds.",
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
            "the range holds in the median at a communication ratio of 4 (late by one) or 2 (own steps); "
            "H-PS gains less at smaller ratios, where ASP or SSP can be faster, and more at larger ones",
        ),
        Comparison("Workers complete their tasks at the same time", "scheduling.png, H2", "same"),
        Comparison("Workers compute during transfers", "timelines.png, H3", "same"),
        Comparison(
            "Flexible quantization",
            "widths.png, H5-hide",
            "differs",
            "choosing the number of bits for each link gains little: 4 bits on all links are within 5% of "
            "the best width in every median",
        ),
    ),
    data={"full": ("mnist", "cifar10")},
    quick_seconds=70,
)
