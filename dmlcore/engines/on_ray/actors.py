"""The actors of the Ray engine: one for the server and one for each worker, and the messages between them.

Each message has one flat NumPy buffer, and messages are received in the order of sending.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np
from jax.flatten_util import ravel_pytree

from dmlcore.cluster.faults import incidents
from dmlcore.engines.job import Job, Recording
from dmlcore.engines.on_ray.connection import Actors, actors_for, adopt, connection, installed, settings
from dmlcore.engines.real import Serving, WorkerError
from dmlcore.engines.worker import Arrival, Assignment, Clock, Failure, Stop, Worker
from dmlcore.trace import Trace
from dmlcore.training.checkpoints import plain_leaves, with_leaves
from dmlcore.training.stepper import Stepper


class Wire:
    """Packs and unpacks messages: parameters and gradients are flat buffers, optimizer states leaves."""

    def __init__(self, stepper: Stepper):
        params, *self._rest = stepper.start()
        self._unravel = ravel_pytree(params)[1]

    def pack(self, message: Any) -> Any:
        """Returns a message in the form that is sent."""
        if isinstance(message, Arrival):
            return message._replace(gradient=np.asarray(ravel_pytree(message.gradient)[0]))
        if isinstance(message, Assignment) and message.state is not None:
            params, *rest = message.state
            flat = np.asarray(ravel_pytree(params)[0])
            return message._replace(state=(flat, plain_leaves(rest)))
        return message

    def unpack(self, message: Any) -> Any:
        """Returns the message of a packed one."""
        if isinstance(message, Arrival):
            return message._replace(gradient=self._unravel(message.gradient))
        if isinstance(message, Assignment) and message.state is not None:
            flat, leaves = message.state
            return message._replace(state=(self._unravel(flat), *with_leaves(self._rest, leaves)))
        return message


class Letter(NamedTuple):
    """A message on its way between the server and a worker.

    Args:
        start: the worker's start: number of the server process, and number of the start in it.
        number: number of earlier messages of this start in the same direction.
        message: the packed message.
    """

    start: tuple[int, int]
    number: int
    message: Any


class Inbox(queue.Queue):
    """The incoming messages of one run, from every sender in the order of sending.

    Ray may pass calls to an actor with several threads in any order. Without the inbox, a push that overtakes
    the one before would belong to a task that the server does not know yet, and would be lost; so would an
    assignment that overtakes an `Idle`.

    Args:
        wire: unpacks messages.
        start: the first entries of the starts whose messages are accepted.
        clock: a worker's clock, which assignments set to the server's time; their transfer counts as no time.
            None: the clock is the server's.
    """

    def __init__(self, wire: Wire, start: tuple[int, ...], clock: Clock | None = None):
        super().__init__()
        self._wire, self._start, self._clock = wire, start, clock
        self._early: dict[tuple[int, int], dict[int, Any]] = defaultdict(dict)
        self._next: dict[tuple[int, int], int] = defaultdict(int)
        self._taking = threading.Lock()

    def take(self, letter: Letter) -> None:
        """Takes a letter, and with it later ones that arrived before it."""
        start, number, message = letter
        if start[: len(self._start)] != self._start:
            return  # it belongs to an earlier run
        with self._taking:
            early = self._early[start]
            early[number] = message
            while self._next[start] in early:
                packed = early.pop(self._next[start])
                self._next[start] += 1
                message = self._wire.unpack(packed)
                if self._clock is not None and isinstance(message, Assignment):
                    self._clock.set(message.sent)
                self.put(message)


def sender(actor: Any, start: tuple[int, int], wire: Wire) -> Callable[[Any], None]:
    """Returns a function that sends the messages of a worker's start to an actor, numbered."""
    number, sending = 0, threading.Lock()

    def send(message: Any) -> None:
        nonlocal number
        packed = wire.pack(message)
        with sending:  # if the call raises, no number is missing
            actor.receive.remote(Letter(start, number, packed))
            number += 1

    return send


END_SECONDS = 5.0  # time for workers to end after a `Stop`
LIVES = itertools.count()  # numbers of server processes, so that attempts of different ones never coincide
ATTEMPTS_PER_LIFE = 2**32


class PackedJob(NamedTuple):
    """A job in the form that is sent to actors."""

    reference: list[Any]  # Ray's reference to the problem; in a list, so that Ray does not resolve it
    job: Job  # the rest of the job
    config: dict[str, Any]  # JAX settings that numbers depend on

    @classmethod
    def pack(cls, job: Job, actors: Actors) -> Self:
        """Returns a job in that form, and puts its problem into Ray's object store."""
        return cls([actors.reference(job.problem)], dataclasses.replace(job, problem=None), settings())

    def unpack(self) -> Job:
        """Adopts the JAX settings, and returns the job."""
        adopt(self.config)
        return dataclasses.replace(self.job, problem=fetched(self.reference[0]))


@functools.lru_cache(maxsize=1)
def fetched(reference: Any) -> Any:
    """Returns an object of Ray's store; an actor gets the same object again, so it recompiles nothing."""
    return installed().get(reference)


class Receiver:
    """An actor with two threads: one executes `run`, the other receives messages."""

    def __init__(self) -> None:
        self._inbox: Inbox | None = None

    def receive(self, letter: Letter) -> None:
        """Takes a message; messages before the first run are discarded."""
        if self._inbox is not None:
            self._inbox.take(letter)


class WorkerActor(Receiver):
    """A worker as an actor; its clock follows the server's."""

    def run(
        self, packed: PackedJob, worker: int, server: Any, sizes: tuple[int, ...], start: tuple[int, int]
    ) -> None:
        """Works until a `Stop` arrives."""
        try:
            job = packed.unpack()
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
    """The workers of a server process as actors; `idle`: actors of an earlier run, which are reused."""

    def __init__(self, packed: PackedJob, server: Any, wire: Wire, idle: list[Any], life: int):
        self._packed, self._server, self._wire, self._idle, self._life = packed, server, wire, idle, life
        self._workers: dict[int, Any] = {}
        self._senders: dict[int, Callable[[Any], None]] = {}
        self._running: dict[Any, int] = {}

    def hire(self, worker: int, sizes: tuple[int, ...], hire: int) -> None:
        """Starts a worker in an idle or a new actor."""
        actor = self._idle.pop() if self._idle else new_actor(WorkerActor)
        self._workers[worker] = actor
        start = self._life, hire
        self._senders[worker] = sender(actor, start, self._wire)
        self._running[actor.run.remote(self._packed, worker, self._server, sizes, start)] = worker

    def post(self, worker: int, message: Any) -> None:
        """Sends a worker a message."""
        self._senders[worker](message)

    def dismiss(self, worker: int, starting: bool) -> None:
        """Ends a worker, which loses its state; its process is reused, because a new one starts slowly.

        A worker that is still starting might miss the message, so its process is killed.
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
        """Ends all workers, and returns the idle actors."""
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
        self, packed: PackedJob, idle: list[Any], life: int, since: float, log: list[dict[str, Any]]
    ) -> tuple[Any, ...]:
        """Runs to the end; returns the trace's parts, the flat parameters (D,), and the workers' actors."""
        job = packed.unpack()
        stepper = job.stepper()
        wire, clock = Wire(stepper), Clock(job.time_scale or 1.0)
        inbox = self._inbox = Inbox(wire, (life,))
        crew = RayCrew(packed, installed().get_runtime_context().current_actor, wire, idle, life)
        attempts, die = itertools.count(life * ATTEMPTS_PER_LIFE), functools.partial(os._exit, 1)
        try:
            with job.checkpoints("ray") as kept:
                serving = Serving(job, inbox, crew, clock, kept, stepper, serial=attempts, kill=die)
                trace, params = serving.run(job.metadata("ray"), since, log)
        finally:
            actors = crew.close()
        flat = np.asarray(ravel_pytree(params)[0])
        return trace.tasks, trace.updates, trace.metadata, flat, actors


def new_actor(kind: Callable[..., Any]) -> Any:
    """Starts an actor that holds one CPU and receives messages while it runs."""
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
        packed = PackedJob.pack(whole, actors)
        while True:
            if actors.server is None:
                actors.server = new_actor(ServerActor)
            idle, actors.workers = actors.workers, []
            try:
                run = actors.server.run.remote(packed, idle, next(LIVES), since, log)
                *frames, flat, actors.workers = ray.get(run)
                break
            except ray.exceptions.RayActorError as error:
                actors.server = None  # its workers have ended with it
                if (crash := next((each for each in crashes if each.time >= since), None)) is None:
                    raise RuntimeError("the server's process died; try checkpoint= to resume it") from error
                time.sleep(crash.seconds * (job.time_scale or 1.0))
                # The start of processes does not count as time of the cluster.
                since = crash.time + crash.seconds
                log.append({"time": crash.time, "kind": "down", "worker": -1, "seconds": crash.seconds})
            except ray.exceptions.RayTaskError as error:
                known = isinstance(error.cause, WorkerError | RuntimeError | ValueError)
                raise (error.cause if known else error) from None
    unravel = ravel_pytree(job.stepper().start()[0])[1]
    return Recording(Trace(*frames).validate(), unravel(flat))
