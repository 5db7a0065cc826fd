"""DBS-SGD, dynamic batch sizes for asynchronous SGD (Ji et al. 2019): its claims, and what would show them.

Only the abstract is available to us: batches that follow each node's speed reduce the nodes' average
staleness, and with it the loss, without a loss of speed. D1, D2 and D4 are about MNIST and CIFAR-10, and are
judged at full scale only. The learning rates of all claims are chosen on two tuning seeds, by the final loss.

docs/papers/dbs_sgd.md tells how the abstract is read and what was changed after results had been seen, and
tests/test_dbs_sgd.py shows that each claim can fail.
"""

from typing import Literal

from pydantic import Field

from dmlcore.reproduce.paper import TunedParameters, abstract, conformance, declare, ours, theory

FIRST_FRESH = 200  # first seed for D5-nodes and D5-maximum
CAP = 64  # largest batch size of a task of LeNet-5
SOFTSYNC = (4, 2, 1)  # n of n-softsync; with as many as workers it is ASGD
SLOWER = tuple(f"n-softsync (n={n})" for n in SOFTSYNC)  # rivals with fewer updates of the same samples
RIVALS = ("ASGD", *SLOWER, "n-softsync (n=4), 1/tau")
PROFILES = ("mild", "4x", "10x", "fluctuating")
SETTINGS = {  # settings of the map: momentum, and the factor on the rate in the last third
    "constant rate": (0.0, 1.0),
    "rate decay": (0.0, 0.1),
    "momentum": (0.9, 1.0),
    "momentum, rate decay": (0.9, 0.1),
}
MAPPED = (1, 2, 4, 10)  # ratios of the fastest to the slowest speed, on the map
BOTH: Literal["MNIST and CIFAR-10"] = "MNIST and CIFAR-10"


class DbsSgdParameters(TunedParameters):
    """Parameters of notebooks/05_dbs_sgd.ipynb; `workers` is P of the runs that train."""

    workers: int = Field(8, ge=4, multiple_of=4)
    epochs: float = Field(1.0, gt=0)  # of MNIST and of CIFAR-10, at full scale
    images: Literal["MNIST", "CIFAR-10", "MNIST and CIFAR-10"] = BOTH  # data sets of full scale


CLAIMS = {
    "D1": abstract(expected=(None, 0.4), parts=RIVALS, data="MNIST"),
    "D1-lower": ours(expected=(None, 1), parts=RIVALS, data="MNIST", repeats="D1"),
    "D1-samples": ours(expected=(None, 0.4), parts=SLOWER, data="MNIST"),
    "D1-fair": ours(expected=(None, 1), parts=RIVALS, data="MNIST"),
    "D2": abstract(expected=(8, None), unit="points", parts=RIVALS, data="CIFAR-10"),
    "D2-relative": ours(expected=(1.08, None), parts=RIVALS, data="CIFAR-10"),
    "D2-samples": ours(expected=(8, None), unit="points", parts=SLOWER, data="CIFAR-10"),
    "D2-fair": ours(expected=(0, None), unit="points", parts=RIVALS, data="CIFAR-10"),
    "D2-loss": abstract(
        expected=(None, 0.9),
        parts=RIVALS,
        data="CIFAR-10",
        repeats="D1",  # if both are measured on the same data set
    ),
    "D3": abstract(expected=(0.98, None), parts=("4 workers", "8 workers", "16 workers"), data="none"),
    "D3-model": theory(expected=(None, 3), unit="%", parts=PROFILES, data="none"),
    "D4": abstract(expected=(None, 2), parts=("MNIST", "CIFAR-10"), data="MNIST, CIFAR-10"),
    "D4-closer": ours(expected=(None, 1), parts=("MNIST", "CIFAR-10"), data="MNIST, CIFAR-10"),
    "D5-nodes": abstract(expected=(None, 0.98), parts=PROFILES, data="none"),
    "D5-model": theory(expected=(None, 3), unit="%", parts=PROFILES, data="none"),
    "D5-gradients": conformance(expected=(0.98, 1.02), parts=PROFILES, data="none"),
    "D5-samples": theory(expected=(0.98, 1.02), parts=PROFILES, data="none"),
    "D5-maximum": ours(expected=(None, 0.98), parts=PROFILES, data="none"),
    "D6-limit": theory(expected=(1.2, None), parts=("4x", "10x", "fluctuating"), data="none"),
    "D6-ratio": ours(expected=(1.2, None), parts=tuple(SETTINGS), data="digits"),
    "D6-shared": ours(expected=(0.6, None), parts=tuple(SETTINGS), data="digits"),
    "D6-bsp": ours(
        expected=(1, None),
        parts=("4x, constant rate", "10x, constant rate", "4x, momentum", "10x, momentum"),
        data="digits",
    ),
}

PAPER = declare(
    __file__,
    CLAIMS,
    {"unit": "x"},
    notebook="05_dbs_sgd.ipynb",
    parameters=DbsSgdParameters,
    data={"full": ("mnist", "cifar10")},
    quick_seconds=80,
)
