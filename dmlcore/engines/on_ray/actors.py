"""The server and each worker an actor on a Ray cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax.flatten_util import ravel_pytree

from dmlcore.cluster.faults import incidents
from dmlcore.engines.job import Job, Recording
from dmlcore.engines.on_ray.connection import Actors, actors_for, adopt, connection, installed, settings
from dmlcore.engines.on_ray.messages import Inbox, Letter, Wire, sender
from dmlcore.engines.real import Serving, WorkerError
from dmlcore.engines.worker import Clock, Failure, Stop, Worker
from dmlcore.trace import Trace

END_SECONDS = 5.0  # for workers to end when they are told to
LIVES = itertools.count()  # of servers: no attempt has the number of one of another life
ATTEMPTS_PER_LIFE = 2**32


class Task(NamedTuple):
    """A job as it is sent to actors."""

    reference: list[Any]  # to the problem, in a list, where Ray leaves it a reference
    job: Job  # all else
    config: dict[str, Any]  # settings of JAX on which numbers depend

    @classmethod
    def pack(cls, job: Job, actors: Actors) -> Task:
        """Returns a job with its problem in Ray's store."""
        return cls([actors.reference(job.problem)], dataclasses.replace(job, problem=None), settings())

    def unpack(self) -> Job:
        """Returns the job, under its settings of JAX."""
        adopt(self.config)
        return dataclasses.replace(self.job, problem=fetched(self.reference[0]))


@functools.lru_cache(maxsize=1)
def fetched(reference: Any) -> Any:
    """Returns what Ray's store holds; an actor gets the same object again, and compiles nothing anew."""
    return installed().get(reference)


class Receiver:
    """An actor: its method `run` has one thread, messages come in on the other."""

    def __init__(self) -> None:
        self._inbox: Inbox | None = None

    def receive(self, letter: Letter) -> None:
        """Takes a message; before the first run there is none to take."""
        if self._inbox is not None:
            self._inbox.take(letter)


class WorkerActor(Receiver):
    """A worker as an actor; its clock follows the server's."""

    def run(
        self, task: Task, worker: int, server: Any, sizes: tuple[int, ...], start: tuple[int, int]
    ) -> None:
        """Works until it is told to stop."""
        try:
            job = task.unpack()
            clock = Clock(job.time_scale or 1.0)
            stepper = job.stepper()
            wire = Wire(stepper)
            inbox, send = Inbox(wire, start, clock), sender(server, start, wire)
            working = Worker(worker, inbox, send, job, clock, sizes, start[1], stepper)
            self._inbox = inbox
        except Exception as error:
            server.receive.remote(Letter(start, 0, Failure.of(worker, -1, error)))
        else:
            working.run()


class RayCrew:
    """Workers as actors, as the server's actor reaches them in a life; `idle` are those of an earlier run."""

    def __init__(self, task: Task, server: Any, wire: Wire, idle: list[Any], life: int):
        self._task, self._server, self._wire, self._idle, self._life = task, server, wire, idle, life
        self._workers: dict[int, Any] = {}
        self._senders: dict[int, Callable[[Any], None]] = {}
        self._running: dict[Any, int] = {}

    def hire(self, worker: int, sizes: tuple[int, ...], hire: int) -> None:
        """Starts a worker, in an actor that has nothing to do or a new one."""
        actor = self._idle.pop() if self._idle else new_actor(WorkerActor)
        self._workers[worker] = actor
        start = self._life, hire
        self._senders[worker] = sender(actor, start, self._wire)
        self._running[actor.run.remote(self._task, worker, self._server, sizes, start)] = worker

    def post(self, worker: int, message: Any) -> None:
        """Sends a worker a message."""
        self._senders[worker](message)

    def dismiss(self, worker: int, starting: bool) -> None:
        """Ends a worker, which forgets all it knows; its process is kept, a new one takes long to start.

        One that is starting might not hear of it, and is killed.
        """
        if starting:
            installed().kill(self._forget(worker))
            return
        self.post(worker, Stop())
        self._idle.append(self._forget(worker))

    def _forget(self, worker: int) -> Any:
        self._running = {run: w for run, w in self._running.items() if w != worker}
        return self._workers.pop(worker)

    def lost(self) -> list[int]:
        """Returns the workers whose processes died."""
        ray = installed()
        ended, _ = ray.wait([*self._running], num_returns=max(1, len(self._running)), timeout=0)
        found = []
        for run in ended:
            worker = self._running.pop(run)
            with contextlib.suppress(ray.exceptions.RayTaskError):
                try:
                    ray.get(run)
                except ray.exceptions.RayActorError:
                    found.append(worker)
                    del self._workers[worker]
        return found

    def close(self) -> list[Any]:
        """Ends all workers, and returns the actors that are idle now."""
        for worker in self._workers:
            self.post(worker, Stop())
        if self._running:
            runs = [*self._running]
            _, stuck = installed().wait(runs, num_returns=len(runs), timeout=END_SECONDS)
            for run in stuck:
                installed().kill(self._forget(self._running[run]))
        return [*self._workers.values(), *self._idle]


class ServerActor(Receiver):
    """The server as an actor."""

    def run(
        self, task: Task, idle: list[Any], life: int, since: float, log: list[dict[str, Any]]
    ) -> tuple[Any, ...]:
        """Runs to the end; returns the trace's parts, the parameters, flat, and the workers' actors."""
        job = task.unpack()
        stepper = job.stepper()
        wire, clock = Wire(stepper), Clock(job.time_scale or 1.0)
        inbox = self._inbox = Inbox(wire, (life,))
        crew = RayCrew(task, installed().get_runtime_context().current_actor, wire, idle, life)

        def die() -> None:
            os._exit(1)

        try:
            with job.checkpoints("ray") as kept:
                attempts = itertools.count(life * ATTEMPTS_PER_LIFE)
                serving = Serving(job, inbox, crew, clock, kept, stepper, serial=attempts, kill=die)
                trace, params = serving.run(job.metadata("ray"), since, log)
        finally:
            actors = crew.close()
        flat = np.asarray(ravel_pytree(params)[0])
        return trace.tasks, trace.updates, trace.metadata, flat, actors


def new_actor(kind: Callable[..., Any]) -> Any:
    """Starts an actor that holds one CPU and takes messages while it runs."""
    return installed().remote(num_cpus=1, max_concurrency=2)(kind).remote()


def record(job: Job, address: str | None, keep: bool) -> Recording:
    """Runs a job on a Ray cluster; see `dmlcore.engines.ray`."""
    num_workers = job.spec.cluster.num_workers
    crashes = (incident for incident in incidents(job.spec.faults) if incident.kind == "down")
    since, log = 0.0, list[dict[str, Any]]()
    with (
        connection(address, num_workers + 1) as ray,
        actors_for(ray, num_workers, keep) as actors,
        job.with_folder() as whole,
    ):
        task = Task.pack(whole, actors)
        while True:
            if actors.server is None:
                actors.server = new_actor(ServerActor)
            idle, actors.workers = actors.workers, []
            try:
                run = actors.server.run.remote(task, idle, next(LIVES), since, log)
                *frames, flat, actors.workers = ray.get(run)
                break
            except ray.exceptions.RayActorError as error:
                actors.server = None  # and its workers with it
                if (crash := next((each for each in crashes if each.time >= since), None)) is None:
                    raise RuntimeError("the server's process died; try checkpoint= to resume it") from error
                time.sleep(crash.seconds * (job.time_scale or 1.0))
                # How long processes take to start is not the cluster's time.
                since = crash.time + crash.seconds
                log.append({"time": crash.time, "kind": "down", "worker": -1, "seconds": crash.seconds})
            except ray.exceptions.RayTaskError as error:
                known = isinstance(error.cause, WorkerError | RuntimeError | ValueError)
                raise (error.cause if known else error) from None
    unravel = ravel_pytree(job.stepper().start()[0])[1]
    return Recording(Trace(*frames).validate(), unravel(flat))
