"""Clusters: how fast workers and links are, how much that fluctuates, and which workers straggle when."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import scipy

from dmlcore import checks, notebook
from dmlcore.cluster.durations import Durations
from dmlcore.cluster.faults import Fault, Faults, Hang, check_faults, plain
from dmlcore.cluster.jitter import Quantile, SizedJitter, resolve_jitter, show_jitter
from dmlcore.cluster.parameter_server import ParameterServer
from dmlcore.cluster.regime import Regime, regime
from dmlcore.cluster.slowdowns import SpeedChange, Stragglers, TimedChange, check_workers, speed_change
from dmlcore.theory import Response

if TYPE_CHECKING:
    import pandas as pd

NONE = Faults()
FINITE = {"low": 0, "high": 1e300}
PER_WORKER: dict[str, dict[str, float]] = {  # fields with one number for each worker -> its limits
    "samples_per_second": {"above": 0, "high": 1e300},
    "overhead_seconds": FINITE,
    "latency_seconds": FINITE,
    "bandwidth_bytes_per_second": {"above": 0},
    "pull_latency_seconds": FINITE,
}
BYTES_PER_WORKER = 100  # of its speeds, links and tasks in flight, at least


@dataclass(frozen=True)
class Cluster:
    """Workers and their links to the server.

    A task of b samples takes `(overhead + b / samples_per_second * jitter) * slowdown` seconds. A transfer
    takes `latency * jitter + bytes / bandwidth` seconds. Random times are functions of (seed, worker, clock)
    alone, so two policies on the same seed meet the same stragglers (common random numbers). Most clusters
    are built by `Cluster.uniform`, `Cluster.from_speeds` or `Cluster.from_durations`.

    Args:
        samples_per_second: speed of each of the W workers, > 0; a tuple of W numbers, as are the next three.
        overhead_seconds: fixed time of each worker's task, >= 0.
        latency_seconds: mean one-way delay of each worker's link, >= 0.
        bandwidth_bytes_per_second: bandwidth of each worker's link, > 0; with `math.inf` a transfer takes its
            latency only.
        jitter: random multiplier of the compute time: a frozen `scipy.stats` distribution with mean 1, a
            quantile function (array of uniforms in [0, 1) -> array of multipliers), or a `SizedJitter`.
            None: the compute time is not multiplied.
        latency_jitter: random multiplier of the latency, given likewise. None: latencies are constant.
        stragglers: slow episodes of workers.
        faults: incidents of workers, the server and messages.
        pull_latency_seconds: mean delay of each worker's link from the server to the worker, >= 0; a tuple
            of W numbers. None: the delay is `latency_seconds`.
        changes: changes of workers' speeds, at given tasks or times.
        server: the times of the server's processor and link, which all workers share. None: they take no
            time.
        durations: measured task times, which replace speed, overhead and jitter. None: times are computed
            from these three.
        fitted: how well a cluster fitted by `dml.calibrate` predicts the traces it was fitted to. Clusters
            that differ in this alone are equal.

    Raises:
        ValueError: an argument that has one number for each worker is not a tuple of W numbers, or a number
            is out of range.

    >>> Cluster((1000.0, 500.0), (0.0, 0.0), (0.01, 0.01), (math.inf, math.inf))
    Cluster(2 workers, 500-1000 samples/s, latency 0.01 s)
    """

    samples_per_second: tuple[float, ...]
    overhead_seconds: tuple[float, ...]
    latency_seconds: tuple[float, ...]
    bandwidth_bytes_per_second: tuple[float, ...]
    jitter: Any = None
    latency_jitter: Any = None
    stragglers: tuple[Stragglers, ...] = ()
    faults: Faults = NONE
    pull_latency_seconds: tuple[float, ...] | None = None
    changes: tuple[SpeedChange | TimedChange, ...] = ()
    server: ParameterServer | None = None
    durations: Durations | None = None
    fitted: str = dataclasses.field(default="", compare=False)

    def __post_init__(self) -> None:
        for name, limits in PER_WORKER.items():
            values = getattr(self, name)
            if name == "pull_latency_seconds" and values is None:
                continue
            if not isinstance(values, tuple) or not values or len(values) != self.num_workers:
                checks.fail(name, values, "a tuple of one number for each worker")
            for value in values:
                checks.real(name, value, **limits)

    @classmethod
    def uniform(cls, num_workers: int, samples_per_second: float = 1000.0, **options: Any) -> Cluster:
        """Returns a cluster of equally fast workers.

        Args:
            num_workers: W, >= 1.
            samples_per_second: speed of every worker, > 0.
            **options: as for `from_speeds`.

        >>> Cluster.uniform(8, samples_per_second=1000, jitter="exponential")
        Cluster(8 workers, 1000 samples/s, jitter=exponential())
        """
        num_workers = _num_workers(num_workers)
        return cls.from_speeds([samples_per_second] * num_workers, **options)

    @classmethod
    def from_speeds(
        cls,
        samples_per_second: Sequence[float],
        *,
        overhead: float | Sequence[float] = 0.0,
        latency: float | Sequence[float] = 0.0,
        bandwidth: float | Sequence[float] = math.inf,
        jitter: Any = None,
        latency_jitter: Any = None,
        pull_latency: float | Sequence[float] | None = None,
    ) -> Cluster:
        """Returns a cluster with one worker for each speed.

        Args:
            samples_per_second: speed of each worker, > 0.
            overhead: fixed seconds of a task, one number or one for each worker.
            latency: mean seconds of a transfer, likewise.
            bandwidth: bytes per second of a link, likewise.
            jitter, latency_jitter: multipliers of the compute time and of the latency: a law with mean 1 by
                name, "exponential", "gamma(4)", "lognormal(0.5)" or "pareto(3)"; or as the class has them.
            pull_latency: mean seconds of a transfer to the worker, where it differs from `latency`.

        Raises:
            ValueError: a number is NaN or out of range, or a distribution's mean is not 1.

        >>> Cluster.from_speeds([1000, 1000, 333], latency=0.01).num_workers
        3
        """
        if not isinstance(samples_per_second, Iterable):
            checks.fail("samples_per_second", samples_per_second, "one speed for each worker: [1000, 500]")
        speeds = tuple(checks.real("samples_per_second", v, above=0, high=1e300) for v in samples_per_second)
        if not speeds:
            checks.fail("samples_per_second", samples_per_second, "at least one speed")

        def each(name: str, value: float | Sequence[float], **bounds: float) -> tuple[float, ...]:
            return tuple(checks.real(name, v, **bounds) for v in checks.for_each(name, value, len(speeds)))

        jitter = resolve_jitter("jitter", jitter)
        latency_jitter = resolve_jitter("latency_jitter", latency_jitter)
        overheads, latencies = each("overhead", overhead, **FINITE), each("latency", latency, **FINITE)
        links = latencies, each("bandwidth", bandwidth, above=0)
        pulling = None if pull_latency is None else each("pull_latency", pull_latency, **FINITE)
        return cls(speeds, overheads, *links, jitter, latency_jitter, pull_latency_seconds=pulling)

    @classmethod
    def from_response(cls, num_workers: int, response: Response) -> Cluster:
        """Returns a cluster whose workers answer as a law of `dmlcore.theory` says.

        Guarantee: a task of b samples is computed in Y(b), and its push takes X; a pull takes no time. So an
        answer takes Z(b) = X + Y(b), and a round of K-sync mu(k, b) on average.

        Args:
            num_workers: W, >= 1.
            response: law of Z(b), whose E[Y(b)] is proportional to b.

        >>> from dmlcore.theory import erlang
        >>> Cluster.from_response(50, erlang(2.0, 40.0))
        Cluster(50 workers, 40 samples/s, latency 0.5 s up, jitter=erlang(2, 40), latency_jitter=expon())
        """
        checks.check_kind("response", response, Response)
        seconds = float(response.computation(1).mean())

        def quantile(samples: int) -> Quantile:
            law = response.computation(samples)
            return lambda uniform: law.ppf(uniform) / (samples * seconds)

        jitter: Any = SizedJitter(response.name, quantile)
        if response.scales:
            jitter = quantile(1)
            jitter.__name__ = response.name
        latency, law = 1 / response.communication_rate, scipy.stats.expon()
        options = {"jitter": jitter, "latency": latency, "latency_jitter": law, "pull_latency": 0.0}
        return cls.uniform(num_workers, 1 / seconds, **options)

    @classmethod
    def from_durations(
        cls,
        frame: pd.DataFrame | str | os.PathLike[str],
        beyond: str = "cycle",
        *,
        latency: float | Sequence[float] = 0.0,
        bandwidth: float | Sequence[float] = math.inf,
        latency_jitter: Any = None,
        pull_latency: float | Sequence[float] | None = None,
    ) -> Cluster:
        """Returns a cluster whose tasks take the times that were measured elsewhere.

        Guarantee: clock c of worker w computes for exactly the seconds of the worker's row c, where the task
        has as many samples as the row; else for seconds * samples of the task / samples of the row: none of
        the time counts as overhead. Slow episodes and changes of speed that are added multiply it. What
        `samples_per_second` says is each worker's mean.

        Args:
            frame: a DataFrame, or the path of a CSV or Parquet file, with the columns `worker` (whole numbers
                from 0, each there), `samples` and `seconds` (of computing), the rows of a worker in the order
                of its clocks.
            beyond: what comes after a worker's last row. "cycle": its first again, and so on; "resample": its
                rows at random, keyed by seed, worker and clock; "error": ValueError where a task begins that
                has no row, naming worker and clock (on threads and Ray WorkerError, with that message).
            latency, bandwidth, latency_jitter, pull_latency: of the links, as for `from_speeds`.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a column is missing, a number is NaN, infinite or out of range, a worker has no row
                or only rows of 0 seconds, or `beyond` is none of the three.

        >>> import pandas as pd
        >>> measured = pd.DataFrame({"worker": [0, 1, 0], "samples": 32, "seconds": [0.5, 1.0, 0.25]})
        >>> Cluster.from_durations(measured, latency=0.01)
        Cluster(2 workers, 32-85.3333 samples/s, latency 0.01 s, 3 measured tasks, beyond: cycle)
        """
        durations = Durations.checked(frame, beyond)
        cluster = cls.from_speeds(
            durations.speeds,
            latency=latency,
            bandwidth=bandwidth,
            latency_jitter=latency_jitter,
            pull_latency=pull_latency,
        )
        return dataclasses.replace(cluster, durations=durations)

    def with_stragglers(
        self,
        slowdown: float,
        *,
        fraction: float = 0.1,
        mean_tasks: float = 10.0,
        workers: Sequence[int] | None = None,
    ) -> Cluster:
        """Returns this cluster with slow episodes added.

        Args:
            slowdown: factor on the time of a slow task, >= 1.
            fraction: long-run share of tasks that are slow; 1 makes the workers persistent stragglers.
            mean_tasks: mean length of an episode, tasks, >= 1.
            workers: which workers have episodes; None: all.

        Raises:
            ValueError: an argument is out of range.

        >>> Cluster.uniform(8).with_stragglers(3, fraction=1, workers=[0])
        Cluster(8 workers, 1000 samples/s, 3x slow on 100% of tasks of 1 worker)
        """
        slowdown = checks.real("slowdown", slowdown, low=1, high=1e300)
        fraction = checks.real("fraction", fraction, low=0, high=1)
        mean_tasks = checks.real("mean_tasks", mean_tasks, low=1, high=1e300)
        least = fraction / (1 - fraction) if fraction < 1 else 1.0
        if least > mean_tasks:
            allowed = f"a number >= {least:g}, for episodes on {fraction:.0%} of tasks"
            checks.fail("mean_tasks", mean_tasks, allowed)
        episodes = Stragglers(slowdown, fraction, mean_tasks, check_workers(workers, self.num_workers))
        return self._with(stragglers=(*self.stragglers, episodes))

    def with_speed_change(
        self,
        slowdown: float,
        *,
        clock: int | None = None,
        at: float | None = None,
        until: float | None = None,
        workers: Sequence[int] | None = None,
    ) -> Cluster:
        """Returns this cluster with a known change of speed added: at a task, or at a time.

        By task, a worker's tasks `clock` to `until - 1` take `slowdown` times as long. By time, all that a
        worker computes from `at` to `until` takes `slowdown` times as long: a task under way is slowed from
        that moment on, so one of w seconds that begins at b ends at the e with
        integral from b to e of dt / slowdown(t) = w. Transfers and the server are not slowed. Changes that
        overlap multiply.

        Args:
            slowdown: factor on the time of computing, > 0; below 1 workers become faster.
            clock: number of a worker's first task that it holds for, 0-based.
            at: when it begins, seconds from the start of the run. Give exactly one of `clock` and `at`.
            until: number of the first task that it holds for no more, or with `at` when it ends, seconds;
                None: it lasts.
            workers: whose speed changes; None: all workers'.

        Raises:
            ValueError: an argument is out of range, or not exactly one of `clock` and `at` is given.

        >>> Cluster.uniform(8).with_speed_change(2, clock=30, workers=[0])
        Cluster(8 workers, 1000 samples/s, 2x as long from task 30 of 1 worker)
        >>> Cluster.uniform(8).with_speed_change(2, at=60, until=90.5)
        Cluster(8 workers, 1000 samples/s, 2x as long from 60 s to 90.5 s)
        """
        change = speed_change(slowdown, clock, at, until, workers, self.num_workers)
        return self._with(changes=(*self.changes, change))

    def with_server(
        self,
        *,
        bandwidth: float = math.inf,
        seconds_per_push: float = 0.0,
        seconds_per_pull: float = 0.0,
        seconds_per_update: float = 0.0,
        shards: int = 1,
        sharing: str = "fifo",
        jitter: Any = None,
    ) -> Cluster:
        """Returns this cluster with a server that takes time, and whose link all workers share.

        A push crosses its worker's link, then the server's. The server's processor takes it, one message at
        a time in the order in which they come, makes the update, where it completes one, and answers before
        it takes the next. An answer crosses the server's link the other way, then its worker's.

        Guarantees: no more than 1 / (seconds of a push, its update and its pull) pushes a second are taken;
        a pull brings the version of the moment at which it was answered.

        Args:
            bandwidth: bytes per second of the server's link, in each direction.
            seconds_per_push: that the processor takes over a push.
            seconds_per_pull: over an answer.
            seconds_per_update: over an update, after the push that completes it.
            shards: servers that hold equal parts of the parameters, each with such a processor and link: a
                message is there with its last part, and each part takes its share of these times.
            sharing: how transfers under way in one direction share the server's link: "fifo", one at a time
                in the order in which they come, or "fair", all at once, each with an equal part of the
                bandwidth (processor sharing); a worker then sends its next push when the one before has been
                taken. The processor is first come, first served either way.
            jitter: multiplier of what a message takes, on link and processor, as for `from_speeds`.

        Raises:
            ValueError: an argument is out of range, or nothing takes time.

        >>> Cluster.uniform(8).with_server(bandwidth=1.25e9, seconds_per_push=0.001)
        Cluster(8 workers, 1000 samples/s, server of 1.25e+09 B/s, 0.001 s a push)
        """
        server = ParameterServer.checked(
            bandwidth, seconds_per_push, seconds_per_pull, seconds_per_update, shards, sharing, jitter
        )
        if not server.takes_time:
            checks.fail("with_server", "a server that takes no time", "a finite bandwidth, or seconds > 0")
        return self._with(server=server)

    def resized(self, num_workers: int) -> Cluster:
        """Returns the same kind of cluster with another number of workers.

        Worker i of the new cluster is like worker floor(i W / P) of this one, with its speed, link, slow
        episodes and changes; the server stays as it is. It has that worker's measured durations: where m new
        workers are like one with n rows, the j-th begins at row floor(j n / m), lest they run in lock-step,
        and has the rows before that one last.

        Args:
            num_workers: P, >= 1.

        Raises:
            ValueError: no such number, or the cluster has faults, which are those of certain workers.

        >>> Cluster.from_speeds([1000, 500], latency=0.01).resized(4).samples_per_second
        (1000.0, 1000.0, 500.0, 500.0)
        """
        num_workers = _num_workers(num_workers)
        if self.faults.events:
            checks.fail("faults", self, "none: resize the cluster first, then add faults of its workers")
        like = [i * self.num_workers // num_workers for i in range(num_workers)]

        def each(values: tuple[float, ...] | None) -> Any:
            return None if values is None else tuple(values[i] for i in like)

        def of(cause: Any) -> Any:
            if cause.workers is None:
                return cause
            workers = tuple(i for i, w in enumerate(like) if w in cause.workers)
            return dataclasses.replace(cause, workers=workers)

        names = ("samples_per_second", "overhead_seconds", "latency_seconds", "bandwidth_bytes_per_second")
        new: dict[str, Any] = {name: each(getattr(self, name)) for name in (*names, "pull_latency_seconds")}
        new |= {name: tuple(map(of, getattr(self, name))) for name in ("stragglers", "changes")}
        if self.durations is not None:
            new["durations"] = self.durations.resized(like)
        return self._with(**new)

    def with_faults(
        self, *faults: Fault, patience: float | None = None, checkpoint_every: int | None = None
    ) -> Cluster:
        """Returns this cluster with faults added: the same happen on every engine, at the same times.

        Args:
            *faults: `Crash`, `Hang`, `LostPush`, `DoubledPush` and `ServerCrash` of `dmlcore.cluster.faults`.
            patience: seconds after which a hanging worker counts as gone. Default: as set before, or never.
            checkpoint_every: updates between the server's checkpoints. Default: what was set before, or 50.

        Raises:
            ValueError: an argument is out of range, or of a worker that is not there.

        >>> from dmlcore.cluster.faults import Crash
        >>> Cluster.uniform(8).with_faults(Crash(worker=2, time=1.5, seconds=3.0))
        Cluster(8 workers, 1000 samples/s, 1 fault)
        """
        events = (*self.faults.events, *check_faults(faults, self.num_workers))
        patience = self.faults.patience_seconds if patience is None else patience
        patience = checks.real("patience", patience, above=0)
        every = self.faults.checkpoint_every if checkpoint_every is None else checkpoint_every
        every = checks.integer("checkpoint_every", every, low=1)
        endless = [fault for fault in events if isinstance(fault, Hang) and fault.seconds == math.inf]
        if endless and patience == math.inf:
            checks.fail("patience", patience, "finite, where a worker hangs for good")
        return self._with(faults=Faults(events, patience, every))

    def _with(self, **changes: Any) -> Cluster:
        """Returns this cluster with other fields: what is known of its predictions is then not known."""
        return dataclasses.replace(self, fitted="", **changes)

    def regime(self, problem: Any, batch_size: int = 32) -> Regime:
        """Returns where a problem on this cluster stands, before any policy: two numbers.

        `communication_ratio` is c, the seconds of one task's transfers where nothing queues / those of its
        computing. `server_load` is rho, the seconds of work that workers who never wait for each other would
        bring the server in each second: service * sum of 1 / cycle, where a cycle is computing, transfers and
        being served once, and `service` is that of the busiest of the processor and the two directions of the
        link. From rho = 1 on the server is saturated; it is 0 where it takes no time. All are means, of the
        jitter and of slow episodes; changes of speed and faults are left out.

        Args:
            problem: whose parameters travel both ways; or how many bytes they are.
            batch_size: samples of a task; of H local steps, H times those of a step.

        Raises:
            ValueError: an argument is wrong.

        >>> import dmlcore as dml
        >>> cluster = dml.Cluster.uniform(16, latency=0.004).with_server(seconds_per_push=0.002)
        >>> print(cluster.regime(dml.problems.digits_mlp()))
        c = 0.25, rho = 0.76
        """
        return regime(self, problem, batch_size)

    @property
    def num_workers(self) -> int:
        """W, the number of workers."""
        return len(self.samples_per_second)

    def describe(self) -> dict[str, Any]:
        """Returns the cluster as plain JSON values, for a trace's metadata."""

        def short(values: tuple[float, ...]) -> Any:
            return plain(values[0]) if len({*values}) == 1 else list(values)

        names = ("samples_per_second", "overhead_seconds", "latency_seconds", "bandwidth_bytes_per_second")
        pulling = self.pull_latency_seconds
        return {
            "num_workers": self.num_workers,
            **{name: short(getattr(self, name)) for name in names},
            "jitter": show_jitter(self.jitter),
            "latency_jitter": show_jitter(self.latency_jitter),
            **({"pull_latency_seconds": short(pulling)} if pulling is not None else {}),
            **({"durations": self.durations.describe()} if self.durations is not None else {}),
            "stragglers": [each.describe() for each in self.stragglers],
            **({"changes": [each.describe() for each in self.changes]} if self.changes else {}),
            **({"faults": self.faults.describe()} if self.faults.events else {}),
            **({"server": self.server.describe()} if self.server is not None else {}),
        }

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def __repr__(self) -> str:
        low, high = min(self.samples_per_second), max(self.samples_per_second)
        speeds = f"{low:g}-{high:g}" if high > low else f"{low:g}"
        parts = [f"{self.num_workers} workers", f"{speeds} samples/s"]
        parts += [f"overhead {max(self.overhead_seconds):g} s"] * any(self.overhead_seconds)
        latency, pulling = max(self.latency_seconds), max(self.pull_latency_seconds or self.latency_seconds)
        ways = [(latency, "")] if latency == pulling else [(latency, " up"), (pulling, " down")]
        parts += [f"latency {time:g} s{way}" for time, way in ways if time]
        slowest_link = min(self.bandwidth_bytes_per_second)
        parts += [f"{slowest_link:g} B/s"] * (slowest_link < math.inf)
        parts += [f"jitter={show_jitter(self.jitter)}"] * (self.jitter is not None)
        parts += [f"latency_jitter={show_jitter(self.latency_jitter)}"] * (self.latency_jitter is not None)
        parts += [str(self.durations)] * (self.durations is not None)
        parts += [str(each) for each in (*self.stragglers, *self.changes)]
        parts += [str(self.server)] * (self.server is not None)
        count = len(self.faults.events)
        parts += [f"{count} fault" + "s" * (count > 1)] * (count > 0)
        return f"Cluster({', '.join(parts)})"


def _num_workers(given: Any) -> int:
    number = checks.integer("num_workers", given, low=1)
    checks.check_memory("num_workers", given, BYTES_PER_WORKER * number)
    return number
