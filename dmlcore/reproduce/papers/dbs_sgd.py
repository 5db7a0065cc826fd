"""DBS-SGD, dynamic batch sizes for asynchronous SGD (Ji et al. 2019): parameters and settings of its claims.

Only the abstract is available to us: batches that follow each node's speed reduce the nodes' average
staleness, and with it the loss, without a loss of speed. D1, D2 and D4 are about MNIST and CIFAR-10, and are
judged at full scale only. Learning rates are chosen by the final loss on two tuning seeds, on MNIST on eight.

docs/papers/dbs_sgd.md tells how the abstract is read and what was changed after results had been seen, and
tests/test_dbs_sgd.py shows that each claim can fail.
"""

from typing import Literal

from pydantic import Field

from dmlcore.reproduce.paper import TunedParameters, declare

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


class DbsSgdParameters(TunedParameters):
    """Parameters of notebooks/05_dbs_sgd.ipynb; `workers` is P of the runs that train."""

    workers: int = Field(8, ge=4, multiple_of=4)
    epochs: float = Field(1.0, gt=0)  # of MNIST and of CIFAR-10, at full scale
    images: Literal["MNIST", "CIFAR-10", "MNIST and CIFAR-10"] = (
        "MNIST and CIFAR-10"  # data sets of full scale
    )


PAPER = declare(globals(), DbsSgdParameters)
