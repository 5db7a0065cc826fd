"""Clusters ready to use: workers of different speeds, workers with slow episodes, and both.

At full speed a task of 32 samples takes 32 ms on average, with a standard deviation of a quarter of that; a
transfer takes 2 ms. `hardware` makes clusters from published numbers, and `busy_server` gives any cluster a
server of a known load.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.cluster.hardware import Hardware, hardware
from dmlcore.cluster.regime import seconds_per_push

__all__ = ["Hardware", "busy_server", "hardware", "heterogeneous", "heterogeneous_and_unstable", "unstable"]

FULL_SPEED = 1000.0  # samples/s


def _of(speeds: Sequence[float]) -> Cluster:
    return Cluster.from_speeds(speeds, latency=0.002, jitter=scipy.stats.gamma(16, scale=1 / 16))


def heterogeneous(num_workers: int = 8) -> Cluster:
    """Returns a heterogeneous cluster: about half of the workers have full speed, the others down to half.

    Worker i has min(1, 1.4 - 0.9 i / (W - 1)) of the full speed of 1000 samples/s.

    Args:
        num_workers: W, >= 1.

    Returns:
        The cluster.

    Raises:
        ValueError: `num_workers` is out of range.

    >>> heterogeneous()
    Cluster(8 workers, 500-1000 samples/s, latency 0.002 s, jitter=gamma(16, scale=0.0625))
    """
    num_workers = checks.integer("num_workers", num_workers, low=1)
    return _of([FULL_SPEED * min(1.0, share) for share in np.linspace(1.4, 0.5, num_workers).tolist()])


def unstable(num_workers: int = 8) -> Cluster:
    """Returns an unstable cluster: equal workers, 10% of whose tasks are 4 times slower, in slow episodes.

    An episode is 10 tasks long on average.

    Args:
        num_workers: W, >= 1.

    Returns:
        The cluster.

    Raises:
        ValueError: `num_workers` is out of range.

    >>> [(each.slowdown, each.fraction, each.mean_tasks) for each in unstable().stragglers]
    [(4.0, 0.1, 10.0)]
    """
    num_workers = checks.integer("num_workers", num_workers, low=1)
    return _of([FULL_SPEED] * num_workers).with_stragglers(4, fraction=0.1, mean_tasks=10)


def heterogeneous_and_unstable(num_workers: int = 8) -> Cluster:
    """Returns a cluster with the speeds of `heterogeneous` and the slow episodes of `unstable`.

    Args:
        num_workers: W, >= 1.

    Returns:
        The cluster.

    Raises:
        ValueError: `num_workers` is out of range.

    >>> both = heterogeneous_and_unstable()
    >>> both.samples_per_second == heterogeneous().samples_per_second, len(both.stragglers)
    (True, 1)
    """
    return dataclasses.replace(heterogeneous(num_workers), stragglers=unstable(num_workers).stragglers)


def busy_server(
    cluster: Cluster, server_load: float, problem: Any = 0, batch_size: int = 32, *, jitter: Any = None
) -> Cluster:
    """Returns the cluster with a server whose time per push is chosen to give the load `server_load`.

    Guarantee: `cluster.regime(problem, batch_size).server_load` is `server_load`. With another number of
    workers or samples the load differs, since `resized` does not change the server.

    Args:
        cluster: workers and their links; an existing server is replaced.
        server_load: rho, without a unit, > 0 and less than the number of workers; the server is saturated
            from 1 on.
        problem: the problem, whose parameters travel in both directions; or their size in bytes.
        batch_size: samples per task, >= 1.
        jitter: random multiplier of the server's times, see `Cluster.with_server`. None: they are constant.

    Returns:
        A new cluster; the one given is unchanged.

    Raises:
        ValueError: an argument is wrong.

    >>> busy = busy_server(Cluster.uniform(16, latency=0.001), 2.0)
    >>> print(busy.regime(0), round(busy.server.seconds_per_push, 6))
    c = 0.062, rho = 2 0.004857
    """
    checks.check_kind("cluster", cluster, Cluster)
    alone = dataclasses.replace(cluster, server=None)
    seconds = seconds_per_push(alone, server_load, problem, batch_size)
    return cluster.with_server(seconds_per_push=seconds, jitter=jitter)
