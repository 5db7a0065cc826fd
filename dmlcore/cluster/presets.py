"""Clusters ready to use: workers of different speeds, workers that are slow now and then, and both.

At full speed a task of 32 samples takes 32 ms on average, give or take a quarter; a transfer takes 2 ms.
`hardware` makes clusters from published numbers, `busy_server` gives any cluster a server of a known load.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.cluster.hardware import Hardware as Hardware
from dmlcore.cluster.hardware import hardware as hardware
from dmlcore.cluster.regime import seconds_per_push

FULL_SPEED = 1000.0  # samples per second


def _of(speeds: Sequence[float]) -> Cluster:
    return Cluster.from_speeds(speeds, latency=0.002, jitter=scipy.stats.gamma(16, scale=1 / 16))


def heterogeneous(num_workers: int = 8) -> Cluster:
    """Heterogeneity: about half of the workers have full speed, the others down to half of it.

    Args:
        num_workers: W, >= 1. Worker i has min(1, 1.4 - 0.9 i / (W - 1)) of the full speed.

    Raises:
        ValueError: no such number of workers.

    >>> heterogeneous()
    Cluster(8 workers, 500-1000 samples/s, latency 0.002 s, jitter=gamma(16, scale=0.0625))
    """
    num_workers = checks.integer("num_workers", num_workers, low=1)
    return _of([FULL_SPEED * min(1.0, share) for share in np.linspace(1.4, 0.5, num_workers).tolist()])


def unstable(num_workers: int = 8) -> Cluster:
    """Instability: equal workers, and a tenth of the tasks in slow episodes, 4 times slower, 10 tasks long.

    Args:
        num_workers: W, >= 1.

    Raises:
        ValueError: no such number of workers.

    >>> [(each.slowdown, each.fraction, each.mean_tasks) for each in unstable().stragglers]
    [(4.0, 0.1, 10.0)]
    """
    num_workers = checks.integer("num_workers", num_workers, low=1)
    return _of([FULL_SPEED] * num_workers).with_stragglers(4, fraction=0.1, mean_tasks=10)


def heterogeneous_and_unstable(num_workers: int = 8) -> Cluster:
    """The speeds of `heterogeneous(num_workers)` and the slow episodes of `unstable`.

    Raises:
        ValueError: no such number of workers.

    >>> both = heterogeneous_and_unstable()
    >>> both.samples_per_second == heterogeneous().samples_per_second, len(both.stragglers)
    (True, 1)
    """
    return dataclasses.replace(heterogeneous(num_workers), stragglers=unstable(num_workers).stragglers)


def busy_server(
    cluster: Cluster, server_load: float, problem: Any = 0, batch_size: int = 32, *, jitter: Any = None
) -> Cluster:
    """The cluster with a server whose processor takes so long over a push that its load is `server_load`.

    Guarantee: `cluster.regime(problem, batch_size).server_load` is `server_load`. Another number of workers
    or samples has another load; `resized` keeps the server as it is.

    Args:
        cluster: workers and their links; a server that it has is replaced.
        server_load: rho, > 0 and less than the number of workers; saturated from 1 on.
        problem: whose parameters travel, or how many bytes they are.
        batch_size: samples of a task.
        jitter: multiplier of the server's times, as for `Cluster.with_server`.

    Raises:
        ValueError: an argument is wrong.

    >>> busy = busy_server(Cluster.uniform(16, latency=0.001), 2.0)
    >>> print(busy.regime(0), round(busy.server.seconds_per_push, 6))
    c = 0.062, rho = 2 0.004857
    """
    checks.check_kind("cluster", cluster, Cluster)
    seconds = seconds_per_push(cluster, server_load, problem, batch_size)
    return cluster.with_server(seconds_per_push=seconds, jitter=jitter)
