"""Clusters from hardware: training speeds, sizes of models and rates of links, from `hardware.toml`."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from dmlcore import checks, notebook
from dmlcore.cluster.cluster import Cluster
from dmlcore.cluster.regime import Regime
from dmlcore.files import table

BYTES = 4  # per parameter: a 32-bit float; a `coded` transport sends fewer

TABLES = table(__file__, "hardware")
PARAMETERS: Mapping[str, int] = TABLES["parameters"]  # number of trainable parameters


class Measured(NamedTuple):
    """A published training speed of one accelerator, without communication."""

    samples_per_second: float  # a sample is an image, or a sequence of 128 words
    batch_size: int  # samples per step


SPEEDS: Mapping[tuple[str, str], Measured] = {
    (model, accelerator): Measured(*speed)
    for model, speeds in TABLES["speeds"].items()
    for accelerator, speed in speeds.items()
}


class Link(NamedTuple):
    """A network link, full duplex."""

    bits_per_second: float  # rate of the standard
    efficiency: float  # share of that rate that carries parameters
    latency: float  # seconds, one way


LINKS: Mapping[str, Link] = {
    name: Link(rate, kind["payload"] / kind["frame"], kind["latency"])
    for kind in TABLES["links"]
    for name, rate in kind["bits_per_second"].items()
}

# Passes over the parameters' bytes in the server's memory. Derived; the time of the arithmetic is negligible.
PUSH = 3  # reads the gradient and the sum so far, writes the sum
UPDATE = 3  # plain SGD: reads parameters and sum, writes parameters
PULL = 2  # reads parameters, writes the message


class Hardware(NamedTuple):
    """A cluster from hardware, with the message and batch sizes that `simulate` needs.

    Args:
        cluster: speeds, links and the server.
        parameter_bytes: size of the model in bytes; it travels in both directions.
        batch_size: samples per task, at which the speed was measured.
        name: model, accelerators and links.

    >>> hardware("vgg16", "25GbE", "p100", workers=4).parameter_bytes  # 138 million parameters of 4 bytes
    553430176
    """

    cluster: Cluster
    parameter_bytes: int
    batch_size: int
    name: str

    @property
    def regime(self) -> Regime:
        """Communication ratio c and server load rho, without units; see `Cluster.regime`."""
        return self.cluster.regime(self.parameter_bytes, self.batch_size)

    _repr_html_ = notebook.html


def hardware(
    model: str = "resnet50",
    link: str = "10GbE",
    accelerator: str = "a100",
    workers: int = 16,
    *,
    server_link: str | None = None,
    shards: int = 1,
    memory_bandwidth: float = 204.8e9,
    jitter: Any = None,
) -> Hardware:
    """Returns a cluster of accelerators, links and a server, from published numbers.

    A task computes a batch at the measured speed. A transfer that does not queue takes its bytes divided by
    the rate of the slower of the worker's and the server's link. Packets are forwarded as they arrive, so the
    modelled link of a worker takes only the time by which it is slower than the server's shared link. The
    server's processor is limited by its memory: a push takes three passes over the bytes, an update three
    (plain SGD), a pull two. Transfers do not overlap with computing and numbers have 4 bytes, unless a
    transport says otherwise.

    The tables and the sources of their numbers are in `dmlcore/cluster/hardware.toml`. Speeds are published
    measurements, rates are those of standards, efficiencies and passes are derived, latencies are assumed.

    Args:
        model: "resnet50", "vgg16", "inception_v3" or "bert_large".
        link: each worker's link: "1GbE", "10GbE", "25GbE", "100GbE" or "InfiniBand HDR".
        accelerator: "k80", "p100", "v100" or "a100", if the model was measured on it.
        workers: W, >= 1, each with one accelerator.
        server_link: the link of each server. Default: the same as `link`.
        shards: number of servers that share the parameters evenly, >= 1.
        memory_bandwidth: memory bandwidth of each server in bytes/s. Default: the datasheet's peak of an AMD
            EPYC 7742, 8 channels of DDR4-3200; programs reach less.
        jitter: random multiplier of the compute time, see `Cluster.from_speeds`. None: it is constant.

    Returns:
        A `Hardware`: the cluster, the size of the model in bytes and the samples per task.

    Raises:
        ValueError: an argument is wrong, or the model was not measured on the accelerator; the message lists
            the accelerators that it was measured on.

    >>> import dmlcore as dml
    >>> eight = hardware("resnet50", "10GbE", "v100", workers=8)
    >>> print(eight.regime)
    c = 0.81, rho = 1.8
    >>> sizes = {"parameter_bytes": eight.parameter_bytes, "batch_size": eight.batch_size}
    >>> trace = dml.simulate(dml.asp(), eight.cluster, updates=500, **sizes)
    >>> round(dml.metrics.updates_per_second(trace), 1)  # the most that the link carries: 1.18 GB/s / 102 MB
    11.4
    """
    numbers = checks.choice("model", model, PARAMETERS)
    ends = [checks.choice("link", link, LINKS)]
    ends.append(ends[0] if server_link is None else checks.choice("server_link", server_link, LINKS))
    known = {kind: speed for (name, kind), speed in SPEEDS.items() if name == model}
    with checks.within(f"model={model!r}"):  # not every model was measured on every accelerator
        speed, batch_size = checks.choice("accelerator", accelerator, known)
    workers = checks.integer("workers", workers, low=1)
    shards = checks.integer("shards", shards, low=1, high=numbers, why="the number of parameters")
    memory = checks.positive("memory_bandwidth", memory_bandwidth)
    own, shared = (end.bits_per_second / 8 * end.efficiency for end in ends)
    left = max(0.0, 1 / own - 1 / (shards * shared))  # seconds per byte
    nbytes = BYTES * numbers
    cluster = Cluster.uniform(
        workers,
        speed,
        latency=max(end.latency for end in ends),
        bandwidth=1 / left if left else math.inf,
        jitter=jitter,
    ).with_server(
        bandwidth=shared,
        seconds_per_push=PUSH * nbytes / memory,
        seconds_per_update=UPDATE * nbytes / memory,
        seconds_per_pull=PULL * nbytes / memory,
        shards=shards,
    )
    servers = f"{shards} servers" if shards > 1 else "a server"
    name = f"{model} on {workers} {accelerator}, {link}, {servers} on {server_link or link}"
    return Hardware(cluster, nbytes, batch_size, name)
