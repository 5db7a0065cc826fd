"""The two numbers that say what a run on a cluster is short of: computing, its links or its server."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dmlcore import checks


class Regime(NamedTuple):
    """Where a problem on a cluster stands, before any policy.

    Args:
        communication_ratio: c, seconds of one task's transfers where nothing queues / those of its computing.
        server_load: rho, the share of the server's time that workers ask for who never wait for each other;
            saturated from 1 on. 0: the server takes no time.
    """

    communication_ratio: float
    server_load: float

    def __str__(self) -> str:
        return f"c = {self.communication_ratio:.2g}, rho = {self.server_load:.2g}"


def regime(cluster: Any, problem: Any, batch_size: int) -> Regime:
    """Returns the communication ratio and the server load; see `Cluster.regime`."""
    batch_size = checks.integer("batch_size", batch_size, low=1)
    if not hasattr(problem, "parameter_bytes"):
        checks.fail("problem", problem, "a problem, such as dml.problems.digits_mlp()")
    nbytes = problem.parameter_bytes
    compute = np.array(cluster.overhead_seconds) + batch_size / np.array(cluster.samples_per_second)
    for episodes in cluster.stragglers:
        among = slice(None) if episodes.workers is None else list(episodes.workers)
        compute[among] *= 1 + episodes.fraction * (episodes.slowdown - 1)
    latency = np.array(cluster.latency_seconds) + (cluster.pull_latency_seconds or cluster.latency_seconds)
    transfers = latency + 2 * nbytes / np.array(cluster.bandwidth_bytes_per_second)
    service = processor = 0.0
    if cluster.server is not None:
        took = cluster.server.seconds(sum(problem.tensor_sizes), nbytes, nbytes)
        transfers += took["link_in"] + took["link_out"]
        processor = took["push"] + took["update"] + took["pull"]
        service = max(processor, took["link_in"], took["link_out"])
    rates = 1 / (compute + transfers + processor)
    return Regime(float(transfers.mean() / compute.mean()), float(service * rates.sum()))
