"""What travels between actors: one flat NumPy buffer a message, taken in the order in which it was sent."""

from __future__ import annotations

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
    """Messages with parameters and gradients as flat buffers, an optimizer's state leaf by leaf; and back."""

    def __init__(self, stepper: Stepper):
        params, self._optimizer_state = stepper.start()
        self._unravel = ravel_pytree(params)[1]

    def pack(self, message: Any) -> Any:
        """Returns a message that travels."""
        if isinstance(message, Arrival):
            return message._replace(gradient=np.asarray(ravel_pytree(message.gradient)[0]))
        if isinstance(message, Assignment) and message.state is not None:
            params, optimizer_state = message.state
            flat = np.asarray(ravel_pytree(params)[0])
            return message._replace(state=(flat, plain_leaves(optimizer_state)))
        return message

    def unpack(self, message: Any) -> Any:
        """Returns the message that was packed."""
        if isinstance(message, Arrival):
            return message._replace(gradient=self._unravel(message.gradient))
        if isinstance(message, Assignment) and message.state is not None:
            flat, leaves = message.state
            return message._replace(state=(self._unravel(flat), with_leaves(self._optimizer_state, leaves)))
        return message


class Letter(NamedTuple):
    """A message on its way between the server and a worker.

    Args:
        start: of the worker: number of the server's life, and of the start in it.
        number: how many messages of this start went the same way before.
        message: packed.
    """

    start: tuple[int, int]
    number: int
    message: Any


class Inbox(queue.Queue):
    """What comes in during one run, from every sender in the order in which it was sent.

    Ray gives an actor of several threads its calls in any order. A push that overtakes the one before is of a
    task that the server does not know of yet, and is lost; so is an assignment that overtakes an `Idle`.

    Args:
        wire: unpacks messages.
        start: of a worker, whose messages alone are taken, or as much of it as all of them have in common.
        clock: to set by assignments, whose way counts as no time; None: the server's, which leads.
    """

    def __init__(self, wire: Wire, start: tuple[int, ...], clock: Clock | None = None):
        super().__init__()
        self._wire, self._start, self._clock = wire, start, clock
        self._early: dict[tuple[int, int], dict[int, Any]] = defaultdict(dict)
        self._next: dict[tuple[int, int], int] = defaultdict(int)
        self._taking = threading.Lock()

    def take(self, letter: Letter) -> None:
        """Takes a letter, and with it those that came before it but were sent after."""
        start, number, message = letter
        if start[: len(self._start)] != self._start:
            return  # of an earlier run
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
    """Returns what sends an actor the messages of a worker's start, numbered."""
    number, sending = 0, threading.Lock()

    def send(message: Any) -> None:
        nonlocal number
        packed = wire.pack(message)
        with sending:  # where one of the two raises, no number is missing
            actor.receive.remote(Letter(start, number, packed))
            number += 1

    return send
