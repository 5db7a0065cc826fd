"""Messages between actors: each has one flat NumPy buffer, and they are received in the order of sending."""

import queue
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax.flatten_util import ravel_pytree

from dmlcore.engines.worker import Arrival, Assignment, Clock
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
