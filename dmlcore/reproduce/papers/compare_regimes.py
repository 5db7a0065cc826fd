"""The clusters of notebooks/06_compare.ipynb, and the three numbers that describe each.

Each of the last four differs from the first in one respect.
"""

import dataclasses
from typing import Any

from scipy import stats

import dmlcore as dml
from dmlcore.cluster.regime import with_load

CALM = stats.gamma(16, scale=1 / 16)  # jitter with a standard deviation of a quarter, as in `dml.presets`
RATIO, LOAD = 4.0, 4.0  # c of the slow links, rho of the saturated server


def regimes(workers: int, problem: Any, batch_size: int = 32) -> dict[str, dml.Cluster]:
    """Returns the clusters by name; the parameters of `problem` set the bytes of transfers.

    A task takes `batch_size` ms at full speed, and a transfer 2 ms. On the slow links the time of a transfer
    is in proportion to its bytes, and every worker has its own link. The saturated server takes equally long
    for a pull and for a push, whatever their bytes.

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
    return {
        "even": even,
        "uneven speeds": dml.presets.heterogeneous(workers),
        "slow episodes": dml.presets.unstable(workers),
        "slow links": dataclasses.replace(
            even, latency_seconds=(0.0,) * workers, bandwidth_bytes_per_second=(bandwidth,) * workers
        ),
        "saturated server": with_load(even, LOAD, problem, batch_size, {"push": 1, "pull": 1}),
    }


def straggling(cluster: dml.Cluster, batch_size: int = 32, rounds: int = 400) -> float:
    """Returns the cost of waiting for all: the mean time of the slowest task of a round / that of any task.

    It includes only computing, not links and the server. It is 1 if all tasks take the same time.

    >>> straggling(dml.Cluster.uniform(4)), round(straggling(dml.Cluster.from_speeds([1000, 1000, 500])), 6)
    (1.0, 1.5)
    """
    return dml.metrics.straggling(dml.simulate(dml.bsp(), cluster, updates=rounds, batch_size=batch_size))
