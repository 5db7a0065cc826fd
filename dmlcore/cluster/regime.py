"""The parameter server, and the two numbers that tell what limits a run: computing, links or the server."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
import scipy

from dmlcore import checks, notebook
from dmlcore.cluster.jitter import resolve_jitter, show_jitter

LEAST_BANDWIDTH = 1e-9  # bytes/s: smaller ones could make the time of a transfer overflow
CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "jitter": resolve_jitter,
    "bandwidth_bytes_per_second": partial(checks.real, low=LEAST_BANDWIDTH),
    **dict.fromkeys(("seconds_per_push", "seconds_per_pull", "seconds_per_update"), checks.not_negative),
    "shards": checks.at_least(1),
    "sharing": checks.one_of("fifo", "fair"),  # how transfers share the server's link
}


@dataclass(frozen=True)
class ParameterServer:
    """The server that `Cluster.with_server` adds; its arguments are explained there.

    Args:
        bandwidth_bytes_per_second: bandwidth of the link in each direction, bytes/s.
        seconds_per_push: processor time to read a push, seconds.
        seconds_per_pull: processor time to reply to a pull, seconds.
        seconds_per_update: processor time of an update, seconds.
        shards: number of servers that hold equal parts of the parameters.
        sharing: "fifo" or "fair".
        jitter: random multiplier of these times. None: they are constant.

    Raises:
        ValueError: an argument is out of range; the message names that of `Cluster.with_server`.
    """

    bandwidth_bytes_per_second: float = math.inf
    seconds_per_push: float = 0.0
    seconds_per_pull: float = 0.0
    seconds_per_update: float = 0.0
    shards: int = 1
    sharing: str = "fifo"
    jitter: Any = None

    def __post_init__(self) -> None:
        for name, check in CHECKS.items():
            value = check(name.removesuffix("_bytes_per_second"), getattr(self, name))
            object.__setattr__(self, name, value)
        if self.sharing == "fair" and self.bandwidth_bytes_per_second == math.inf:
            expected = "'fifo' (the link's bandwidth is infinite)"
            checks.fail("sharing", self.sharing, expected, "a finite bandwidth=")

    @classmethod
    def described(cls, description: Mapping[str, Any]) -> Self:
        """Returns the server of a `describe()`; without its jitter, since descriptions hold only its name."""
        given: dict[str, Any] = {**description, "jitter": None}
        if given["bandwidth_bytes_per_second"] is None:
            given["bandwidth_bytes_per_second"] = math.inf
        return cls(**given)

    @property
    def takes_time(self) -> bool:
        """Whether any of the server's work takes time."""
        seconds = self.seconds_per_push + self.seconds_per_pull + self.seconds_per_update
        return seconds > 0 or self.bandwidth_bytes_per_second < math.inf

    def seconds(self, num_parameters: int, pull_bytes: int, push_bytes: int) -> dict[str, float]:
        """Returns the mean seconds of each kind of work, for the shard with the largest part of a message.

        Args:
            num_parameters: number of parameters, split into the shards; 0: not known, split evenly.
            pull_bytes: bytes of a pull.
            push_bytes: bytes of a push.

        Returns:
            A dictionary with the keys `link_in`, `push`, `update`, `pull` and `link_out`.
        """
        shards, bandwidth = self.shards, self.bandwidth_bytes_per_second
        part = -(-num_parameters // shards) / num_parameters if num_parameters else 1 / shards
        return {
            "link_in": part * push_bytes / bandwidth,
            "push": part * self.seconds_per_push,
            "update": part * self.seconds_per_update,
            "pull": part * self.seconds_per_pull,
            "link_out": part * pull_bytes / bandwidth,
        }

    def check_shards(self, num_parameters: int) -> None:
        """Raises ValueError if there are fewer parameters than shards, unless there are no parameters."""
        if num_parameters and self.shards > num_parameters:
            checks.fail("shards", self.shards, f"at most {num_parameters} (the number of parameters)")

    def describe(self) -> dict[str, Any]:
        """Returns the server as plain JSON values."""
        bandwidth = self.bandwidth_bytes_per_second
        return vars(self) | {
            "bandwidth_bytes_per_second": None if bandwidth == math.inf else bandwidth,
            "jitter": show_jitter(self.jitter),
        }

    def __str__(self) -> str:
        parts = [f"{self.bandwidth_bytes_per_second:.4g} B/s"] * (self.bandwidth_bytes_per_second < math.inf)
        for what in ("push", "pull", "update"):
            seconds = getattr(self, f"seconds_per_{what}")
            parts += [f"{seconds:.4g} s {'an' if what == 'update' else 'a'} {what}"] * (seconds > 0)
        parts += [f"{self.shards} shards"] * (self.shards > 1)
        parts += ["shared equally"] * (self.sharing == "fair")
        parts += [f"jitter={show_jitter(self.jitter)}"] * (self.jitter is not None)
        return f"server of {', '.join(parts)}"


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
