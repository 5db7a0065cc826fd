"""Adaptive synchronous parallel (Wang and Zhu 2024): its claims, and what would show them.

Only the abstract is available to us: 9.61% to 41.15% less time to converge than other strategies, and up to
3.29 points more accuracy. `dml.study` tunes every method with the same number of runs, on seeds that judge
nothing, and judges the times to a target on others. "Faster" requires 2%, because with a very large threshold
adaptive sync is ASP.

docs/papers/adaptive_sync.md tells what was explored before and what was changed after results had been seen,
and tests/test_adaptive_sync_claims.py shows that each claim can fail.
"""

from pydantic import Field

from dmlcore.reproduce.paper import Comparison, Paper, TunedParameters, abstract, declare, ours
from dmlcore.reproduce.papers.adaptive_sync_findings import FINDINGS, SUMMARY
from dmlcore.reproduce.papers.adaptive_sync_places import PLACES, TROUBLED

MAIN = ("BSP", "ASP", "SSP")  # rivals on every cluster
RIVALS = (*MAIN, "DSSP", "Sync-Switch", "A2S")
COSTS = tuple(place.communication for place in TROUBLED)
BAND = (1 / (1 - 0.0961), 1 / (1 - 0.4115))  # range of speed-ups that the abstract reports
POINTS = 3.29  # points of accuracy that the abstract reports
FASTER = 1.02  # smallest speed-up that counts as faster
BETTER = 0.01  # smallest difference in points of accuracy that counts as better
DATA = ("MNIST", "CIFAR-10")  # data sets of full scale

TROUBLES = tuple(f"{rival}, {cost}" for cost in COSTS for rival in RIVALS)
ON_DATA = tuple(f"{data}, {rival}" for data in DATA for rival in MAIN)


class AdaptiveSyncParameters(TunedParameters):
    """Parameters of notebooks/02_adaptive_sync.ipynb; `workers` is P."""

    seeds: int = Field(3, ge=2)
    workers: int = Field(8, ge=4, multiple_of=4)
    epochs: float = Field(5.0, gt=0)  # epochs of MNIST and of CIFAR-10 at full scale


TUNED = "each at its own best knob and learning rate"
TROUBLE = "speeds 4x and slow episodes"
TIME = f"time to the target loss, {TROUBLE}: rival / adaptive sync"
ON_DATA_TIME = f"time to the target accuracy, {TROUBLE}, dear communication: rival / adaptive sync; {TUNED}"
GAIN = f"test accuracy after equal time, {TROUBLE}, dear communication, minus that of the rival"
LEAST_ACCURATE = "with the least on a tuning seed"

REGIMES = {  # by how the ids of claims begin
    "": "speeds of 1 to 4 and slow episodes, each rival: the abstract's heterogeneity and instability",
    "A1-best": "six clusters: even or uneven, with or without slow episodes, cheap or dear links; ours",
    "A1-worst": "the six clusters of A1-best; ours",
    "A1-acts": "the six clusters of A1-best; ours",
}

QUOTES = {  # of the abstract, by how the ids of its claims begin
    "A1-acts": (
        "different global model parameter update rules are adapted to compute nodes in different states",
        "states.png",
    ),
    "A1": (
        "compared to other parallel strategies, the convergence time of the proposed method is "
        "reduced by 9.61%-41.15%",
        "rivals.png",
    ),
    "A2": ("the accuracy is improved by up to 3.29%", "accuracy.png"),
}

CLAIMS = {
    "A1": abstract(
        "Convergence takes at least 9.61% less time than with other strategies",
        f"{TIME}; {TUNED}",
        parts=TROUBLES,
    ),
    "A1-faster": abstract(
        "Convergence takes less time than with other strategies",
        f"{TIME}; {TUNED}",
        expected=(FASTER, None),
        parts=TROUBLES,
        repeats="A1",
    ),
    "A1-fastest": ours(
        "With both troubles and dear communication it takes at least 9.61% less time than the fastest rival",
        f"{TIME} that the study ranks first; {TUNED}",
    ),
    "A1-best": ours(
        "On every kind of cluster it is faster than the fastest of BSP, ASP and SSP",
        f"time to the target loss: the rival that the study ranks first / adaptive sync; {TUNED}",
        expected=(FASTER, None),
        parts=tuple(map(str, PLACES)),
    ),
    "A1-worst": ours(
        "With one threshold for six clusters, its worst case is less bad than that of BSP, ASP and SSP",
        "largest time / time of the fastest of the four, as tuned on that cluster: rival / adaptive sync; "
        "each with the value of its knob that is best for all six on the tuning seeds, and a rate for each",
        expected=(FASTER, None),
        parts=MAIN,
    ),
    "A1-shared": ours(
        "It takes at least 9.61% less time where all have the learning rate of adaptive sync",
        f"{TIME}; each at its own best knob; dear communication",
        parts=RIVALS,
    ),
    "A1-rate": ours(
        "It is not a smaller learning rate that helps: faster than ASP at the same mean weight per push",
        f"{TIME}; both at the learning rate of adaptive sync",
        expected=(FASTER, None),
        parts=COSTS,
    ),
    "A1-acts": ours(
        "At its best threshold the rules of adaptive sync act",
        "share of the pushes that lag or wait in a group",
        expected=(0.05, None),
        unit="",
        parts=tuple(map(str, PLACES)),
    ),
    "A2": abstract(
        "Accuracy is up to 3.29 points better",
        f"{GAIN} {LEAST_ACCURATE}; {TUNED}",
        expected=(POINTS, None),
        unit="points",
    ),
    "A2-better": abstract(
        "Accuracy is better than that of other strategies",
        f"{GAIN}; {TUNED}",
        expected=(BETTER, None),
        unit="points",
        parts=RIVALS,
    ),
    "A2-shared": ours(
        "Accuracy is better where all have the learning rate of adaptive sync",
        f"{GAIN}; each at its own best knob",
        expected=(BETTER, None),
        unit="points",
        parts=RIVALS,
    ),
    "A1-data": ours(
        "It takes at least 9.61% less time on MNIST and CIFAR-10, too (full scale)",
        ON_DATA_TIME,
        parts=ON_DATA,
    ),
    "A1-data-faster": ours(
        "It takes less time on MNIST and CIFAR-10, too (full scale)",
        ON_DATA_TIME,
        expected=(FASTER, None),
        parts=ON_DATA,
        repeats="A1-data",
    ),
    "A2-data": ours(
        "Accuracy on MNIST and CIFAR-10 is up to 3.29 points better (full scale)",
        f"{GAIN} of BSP, ASP and SSP {LEAST_ACCURATE}; {TUNED}",
        expected=(POINTS, None),
        unit="points",
        parts=DATA,
    ),
    "A2-data-better": ours(
        "Accuracy on MNIST and CIFAR-10 is better (full scale)",
        f"{GAIN}; {TUNED}",
        expected=(BETTER, None),
        unit="points",
        parts=ON_DATA,
    ),
}

PAPER = Paper(
    key="adaptive_sync",
    title="Adaptive synchronous parallel strategy for distributed machine learning",
    reference="Wang, Zhu, Journal of Liaodong University 2024",
    notebook="02_adaptive_sync.ipynb",
    parameters=AdaptiveSyncParameters,
    summary=SUMMARY,
    claims=declare(
        "adaptive_sync",
        CLAIMS,
        regimes=REGIMES,
        quotes=QUOTES,
        findings=FINDINGS,
        unit="x",
        expected=(BAND[0], None),
        data="any",
    ),
    figures={
        "states.png": "Above: eight workers as lanes of time, coloured by the state of each task's push "
        "(normal, lagging or fast), and grey where the worker waits. Below: the shares of the states "
        "against the threshold S.",
        "map.png": "Time of the fastest tuned rival, of BSP, of ASP and of SSP over that of tuned "
        "adaptive sync, for workers of equal or different speed, with and without slow episodes, and "
        "for cheap or expensive (dear) communication. Purple: adaptive sync is faster. Golden frame: "
        "within the paper's range.",
        "decision.png": "Time of the fastest tuned rival over that of adaptive sync, for each threshold S at "
        "its best learning rate, on the same clusters. A black frame: the best threshold.",
        "rivals.png": "Time of each of six rivals over that of adaptive sync, one dot per seed, on "
        "clusters with both different speeds and slow episodes: with cheap and with expensive "
        "communication, and at one learning rate for all. The band is the paper's range.",
        "accuracy.png": "Left: test accuracy against time of adaptive sync, BSP, ASP and SSP on the cluster "
        "with different speeds, slow episodes and expensive communication, each at its own best settings. "
        "Right: points of accuracy that adaptive sync is ahead of each of six rivals at the end, one mark "
        "per seed, with each at its best settings and with all at one learning rate.",
        "parts.png": "Time of adaptive sync with one of its rules changed over its time without the "
        "change; and time of ASP with the same mean weight per push.",
    },
    full_figures={
        "load.png": "Time of BSP, ASP and SSP over that of adaptive sync against the server load, for "
        "workers of speeds 1 to 4 with slow episodes. The band is the paper's range.",
        "data.png": "Test accuracy against time of adaptive sync, BSP, ASP and SSP on MNIST and CIFAR-10, "
        "each at its own best settings.",
    },
    comparisons=(  # with the abstract, the only part of the paper that is available to us
        Comparison(
            "Convergence time beside that of other strategies",
            "map.png, rivals.png, A1",
            "differs",
            "with expensive communication and both troubles it is faster than all six rivals, but at least "
            "9.61% less time holds for ASP, Sync-Switch and A2S only and is undecided for BSP, SSP and DSSP; "
            "on the five other clusters it is not faster than the fastest of BSP, ASP and SSP, or that is "
            "undecided",
        ),
        Comparison(
            "Accuracy beside that of other strategies",
            "accuracy.png, A2",
            "differs",
            "once all methods are tuned, it is undecided for each rival whether adaptive sync is the more "
            "accurate, and no interval reaches 3.29 points",
        ),
    ),
    data={"full": ("mnist", "cifar10")},
    quick_seconds=100,
)
