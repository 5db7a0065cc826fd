"""A worker on a real clock: it computes its own gradients, and sleeps for the cluster's times.

The same loop runs in a thread and in an actor; only the transport of messages differs.
"""

import heapq
import itertools
import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import jax

from dmlcore.engines.job import Job
from dmlcore.engines.server import Order
from dmlcore.training.coding import Coder, coding_by
from dmlcore.training.stepper import State, Stepper

FEW = 3  # more tasks than a worker that pulls has under way


class Assignment(NamedTuple):
    """Message to a worker: begin a task when the tasks before it are done.

    Args:
        order: the task.
        sent: when the message was sent, in seconds on the server's clock.
        state: parameters and optimizer state, which the worker pulls.
        since: when the copy enters the worker's own link, in seconds.
    """

    order: Order
    sent: float
    state: Any
    since: float


class Freeze(NamedTuple):
    """Message to a worker: pause for so many seconds of the cluster's time."""

    seconds: float


class Idle(NamedTuple):
    """Message to a worker: discard all tasks, and what they have changed of its memory.

    Args:
        clock: of its last push that counts. -1: none, and its memory begins anew.
        joins: whether it comes back from a crash, which has ended what it was frozen for.
    """

    clock: int
    joins: bool = False


class Stop(NamedTuple):
    """Message to a worker: end, because the run is over or the worker has crashed."""


class Ready(NamedTuple):
    """Message from a worker: it has compiled everything.

    Args:
        worker: number of the worker.
        hire: serial number of its start.
    """

    worker: int
    hire: int


class Arrival(NamedTuple):
    """Message from a worker: a push.

    Args:
        worker: number of the worker.
        clock: number of the task.
        attempt: serial number of the attempt, from its order.
        begun: when computing began, in seconds.
        computed: when computing ended, in seconds.
        gradient: gradient of the mean loss, a tree like the parameters.
        due: when the push leaves the worker's link, in seconds.
    """

    worker: int
    clock: int
    attempt: int
    begun: float
    computed: float
    gradient: Any
    due: float = 0.0


class Failure(NamedTuple):
    """Message from a worker: its gradient raised an exception.

    Args:
        worker: number of the worker.
        clock: number of the task; -1: before the first.
        cause: type and message of the exception.
        details: the traceback.
    """

    worker: int
    clock: int
    cause: str
    details: str

    @classmethod
    def of(cls, worker: int, clock: int, error: Exception) -> Self:
        """Returns the message for an exception."""
        return cls(worker, clock, f"{type(error).__name__}: {error}", traceback.format_exc())


class Clock:
    """The cluster's time in seconds, from the machine's monotonic clock.

    Args:
        scale: real seconds per second of the cluster.
    """

    def __init__(self, scale: float = 1.0):
        self.scale = scale
        self.set(0.0)

    def set(self, now: float) -> None:
        """Sets the time to `now`."""
        self._zero = time.monotonic() - now * self.scale

    def now(self) -> float:
        """Returns the time in seconds."""
        return (time.monotonic() - self._zero) / self.scale


class Outbox:
    """A worker's link to the server: it delivers messages in order, each when it is due.

    Args:
        clock: the clock of due times.
        send: function that sends a message to the server.
    """

    def __init__(self, clock: Clock, send: Callable[[Any], None]):
        self._clock, self._send = clock, send
        self._waiting: list[tuple[float, int, Any, bool]] = []  # due time, number, message, whether in order
        self._number, self._last, self._closed = itertools.count(), 0.0, False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, message: Arrival, due: float, ordered: bool = True) -> float:
        """Sends a message when it is due, and after earlier ordered messages; returns the time in seconds."""
        with self._changed:
            if ordered:
                due = self._last = max(due, self._last)
            message = message._replace(due=due)
            if not self._waiting and due <= self._clock.now():
                self._send(message)
                return due
            heapq.heappush(self._waiting, (due, next(self._number), message, ordered))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="link of a worker", daemon=True)
                self._thread.start()
            self._changed.notify()
        return due

    def clear(self) -> None:
        """Discards messages that are not sent yet, except copies of pushes that were sent."""
        with self._changed:
            self._waiting = [each for each in self._waiting if not each[3]]
            heapq.heapify(self._waiting)
            self._last = 0.0

    def close(self) -> None:
        """Discards messages that are not sent yet, and ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                left = 0.0
                while not self._closed and (not self._waiting or (left := self._left()) > 0):
                    self._changed.wait(min(left, threading.TIMEOUT_MAX) if self._waiting else None)
                if self._closed:
                    return
                message = heapq.heappop(self._waiting)[2]
                try:
                    self._send(message)
                except Exception as error:
                    self._send(Failure.of(message.worker, message.clock, error))

    def _left(self) -> float:
        """Returns the real seconds until the next message is due."""
        return (self._waiting[0][0] - self._clock.now()) * self._clock.scale


class Worker:
    """One worker, whose `run` works until a `Stop` arrives.

    Args:
        worker: number of the worker.
        inbox: messages to the worker.
        send: function that sends a message to the server.
        job: the run.
        clock: the server's clock, or one that follows it.
        sizes: batch sizes of its tasks in samples, to compile for them before the clock starts.
        hire: serial number of this start.
        stepper: the worker's arithmetic. None: the job's.
    """

    def __init__(
        self,
        worker: int,
        inbox: queue.Queue,
        send: Callable[[Any], None],
        job: Job,
        clock: Clock,
        sizes: Sequence[int],
        hire: int,
        stepper: Stepper | None = None,
    ):
        self._worker, self._inbox, self._send, self._clock = worker, inbox, send, clock
        self._sizes, self._hire = sizes, hire
        self._stepper, self._draws, self._faults = stepper or job.stepper(), job.draws(), job.spec.faults
        self._pace = None if self._draws is None else self._draws.pace  # None: no changes of speed at a time
        self._state: State = self._stepper.start()
        coding = coding_by(job.spec.transport)
        self._coder = None if coding is None else Coder(coding, job.spec.seed, worker, self._state[0])
        self._kept = self._stepper.kind.kept_by_worker(self._state[0])  # from task to task
        # Clock -> memory after that task, of those since the last pull and a few before. -1: at the start.
        self._memories = {-1: self._memory()}
        self._keep_copy, self._pipelined = job.spec.policy.keep_copy, job.spec.transport.pipelined
        self._outbox = Outbox(clock, send)
        self._tasks: deque[Assignment] = deque()  # assignments to carry out
        self._held: Arrival | None = None  # in a pipeline: the push to send when the next task begins
        self._free = 0.0  # when its last task was computed, seconds
        self._awake = 0.0  # when the last freeze ends, seconds

    def run(self) -> None:
        """Carries out assignments one after the other, each until it is done or discarded."""
        clock = -1
        try:
            self._compile()
            self._send(Ready(self._worker, self._hire))
            while True:
                if self._tasks:
                    assignment = self._tasks.popleft()
                    clock = assignment.order.clock
                    message = self._carry_out(assignment)
                else:
                    message = self._inbox.get()
                if message is not None and self._take(message):
                    return
        except Exception as error:  # a user's problem may raise anything; the server reports it
            self._send(Failure.of(self._worker, clock, error))
        finally:
            self._outbox.close()

    def _compile(self) -> None:
        for size in self._sizes:
            gradient, _ = self._stepper.task(self._state[0], self._worker, 0, size, self._kept)
        self._stepper.step(self._stepper.weighed(1.0, gradient), self._state)
        if self._coder is not None:
            self._coder.compile(self._state[0], gradient)

    def _take(self, message: Any) -> bool:
        """Takes a message; returns whether it is a `Stop`."""
        if isinstance(message, Freeze):
            self._awake = max(self._awake, self._clock.now() + message.seconds)
        elif isinstance(message, Assignment):
            self._tasks.append(message)
        else:
            self._tasks.clear()
            self._held = None
            self._outbox.clear()
            if isinstance(message, Idle):
                self._awake = 0.0 if message.joins else self._awake
                start = self._memories[-1]
                found = self._memories.get(message.clock, start)  # of before its start, if it is not there
                self._memories = {-1: start, message.clock: found}
                self._kept, memory = found
                if self._coder is not None:
                    self._coder.memory = memory
        return isinstance(message, Stop)

    def _memory(self) -> tuple[Any, Any]:
        return self._kept, None if self._coder is None else self._coder.memory

    def _carry_out(self, assignment: Assignment) -> Any:
        """Computes a task and sends its push; a next one on the cached copy is assigned before all others.

        Returns:
            The message that ended it early, or None.
        """
        order, _, state, since = assignment
        late = max(0.0, self._awake - since)
        due = (since, since)
        if self._draws is not None:
            due = self._draws.computing(order.worker, order.clock, order.batch_size, order.pull, since)
        begins = max(due[0] + late, self._free) if self._pipelined else due[0] + late
        message, begun = self._wait(begins)
        if message is not None:
            return message
        ends = due[1] + begun - due[0]
        if self._draws is not None and self._pace is not None:
            ends = self._draws.finish(order.worker, order.clock, order.batch_size, begun)
        # With injected latencies a task has its exact times, even if the worker wakes up late.
        if self._draws is None and order.pull:
            begun = self._clock.now()
        if self._held is not None:
            self._push(self._held, begun)
            self._held = None
        if order.pull:
            for clock in [*self._memories][1:-FEW]:
                del self._memories[clock]
            self._state = self._stepper.put(state)
            if self._coder is not None:
                self._state = self._coder.received(order.clock, self._state[0]), *self._state[1:]
        who = order.worker, order.clock, order.batch_size
        gradient, self._kept = self._stepper.task(self._state[0], *who, self._kept)
        if self._coder is not None:
            gradient = jax.block_until_ready(self._coder.sent(order.clock, gradient))
        self._memories.pop(order.clock, None)  # to be the last one
        self._memories[order.clock] = self._memory()
        done = self._clock.now()
        message, ends = self._wait(ends, computing=True)
        if message is not None:
            return message
        self._free = computed = max(ends, done)  # not the time of waking up: delays would accumulate
        push = Arrival(order.worker, order.clock, order.attempt, begun, computed, gradient)
        if self._pipelined:
            self._held = push
            return None
        self._push(push, computed)
        copy_clock, weight = order.told
        if self._keep_copy is not None and self._keep_copy(copy_clock, order.clock + 1):
            if self._stepper.problem.additive:
                weight = 1.0  # additive updates always have weight 1
            self._state = self._stepper.step(self._stepper.weighed(weight, gradient), self._state, [weight])
            self._tasks.appendleft(assignment._replace(order=order.following(computed), since=computed))
        return None

    def _push(self, push: Arrival, departs: float) -> None:
        """Sends a push, and its copies if a fault doubles it."""
        first, *copies = self._faults.deliveries(push.worker, push.clock)
        arrival = departs + first
        if self._draws is not None:
            arrival += self._draws.push_seconds(push.worker, push.clock)
        arrival = self._outbox.put(push, arrival)
        for later in copies:
            self._outbox.put(push, arrival + later, ordered=False)

    def _wait(self, until: float, computing: bool = False) -> tuple[Any, float]:
        """Sleeps until a time; a freeze postpones it, and the end of computing by the work that is then left.

        Returns:
            The message that discards the task, or None; and the time in seconds.
        """
        while True:  # checks the inbox at least once, even if it is late
            left = (until - self._clock.now()) * self._clock.scale
            try:
                if left > 0:
                    message = self._inbox.get(timeout=min(left, threading.TIMEOUT_MAX))
                else:
                    message = self._inbox.get_nowait()
            except queue.Empty:
                return None, until
            if isinstance(message, Idle | Stop):
                return message, until
            if isinstance(message, Freeze) and computing and self._pace is not None:
                stopped = max(self._clock.now(), self._awake)
                until = self._pace.resumed(self._worker, until, stopped, stopped + message.seconds)
            elif isinstance(message, Freeze):
                until += message.seconds
            self._take(message)
