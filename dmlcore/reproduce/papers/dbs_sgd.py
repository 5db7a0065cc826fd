"""DBS-SGD, dynamic batch sizes for asynchronous SGD (Ji et al. 2019): its claims, and what would show them.

Only the abstract is available to us: batches that follow each node's speed reduce the nodes' average
staleness, and with it the loss, without a loss of speed. D1, D2 and D4 are about MNIST and CIFAR-10, and are
judged at full scale only. The learning rates of all claims are chosen on two tuning seeds, by the final loss.

docs/papers/dbs_sgd.md tells how the abstract is read and what was changed after results had been seen, and
tests/test_dbs_sgd.py shows that each claim can fail.
"""

from typing import Any

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
from dmlcore.reproduce.papers.dbs_sgd_findings import FINDINGS, SUMMARY

FIRST_FRESH = 200  # first seed for D5-nodes and D5-maximum
CAP = 64  # largest batch size of a task of LeNet-5
RIVALS = ("ASGD", "n-softsync", "n-softsync, 1/tau")
PROFILES = ("mild", "4x", "10x", "fluctuating")
SETTINGS = {  # settings of the map: momentum, and the factor on the rate in the last third
    "constant rate": (0.0, 1.0),
    "rate decay": (0.0, 0.1),
    "momentum": (0.9, 1.0),
    "momentum, rate decay": (0.9, 0.1),
}
MAPPED = (1, 2, 4, 10)  # ratios of the fastest to the slowest speed, on the map
BOTH = "MNIST and CIFAR-10"


class DbsSgdParameters(Parameters):
    """Parameters of notebooks/05_dbs_sgd.ipynb; `workers` is P of the runs that train, `softsync` n."""

    workers: int = Field(8, ge=4, multiple_of=4)
    softsync: int = Field(4, ge=1)
    epochs: float = Field(3.0, gt=0)  # epochs of MNIST at full scale; CIFAR-10 has twice as many


SHARED = "after equal samples, all at the best learning rate of DBS-SGD"
OWN = "after equal samples, each at its own best learning rate"
FRESH = ", on seeds that did not set the range"


def _staleness(source: Any, statement: str, average: str, expected: Any) -> dict[str, Any]:
    metric = f"staleness, {average}: DBS-SGD / ASGD"
    return source(statement, metric, expected=expected, parts=PROFILES, data="none")


REGIMES = {  # by how the ids of claims begin
    "": "8 workers with speeds of 1 to 4, each rival; the abstract names no cluster",
    "D3": "4, 8 and 16 workers with speeds of 1 to 4; the abstract names none",
    "D3-model": "four profiles of speeds; ours",
    "D4": "both data sets, 8 workers with speeds of 1 to 4; the abstract names no cluster",
    "D5": "four profiles of speeds; the abstract names none",
    "D6": "speeds of 1 to 10; ours",
}

QUOTES = {  # of the abstract, by how the ids of its claims begin
    "D1": ("the loss on Mnist is reduced by 60%", "curves.png"),
    "D2": ("the accuracy on cifar10 is increased by about 10%", "curves.png"),
    "D2-loss": ("its loss is reduced by 10%", "curves.png"),
    "D3": ("without reducing the speed-up", "speedup.png"),
    "D4": ("the curve is close to that of the synchronous strategy", "apart.png"),
    "D5": (
        "the time of each iteration is about the same on every node, which lowers the nodes' average "
        "gradient staleness",
        "staleness.png",
    ),
}

CLAIMS = {
    "D1": abstract(
        "Compared with ASGD and n-softsync, the loss on MNIST is 60% lower",
        f"training loss {SHARED}: DBS-SGD / rival",
        expected=(None, 0.4),
        parts=RIVALS,
        data="MNIST",
    ),
    "D1-lower": ours(
        "The loss on MNIST is lower",
        f"training loss {SHARED}: DBS-SGD / rival",
        expected=(None, 1),
        parts=RIVALS,
        data="MNIST",
        repeats="D1",
    ),
    "D1-fair": ours(
        "The loss on MNIST is lower, with tuned rivals",
        f"training loss {OWN}: DBS-SGD / rival",
        expected=(None, 1),
        parts=RIVALS,
        data="MNIST",
    ),
    "D2": abstract(
        "The accuracy on CIFAR-10 is about 10 points higher",
        f"test accuracy {SHARED}: DBS-SGD minus rival",
        expected=(8, None),
        unit="points",
        parts=RIVALS,
        data="CIFAR-10",
    ),
    "D2-relative": ours(
        "Read as a ratio: the accuracy on CIFAR-10 is about 10% of the rival's higher",
        f"test accuracy {SHARED}: DBS-SGD / rival",
        expected=(1.08, None),
        parts=RIVALS,
        data="CIFAR-10",
    ),
    "D2-fair": ours(
        "The accuracy on CIFAR-10 is higher, with tuned rivals",
        f"test accuracy {OWN}: DBS-SGD minus rival",
        expected=(0, None),
        unit="points",
        parts=RIVALS,
        data="CIFAR-10",
    ),
    "D2-loss": abstract(
        "The loss on CIFAR-10 is 10% lower",
        f"training loss {SHARED}: DBS-SGD / rival",
        expected=(None, 0.9),
        parts=RIVALS,
        data="CIFAR-10",
        repeats="D1",  # if both are measured on the same data set
    ),
    "D3": abstract(
        "The speed-up over one worker is not lower",
        "samples per second: DBS-SGD / ASGD",
        expected=(0.98, None),
        parts=("4 workers", "8 workers", "16 workers"),
        data="none",
    ),
    "D3-model": theory(
        "DBS-SGD computes as many times the samples of BSP as the mean of the slowest worker's time says",
        "deviation of the measured speed-up over BSP from that predicted for the profile",
        expected=(None, 3),
        unit="%",
        parts=PROFILES,
        data="none",
    ),
    "D4": abstract(
        "The curve is close to that of the synchronous strategy",
        f"distance of test accuracies from BSP's median curve, {OWN}: DBS-SGD / BSP on another seed",
        expected=(None, 2),
        parts=("MNIST", "CIFAR-10"),
        data=BOTH,
    ),
    "D4-closer": ours(
        "It is closer to that of the synchronous strategy than the curve of ASGD",
        f"distance of test accuracies from BSP's median curve, {OWN}: DBS-SGD / ASGD",
        expected=(None, 1),
        parts=("MNIST", "CIFAR-10"),
        data=BOTH,
    ),
    "D5-nodes": _staleness(
        abstract, "The nodes' average staleness falls", f"mean over nodes{FRESH}", (None, 0.98)
    ),
    "D5-model": theory(
        "It falls as much as the closed form says for the profile's mean iteration times",
        "deviation of the measured DBS-SGD / ASGD from (P - 1) / (P mean(t) / harmonic mean(t) - 1)",
        expected=(None, 3),
        unit="%",
        parts=PROFILES,
        data="none",
    ),
    "D5-gradients": _staleness(
        conformance, "The mean over gradients stays", "mean over gradients", (0.98, 1.02)
    ),
    "D5-samples": _staleness(theory, "The mean over samples stays", "mean over samples", (0.98, 1.02)),
    "D5-maximum": _staleness(ours, "The largest staleness falls", f"maximum{FRESH}", (None, 0.98)),
    "D6-limit": theory(
        "Gradients of mixed staleness tolerate larger steps than equally stale ones of the same mean",
        "largest stable step on a parabola, with the staleness of the runs: ASGD / DBS-SGD",
        expected=(1.2, None),
        parts=("4x", "10x", "fluctuating"),
        data="none",
    ),
    "D6-ratio": ours(
        "The more uneven the speeds, the more DBS-SGD loses against a tuned ASGD",
        f"training loss {OWN}, DBS-SGD / ASGD: at speeds of 1 to 10 / at equal speeds",
        expected=(1.2, None),
        parts=tuple(SETTINGS),
        data="digits",
    ),
    "D6-shared": ours(
        "No speed ratio of 1 to 10 brings the loss of DBS-SGD near 0.4 times that of ASGD at one rate",
        f"training loss {SHARED}: DBS-SGD / ASGD, the least of four ratios",
        expected=(0.6, None),
        parts=tuple(SETTINGS),
        data="digits",
    ),
    "D6-bsp": ours(
        "On uneven speeds DBS-SGD reaches a loss earlier than BSP",
        "time to a training loss of 0.25, each at its own best learning rate: BSP / DBS-SGD",
        expected=(1, None),
        parts=("4x, constant rate", "10x, constant rate", "4x, momentum", "10x, momentum"),
        data="digits",
    ),
}

PAPER = Paper(
    key="dbs_sgd",
    title="Performance-aware dynamic batch size SGD for asynchronous distributed training",
    reference="Ji, Zhang, Fu, Gao, Li, Journal of Computer Research and Development 2019",
    notebook="05_dbs_sgd.ipynb",
    parameters=DbsSgdParameters,
    summary=SUMMARY,
    claims=declare("dbs_sgd", CLAIMS, regimes=REGIMES, quotes=QUOTES, findings=FINDINGS, unit="x"),
    figures={
        "stale.png": "Left: gradient descent on a parabola, with gradients stale by 0, 3, 7 and 15 updates. "
        "Right: the largest stable step against staleness, measured and by its closed form.",
        "batches.png": "Batch size of each worker, and staleness of its gradients, against time; one "
        "worker becomes half as fast.",
        "staleness.png": "Staleness of ASGD and DBS-SGD in four averages, for four profiles of speeds; black "
        "marks: the closed form.",
        "limits.png": "Left: share of the gradients by staleness, for ASGD and DBS-SGD with speeds of 1 "
        "to 10. Right: the largest stable step on a parabola against the ratio of speeds.",
        "speedup.png": "Left: samples per second over those of one worker, against the number of "
        "workers. Right: speed-up of DBS-SGD over BSP for four profiles of speeds, measured and "
        "predicted.",
        "map.png": "Digits, against the ratio of speeds, with and without momentum and rate decay: loss "
        "of DBS-SGD over that of ASGD, at one learning rate and each at its own best; and time of BSP "
        "to a loss of 0.25 over that of DBS-SGD.",
        "curves.png": "Training loss and test accuracy against samples, and loss against time, each method "
        "at its best learning rate.",
        "rates.png": "Training loss after equal samples against the learning rate, for each method.",
        "apart.png": "Distance of each method's test accuracy from the median curve of BSP, over the "
        "distance of BSP on another seed; hollow marks: rivals at the learning rate of DBS-SGD.",
    },
    comparisons=(  # with the abstract, the only part of the paper that is available to us
        Comparison(
            "Loss on MNIST",
            "D1, at full scale",
            "differs",
            "in the medians ASGD has the lower loss, at one rate and tuned; five seeds leave D1 undecided",
        ),
        Comparison(
            "Accuracy and loss on CIFAR-10",
            "D2, at full scale",
            "differs",
            "in the medians ASGD has the higher accuracy and the lower loss, at one rate and tuned; five "
            "seeds leave D2 undecided",
        ),
        Comparison("Speed-up over one worker", "speedup.png, D3", "same"),
        Comparison(
            "The curve next to that of the synchronous strategy",
            "curves.png, apart.png, D4, at full scale",
            "same",
            "in the medians its distance is at most about twice that of BSP on another seed, and so is that "
            "of ASGD; five seeds leave D4 undecided",
        ),
        Comparison(
            "Average staleness of the nodes",
            "staleness.png, D5-nodes",
            "same",
            "for steady speeds it falls by as much as the closed form says",
        ),
    ),
    data={"full": ("mnist", "cifar10")},
    quick_seconds=65,
)
