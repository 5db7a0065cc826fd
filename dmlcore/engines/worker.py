"""A worker on a real clock: computes its own gradients and takes as long as the cluster has it take.

The same loop runs in a thread and in an actor; what differs is how messages travel.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from dmlcore.cluster.faults import Faults
from dmlcore.engines.server import Order
from dmlcore.engines.timing import Timing
from dmlcore.training.coding import Coder
from dmlcore.training.stepper import State, Stepper


class Assignment(NamedTuple):
    """To a worker: begin a task, whatever you are at.

    Args:
        order: the task.
        sent: when, seconds on the server's clock.
        state: parameters and optimizer state, where the worker pulls.
        weight: that its last gradient had in an update, where it keeps its copy.
    """

    order: Order
    sent: float
    state: Any
    weight: float


class Freeze(NamedTuple):
    """To a worker: do nothing for so many seconds of the cluster's time."""

    seconds: float


class Idle(NamedTuple):
    """To a worker: throw your task away."""


class Stop(NamedTuple):
    """To a worker: the run is over, or you have crashed."""


class Ready(NamedTuple):
    """From a worker: all is compiled.

    Args:
        worker: who.
        hire: serial number of its start.
    """

    worker: int
    hire: int


class Arrival(NamedTuple):
    """From a worker: a push.

    Args:
        worker: who.
        clock: number of the task.
        attempt: of its order.
        begun: when it began to compute, seconds.
        computed: when it was done, seconds.
        gradient: of the mean loss.
    """

    worker: int
    clock: int
    attempt: int
    begun: float
    computed: float
    gradient: Any


class Failure(NamedTuple):
    """From a worker: its gradient raised.

    Args:
        worker: who.
        clock: at which task; -1: before the first.
        cause: type and message.
        details: the traceback.
    """

    worker: int
    clock: int
    cause: str
    details: str

    @classmethod
    def of(cls, worker: int, clock: int, error: Exception) -> Failure:
        """Returns the message that tells of an exception."""
        return cls(worker, clock, f"{type(error).__name__}: {error}", traceback.format_exc())


class Clock:
    """Seconds of the cluster's time since `start`, on a real clock that no one sets back.

    Args:
        scale: real seconds of one of the cluster's.
    """

    def __init__(self, scale: float = 1.0):
        self.scale = scale
        self.set(0.0)

    def set(self, now: float) -> None:
        """Makes it `now`."""
        self._zero = time.monotonic() - now * self.scale

    def now(self) -> float:
        """Returns the time."""
        return (time.monotonic() - self._zero) / self.scale


class Worker:
    """One worker: `run` until it is told to stop.

    Args:
        worker: its number.
        inbox: messages to it.
        send: sends a message to the server.
        stepper: its arithmetic.
        clock: the server's, or one that follows it.
        follows: whether to set the clock by each assignment: it then counts a message's way as no time.
        timing: of tasks, injected as sleeps; None: it is as fast as it is.
        faults: of its pushes.
        sizes: of its tasks, to compile for them before the clock starts.
        hire: serial number of this start.
        coder: its end of links that change values.
    """

    def __init__(
        self,
        worker: int,
        inbox: queue.Queue,
        send: Callable[[Any], None],
        stepper: Stepper,
        clock: Clock,
        timing: Timing | None,
        faults: Faults,
        sizes: Sequence[int],
        hire: int,
        follows: bool = False,
        coder: Coder | None = None,
    ):
        self._worker, self._inbox, self._send, self._stepper = worker, inbox, send, stepper
        self._clock, self._timing, self._faults, self._follows = clock, timing, faults, follows
        self._sizes, self._hire, self._coder = sizes, hire, coder
        self._state: State = stepper.start()
        self._gradient: Any = None
        self._awake = 0.0  # when the last freeze ends
        self._copies: list[threading.Timer] = []  # of pushes, on their way

    def run(self) -> None:
        """Carries out assignments, each until it is done or another message comes."""
        task = -1
        try:
            for size in self._sizes:
                gradient = self._stepper.gradient(self._state[0], self._worker, 0, size)
            self._stepper.step(self._stepper.weighed(1.0, gradient), self._state)
            if self._coder is not None:
                self._coder.compile(self._state[0], gradient)
            self._send(Ready(self._worker, self._hire))
            message = self._inbox.get()
            while not isinstance(message, Stop):
                if isinstance(message, Freeze):
                    self._freeze(message)
                following = None
                if isinstance(message, Assignment):
                    task = message.order.clock
                    following = self._carry_out(message)
                message = self._inbox.get() if following is None else following
        except Exception as error:  # whatever a problem of one's own raises: the server tells the user
            self._send(Failure.of(self._worker, task, error))
        finally:
            for copy in self._copies:
                copy.cancel()

    def _carry_out(self, assignment: Assignment) -> Any:
        """Works off a task and sends its push; returns the message that came in between, if one did."""
        order = assignment.order
        if self._follows:
            self._clock.set(assignment.sent)
        late = max(0.0, self._awake - order.time)
        due = (order.time, order.time) if self._timing is None else self._timing.computing(order)
        if (message := self._wait(due[0] + late)) is not None:
            return message
        # Where latencies are injected, who wakes up late makes up for it: what it should take is what counts.
        begun = self._clock.now() if self._timing is None and order.pull else due[0] + late
        if order.pull:
            self._state = self._stepper.put(assignment.state)
            if self._coder is not None:
                self._state = self._coder.received(order.clock, self._state[0]), self._state[1]
        else:  # its own update, on its own copy
            own = self._stepper.weighed(assignment.weight, self._gradient)
            self._state = self._stepper.step(own, self._state)
        self._gradient = self._stepper.gradient(self._state[0], order.worker, order.clock, order.batch_size)
        if self._coder is not None:
            self._gradient = jax.block_until_ready(self._coder.sent(order.clock, self._gradient))
        if (message := self._wait(due[1] + late)) is not None:
            return message
        computed = self._clock.now()
        push = Arrival(order.worker, order.clock, order.attempt, begun, computed, self._gradient)
        first, *copies = self._faults.deliveries(order.worker, order.clock)
        arrival = computed + first
        if self._timing is not None:
            # Who kept a copy may have computed before the answer to its last push came: this is on its way.
            arrival = due[1] + late + self._timing.pushing(order.worker, order.clock) + first
        if (message := self._wait(arrival, sent=True)) is not None:
            return message
        self._send(push)
        for later in copies:
            timer = threading.Timer(later * self._clock.scale, self._send, [push])
            timer.daemon = True
            timer.start()
            self._copies.append(timer)
        return None

    def _freeze(self, message: Freeze) -> None:
        self._awake = max(self._awake, self._clock.now() + message.seconds)

    def _wait(self, until: float, sent: bool = False) -> Any:
        """Sleeps until a time; returns the message that woke it up before, if one did.

        A freeze puts it off, unless what it waits for is under way already.
        """
        while (left := (until - self._clock.now()) * self._clock.scale) > 0:
            try:
                message = self._inbox.get(timeout=min(left, threading.TIMEOUT_MAX))
            except queue.Empty:
                return None
            if not isinstance(message, Freeze):
                return message
            self._freeze(message)
            until += 0.0 if sent else message.seconds
        return None
