"""Connections to Ray clusters: a running one, or a local one on loopback."""

import contextlib
import os
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn
from unittest import mock
from urllib.parse import urlsplit

import jax

from dmlcore import checks
from dmlcore.training.compiling import OWN_SETTINGS

CONNECT_SECONDS = 10.0  # time after which an address counts as unreachable
STARTS = 3  # most attempts to start a local cluster
FREE_SECONDS = 20.0  # time to wait for the CPUs of actors that have ended
OBJECT_STORE_BYTES = 256 * 2**20
LOOPBACK = "127.0.0.1"
# Settings of a local cluster: it listens on loopback, waits longer for its processes, and does not lower the
# priority of actors.
LOCAL = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_agent_register_timeout_ms": "120000",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_worker_niceness": "0",
}
QUIET: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}


def settings() -> dict[str, Any]:
    """Returns the JAX settings that numbers depend on most, for another process to adopt."""
    return {f"jax_{name}": getattr(jax.config, f"jax_{name}") for name in OWN_SETTINGS}


def adopt(settings: Mapping[str, Any]) -> None:
    """Adopts the JAX settings of another process."""
    for name, value in settings.items():
        jax.config.update(name, value)


def installed() -> Any:
    """Returns the package ray; raises ImportError if it is not installed."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("engine 'ray' needs Ray: pip install 'dmlcore[ray]'") from error
    return ray


def start_local(num_cpus: int) -> Any:
    """Starts a cluster on this machine, on loopback.

    Args:
        num_cpus: number of CPUs that Ray assumes; it may exceed the cores, since actors mostly sleep.

    Raises:
        RuntimeError: Ray listens on another address than loopback; the cluster is shut down again.
    """
    for name, value in LOCAL.items():
        os.environ.setdefault(name, value)
    ray = installed()
    store = {"object_store_memory": OBJECT_STORE_BYTES, "num_cpus": num_cpus}
    # Ray calls this function to find the address to listen on. LOCAL has no effect if ray was imported
    # before.
    listen = mock.patch.object(ray.util, "get_node_ip_address", return_value=LOOPBACK)
    for attempt in range(1, STARTS + 1):
        try:
            with warnings.catch_warnings(), listen:
                # JAX warns of forks, but those of Ray are followed by exec immediately.
                warnings.filterwarnings("ignore", message=r"os\.fork", category=RuntimeWarning)
                ray.init(address="local", include_dashboard=False, **store, **QUIET)
            break
        except Exception:  # on a busy machine the processes may start slower than Ray's time limit
            ray.shutdown()
            if attempt == STARTS:
                raise
    if (address := ray.util.get_node_ip_address()) != LOOPBACK:
        ray.shutdown()
        raise RuntimeError(
            checks.message("ray", address, f"to listen on {LOOPBACK}", "importing dmlcore before ray")
        )
    return ray


@contextlib.contextmanager
def connection(address: str | None, num_cpus: int) -> Iterator[Any]:
    """Yields Ray on its present connection; without one, it connects to a cluster.

    The cluster is that at `address`, else that at RAY_ADDRESS, else a local one, which is started here.

    Raises:
        ConnectionError: no server answers at the address within `CONNECT_SECONDS`.
    """
    ray: Any = sys.modules.get("ray")
    mine = ray is None or not ray.is_initialized()
    if address is None and os.environ.get("RAY_ADDRESS", "local") != "local":
        address = os.environ["RAY_ADDRESS"]
    elif address is not None and not mine and ":" in address and not address.startswith("ray://"):
        connected = ray.get_runtime_context().gcs_address
        if connected != address:
            hint = "ray.shutdown() before connecting to another cluster"
            checks.fail("address", address, f"{connected!r}, to which Ray is connected", hint)
    if mine and address is None:
        ray = start_local(num_cpus)
    elif mine:
        ray = installed()
        reach(str(address))
        ray.init(address=address, **QUIET)
    try:
        yield ray
    finally:
        if mine:
            _kept.clear()
            ray.shutdown()


class Actors:
    """The actors of a run, or those kept for the next run."""

    def __init__(self, connected: Any):
        self.connected = connected  # the connection that they belong to
        self.server: Any = None
        self.workers: list[Any] = []  # idle actors
        self._stored: tuple[Any, Any] | None = None

    def reference(self, problem: Any) -> Any:
        """Returns a reference to a problem in Ray's store; the same problem gets the same reference."""
        if self._stored is None or self._stored[0] is not problem:
            self._stored = None  # frees the memory of the old one first
            self._stored = problem, installed().put(problem)
        return self._stored[1]

    def end(self, ray: Any) -> None:
        """Kills all actors, which frees their CPUs."""
        for actor in [self.server, *self.workers]:
            if actor is not None:
                ray.kill(actor)


_kept: list[Actors] = []  # actors of at most one run


def kept_actors(ray: Any) -> Actors:
    """Returns the actors that an earlier run kept on this connection, or an empty `Actors`."""
    context = ray.get_runtime_context()
    connected = context.get_node_id(), context.get_job_id()  # every cluster numbers its jobs from the start
    kept = _kept.pop() if _kept else None
    return kept if kept is not None and kept.connected == connected else Actors(connected)


@contextlib.contextmanager
def actors_for(ray: Any, num_workers: int, keep: bool) -> Iterator[Actors]:
    """Yields the kept actors for a run, after a check that there are free CPUs for the others.

    Raises:
        ValueError: the cluster has too few CPUs, or too few free CPUs.
    """
    needed = num_workers + 1
    total = int(ray.cluster_resources().get("CPU", 0))
    if total < needed:
        fail_for_cpus(num_workers, f"{total} CPUs", needed - total)
    actors = kept_actors(ray)
    there = len(actors.workers) + (actors.server is not None)
    free = there + free_cpus(ray, needed - there)
    if free < needed:
        actors.end(ray)
        fail_for_cpus(num_workers, f"{free} free CPUs", needed - free)
    try:
        yield actors
    except BaseException:
        actors.end(ray)
        raise
    if keep:
        _kept.append(actors)
    else:
        actors.end(ray)


def fail_for_cpus(num_workers: int, there: str, missing: int) -> NoReturn:
    found = f"{num_workers} workers and a server on a Ray cluster with {there} ({missing} are missing)"
    checks.reject("cluster", found, "a CPU for each worker and one for the server")


def free_cpus(ray: Any, wanted: int) -> int:
    """Returns the number of free CPUs; waits a while for `wanted`, since actors free theirs with a delay."""
    deadline = time.monotonic() + FREE_SECONDS
    while (free := int(ray.available_resources().get("CPU", 0))) < wanted and time.monotonic() < deadline:
        time.sleep(0.1)
    return free


def spread(function: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]) -> list[Any]:
    """Returns `function(shared, item)` for all items, each computed as a Ray task on one CPU.

    Raises:
        ValueError: the cluster has no free CPU.
        Exception: the function raised it.
    """
    here = settings()

    def run(reference: Any, item: Any) -> Any:
        adopt(here)
        return function(reference, item)

    with connection(None, os.cpu_count() or 1) as ray:
        kept_actors(ray).end(ray)
        if free_cpus(ray, 1) < 1:
            checks.reject("executor", "'ray' without a free CPU", "a Ray cluster with at least one free CPU")
        task, reference = ray.remote(num_cpus=1)(run), ray.put(shared)
        try:
            return ray.get([task.remote(reference, item) for item in items])
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None


def reach(address: str) -> None:
    """Raises ConnectionError if no server answers at an address, and ValueError if it is not an address."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    if address == "auto":
        return
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        checks.fail("address", address, "'HOST:PORT', 'ray://HOST:PORT' or 'auto'")
    try:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        found = f"no answer from {address!r} within {CONNECT_SECONDS:g} s ({error})"
        raise ConnectionError(checks.message("address", found, "a running Ray cluster")) from error
