"""The clusters of notebooks/06_compare.ipynb, and the three numbers that describe each.

Each of the last four differs from the first in one thing.
"""

import dataclasses
from typing import Any

from scipy import stats

import dmlcore as dml
from dmlcore.cluster.regime import seconds_per_push

CALM = stats.gamma(16, scale=1 / 16)  # a task takes its mean, give or take a quarter, as in `dml.presets`
RATIO, LOAD = 4.0, 4.0  # c of the slow links, rho of the saturated server


def regimes(workers: int, problem: Any, batch_size: int = 32) -> dict[str, dml.Cluster]:
    """Returns the clusters by name, for a problem whose parameters travel.

    A task takes `batch_size` ms at full speed, a transfer 2 ms. On the slow links a transfer takes as long
    as its bytes; every worker has a link of its own. The saturated server takes as long to answer a pull as
    to take a push, however many bytes they have.

    >>> for name, cluster in regimes(8, dml.problems.digits_mlp()).items():
    ...     print(f"{name}: {cluster.regime(dml.problems.digits_mlp())}")
    even: c = 0.12, rho = 0
    uneven speeds: c = 0.1, rho = 0
    slow episodes: c = 0.096, rho = 0
    slow links: c = 4, rho = 0
    saturated server: c = 0.12, rho = 4
    """
    even = dml.Cluster.uniform(workers, dml.presets.FULL_SPEED, latency=0.002, jitter=CALM)
    transfer = RATIO * batch_size / dml.presets.FULL_SPEED / 2
    bandwidth = problem.parameter_bytes / transfer
    service = seconds_per_push(even, LOAD, problem, batch_size)
    return {
        "even": even,
        "uneven speeds": dml.presets.heterogeneous(workers),
        "slow episodes": dml.presets.unstable(workers),
        "slow links": dataclasses.replace(
            even, latency_seconds=(0.0,) * workers, bandwidth_bytes_per_second=(bandwidth,) * workers
        ),
        "saturated server": even.with_server(seconds_per_push=service / 2, seconds_per_pull=service / 2),
    }


def straggling(cluster: dml.Cluster, batch_size: int = 32, rounds: int = 400) -> float:
    """Returns what waiting for all costs: the mean time of the slowest task of a round / that of any task.

    It is of computing alone, whatever links and server take; 1 where all tasks take the same time.

    >>> straggling(dml.Cluster.uniform(4)), round(straggling(dml.Cluster.from_speeds([1000, 1000, 500])), 6)
    (1.0, 1.5)
    """
    return dml.metrics.straggling(dml.simulate(dml.bsp(), cluster, updates=rounds, batch_size=batch_size))
