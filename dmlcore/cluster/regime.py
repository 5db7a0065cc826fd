"""The two numbers that tell which resource limits a run: computing, the links or the server."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy

from dmlcore import checks, notebook
from dmlcore.cluster.parameter_server import ParameterServer

MOST_BYTES = 2**60  # size of the parameters


class Regime(NamedTuple):
    """The communication ratio and the server load of a problem on a cluster, whatever the policy.

    Args:
        communication_ratio: c, the time of one task's transfers without queueing divided by its compute time.
        server_load: rho, the seconds of server work per second that asynchronous workers would create. The
            server is saturated from 1 on. 0: the server takes no time.
    """

    communication_ratio: float
    server_load: float

    def __str__(self) -> str:
        return f"c = {self.communication_ratio:.2g}, rho = {self.server_load:.2g}"

    _repr_html_ = notebook.html


class Sizes(NamedTuple):
    """The number of parameters, and the bytes of a pull and of a push."""

    numbers: int
    pull_bytes: int
    push_bytes: int


def regime(cluster: Any, problem: Any, batch_size: int) -> Regime:
    """Returns the communication ratio and the server load; see `Cluster.regime`."""
    batch_size = checks.integer("batch_size", batch_size, low=1, high=checks.MAX_COUNT)
    sizes, server = _sizes(problem), cluster.server
    if server is not None:
        if server.bandwidth_bytes_per_second < math.inf and not sizes.pull_bytes:
            checks.fail("problem", problem, "more than 0 bytes (the server's link has a bandwidth)")
        server.check_shards(sizes.numbers)
    return regime_of(cluster.describe(), sizes, batch_size)


def regime_of(description: Mapping[str, Any], sizes: Sizes, batch_size: float) -> Regime:
    """Returns the regime of a cluster's description, which traces keep.

    Args:
        description: the result of `Cluster.describe`.
        sizes: number of parameters and bytes of messages.
        batch_size: mean samples per task.
    """
    compute, transfers, took = _seconds(description, sizes, batch_size)
    processor = took["push"] + took["update"] + took["pull"]
    service = max(processor, took["link_in"], took["link_out"])
    rates = 1 / (compute + transfers + processor)
    return Regime(float(transfers.mean() / compute.mean()), float(service * rates.sum()))


def seconds_per_push(cluster: Any, server_load: float, problem: Any, batch_size: int) -> float:
    """Returns the seconds per push of the server's processor, alone, such that the load is `server_load`.

    The load of a processor that takes s seconds per push is the sum of s / (s + t) over workers, where t is
    the rest of a worker's cycle in seconds. It grows with s, from 0 to the number of workers. The link of the
    cluster's server must have a smaller load.

    Raises:
        ValueError: an argument is wrong.
    """
    batch_size = checks.integer("batch_size", batch_size, low=1)
    workers = cluster.num_workers
    server_load = checks.real("server_load", server_load, above=0)
    if server_load >= workers:
        checks.fail("server_load", server_load, f"a number < {workers} (the number of workers)")
    sizes, server = _sizes(problem), cluster.server or ParameterServer()
    compute, transfers, _ = _seconds(cluster.describe(), sizes, batch_size)
    cycles = compute + transfers
    low, high = (server_load * end / (workers - server_load) for end in (cycles.min(), cycles.max()))

    def excess(service: float) -> float:
        return float((service / (service + cycles)).sum()) - server_load

    if low < high:
        ends = low * (1 - 1e-9), high * (1 + 1e-9)
        low = scipy.optimize.brentq(excess, *ends, xtol=1e-300, rtol=1e-14)
    part = dataclasses.replace(server, seconds_per_push=1.0).seconds(*sizes)["push"]  # of the largest shard
    return float(low / part)


def with_ratio(cluster: Any, ratio: float, problem: Any, batch_size: int) -> Any:
    """Returns a cluster whose workers' own links are scaled, so that its communication ratio is `ratio`.

    A cluster whose links take no time gets equal latencies.

    Raises:
        ValueError: the ratio, c, is less than what the server's link alone makes.
    """
    aim = checks.real("c", ratio, low=0)

    def scaled(factor: float) -> Any:
        down, links = cluster.pull_latency_seconds, cluster.bandwidth_bytes_per_second
        return dataclasses.replace(
            cluster,
            latency_seconds=tuple(each * factor for each in cluster.latency_seconds),
            pull_latency_seconds=None if down is None else tuple(each * factor for each in down),
            bandwidth_bytes_per_second=tuple(each / factor if factor else math.inf for each in links),
        )

    server = regime(scaled(0.0), problem, batch_size).communication_ratio
    if aim < server:
        checks.fail("c", ratio, f"a number >= {server:.3g} (from the server's link alone)")
    own = regime(cluster, problem, batch_size).communication_ratio - server
    if own == 0:
        ones = (1.0,) * cluster.num_workers
        cluster = dataclasses.replace(scaled(0.0), latency_seconds=ones, pull_latency_seconds=None)
        own = regime(cluster, problem, batch_size).communication_ratio - server
    return scaled((aim - server) / own)


def with_load(
    cluster: Any, load: float, problem: Any, batch_size: int, work: Mapping[str, float] | None = None
) -> Any:
    """Returns a cluster whose server's processor makes its load `load`; the server's link stays.

    Args:
        cluster, problem, batch_size: as for `regime`.
        load: rho; 0: the processor takes no time.
        work: "push", "pull" or "update" -> its share of the processor's time, in any unit. Default: None, all
            is the push's.

    Raises:
        ValueError: the load, rho, is less than what the server's link alone makes, or too large.
    """
    aim, server = checks.real("rho", load, low=0), cluster.server or ParameterServer()
    server = dataclasses.replace(server, seconds_per_push=0.0, seconds_per_pull=0.0, seconds_per_update=0.0)
    idle = dataclasses.replace(cluster, server=server if server.takes_time else None)
    least = regime(idle, problem, batch_size).server_load
    if math.isclose(aim, least):
        return idle
    if aim < least:
        checks.fail("rho", load, f"a number >= {least:.3g} (from the server's link alone)")
    with checks.within("rho"):
        seconds = seconds_per_push(idle, aim, problem, batch_size)
    work = work or {"push": 1.0}
    each: dict[str, Any] = {
        f"seconds_per_{kind}": seconds * share / sum(work.values()) for kind, share in work.items()
    }
    return dataclasses.replace(idle, server=dataclasses.replace(server, **each))


def _sizes(problem: Any) -> Sizes:
    """Returns the sizes of a problem's messages, or of parameters of so many bytes, 4 bytes per number."""
    if hasattr(problem, "parameter_bytes") and hasattr(problem, "num_parameters"):
        return Sizes(problem.num_parameters, problem.parameter_bytes, problem.parameter_bytes)
    if isinstance(problem, bool | str) or not hasattr(problem, "__index__"):
        expected = "a problem, such as dml.problems.digits_mlp(), or the number of bytes of its parameters"
        checks.fail("problem", problem, expected)
    nbytes = checks.integer("problem", problem, low=0, high=MOST_BYTES, why="bytes of parameters")
    return Sizes(-(-nbytes // 4), nbytes, nbytes)


def _seconds(
    description: Mapping[str, Any], sizes: Sizes, batch_size: float
) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Returns each worker's mean seconds of computing and of transfers, shapes (W,), and the server's."""
    workers = description["num_workers"]

    def each(name: str) -> np.ndarray:
        values = description[name]
        listed = values if isinstance(values, list) else [values] * workers
        return np.array([float(value) for value in listed])  # infinity may be a text

    compute = each("overhead_seconds") + batch_size / each("samples_per_second")
    for episodes in description["stragglers"]:
        among = slice(None) if episodes["workers"] is None else list(episodes["workers"])
        compute[among] *= 1 + episodes["fraction"] * (episodes["slowdown"] - 1)
    down = "pull_latency_seconds" if "pull_latency_seconds" in description else "latency_seconds"
    latency = each("latency_seconds") + each(down)
    own = latency + (sizes.pull_bytes + sizes.push_bytes) / each("bandwidth_bytes_per_second")
    known = "server" in description
    server = ParameterServer.described(description["server"]) if known else ParameterServer()
    took = server.seconds(*sizes)
    return compute, own + took["link_in"] + took["link_out"], took
