"""Faults: what breaks when. Part of a cluster, the same on every engine.

Each push counts once for its (worker, clock), and no worker waits for one that is gone. Times are
seconds from the start of the run.
"""

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from dmlcore import checks


@dataclass(frozen=True)
class Crash:
    """A worker is lost at `time`, with its cached copy and its task in flight.

    After `seconds` it rejoins without cached parameters; infinite: never.
    """

    worker: int
    time: float
    seconds: float = math.inf


@dataclass(frozen=True)
class Hang:
    """A worker freezes at `time` for `seconds`; the server notices only what is longer than its patience."""

    worker: int
    time: float
    seconds: float


@dataclass(frozen=True)
class LostPush:
    """The push of a worker's task `clock` is lost; without an answer it is sent again after `seconds`."""

    worker: int
    clock: int
    seconds: float


@dataclass(frozen=True)
class DoubledPush:
    """The push of a worker's task `clock` arrives twice, `seconds` apart."""

    worker: int
    clock: int
    seconds: float = 0.0


@dataclass(frozen=True)
class ServerCrash:
    """The server is killed at `time`, and restarted `seconds` later from its last checkpoint.

    Updates made since that checkpoint are lost. A crash during the outage of another has no effect.
    """

    time: float
    seconds: float


Fault = Crash | Hang | LostPush | DoubledPush | ServerCrash


def plain(value: Any) -> Any:
    """Returns a value as JSON has it: infinity is a text."""
    return str(value) if value == math.inf else value


@dataclass(frozen=True)
class Faults:
    """All faults of a cluster."""

    events: tuple[Fault, ...] = ()
    patience_seconds: float = math.inf  # a hanging worker counts as gone after so long, until it moves again
    checkpoint_every: int = 50  # updates between the server's checkpoints, at least

    def describe(self) -> dict[str, Any]:
        """Returns the faults as plain JSON values."""
        return {
            "events": [
                {"kind": type(fault).__name__} | {name: plain(value) for name, value in asdict(fault).items()}
                for fault in self.events
            ],
            "patience_seconds": plain(self.patience_seconds),
            "checkpoint_every": self.checkpoint_every,
        }

    @property
    def forget(self) -> bool:
        """Whether a worker or the server may lose what it remembers."""
        return any(incident.kind in ("leave", "down") for incident in incidents(self))

    def deliveries(self, worker: int, clock: int) -> list[float]:
        """Returns how late a push arrives, and how long after it each further copy does; `[0.0]`: no fault.

        >>> Faults((LostPush(1, 5, 0.2), DoubledPush(1, 6, 0.1))).deliveries(1, 6)
        [0.0, 0.1]
        """
        wrong = self.of_push.get((worker, clock), ())
        delay = sum((fault.seconds for fault in wrong if isinstance(fault, LostPush)), 0.0)
        return [delay, *(fault.seconds for fault in wrong if isinstance(fault, DoubledPush))]

    @functools.cached_property
    def of_push(self) -> dict[tuple[int, int], list[LostPush | DoubledPush]]:
        """What goes wrong with pushes, by worker and clock."""
        found = defaultdict(list)
        for fault in self.events:
            if isinstance(fault, LostPush | DoubledPush):
                found[fault.worker, fault.clock].append(fault)
        return found


class Incident(NamedTuple):
    """Something that an engine does at a time, in the order of time."""

    time: float  # seconds from the start of the run
    kind: str  # "leave", "join", "freeze" (a worker), "down" (the server)
    worker: int  # its number; -1: the server
    seconds: float = 0.0  # how long it takes, of "freeze" and "down"


def incidents(faults: Faults) -> list[Incident]:
    """Returns what happens to workers and server, in the order of time.

    >>> [i.kind for i in incidents(Faults((Hang(0, 1.0, 5.0), Crash(1, 2.0)), patience_seconds=2.0))]
    ['freeze', 'leave', 'leave', 'join']
    """
    found, back = [], 0.0  # incidents, and when the server is back
    for fault in sorted(faults.events, key=lambda fault: getattr(fault, "time", 0.0)):
        if isinstance(fault, Hang):
            found.append(Incident(fault.time, "freeze", fault.worker, fault.seconds))
        if isinstance(fault, Crash | Hang):
            unnoticed = faults.patience_seconds if isinstance(fault, Hang) else 0.0
            if fault.seconds > unnoticed:
                found.append(Incident(fault.time + unnoticed, "leave", fault.worker))
                if fault.seconds < math.inf:
                    found.append(Incident(fault.time + fault.seconds, "join", fault.worker))
        elif isinstance(fault, ServerCrash) and fault.time >= back:
            back = fault.time + fault.seconds
            found.append(Incident(fault.time, "down", -1, fault.seconds))
    return sorted(found)


def random_faults(
    num_workers: int, seconds: float, *, seed: int, max_clock: int = 20, mean_seconds: float | None = None
) -> list[Fault]:
    """Returns one to three faults of each kind at random times, for tests of what must hold whatever breaks.

    They are for `Cluster.with_faults`. In half of the schedules worker 0 crashes for good, where there is
    another; all others come back.

    Args:
        num_workers: W.
        seconds: length of the run in which they fall.
        seed: of the draws.
        max_clock: pushes of clocks below are lost or doubled.
        mean_seconds: mean length of an outage. Default: a tenth of the run.

    Returns:
        Faults for `Cluster.with_faults`.

    >>> random_faults(4, 10.0, seed=0) == random_faults(4, 10.0, seed=0)
    True
    """
    rng = np.random.default_rng(seed)
    mean = seconds / 10 if mean_seconds is None else mean_seconds
    draw: dict[str, Callable[[], Any]] = {
        "worker": lambda: int(rng.integers(num_workers)),
        "clock": lambda: int(rng.integers(max_clock)),
        "time": lambda: float(rng.uniform(0, seconds)),
        "seconds": lambda: float(rng.exponential(mean)),
    }
    found: list[Fault] = [Crash(0, draw["time"]())] if num_workers > 1 and rng.random() < 0.5 else []
    for kind in (Crash, Hang, LostPush, DoubledPush, ServerCrash):
        for _ in range(rng.integers(1, 4)):
            found.append(kind(*(draw[part.name]() for part in fields(kind))))
    return found


def check_faults(faults: Sequence[Any], num_workers: int) -> tuple[Fault, ...]:
    """Returns `faults` if each is one, of a worker that is there, with times in range."""
    ranges: dict[str, dict[str, float]] = {  # of times, where they are not finite and >= 0
        "Crash.seconds": {"above": 0},
        "Hang.seconds": {"low": 0},
        "ServerCrash.seconds": {"above": 0, "high": 1e300},
    }
    for fault in faults:
        if not isinstance(fault, Fault):
            checks.fail("faults", fault, "Crash, Hang, LostPush, DoubledPush or ServerCrash")
        for part in fields(fault):
            name, value = f"{type(fault).__name__}.{part.name}", getattr(fault, part.name)
            if part.name == "worker":
                checks.integer(name, value, low=0, high=num_workers - 1, why="the workers")
            elif part.name == "clock":
                checks.integer(name, value, low=0)
            else:
                checks.real(name, value, **ranges.get(name, {"low": 0, "high": 1e300}))
    return tuple(faults)
