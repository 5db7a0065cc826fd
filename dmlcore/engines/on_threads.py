"""The engine on threads: one Python thread per worker and one for the server; latencies are sleeps."""

import queue
import threading
from typing import Any

import jax

from dmlcore.engines.job import Job, Recording
from dmlcore.engines.real import Serving
from dmlcore.engines.worker import Clock, Failure, Stop, Worker
from dmlcore.training.compiling import inherited


def device(number: int) -> Any:
    """Returns a device for a worker, round robin; None if JAX has only one device."""
    devices = jax.local_devices()
    return devices[number % len(devices)] if len(devices) > 1 else None


class ThreadCrew:
    """Workers as threads of this process.

    Args:
        job: the run.
        clock: the clock of server and workers.
        server: inbox of the server.
    """

    def __init__(self, job: Job, clock: Clock, server: queue.Queue):
        self._job, self._clock, self._server = job, clock, server
        self._inboxes: dict[int, queue.Queue] = {}
        self._threads: list[threading.Thread] = []

    def hire(self, worker: int, sizes: tuple[int, ...], hire: int) -> None:
        """Starts a worker's thread."""
        job, send = self._job, self._server.put
        inbox = self._inboxes[worker] = queue.Queue()
        settings = inherited()

        def run() -> None:
            with settings():
                try:
                    stepper = job.stepper(device(worker))
                    working = Worker(worker, inbox, send, job, self._clock, sizes, hire, stepper)
                except Exception as error:
                    send(Failure.of(worker, -1, error))
                else:
                    working.run()

        thread = threading.Thread(target=run, name=f"worker {worker}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def post(self, worker: int, message: Any) -> None:
        """Sends a worker a message."""
        self._inboxes[worker].put(message)

    def dismiss(self, worker: int, starting: bool) -> None:
        """Ends a worker's thread, even during a task."""
        self._inboxes[worker].put(Stop())

    def lost(self) -> list[int]:
        """Returns []: threads do not die, since a worker sends its exceptions to the server."""
        return []

    def close(self) -> None:
        """Ends all threads."""
        for inbox in self._inboxes.values():
            inbox.put(Stop())
        for thread in self._threads:
            thread.join()


def record(job: Job) -> Recording:
    """Runs a job with threads; see `dmlcore.engines.threads`."""
    clock, inbox = Clock(job.time_scale or 1.0), queue.Queue[Any]()
    crew = ThreadCrew(job, clock, inbox)
    try:
        with job.with_folder() as whole, whole.checkpoints("threads") as kept:
            return Serving(job, inbox, crew, clock, kept, job.stepper(device(0))).run(job.metadata("threads"))
    finally:
        crew.close()
