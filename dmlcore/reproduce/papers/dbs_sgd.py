"""DBS-SGD, dynamic batch sizes for asynchronous SGD (Ji et al. 2019): what is claimed, what would show it.

Only the abstract is known: batches that follow each node's speed lower the nodes' average staleness, and with
it the loss, at no cost in speed. What couples the learning rate to a batch, which cluster it was and which
"n-soft" is not: the claims are about a constant rate, and both rates of n-softsync are rivals.

The trap is the word average. With constant iteration times t_i and an update for each push, worker i has the
staleness t_i R - 1, R = sum 1 / t_i. Over gradients the mean is then P - 1 whatever the speeds, so that no
batch sizes change it; over nodes it is P mean(t) / harmonic mean(t) - 1, and falls to P - 1.

Ranges were declared before the notebook first ran, and none was changed.
"""

from typing import Any

from pydantic import Field

from dmlcore.reproduce.paper import Paper, Parameters, abstract, declare, ours

RIVALS = ("ASGD", "n-softsync", "n-softsync, 1/tau")
CONTROLS = (*RIVALS, "ASGD, 1/tau")
PROFILES = ("mild", "4x", "fluctuating")


class DbsSgdParameters(Parameters):
    """Parameters of notebooks/05_dbs_sgd.ipynb; `workers` is P of the runs that train, `softsync` n."""

    workers: int = Field(8, ge=4, multiple_of=4)
    softsync: int = Field(4, ge=1)


LOSS = "training loss after equal samples: DBS-SGD / rival"
ACCURACY = "test accuracy after equal samples: DBS-SGD minus rival"
OURS = "The same, each method at its own best learning rate"


def _staleness(source: Any, statement: str, average: str, expected: Any) -> dict[str, Any]:
    return source(statement, f"staleness, {average}: DBS-SGD / ASGD", expected=expected, parts=PROFILES)


CLAIMS = {
    "D1-paper": abstract(
        "The loss on MNIST is 60% less: all at the learning rate that suits DBS-SGD",
        LOSS,
        expected=(None, 0.4),
        parts=RIVALS,
    ),
    "D1-fair": ours(OURS, LOSS, expected=(None, 0.4), parts=CONTROLS),
    "D2-paper": abstract(
        "Accuracy on CIFAR-10 is 10 points higher: all at the learning rate that suits DBS-SGD",
        ACCURACY,
        expected=(10, None),
        unit="points",
        parts=RIVALS,
    ),
    "D2-fair": ours(OURS, ACCURACY, expected=(10, None), unit="points", parts=CONTROLS),
    "D2-loss": abstract(
        "The loss on CIFAR-10 is 10% less: all at the learning rate that suits DBS-SGD",
        LOSS,
        expected=(None, 0.9),
        parts=RIVALS,
    ),
    "D3": abstract(
        "The speed-up over one worker is not lower",
        "samples per second: DBS-SGD / ASGD",
        expected=(0.98, None),
        parts=("4 workers", "8 workers", "16 workers"),
    ),
    "D4": abstract(
        "The curve is close to the synchronous one, each at its own best learning rate",
        "largest distance of test accuracies in the second half of the samples",
        expected=(None, 2),
        unit="points",
    ),
    "D5-nodes": _staleness(abstract, "The mean over nodes falls", "mean over nodes", (None, 0.9)),
    "D5-gradients": _staleness(ours, "The mean over gradients does not", "mean over gradients", (0.98, 1.02)),
    "D5-samples": _staleness(ours, "Nor that over samples", "mean over samples", (0.98, 1.02)),
    "D5-maximum": _staleness(ours, "The maximum falls", "maximum", (None, 0.9)),
    "D5-model": ours(
        "Staleness is t R - 1 for random constant speeds, with equal and with dynamic batches",
        "largest deviation of the means over nodes and over gradients",
        expected=(None, 2),
        unit="%",
    ),
}

PAPER = Paper(
    key="dbs_sgd",
    title="Performance-aware dynamic batch size SGD for asynchronous distributed training",
    reference="Ji, Zhang, Fu, Gao, Li, Journal of Computer Research and Development 2019",
    notebook="05_dbs_sgd.ipynb",
    parameters=DbsSgdParameters,
    claims=declare("dbs_sgd", CLAIMS, unit="x"),
    figures={
        "stale.png": "Left: gradient descent on a parabola, with gradients stale by 0, 3, 7 and 15 updates. "
        "Right: the largest stable step against staleness, measured and by its closed form.",
        "batches.png": "Batch of each worker, and staleness of its gradients, against time; one worker "
        "becomes half as fast.",
        "staleness.png": "Staleness of ASGD and DBS-SGD in four averages, for three profiles of speeds.",
        "curves.png": "Training loss and test accuracy against samples and against time, each method at its "
        "best learning rate.",
        "rates.png": "Training loss after equal samples against the learning rate, for each method.",
        "settings.png": "Training loss of DBS-SGD over that of equal batches after equal samples, for four "
        "profiles of speeds and three numbers of workers. Left: at one learning rate. Right: each at the "
        "better of that rate and twice it.",
        "speedup.png": "Samples per second against one worker, over the number of workers.",
    },
    data={"full": ("mnist", "cifar10")},
    quick_seconds=65,
)
