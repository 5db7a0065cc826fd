"""Faults of workers, messages and the server, at given times or tasks, the same on every engine.

Faults are part of a cluster, see `Cluster.with_faults`. Each push counts once for its (worker, clock), and no
worker waits for a worker that has left. Times are seconds from the start of the run.
"""

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from dmlcore import checks

__all__ = ["Crash", "DoubledPush", "Hang", "LostPush", "ServerCrash", "absences", "random_faults"]


@dataclass(frozen=True)
class Crash:
    """A worker crashes and loses its cached parameters and its task in flight.

    Args:
        worker: number of the worker, 0-based.
        time: when it crashes, in seconds from the start of the run, >= 0.
        seconds: time until it rejoins, without cached parameters, in seconds, > 0; `math.inf`: never.
        keeps_memory: whether it rejoins with the memory of codecs and local optimizers, as from a disk, or
            with a new one.

    >>> Crash(worker=2, time=1.5, seconds=3.0)
    Crash(worker=2, time=1.5, seconds=3.0, keeps_memory=False)
    """

    worker: int
    time: float
    seconds: float = math.inf
    keeps_memory: bool = False


@dataclass(frozen=True)
class Hang:
    """A worker freezes for a while and then continues its task; it keeps its memory.

    The server treats the worker as gone only if the freeze is longer than `patience` of
    `Cluster.with_faults`.

    Args:
        worker: number of the worker, 0-based.
        time: when it freezes, in seconds from the start of the run, >= 0.
        seconds: length of the freeze in seconds, >= 0; `math.inf` needs a finite `patience`.

    >>> Hang(worker=0, time=1.0, seconds=0.5)
    Hang(worker=0, time=1.0, seconds=0.5)
    """

    worker: int
    time: float
    seconds: float


@dataclass(frozen=True)
class LostPush:
    """A push is lost on its way, and the worker sends it again because no reply arrives.

    Args:
        worker: number of the worker, 0-based.
        clock: number of the worker's task whose push is lost, 0-based.
        seconds: delay of the second attempt in seconds, >= 0.

    >>> LostPush(worker=1, clock=5, seconds=0.2)
    LostPush(worker=1, clock=5, seconds=0.2)
    """

    worker: int
    clock: int
    seconds: float


@dataclass(frozen=True)
class DoubledPush:
    """A push arrives twice; the server counts it once.

    Args:
        worker: number of the worker, 0-based.
        clock: number of the worker's task whose push is doubled, 0-based.
        seconds: delay of the copy after the push in seconds, >= 0.

    >>> DoubledPush(worker=1, clock=6)
    DoubledPush(worker=1, clock=6, seconds=0.0)
    """

    worker: int
    clock: int
    seconds: float = 0.0


@dataclass(frozen=True)
class ServerCrash:
    """The server crashes and is restarted from its last checkpoint.

    Updates made after that checkpoint are lost, and all memories of codecs and local optimizers begin anew. A
    crash that falls into the outage of another crash has no effect.

    Args:
        time: when it crashes, in seconds from the start of the run, >= 0.
        seconds: length of the outage in seconds, > 0 and finite.

    >>> ServerCrash(time=10.0, seconds=2.0)
    ServerCrash(time=10.0, seconds=2.0)
    """

    time: float
    seconds: float


Fault = Crash | Hang | LostPush | DoubledPush | ServerCrash


def plain(value: Any) -> Any:
    """Returns a value as JSON can hold it: infinity becomes a text."""
    return str(value) if value == math.inf else value


@dataclass(frozen=True)
class Faults:
    """All faults of a cluster.

    Args:
        events: the faults.
        patience_seconds: time after which the server treats a hanging worker as gone, until the worker
            continues.
        checkpoint_every: least number of updates between the server's checkpoints.
    """

    events: tuple[Fault, ...] = ()
    patience_seconds: float = math.inf
    checkpoint_every: int = 50

    def describe(self) -> dict[str, Any]:
        """Returns the faults as plain JSON values."""
        return {
            "events": [
                {"kind": type(fault).__name__}
                | {name: plain(value) for name, value in asdict(fault).items() if value is not False}
                for fault in self.events
            ],
            "patience_seconds": plain(self.patience_seconds),
            "checkpoint_every": self.checkpoint_every,
        }

    @property
    def server_crashes(self) -> bool:
        """Whether the server crashes."""
        return any(isinstance(fault, ServerCrash) for fault in self.events)

    @property
    def forget(self) -> bool:
        """Whether a worker or the server may lose its state."""
        return any(incident.kind in ("leave", "down") for incident in incidents(self))

    def deliveries(self, worker: int, clock: int) -> list[float]:
        """Returns the delay of a push in seconds, then the delay of each further copy after it.

        `[0.0]` means that the push has no fault.

        >>> Faults((LostPush(1, 5, 0.2), DoubledPush(1, 6, 0.1))).deliveries(1, 6)
        [0.0, 0.1]
        """
        wrong = self.of_push.get((worker, clock), ())
        delay = sum((fault.seconds for fault in wrong if isinstance(fault, LostPush)), 0.0)
        return [delay, *(fault.seconds for fault in wrong if isinstance(fault, DoubledPush))]

    @functools.cached_property
    def of_push(self) -> dict[tuple[int, int], list[LostPush | DoubledPush]]:
        """The faults of pushes, by worker and clock."""
        found = defaultdict(list)
        for fault in self.events:
            if isinstance(fault, LostPush | DoubledPush):
                found[fault.worker, fault.clock].append(fault)
        return found


class Incident(NamedTuple):
    """An effect of a fault that an engine carries out at a time.

    Args:
        time: when it happens, in seconds from the start of the run.
        kind: "leave", "join" or "freeze" (a worker), or "down" (the server).
        worker: number of the worker; -1: the server.
        seconds: length of a "freeze" or "down" in seconds.
        forgets: whether a worker loses its memory when it leaves, or has lost it when it joins.
    """

    time: float
    kind: str
    worker: int
    seconds: float = 0.0
    forgets: bool = False

    def told(self, time: float, **more: Any) -> dict[str, Any]:
        """Returns the entry of a trace's metadata for this incident, which happened at `time`."""
        entry = self._replace(time=time)._asdict() | more
        return {name: value for name, value in entry.items() if value is not False}


def loses_memory(told: Mapping[str, Any]) -> bool:
    """Whether workers lose what they remember in an incident of a trace's metadata: its own, or all."""
    return told["kind"] in ("down", "died") or (told["kind"] == "join" and told.get("forgets", False))


def incidents(faults: Faults) -> list[Incident]:
    """Returns the incidents of workers and server, in the order of time.

    >>> [i.kind for i in incidents(Faults((Hang(0, 1.0, 5.0), Crash(1, 2.0)), patience_seconds=2.0))]
    ['freeze', 'leave', 'leave', 'join']
    """
    found, back = [], 0.0  # incidents, and when the server is up again
    for fault in sorted(faults.events, key=lambda fault: getattr(fault, "time", 0.0)):
        if isinstance(fault, Hang):
            found.append(Incident(fault.time, "freeze", fault.worker, fault.seconds))
        if isinstance(fault, Crash | Hang):
            unnoticed = faults.patience_seconds if isinstance(fault, Hang) else 0.0
            if fault.seconds > unnoticed:
                forgets = isinstance(fault, Crash) and not fault.keeps_memory
                found.append(Incident(fault.time + unnoticed, "leave", fault.worker, forgets=forgets))
                if fault.seconds < math.inf:
                    found.append(Incident(fault.time + fault.seconds, "join", fault.worker))
        elif isinstance(fault, ServerCrash) and fault.time >= back:
            back = fault.time + fault.seconds
            found.append(Incident(fault.time, "down", -1, fault.seconds))
    return sorted(found)


def random_faults(
    num_workers: int, seconds: float, *, seed: int, max_clock: int = 20, mean_seconds: float | None = None
) -> list[Fault]:
    """Returns one to three random faults of each kind, for tests of properties that must survive any fault.

    With half of the seeds worker 0 also crashes and never rejoins, if there are other workers. All other
    workers come back.

    Args:
        num_workers: W, >= 1.
        seconds: length of the run in seconds; all faults begin within it.
        seed: seed of the random faults.
        max_clock: only pushes of clocks below this number are lost or doubled, >= 1.
        mean_seconds: mean length of an outage or delay in seconds. Default: a tenth of the run.

    Returns:
        A list of faults, to be passed on as `cluster.with_faults(*faults)`.

    Raises:
        ValueError: `num_workers` or `max_clock` is below 1, or a time is negative.

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
            found.append(kind(*(draw[part.name]() for part in fields(kind) if part.name in draw)))
    return found


def absences(
    source: Any, num_workers: int, *, seed: int | None = None, keeps_memory: bool = True
) -> list[Crash]:
    """Returns crashes of workers for the times at which a table says that they are not there.

    A worker that comes back pulls first. `dml.sampled` draws from those that are there, and a `deadline` ends
    a round without those that have gone.

    Args:
        source: a table, or the path of one, such as a CSV file, with a row for each stay: `worker`; `from`
            and `until`, in seconds from the start of the run. A stay whose `until` is empty, or inf, lasts
            for good. Stays may overlap; a worker without a stay is never there.
        num_workers: W, >= 1.
        seed: None: worker w stays as the table's worker w does. A number: as one of the table's workers does,
            of which each worker draws one, with this seed.
        keeps_memory: as for `Crash`.

    Returns:
        The crashes, to be passed on as `cluster.with_faults(*crashes)`.

    Raises:
        ValueError: a column is missing, a number is out of range, or a stay ends before it begins.

    >>> stays = {"worker": [0, 0, 1], "from": [0, 60, 10], "until": [50, None, 90]}
    >>> [(each.worker, each.time, each.seconds) for each in absences(stays, 2)]
    [(0, 50.0, 10.0), (1, 0.0, 10.0), (1, 90.0, inf)]
    """
    from dmlcore import tables  # with pandas, for which a cluster does not wait
    from dmlcore.reading.sources import table_of

    checks.integer("num_workers", num_workers, low=1)
    columns = {"worker": "number of the worker", "from": "when a stay begins", "until": "when it ends"}
    frame = table_of("source", source).frame
    tables.require("source", frame, columns)
    frame = frame.assign(until=frame["until"].replace(math.inf, math.nan))
    begins, ends = (
        tables.numbers("source", frame, name, low=0, nan=name == "until") for name in ("from", "until")
    )
    ends = np.where(np.isnan(ends), math.inf, ends)
    if (wrong := ends < begins).any():
        row = int(np.argmax(wrong))
        checks.reject(
            f"source, row {row}", f"a stay from {begins[row]:g} until {ends[row]:g}", "from <= until"
        )
    last = num_workers - 1 if seed is None else checks.MAX_COUNT
    owners, stays = tables.integers("source", frame, "worker", low=0, high=last), defaultdict(list)
    for worker, *stay in zip(owners.tolist(), begins.tolist(), ends.tolist(), strict=True):
        stays[worker].append(stay)
    whose = [*range(num_workers)]
    if seed is not None:
        drawn = np.random.default_rng(checks.check_seed("seed", seed)).integers(len(stays), size=num_workers)
        names = sorted(stays)
        whose = [names[number] for number in drawn]
    found = []
    for worker, like in enumerate(whose):
        gone = 0.0
        for begin, end in [*sorted(stays.get(like, ())), [math.inf, math.inf]]:
            if begin > gone:
                found.append(Crash(worker, gone, begin - gone, keeps_memory))
            gone = max(gone, end)
    return found


def check_faults(faults: Sequence[Any], num_workers: int) -> tuple[Fault, ...]:
    """Returns `faults` as a tuple, checked: each is a fault of an existing worker, with times in range."""
    ranges: dict[str, dict[str, float]] = {  # of times, where they are not finite and >= 0
        "Crash.seconds": {"above": 0},
        "Hang.seconds": {"low": 0},
        "ServerCrash.seconds": {"above": 0, "high": 1e300},
    }
    for fault in faults:
        if not isinstance(fault, Fault):
            hint = "with_faults(*faults)" if isinstance(fault, list | tuple) else ""
            checks.fail("faults", fault, "a Crash, Hang, LostPush, DoubledPush or ServerCrash", hint)
        for part in fields(fault):
            name, value = f"{type(fault).__name__}.{part.name}", getattr(fault, part.name)
            if part.name == "worker":
                checks.integer(name, value, low=0, high=num_workers - 1, why="workers count from 0")
            elif part.name == "clock":
                checks.integer(name, value, low=0)
            elif part.name == "keeps_memory":
                checks.boolean(name, value)
            else:
                checks.real(name, value, **ranges.get(name, {"low": 0, "high": 1e300}))
    return tuple(faults)


class Absences:
    """The absences of one run; a worker is away as long as any of its faults lasts.

    Attributes:
        workers: those that are away.
        forgets: those of them that have lost their memory.
        log: the incidents that a trace's metadata tell.
    """

    def __init__(self) -> None:
        self._faults = Counter[int]()  # that keep each worker away at present
        self.workers: set[int] = set()
        self.forgets: set[int] = set()
        self.log: list[dict[str, Any]] = []

    def begin(self, incident: Incident) -> bool:
        """Begins a "leave"; returns whether the worker leaves now, or was away already."""
        worker = incident.worker
        self._faults[worker] += 1
        self.workers.add(worker)
        if incident.forgets:
            self.forgets.add(worker)
        return self._faults[worker] == 1

    def end(self, incident: Incident) -> Incident | None:
        """Ends one by its "join", and returns that with what is forgotten; None if the worker stays away."""
        worker = incident.worker
        self._faults[worker] -= 1
        if self._faults[worker] > 0:
            return None
        incident = incident._replace(forgets=worker in self.forgets)
        self.workers.discard(worker)
        self.forgets.discard(worker)
        return incident
