"""The server and each worker an actor on a Ray cluster; what travels is one flat NumPy buffer a message."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import jax
import numpy as np
import pandas as pd
from jax.flatten_util import ravel_pytree

from dmlcore import checks
from dmlcore.engines.serving import Recording, Serving, WorkerError
from dmlcore.engines.setup import Job
from dmlcore.engines.worker import Arrival, Assignment, Clock, Stop, Worker
from dmlcore.faults import ServerCrash
from dmlcore.replayer.steps import Stepper
from dmlcore.trace import Trace

CONNECT_SECONDS = 10.0  # before an address counts as unreachable
ATTEMPTS = 2**32  # more than one server's life gives out
OBJECT_STORE_BYTES = 256 * 2**20
# Of a cluster that is started here: on loopback, which Ray else does on laptops' systems only, and in no haste.
LOCAL = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_agent_register_timeout_ms": "120000",
    "RAY_raylet_start_wait_time_s": "120",
}
QUIET: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}


class Wire:
    """Messages with their pytrees as flat buffers, and back.

    Args:
        stepper: whose parameters and optimizer state travel. Integers in the state are exact up to 2**24.
    """

    def __init__(self, stepper: Stepper):
        state = stepper.start()
        self._state, self._gradient = ravel_pytree(state)[1], ravel_pytree(state[0])[1]

    def pack(self, message: Any) -> Any:
        """Returns a message that travels."""
        if isinstance(message, Arrival):
            return message._replace(gradient=np.asarray(ravel_pytree(message.gradient)[0]))
        if isinstance(message, Assignment) and message.state is not None:
            return message._replace(state=np.asarray(ravel_pytree(message.state)[0]))
        return message

    def unpack(self, message: Any) -> Any:
        """Returns the message that was packed."""
        if isinstance(message, Arrival):
            return message._replace(gradient=self._gradient(message.gradient))
        if isinstance(message, Assignment) and message.state is not None:
            return message._replace(state=self._state(message.state))
        return message


def settings() -> dict[str, Any]:
    """Returns the settings of JAX on which numbers depend."""
    config: Any = jax.config
    return {"jax_enable_x64": config.jax_enable_x64}


class WorkerActor:
    """A worker as an actor: `run` in one thread, messages come in on the other."""

    def __init__(self, job: Job, config: dict[str, Any], worker: int, server: Any, batch_size: int):
        for name, value in config.items():
            jax.config.update(name, value)
        stepper = job.stepper()
        self._inbox: queue.Queue = queue.Queue()
        self._wire = Wire(stepper)

        def send(message: Any) -> None:
            server.receive.remote(self._wire.pack(message))

        clock, faults = Clock(job.time_scale or 1.0), job.setup.faults
        self._worker = Worker(
            worker, self._inbox, send, stepper, clock, job.timing(), faults, batch_size, follows=True
        )

    def receive(self, message: Any) -> None:
        """Takes a message of the server."""
        self._inbox.put(self._wire.unpack(message))

    def run(self) -> None:
        """Works until it is told to stop."""
        self._worker.run()


class RayCrew:
    """Workers as actors, as the server's actor reaches them.

    Args:
        job: reference to what to run.
        config: settings of JAX.
        server: handle of the server.
        wire: packs messages.
    """

    def __init__(self, job: Any, config: dict[str, Any], server: Any, wire: Wire):
        self._job, self._config, self._server, self._wire = job, config, server, wire
        self._workers: dict[int, Any] = {}
        self._running: dict[Any, int] = {}

    def hire(self, worker: int, batch_size: int) -> None:
        """Starts a worker's actor."""
        import ray

        actor = ray.remote(num_cpus=1, max_concurrency=2)(WorkerActor)
        handle = actor.remote(self._job, self._config, worker, self._server, batch_size)
        self._workers[worker] = handle
        self._running[handle.run.remote()] = worker

    def post(self, worker: int, message: Any) -> None:
        """Sends a worker a message."""
        self._workers[worker].receive.remote(self._wire.pack(message))

    def dismiss(self, worker: int) -> None:
        """Kills a worker's process."""
        import ray

        self._running = {run: w for run, w in self._running.items() if w != worker}
        ray.kill(self._workers.pop(worker))

    def lost(self) -> list[int]:
        """Returns the workers whose processes died."""
        import ray

        ended, _ = ray.wait([*self._running], num_returns=max(1, len(self._running)), timeout=0)
        found = []
        for run in ended:
            worker = self._running.pop(run)
            try:
                ray.get(run)
            except ray.exceptions.RayActorError:
                found.append(worker)
        return found

    def close(self) -> None:
        """Ends all workers."""
        for worker in [*self._workers]:
            self.post(worker, Stop())
            self.dismiss(worker)


class ServerActor:
    """The server as an actor: `run` in one thread, pushes come in on the other."""

    def __init__(self, job: Job, config: dict[str, Any]):
        for name, value in config.items():
            jax.config.update(name, value)
        self._job, self._config = job, config
        self._stepper = job.stepper()
        self._wire = Wire(self._stepper)
        self._inbox: queue.Queue = queue.Queue()

    def receive(self, message: Any) -> None:
        """Takes a message of a worker."""
        self._inbox.put(self._wire.unpack(message))

    def run(self, job: list[Any], since: float, log: list[dict[str, Any]], first: int) -> tuple[Any, ...]:
        """Runs to the end and returns the trace's parts and the parameters, flat."""
        import ray

        (reference,) = job  # in a list, Ray leaves it a reference
        crew = RayCrew(
            reference, self._config, ray.get_runtime_context().current_actor, self._wire
        )
        setup, clock = self._job.setup, Clock(self._job.time_scale or 1.0)

        def die(seconds: float) -> None:
            os._exit(1)

        try:
            with self._job.checkpoints("ray") as kept:
                serving = Serving(
                    self._job.servers(first),
                    self._stepper,
                    self._inbox,
                    crew,
                    clock,
                    setup.faults,
                    setup.stop.seconds,
                    kept,
                    die,
                )
                trace, params = serving.run(self._job.metadata("ray"), since, log)
        finally:
            crew.close()
        return trace.tasks, trace.updates, trace.metadata, np.asarray(ravel_pytree(params)[0])


def installed() -> Any:
    """Returns the package ray.

    Raises:
        ImportError: it is not there.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError("engine 'ray' needs Ray: pip install 'dmlcore[ray]'") from error
    return ray


def start_local(num_cpus: int) -> Any:
    """Starts a cluster on this machine, on loopback; CPUs are logical: actors that mostly sleep share cores."""
    for name, value in LOCAL.items():
        os.environ.setdefault(name, value)
    ray = installed()
    store = {"object_store_memory": OBJECT_STORE_BYTES, "num_cpus": num_cpus}
    ray.init(address="local", include_dashboard=False, **store, **QUIET)
    return ray


@contextlib.contextmanager
def connection(address: str | None, num_cpus: int) -> Iterator[Any]:
    """Connects to a cluster with so many free CPUs: the one at `address`, one that is connected, or a local one.

    Raises:
        ImportError: Ray is not installed.
        ConnectionError: nobody answers at the address within `CONNECT_SECONDS`.
        ValueError: the cluster has fewer free CPUs.
    """
    ray = sys.modules.get("ray")
    mine = ray is None or not ray.is_initialized()
    if mine and address is None:
        ray = start_local(num_cpus)
    elif mine:
        ray = installed()
        _reach(str(address))
        ray.init(address=address, **QUIET)
    try:
        free = int(ray.available_resources().get("CPU", 0))
        if free < num_cpus:
            checks.fail(
                "cluster",
                f"{num_cpus - 1} workers and a server, on a Ray cluster with {free} free CPUs",
                f"at most one each: {num_cpus - free} CPUs are missing",
            )
        yield ray
    finally:
        if mine:
            ray.shutdown()


def _reach(address: str) -> None:
    parts = urlsplit(address if "://" in address else f"//{address}")
    if address == "auto":
        return
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        checks.fail("address", address, "HOST:PORT, ray://HOST:PORT or auto")
    try:
        socket.create_connection((host, port), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise ConnectionError(
            f"address: nobody answers at {address!r} ({error}; gave up within {CONNECT_SECONDS:g} s)"
        ) from error


def record(job: Job, address: str | None) -> Recording:
    """Runs a job on a Ray cluster; see `dmlcore.engines.ray`."""
    setup = job.setup
    crashes = iter(sorted((f for f in setup.faults.events if isinstance(f, ServerCrash)), key=lambda f: f.time))
    with connection(address, setup.cluster.num_workers + 1) as ray, job.with_folder() as whole:
        reference = ray.put(whole)
        actor = ray.remote(num_cpus=1, max_concurrency=2)(ServerActor)
        since, first, log = 0.0, 0, []  # type: ignore[var-annotated]
        while True:
            server = actor.remote(reference, settings())
            try:
                tasks, updates, metadata, flat = ray.get(server.run.remote([reference], since, log, first))
                break
            except ray.exceptions.RayActorError as error:
                crash = next(crashes, None)
                if crash is None:
                    raise RuntimeError("the server's process died; give `checkpoint=` to go on") from error
                time.sleep(crash.seconds * (job.time_scale or 1.0))
                # How long processes take to start is not the cluster's time.
                since, first = crash.time + crash.seconds, first + ATTEMPTS
                log = [{"time": crash.time, "kind": "down", "worker": -1, "seconds": crash.seconds}]
            except ray.exceptions.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, WorkerError | RuntimeError | ValueError) else error) from None
            finally:
                with contextlib.suppress(Exception):
                    ray.kill(server)
    unravel = ravel_pytree(job.stepper().start()[0])[1]
    return Recording(Trace(tasks, pd.DataFrame(updates), metadata).validate(), unravel(flat))
