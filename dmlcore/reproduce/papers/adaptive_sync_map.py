"""The clusters and methods of notebooks/02_adaptive_sync.ipynb, with the settings to try."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy

from dmlcore.cluster import Cluster
from dmlcore.cluster.regime import seconds_per_push
from dmlcore.methods import policies
from dmlcore.reproduce.papers.adaptive_sync_places import COMMUNICATION, Place
from dmlcore.types import Policy

BATCH_SIZE = 32  # samples per task
OURS = "adaptive sync"


def cluster_of(place: Place, problem: Any, workers: int = 8) -> Cluster:
    """Returns the cluster of a place: a task of the fastest worker takes 32 ms, with a jitter of a quarter.

    Guarantees: `regime(problem)` of the cluster has the communication ratio and the server load of the place.

    Args:
        place: on the map.
        problem: the problem to train.
        workers: P, the number of workers.

    >>> print(cluster_of(Place(4, 0.1, "dear"), 40_000).regime(40_000))
    c = 1, rho = 2
    """
    cost = COMMUNICATION[place.communication]
    speeds = np.geomspace(1000, 1000 / place.speeds, workers).tolist()

    def linked(latency: float) -> Cluster:
        jitter = scipy.stats.gamma(16, scale=1 / 16)
        cluster = Cluster.from_speeds(speeds, latency=latency, jitter=jitter)
        return cluster.with_stragglers(4, fraction=place.slow) if place.slow else cluster

    cluster = linked(cost.ratio / linked(1.0).regime(problem, BATCH_SIZE).communication_ratio)
    if not cost.server_load:
        return cluster
    service = seconds_per_push(cluster, cost.server_load, problem, BATCH_SIZE)
    pushing, updating = (1 - cost.update_share) * service, cost.update_share * service
    return cluster.with_server(seconds_per_push=pushing, seconds_per_update=updating)


class Family(NamedTuple):
    """A method with each value of its main argument (knob): policies by label, and initial learning rates.

    Rates are multiples of the initial rate of ASP.
    """

    policies: Mapping[str, Policy]
    rates: Mapping[str, float]


# Values to try for the knob of each method, the most important ones first.
THRESHOLDS = {1 / 4: 3.0, 1: 2.0, 4: 1.0, 2: 1.0, 1 / 8: 3.0}  # adaptive sync: S / P -> initial rate
BOUNDS = (1, 8, 32, 16, 64)  # SSP: s in clocks
UPPER = (6, 12, 24, 48, 4)  # DSSP: upper bound in clocks; the lower bound is 3
SHARES = (16, 4, 2, 8, 32)  # Sync-Switch: length of the run / length of its synchronous part
PUSHES = (3, 6, 12, 24, 48)  # A2S: pushes of a worker between two comparisons


def family(name: str, workers: int, clocks: int, values: int = 3) -> Family:
    """Returns a method of the comparison with the values to try for its knob.

    Args:
        name: of the method.
        workers: P, the number of workers.
        clocks: clocks of a worker in a run.
        values: number of values of the knob, at most 5.

    >>> [*family("SSP", 8, 100).policies], family("BSP", 8, 100).rates
    (['SSP, s = 1', 'SSP, s = 8', 'SSP, s = 32'], {'BSP': 8.0})
    """
    made: dict[str, Policy]
    if name == OURS:
        thresholds = {round(share * workers): rate for share, rate in THRESHOLDS.items()}
        made = {f"{name}, S = {each}": policies.adaptive_sync(each) for each in [*thresholds][:values]}
        return Family(made, dict(zip(made, thresholds.values(), strict=False)))
    if name == "SSP":
        made = {f"{name}, s = {s}": policies.ssp(s, weight=1.0) for s in BOUNDS[:values]}
    elif name == "DSSP":
        made = {f"{name}, 3 to {upper}": policies.dssp(3, upper, weight=1.0) for upper in UPPER[:values]}
    elif name == "Sync-Switch":
        rounds = {f"{name}, 1/{share}": max(1, clocks // share) for share in SHARES[:values]}
        made = {label: policies.sync_switch(number, weight=None) for label, number in rounds.items()}
    elif name == "A2S":
        made = {f"{name}, every {pushes}": policies.a2s(pushes) for pushes in PUSHES[:values]}
    else:
        made = {name: {"BSP": policies.bsp, "ASP": policies.asp}[name]()}
    means = name in ("BSP", "Sync-Switch")  # an update is the mean of P gradients
    return Family(made, dict.fromkeys(made, float(workers) if means else 1.0))
