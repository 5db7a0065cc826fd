"""The clusters and methods of notebooks/02_adaptive_sync.ipynb, with the settings to try."""

import itertools
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import scipy

from dmlcore.cluster import Cluster
from dmlcore.cluster.regime import with_load
from dmlcore.experiments.study import Space, space
from dmlcore.methods import policies
from dmlcore.reproduce.papers.adaptive_sync import COMMUNICATION, Place
from dmlcore.types import Policy

BATCH_SIZE = 32  # samples per task
OURS = "adaptive sync"

# Values to try for the knob of each method, the most important ones first.
THRESHOLDS = (1 / 4, 4, 1, 2, 1 / 8)  # adaptive sync: S / P
LATE = (0.5, 1.0, 2.0)  # adaptive sync: staleness of a straggler / S
BOUNDS = (1, 32, 8, 16, 64)  # SSP: s in clocks
UPPER = (6, 24, 12, 48, 4)  # DSSP: upper bound in clocks; the lower bound is 3
SHARES = (16, 4, 2, 8, 32)  # Sync-Switch: length of the run / length of its synchronous part
PUSHES = (3, 12, 6, 24, 48)  # A2S: pushes of a worker between two comparisons
MEANS = ("BSP", "Sync-Switch")  # an update is the mean of P gradients, for which the rate is P times as large


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
    return with_load(cluster, cost.server_load, problem, BATCH_SIZE, dict.fromkeys(cost.work, 1))


def adaptive(late: float, threshold: int, **options: Any) -> Policy:
    """Returns adaptive sync whose stragglers are `late` times the threshold behind.

    >>> adaptive(0.5, 8)
    adaptive_sync(threshold=8, behind=4)
    """
    given: dict[str, Any] = {"behind": round(late * threshold), **options}
    return policies.adaptive_sync(threshold, **given)


def spaces(names: Iterable[str], workers: int, clocks: int, rate: float, values: int = 3) -> dict[str, Space]:
    """Returns methods of the comparison, each with the values to try for its knob.

    Args:
        names: of the methods.
        workers: P, the number of workers.
        clocks: clocks of a worker in a run.
        rate: learning rate at which the search of ASP begins; the other methods have multiples of it.
        values: number of values of each knob, at most 5.

    >>> spaces(["SSP"], 8, 100, 0.1)["SSP"].knobs
    {'staleness': (1, 32, 8)}
    """
    thresholds = [round(share * workers) for share in THRESHOLDS[:values]]
    rounds = [max(1, clocks // share) for share in SHARES[:values]]
    made = {
        OURS: space(adaptive, late=LATE, threshold=thresholds),
        "BSP": space(policies.bsp),
        "ASP": space(policies.asp),
        "SSP": space(partial(policies.ssp, weight=1.0), staleness=BOUNDS[:values]),
        "DSSP": space(partial(policies.dssp, 3, weight=1.0), upper=UPPER[:values]),
        "Sync-Switch": space(partial(policies.sync_switch, weight=None), rounds=rounds),
        "A2S": space(policies.a2s, epoch=PUSHES[:values]),
    }
    return {name: made[name]._replace(rate=rate * (workers if name in MEANS else 1)) for name in names}


def single(name: str, many: Space) -> dict[str, Space]:
    """Returns each setting of a method's knobs as a method of its own, of which only the rate is searched.

    Args:
        name: of the method.
        many: the method with all its settings.

    >>> [*single("SSP", spaces(["SSP"], 8, 100, 0.1)["SSP"])]
    ['SSP, staleness = 1', 'SSP, staleness = 32', 'SSP, staleness = 8']
    """
    made = {}
    for values in itertools.product(*many.knobs.values()):
        setting = dict(zip(many.knobs, values, strict=True))
        label = ", ".join([name, *(f"{knob} = {value}" for knob, value in setting.items())])
        made[label] = many._replace(knobs={knob: (value,) for knob, value in setting.items()})
    return made
