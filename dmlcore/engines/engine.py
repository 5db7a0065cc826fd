"""The engines: what makes a run of a policy on a cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dmlcore import checks
from dmlcore.engines.simulator import simulate
from dmlcore.engines.spec import RunSpec
from dmlcore.engines.virtual import make_timeline
from dmlcore.trace import Trace
from dmlcore.types import Watch

if TYPE_CHECKING:
    import jax

    from dmlcore.engines.job import Job, Recording


class Engine(NamedTuple):
    """A clock and a place to compute. Either the timeline comes first and training follows, or both at once.

    Args:
        name: the call that makes it.
        timeline: spec, what shows a watching policy its training or None -> trace, on a virtual clock; None:
            the clock is real.
        driver: trains along traces, as `Replay` does; None: `Replay`.
        record: job -> recording, on a real clock; None: the clock is virtual.
        time_scale: real seconds of one of the cluster's; 0: latencies are not injected.
    """

    name: str
    timeline: Callable[[RunSpec, Watch | None], Trace] | None = None
    driver: Callable[..., Any] | None = None
    record: Callable[[Job], Recording] | None = None
    time_scale: float = 1.0

    def __repr__(self) -> str:
        return self.name


def simulated() -> Engine:
    """A virtual clock, and one compiled loop that trains along the timeline: the default, and the fastest.

    Returns:
        The engine.

    Example:
        >>> simulated()
        simulate()
    """
    return Engine("simulate()", timeline=make_timeline)


def devices(devices: Sequence[jax.Device] | None = None) -> Engine:
    """A virtual clock, and gradients spread over several devices by `jax.shard_map`: see docs/devices.md.

    Guarantees: the timeline is that of `simulate`, and the parameters are the same up to rounding.

    Args:
        devices: which take part. Default: all that JAX has; on a laptop, as many as `jax_num_cpu_devices`.

    Returns:
        The engine.

    Raises:
        ValueError: `devices` are none.

    Example:
        >>> devices()
        devices()
    """
    from dmlcore.training.mesh import ShardedReplay

    if devices is not None and not (isinstance(devices, Sequence) and devices):
        checks.fail("devices", devices, "devices of JAX, such as jax.devices()[:2]")
    name = "devices()" if devices is None else f"devices({len(devices)} of them)"
    return Engine(name, timeline=make_timeline, driver=functools.partial(ShardedReplay, devices=devices))


def threads(time_scale: float = 1.0) -> Engine:
    """A real clock: a thread for each worker, which sleeps as long as the cluster has it take.

    Guarantees: sleeps are drawn as the simulator draws them; the recorded trace, replayed, gives the
    parameters that the run ended with, as exactly as `dml.replay` says. Each worker computes its own
    gradients, on its own device where JAX has several.

    Args:
        time_scale: real seconds of one of the cluster's, > 0, or 0: nothing is injected, workers are as fast
            as they are, and times are real seconds.

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
    """A real clock: the server and each worker an actor on a Ray cluster.

    Guarantees: those of `threads`. Parameters and gradients travel as one flat NumPy buffer. A worker whose
    process dies is replaced, and the others go on meanwhile.

    Args:
        address: of a running cluster, such as "auto", "HOST:6379" or "ray://HOST:10001". Default: the one
            that Ray is connected to, or that RAY_ADDRESS names, or else a local one on loopback, ended with
            the run.
        time_scale: as for `threads`.
        keep: keeps the actors for the next run on the same connection, `ray.init()`, which need not wait for
            their start; they hold their CPUs until Ray is disconnected.

    Returns:
        The engine.

    Raises:
        ValueError: `time_scale` is negative, or another argument is of a wrong kind.

    Example:
        >>> ray("auto", time_scale=0)
        ray(address='auto', time_scale=0)
    """
    from dmlcore.engines.on_ray.actors import record

    if not isinstance(address, str | None):
        checks.fail("address", address, "that of a cluster, such as 'auto' or 'HOST:6379', or None")
    if not isinstance(keep, bool):
        checks.fail("keep", keep, "True or False")
    scale = checks.real("time_scale", time_scale, low=0, high=1e300)
    where = "" if address is None else f"address={address!r}, "
    run = functools.partial(record, address=address, keep=keep)
    return Engine(f"ray({where}time_scale={scale:g})", record=run, time_scale=scale)


# One table: every policy passes the conformance tests on every engine here.
ALL_ENGINES: dict[str, Callable[[], Engine]] = {
    "simulate": simulated,
    "devices": devices,
    "threads": threads,
    "ray": ray,
}


def resolve(engine: Any) -> Engine:
    """Returns an engine from an object, a registered name, or a function that makes timelines."""
    if isinstance(engine, Engine):
        return engine
    if engine is simulate:
        return simulated()
    if engine in ALL_ENGINES.values():
        checks.fail(
            "engine", engine.__name__, f"what it returns: {engine.__name__}() (did you forget to call it?)"
        )
    if callable(engine) and not isinstance(engine, type):
        return Engine(getattr(engine, "__name__", "engine"), timeline=engine)
    return checks.choice("engine", engine, ALL_ENGINES)()
