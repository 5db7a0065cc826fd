"""Clusters: the speeds of workers and links, how these vary, and which workers straggle at which times."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import scipy

from dmlcore import checks, notebook
from dmlcore.cluster.durations import Durations
from dmlcore.cluster.faults import Fault, Faults, Hang, check_faults, plain
from dmlcore.cluster.jitter import Quantile, SizedJitter, resolve_jitter, show_jitter
from dmlcore.cluster.parameter_server import ParameterServer
from dmlcore.cluster.regime import Regime, regime
from dmlcore.cluster.slowdowns import SpeedChange, Stragglers, TimedChange, check_workers, speed_change
from dmlcore.theory import Response

NONE = Faults()
FINITE = {"low": 0, "high": 1e300}
PER_WORKER: dict[str, dict[str, float]] = {  # fields with one number per worker -> the allowed range
    "samples_per_second": {"above": 0, "high": 1e300},
    "overhead_seconds": FINITE,
    "latency_seconds": FINITE,
    "bandwidth_bytes_per_second": {"above": 0},
    "pull_latency_seconds": FINITE,
}
BYTES_PER_WORKER = 100  # memory for a worker's speeds, links and tasks in flight: a lower bound


@dataclass(frozen=True)
class Cluster:
    """Workers and their links to the server.

    A task of b samples takes `(overhead + b / samples_per_second * jitter) * slowdown` seconds. A transfer
    takes `latency * jitter + bytes / bandwidth` seconds. Random times are functions of (seed, worker, clock)
    alone, so two policies with the same seed meet the same stragglers (common random numbers). Most clusters
    are built by `Cluster.uniform`, `Cluster.from_speeds` or `Cluster.from_durations`.

    Args:
        samples_per_second: speed of each worker in samples/s, > 0, shape (W,): a tuple of W numbers.
        overhead_seconds: fixed time of each worker's task in seconds, >= 0, shape (W,).
        latency_seconds: mean one-way delay of each worker's link in seconds, >= 0, shape (W,).
        bandwidth_bytes_per_second: bandwidth of each worker's link in bytes/s, > 0, shape (W,). With
            `math.inf` a transfer takes only its latency.
        jitter: random multiplier of the compute time, without a unit: a frozen `scipy.stats` distribution
            with mean 1, a quantile function (array of uniforms in [0, 1) -> array of multipliers of the same
            shape), or a `SizedJitter`. None: the compute time is not multiplied.
        latency_jitter: random multiplier of the latency, of the same kinds. None: latencies are constant.
        stragglers: slow episodes of workers, see `with_stragglers`.
        faults: incidents of workers, the server and messages, see `with_faults`.
        pull_latency_seconds: mean delay from the server to each worker in seconds, >= 0, shape (W,). None: it
            is `latency_seconds`.
        changes: changes of workers' speeds at given tasks or times, see `with_speed_change`.
        server: the times of the server's processor and link, which all workers share, see `with_server`.
            None: they take no time.
        durations: measured task times, which replace speed, overhead and jitter. None: times are computed
            from these three.
        fitted: how well a cluster fitted by `dml.calibrate` predicts the traces it was fitted to. Clusters
            that differ only in this field are equal.

    Raises:
        ValueError: a field with one number per worker is not a tuple of W numbers, or a number is out of
            range.

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
    def uniform(cls, num_workers: int, samples_per_second: float = 1000.0, **options: Any) -> Self:
        """Returns a cluster of equally fast workers.

        Args:
            num_workers: W, >= 1.
            samples_per_second: speed of every worker in samples/s, > 0.
            **options: the keyword arguments of `from_speeds`.

        Returns:
            The cluster.

        Raises:
            ValueError: an argument is out of range, or a distribution's mean is not 1.

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
    ) -> Self:
        """Returns a cluster with one worker for each speed.

        Args:
            samples_per_second: speed of each worker in samples/s, > 0, shape (W,).
            overhead: fixed time of a task in seconds, >= 0: one number for all workers, or shape (W,).
            latency: mean one-way delay of a link in seconds, >= 0: one number, or shape (W,).
            bandwidth: bandwidth of a link in bytes/s, > 0: one number, or shape (W,).
            jitter: random multiplier of the compute time: a distribution with mean 1 by name, such as
                "exponential", "gamma(4)", "lognormal(0.5)" or "pareto(3)", or any jitter that `Cluster`
                accepts. None: the compute time is not multiplied.
            latency_jitter: random multiplier of the latency, of the same kinds. None: latencies are constant.
            pull_latency: mean delay from the server to the worker in seconds, >= 0: one number, or shape
                (W,). None: it is `latency`.

        Returns:
            The cluster.

        Raises:
            ValueError: a number is NaN or out of range, or a distribution's mean is not 1.

        >>> Cluster.from_speeds([1000, 1000, 333], latency=0.01).num_workers
        3
        """
        if not isinstance(samples_per_second, Iterable):
            checks.fail(
                "samples_per_second", samples_per_second, "one speed for each worker, such as [1000, 500]"
            )
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
    def from_response(cls, num_workers: int, response: Response) -> Self:
        """Returns a cluster whose response times follow a distribution of `dmlcore.theory`.

        Guarantee: computing a task of b samples takes Y(b) seconds and its push takes X seconds; a pull takes
        no time. The response time of a worker is therefore Z(b) = X + Y(b), and a round of K-sync takes
        mu(k, b) seconds on average.

        Args:
            num_workers: W, >= 1.
            response: distribution of Z(b) in seconds, whose E[Y(b)] is proportional to b.

        Returns:
            The cluster.

        Raises:
            ValueError: `num_workers` is out of range, or `response` is not a `Response`.

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
        frame: Any,
        beyond: str = "cycle",
        *,
        latency: float | Sequence[float] = 0.0,
        bandwidth: float | Sequence[float] = math.inf,
        latency_jitter: Any = None,
        pull_latency: float | Sequence[float] | None = None,
    ) -> Self:
        """Returns a cluster whose tasks take times that were measured on another system.

        Guarantee: the task at clock c of worker w takes the seconds of the worker's row c exactly if it has
        as many samples as that row, and otherwise seconds * (samples of the task / samples of the row). None
        of the measured time counts as overhead. Slow episodes and changes of speed that are added multiply
        it. The field `samples_per_second` then holds each worker's mean speed.

        Args:
            frame: a log that `read_tasks` reads, or its result, which says how many samples a task has. The
                rows of a worker stand in the order of its clocks, unless they have times.
            beyond: the times of tasks after a worker's last row. "cycle": start again at its first row;
                "resample": draw its rows at random, keyed by seed, worker and clock; "error": raise a
                ValueError that names worker and clock when such a task begins (a WorkerError with that
                message on threads and Ray). Or the times of all tasks: "bootstrap": draw the worker's rows at
                random, from the first task on; "rounds": draw a row for every clock that all workers take.
            latency: mean one-way delay of a link in seconds, >= 0: one number, or shape (W,).
            bandwidth: bandwidth of a link in bytes/s, > 0: one number, or shape (W,).
            latency_jitter: random multiplier of the latency, see `from_speeds`. None: latencies are constant.
            pull_latency: mean delay from the server to the worker in seconds, >= 0: one number, or shape
                (W,). None: it is `latency`.

        Returns:
            The cluster, with one worker for each that the log names.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: the log cannot be read, a worker has only rows of 0 seconds, or `beyond` is none of
                these.

        >>> import pandas as pd
        >>> measured = pd.DataFrame({"worker": [0, 1, 0], "samples": 32, "seconds": [0.5, 1.0, 0.25]})
        >>> Cluster.from_durations(measured, latency=0.01)
        Cluster(2 workers, 32-85.3333 samples/s, latency 0.01 s, 3 measured tasks, beyond: cycle)
        """
        durations = Durations.checked(frame, beyond)
        links: Any = {"latency": latency, "bandwidth": bandwidth, "latency_jitter": latency_jitter}
        cluster = cls.from_speeds(durations.speeds, pull_latency=pull_latency, **links)
        return dataclasses.replace(cluster, durations=durations)

    def with_stragglers(
        self,
        slowdown: float,
        *,
        fraction: float = 0.1,
        mean_tasks: float = 10.0,
        workers: Sequence[int] | None = None,
    ) -> Self:
        """Returns this cluster with slow episodes added.

        Args:
            slowdown: factor on the time of a slow task, >= 1, without a unit.
            fraction: long-run share of tasks that are slow, from 0 to 1; 1 makes the workers persistent
                stragglers.
            mean_tasks: mean length of an episode in tasks, >= 1.
            workers: numbers of the workers that have episodes. None: all workers.

        Returns:
            A new cluster; this one is unchanged.

        Raises:
            ValueError: an argument is out of range, or episodes this short cannot cover `fraction`.

        >>> Cluster.uniform(8).with_stragglers(3, fraction=1, workers=[0])
        Cluster(8 workers, 1000 samples/s, 3x slow on 100% of tasks of 1 worker)
        """
        slowdown = checks.real("slowdown", slowdown, low=1, high=1e300)
        fraction = checks.real("fraction", fraction, low=0, high=1)
        mean_tasks = checks.real("mean_tasks", mean_tasks, low=1, high=1e300)
        least = fraction / (1 - fraction) if fraction < 1 else 1.0
        if least > mean_tasks:
            expected = f"a number >= {least:g} (for slow episodes on {fraction:.0%} of tasks)"
            checks.fail("mean_tasks", mean_tasks, expected)
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
    ) -> Self:
        """Returns this cluster with a known change of speed added, at a task or at a time.

        With `clock`, a worker's tasks `clock` to `until - 1` take `slowdown` times as long. With `at`,
        everything that a worker computes between the times `at` and `until` takes `slowdown` times as long. A
        task that is running when the change begins is slowed from that moment: a task of w seconds that
        begins at time b ends at the time e for which the integral of dt / slowdown(t) from b to e is w.
        Transfers and the server are not slowed. Where changes overlap, their factors multiply.

        Args:
            slowdown: factor on the compute time, > 0, without a unit; below 1 the workers become faster.
            clock: the first task of each worker that is affected, 0-based. None: give `at` instead.
            at: when the change begins, in seconds from the start of the run. None: give `clock` instead.
            until: the first task that is no longer affected; with `at`, when the change ends, in seconds.
                None: the change lasts to the end of the run.
            workers: numbers of the workers whose speed changes. None: all workers.

        Returns:
            A new cluster; this one is unchanged.

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
    ) -> Self:
        """Returns this cluster with a server whose processor and link take time.

        All workers share the server's link. A push crosses its worker's link and then the server's link. The
        server's processor handles one message at a time, in the order of arrival: it reads the push, makes
        the update if this push completes one, and sends its replies before it reads the next push. A reply
        crosses the server's link in the other direction and then its worker's link.

        Guarantees: the server reads at most 1 / (seconds_per_push + seconds_per_update + seconds_per_pull)
        pushes/s where every push makes an update and is followed by a pull; a pull brings the version that
        the server holds when it replies.

        Args:
            bandwidth: bandwidth of the server's link in bytes/s, > 0, in each direction.
            seconds_per_push: processor time to read a push, in seconds, >= 0.
            seconds_per_pull: processor time to reply to a pull, in seconds, >= 0.
            seconds_per_update: processor time of an update, in seconds, >= 0, after the push that completes
                it.
            shards: number of servers that hold equal parts of the parameters, >= 1, each with its own
                processor and link. A message is complete when its last part has arrived; each part takes its
                share of the times above.
            sharing: how concurrent transfers in one direction share the server's link. "fifo": one at a time,
                in the order of arrival. "fair": all at once, each with an equal part of the bandwidth
                (processor sharing); a worker then sends its next push only after the server has read the
                previous one. The processor is first come, first served in both cases.
            jitter: random multiplier of a message's time on link and processor, see `from_speeds`. None:
                these times are constant.

        Returns:
            A new cluster; this one is unchanged.

        Raises:
            ValueError: an argument is out of range, or nothing takes time.

        >>> Cluster.uniform(8).with_server(bandwidth=1.25e9, seconds_per_push=0.001)
        Cluster(8 workers, 1000 samples/s, server of 1.25e+09 B/s, 0.001 s a push)
        """
        server = ParameterServer(
            bandwidth, seconds_per_push, seconds_per_pull, seconds_per_update, shards, sharing, jitter
        )
        if not server.takes_time:
            checks.reject("with_server", "neither", "a finite bandwidth or seconds_per_... > 0")
        return self._with(server=server)

    def resized(self, num_workers: int) -> Self:
        """Returns the same kind of cluster with another number of workers.

        Worker i of the new cluster copies worker floor(i W / P) of this one: its speed, link, slow episodes
        and changes of speed. The server does not change. Measured durations are copied too: where m new
        workers copy one worker with n rows, the j-th of them starts at row floor(j n / m) and continues with
        the first rows after the last, so that the copies do not run in lock-step.

        Args:
            num_workers: P, the new number of workers, >= 1.

        Returns:
            A new cluster of P workers; this one is unchanged.

        Raises:
            ValueError: `num_workers` is out of range, or the cluster has faults, which belong to certain
                workers.

        >>> Cluster.from_speeds([1000, 500], latency=0.01).resized(4).samples_per_second
        (1000.0, 1000.0, 500.0, 500.0)
        """
        num_workers = _num_workers(num_workers)
        if self.faults.events:
            hint = "resizing the cluster before adding the faults of its workers"
            checks.fail("faults", self, "a cluster without faults", hint)
        like = [i * self.num_workers // num_workers for i in range(num_workers)]

        def each(values: tuple[float, ...] | None) -> Any:
            return None if values is None else tuple(values[i] for i in like)

        def of(cause: Any) -> Any:
            if cause.workers is None:
                return cause
            workers = tuple(i for i, w in enumerate(like) if w in cause.workers)
            return dataclasses.replace(cause, workers=workers)

        new: dict[str, Any] = {name: each(getattr(self, name)) for name in PER_WORKER}
        new |= {name: tuple(map(of, getattr(self, name))) for name in ("stragglers", "changes")}
        if self.durations is not None:
            new["durations"] = self.durations.resized(like)
        return self._with(**new)

    def with_faults(
        self, *faults: Fault, patience: float | None = None, checkpoint_every: int | None = None
    ) -> Self:
        """Returns this cluster with faults added, which happen at the same times on every engine.

        Args:
            *faults: `Crash`, `Hang`, `LostPush`, `DoubledPush` and `ServerCrash` of `dml.faults`.
            patience: time in seconds, > 0, after which the server treats a hanging worker as gone. Default:
                the value set before, or never.
            checkpoint_every: number of updates between the server's checkpoints, >= 1. Default: the value set
                before, or 50.

        Returns:
            A new cluster; this one is unchanged.

        Raises:
            ValueError: an argument is out of range, or a fault names a worker that does not exist.

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
            checks.fail("patience", patience, "a finite number of seconds (a worker hangs forever)")
        return self._with(faults=Faults(events, patience, every))

    def _with(self, **changes: Any) -> Self:
        """Returns this cluster with other fields; how well it predicts traces is then no longer known."""
        return dataclasses.replace(self, fitted="", **changes)

    def regime(self, problem: Any, batch_size: int = 32) -> Regime:
        """Returns the communication ratio and the server load of a problem on this cluster.

        Both numbers are independent of the policy and have no unit. `communication_ratio` is c, the time of
        one task's transfers without queueing divided by its compute time. `server_load` is rho, the seconds
        of work per second that the server would get from workers that never wait for each other. It is
        service * sum over workers of 1 / cycle: `service` is the longest of a task's times on the server's
        processor and on its link in each direction, and a cycle is computing, transfers and one service.
        The server is saturated from rho = 1 on; rho is 0 if the server takes no time. All times are means
        over jitter and slow episodes; changes of speed and faults are not included.

        Args:
            problem: the problem, whose parameters travel in both directions; or their size in bytes.
            batch_size: samples per task, >= 1; with H local steps, H times the samples of a step.

        Returns:
            A `Regime`, a named tuple of the two numbers.

        Raises:
            ValueError: `problem` or `batch_size` is wrong, or the parameters cannot be split into the
                server's shards.

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
        """Returns the cluster as plain JSON values, for a trace's metadata.

        Returns:
            A dictionary of the fields: times in seconds, speeds in samples/s, bandwidths in bytes/s. A value
            that is the same for all workers is one number, otherwise a list of W numbers.

        >>> Cluster.uniform(2, latency=0.01).describe()["latency_seconds"]
        0.01
        """

        def short(values: tuple[float, ...]) -> Any:
            return plain(values[0]) if len({*values}) == 1 else list(values)

        *names, _ = PER_WORKER
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

    _repr_html_ = notebook.html

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
