"""`simulate`, the engines, which make a run of a policy on a cluster, and the table of their names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dmlcore import checks, notebook
from dmlcore.cluster import Cluster
from dmlcore.engines.spec import RunSpec
from dmlcore.engines.virtual import make_timeline
from dmlcore.trace import Trace
from dmlcore.types import Load, Method, Policy, Shape, Transport, Watch

if TYPE_CHECKING:
    import jax

    from dmlcore.engines.job import Job, Recording


def simulate(
    policy: Policy | Method,
    cluster: Cluster,
    *,
    updates: int | None = None,
    seconds: float | None = None,
    samples: int | None = None,
    seed: int = 0,
    batch_size: int = 32,
    load: Load | str | None = None,
    transport: Transport | str | None = None,
    parameter_bytes: int = 0,
    tensor_shapes: Sequence[Shape] | None = None,
    watch: Watch | None = None,
) -> Trace:
    """Runs a policy on a virtual clock and returns its trace.

    Events at equal times are handled in the order in which their tasks started. The server takes no time
    unless the cluster has one that does, see `Cluster.with_server`.

    Args:
        policy: the server's rule, or a `Method`.
        cluster: speeds, links, stragglers, faults and server.
        updates: stop after this number of server updates. Give exactly one of `updates`, `seconds` and
            `samples`; the other two are None.
        seconds: stop at this virtual time in seconds, or None.
        samples: stop when applied updates contain this number of samples, or None.
        seed: seed of all random times; with the same seed all policies meet the same stragglers.
        batch_size: samples of one worker's task; a load rule divides `batch_size * num_workers` samples.
        load: rule for the batch sizes, or its name; not used if the policy sizes all tasks. Default: `equal`.
        transport: how parameters and gradients travel, or its name. Default: `plain`.
        parameter_bytes: size of the parameters in bytes; they travel in both directions.
        tensor_shapes: shapes of the parameters' tensors, such as [(64, 32), 32], for transports with codecs;
            n is a vector of n values. Default: one vector of `parameter_bytes / 4` values, of which
            `power_sgd` sends all.
        watch: function that shows the training to a policy that watches losses or gradients; `train` passes
            its own. None: the policy watches nothing.

    Returns:
        The trace, validated.

    Raises:
        ValueError: an argument is wrong, or a function of a user's own policy, load or jitter returns a wrong
            value; the message names the function, the worker and the clock.
        RuntimeError: the policy deadlocks: every worker waits and no task is in flight.

    Example:
        >>> from dmlcore.methods.policies import ssp
        >>> trace = simulate(ssp(staleness=3), Cluster.uniform(4), updates=100)
        >>> len(trace.updates), round(trace.end_time, 6)
        (100, 0.8)
    """
    stop: Any = {"updates": updates, "seconds": seconds, "samples": samples}
    how: Any = {"seed": seed, "batch_size": batch_size, "load": load, "transport": transport}
    sizes: Any = {"parameter_bytes": parameter_bytes, "tensor_shapes": tensor_shapes}
    spec = RunSpec.checked(policy, cluster, **stop, **how, **sizes)
    if spec.policy.on_observation is None:
        watch = None
    elif watch is None:
        checks.fail("policy", policy, "one that watches no training", "dml.train")
    return make_timeline(spec, watch)


class Engine(NamedTuple):
    """A clock, virtual or real, and the devices that compute the gradients.

    On a virtual clock the timeline is made first and training follows it; on a real clock both happen at
    once. An engine has either `timeline` or `record`.

    Args:
        name: the call that makes it.
        timeline: spec, watch -> trace, on a virtual clock; `watch` shows the training to a policy that
            watches it, or is None. None: the clock is real.
        driver: the class that trains along a trace, with the methods of `Replay`. None: `Replay`.
        record: job -> recording, on a real clock. None: the clock is virtual.
        time_scale: real seconds per second of the cluster; 0: no latencies are injected.

    >>> Engine("mine()", timeline=make_timeline)
    mine()
    """

    name: str
    timeline: Callable[[RunSpec, Watch | None], Trace] | None = None
    driver: Callable[..., Any] | None = None
    record: Callable[[Job], Recording] | None = None
    time_scale: float = 1.0

    __repr__ = notebook.by_name


def simulated() -> Engine:
    """Returns the default and fastest engine: a virtual clock, and one compiled loop along the timeline.

    Returns:
        The engine, whose name for `train` and `compare` is "simulate".

    Example:
        >>> simulated()
        simulate()
    """
    return Engine("simulate()", timeline=make_timeline)


def devices(devices: Sequence[jax.Device] | None = None) -> Engine:
    """Returns an engine with a virtual clock that computes gradients on several devices by `jax.shard_map`.

    Guarantees: the timeline is that of `simulate`, and the parameters are the same up to rounding. See
    docs/devices.md.

    Args:
        devices: the devices to use. Default: all devices of JAX; on a machine without accelerators,
            `jax_num_cpu_devices` sets their number.

    Returns:
        The engine.

    Raises:
        ValueError: `devices` is empty or not a sequence.

    Example:
        >>> devices()
        devices()
    """
    from dmlcore.training.mesh import ShardedReplay

    if devices is not None and not (isinstance(devices, Sequence) and devices):
        checks.fail("devices", devices, "a sequence of JAX devices, such as jax.devices()[:2]")
    name = "devices()" if devices is None else f"devices({len(devices)} of them)"
    return Engine(name, timeline=make_timeline, driver=functools.partial(ShardedReplay, devices=devices))


def threads(time_scale: float = 1.0) -> Engine:
    """Returns an engine with a real clock and a thread per worker, which sleeps for the cluster's times.

    Guarantees: the random times are those of the simulator, and a replay of the recorded trace gives the
    parameters at the end of the run, as exactly as `dml.replay` says. Each worker computes its own gradients,
    on its own device if JAX has several.

    Args:
        time_scale: real seconds per second of the cluster, > 0. With 0 no sleeps are injected, workers run at
            the machine's speed, and times are real seconds.

    Returns:
        The engine.

    Raises:
        ValueError: `time_scale` is negative.

    Example:
        >>> threads(time_scale=0.1)
        threads(time_scale=0.1)
    """
    from dmlcore.engines.on_threads import record

    scale = checks.real("time_scale", time_scale, low=0, high=1e300)
    return Engine(f"threads(time_scale={scale:g})", record=record, time_scale=scale)


def ray(address: str | None = None, *, time_scale: float = 1.0, keep: bool = False) -> Engine:
    """Returns an engine with a real clock, where the server and each worker are actors on a Ray cluster.

    Guarantees: those of `threads`. Parameters and gradients travel as one flat NumPy buffer. A worker whose
    process dies is replaced, while the other workers continue.

    Args:
        address: address of a running Ray cluster, such as "auto", "HOST:6379" or "ray://HOST:10001". Default:
            the cluster that Ray is connected to, else the one that RAY_ADDRESS names, else a local one on
            loopback, which is shut down after the run.
        time_scale: real seconds per second of the cluster, see `threads`.
        keep: whether to keep the actors for the next run on the same connection (`ray.init()`), which then
            starts faster. They hold their CPUs until Ray is disconnected.

    Returns:
        The engine.

    Raises:
        ValueError: `time_scale` is negative, or another argument has a wrong type.

    Example:
        >>> ray("auto", time_scale=0)
        ray(address='auto', time_scale=0)
    """
    from dmlcore.engines.on_ray.actors import record

    if not isinstance(address, str | None):
        checks.fail("address", address, "that of a Ray cluster, such as 'auto' or 'HOST:6379', or None")
    checks.boolean("keep", keep)
    scale = checks.real("time_scale", time_scale, low=0, high=1e300)
    where = "" if address is None else f"address={address!r}, "
    run = functools.partial(record, address=address, keep=keep)
    return Engine(f"ray({where}time_scale={scale:g})", record=run, time_scale=scale)


# The conformance tests run every policy on every engine of this table.
ALL_ENGINES: dict[str, Callable[[], Engine]] = {
    "simulate": simulated,
    "devices": devices,
    "threads": threads,
    "ray": ray,
}


def resolve(engine: Any) -> Engine:
    """Returns an engine, given an `Engine`, a name in `ALL_ENGINES`, or a function that makes timelines."""
    if isinstance(engine, Engine):
        return engine
    if engine is simulate:
        return simulated()
    if engine in ALL_ENGINES.values():
        checks.fail("engine", engine, "an engine", checks.calling(engine))
    if callable(engine) and not isinstance(engine, type):
        return Engine(getattr(engine, "__name__", "engine"), timeline=engine)
    return checks.choice("engine", engine, ALL_ENGINES)()
