"""The description of a run, checked once: the same for every engine, and without JAX."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dmlcore import checks, notebook
from dmlcore.checks import MAX_COUNT, check_kind, check_seed
from dmlcore.cluster import Cluster
from dmlcore.cluster.draws import Draws
from dmlcore.cluster.faults import Faults
from dmlcore.engines.service import FairService, Service
from dmlcore.methods.aggregate import resolve as resolve_aggregate
from dmlcore.methods.loads import resolve as resolve_load
from dmlcore.methods.local import check_aggregated, check_controlled, check_streamed
from dmlcore.methods.transport import resolve as resolve_transport
from dmlcore.provenance import versions
from dmlcore.types import Aggregate, Codec, Load, LocalSteps, Method, Policy, Shape, Transport

if TYPE_CHECKING:
    from dmlcore.problems.problem import Problem


class StopRule(NamedTuple):
    """When a run ends. Exactly one of the three is finite.

    Args:
        updates: number of server updates.
        seconds: time on the engine's clock in seconds.
        samples: number of samples in applied updates.
    """

    updates: float = math.inf
    seconds: float = math.inf
    samples: float = math.inf

    @classmethod
    def checked(
        cls, updates: int | None = None, seconds: float | None = None, samples: int | None = None
    ) -> StopRule:
        """Returns the stopping rule of the one argument that is not None.

        Raises:
            ValueError: not exactly one argument is given, or it is out of range.

        >>> StopRule.checked(updates=100).updates
        100
        >>> StopRule.checked(updates=100, seconds=1.0)
        Traceback (most recent call last):
        ValueError: updates, seconds: expected exactly one of updates, seconds, samples, got two
        """
        given = {"updates": updates, "seconds": seconds, "samples": samples}
        given = {name: value for name, value in given.items() if value is not None}
        if len(given) != 1:
            names = ", ".join(given) or "updates, seconds, samples"
            count = {0: "none", 2: "two"}.get(len(given), "three")
            checks.reject(names, count, "exactly one of updates, seconds, samples")
        if updates is not None:
            return cls(updates=checks.integer("updates", updates, low=1, high=MAX_COUNT))
        if samples is not None:
            return cls(samples=checks.integer("samples", samples, low=1))
        return cls(seconds=checks.real("seconds", seconds, above=0, high=1e300))


def _shape(shape: Any) -> tuple[int, ...]:
    sides, why = shape if isinstance(shape, list | tuple) else [shape], "or a tuple of them, for each tensor"
    return tuple(checks.integer("tensor_shapes", side, low=0, why=why) for side in sides)


@dataclass(frozen=True)
class RunSpec:
    """A run without its problem and optimizer, which `train`, `simulate`, comparisons and engines pass on.

    Build one with `RunSpec.checked`.

    Args:
        policy: the server's rule.
        cluster: speeds, links, stragglers, faults and server.
        stop: when the run ends.
        seed: seed of all random numbers.
        batch_size: samples of one worker's task; a load rule divides `batch_size * num_workers` samples.
        load: rule for the batch sizes.
        transport: how parameters and gradients travel.
        compensation: lambda of delay compensation; 0: none.
        parameter_bytes: size of the parameters in bytes.
        tensor_shapes: of the parameters.
        local: local steps of a task. None: a task is one gradient.
        step_size: samples of a local step, or of a task without local steps.
        aggregate: rule that combines the pushes of an update.
    """

    policy: Policy
    cluster: Cluster
    stop: StopRule
    seed: int
    batch_size: int
    load: Load
    transport: Transport
    compensation: float
    parameter_bytes: int
    tensor_shapes: tuple[tuple[int, ...], ...]
    local: LocalSteps | None
    step_size: int
    aggregate: Aggregate

    @classmethod
    def checked(
        cls,
        method: Policy | Method,
        cluster: Cluster,
        *,
        seed: int = 0,
        batch_size: int = 32,
        load: Load | str | None = None,
        transport: Transport | str | None = None,
        compensation: float = 0.0,
        parameter_bytes: int = 0,
        tensor_shapes: Sequence[Shape] | None = None,
        local: LocalSteps | None = None,
        aggregate: Aggregate | str | None = None,
        **stop: Any,
    ) -> RunSpec:
        """Returns the run that the arguments describe; the fields of a `Method` override them.

        `stop` has the arguments of `StopRule.checked`.

        Raises:
            ValueError: an argument is wrong; the message names it.
        """
        own = method if isinstance(method, Method) else Method(method)
        policy = own.policy
        load = load if own.load is None else own.load
        transport = transport if own.transport is None else own.transport
        compensation = compensation if own.compensation is None else own.compensation
        local = local if own.local is None else own.local
        aggregate = aggregate if own.aggregate is None else own.aggregate
        check_kind("policy", policy, Policy)
        check_kind("cluster", cluster, Cluster)
        checks.integer(f"{policy.name}, observe_every", policy.observe_every, low=1)
        ends, seed = StopRule.checked(**stop), check_seed("seed", seed)
        parameter_bytes = checks.integer("parameter_bytes", parameter_bytes, low=0)
        if tensor_shapes is None:
            tensor_shapes = [-(-parameter_bytes // 4)]
        shapes = tuple(map(_shape, checks.listed("tensor_shapes", tensor_shapes)))
        step_size = batch_size = checks.integer("batch_size", batch_size, low=1, high=MAX_COUNT)
        if local is not None:
            check_kind("local", local, LocalSteps)
            batch_size = local.steps * step_size
            if batch_size > MAX_COUNT:
                checks.fail(
                    "steps", local.steps, f"at most {MAX_COUNT // step_size} (of {step_size} samples)"
                )
        load, transport = resolve_load(load), resolve_transport(transport)
        aggregate = resolve_aggregate(aggregate)
        compensation = checks.real("compensation", compensation, low=0, high=1e300)
        if policy.batch_size is not None:
            load = resolve_load(None)  # the policy sizes all tasks, and no load rule is used
        if compensation and transport.pull:
            expected = "0 (the transport rounds pulls, so the server does not know the values that arrived)"
            checks.fail("compensation", compensation, expected)
        server, numbers = cluster.server, sum(map(math.prod, shapes))
        if local is not None:
            if compensation:
                checks.fail("compensation", compensation, "0 (what local steps push is not a gradient)")
            check_aggregated(local, aggregate)
            if local.controlled:
                check_controlled(transport, cluster.faults.events)
            if local.streams:
                check_streamed(local, policy, transport, cluster.faults, numbers)
        if server is not None and server.bandwidth_bytes_per_second < math.inf and not parameter_bytes:
            expected = "the size of the parameters, > 0 (the server's link has a bandwidth)"
            checks.fail("parameter_bytes", parameter_bytes, expected)
        if server is not None:
            server.check_shards(numbers)
        if policy.keep_copy is not None and (compensation or transport.pipelined or transport.changes_values):
            checks.fail(
                "policy",
                policy,
                "a policy whose tasks all pull (with compensation, codecs or a pipeline the server must know "
                "the copy on which a task was computed, and only the worker knows one that it keeps)",
            )
        if policy.keep_copy is not None and local is not None and local.normalised:
            checks.fail("policy", policy, "a policy whose tasks all pull (weights are those of an update)")
        if policy.on_begin is not None and transport.pipelined:
            checks.fail("policy", policy, "one that starts all workers (a pipeline has two tasks of each)")
        given = policy, cluster, ends, seed, batch_size, load, transport, compensation
        return cls(*given, parameter_bytes, shapes, local, step_size, aggregate)

    _repr_html_ = notebook.html

    def __repr__(self) -> str:
        ((name, count),) = (each for each in self.stop._asdict().items() if math.isfinite(each[1]))
        workers = f"{self.cluster.num_workers} workers"
        return f"RunSpec({self.policy!r}, {workers}, {name}={count:g}, seed={self.seed})"

    @property
    def faults(self) -> Faults:
        """The faults of the cluster."""
        return self.cluster.faults

    def normalised(
        self, apply: Sequence[tuple[int, int, float]], samples: Sequence[int]
    ) -> Sequence[tuple[int, int, float]]:
        """Returns the pushes of an update, of so many samples each, with the weights of FedNova."""
        steps = [-(-each // self.step_size) for each in samples]
        weights = [weight for _, _, weight in apply]
        mean = sum(map(operator.mul, weights, steps)) / (sum(weights) or 1.0)
        pairs = zip(apply, steps, strict=True)
        return [(worker, clock, weight * (mean / tau)) for (worker, clock, weight), tau in pairs]

    def draws(self) -> Draws:
        """Returns the times of a task's phases, a new object, since threads cannot share it."""
        return Draws(self.cluster, self.seed, *self.transferred_bytes())

    @property
    def service_seconds(self) -> dict[str, float] | None:
        """Mean seconds of each kind of work of the server; None if it takes no time."""
        server = self.cluster.server
        numbers = self.in_message(self.num_parameters)
        return None if server is None else server.seconds(numbers, *self.transferred_bytes())

    @property
    def num_parameters(self) -> int:
        """How many numbers the parameters are."""
        return sum(map(math.prod, self.tensor_shapes))

    def steps_of(self, problem: Problem) -> Problem:
        """Returns a problem whose tasks make the local steps of this run, if it has some."""
        return problem.with_steps(self.local, self.step_size, self.transport.pipelined)

    @property
    def copies(self) -> int:
        """How many trees like the parameters a message holds, or holds a fragment of."""
        return 2 if self.local is not None and self.local.control_variates else 1

    def in_message(self, whole: int) -> int:
        """Returns how much of a size of all parameters a message has: that of its largest fragment."""
        fragments = 1 if self.local is None else self.local.fragments
        return -(-whole * self.copies // fragments)

    @property
    def seconds_per_update(self) -> float:
        """Processor time of an update in seconds, after the push that completes it."""
        seconds = self.service_seconds
        return 0.0 if seconds is None else seconds["update"]

    def service(self) -> Service | None:
        """Returns empty queues of the cluster's server; None if it takes no time."""
        server, seconds = self.cluster.server, self.service_seconds
        if server is None or seconds is None:
            return None
        kind = FairService if server.sharing == "fair" else Service
        return kind(seconds, None if server.jitter is None else self.draws())

    def transferred_bytes(self) -> tuple[int, int]:
        """Returns the bytes of a pull and of a push."""
        transport = self.transport

        def count(codec: Codec | None, plainly: Callable[[int], int]) -> int:
            with checks.noting(f"transport {transport.name}, asked for its bytes"):
                shapes, whole = self.tensor_shapes * self.copies, self.in_message(self.parameter_bytes)
                found = codec.num_bytes(shapes) if codec else plainly(whole)
            return checks.integer(f"transport {transport.name}", found, low=0, why="bytes")

        return count(transport.pull, transport.pull_bytes), count(transport.push, transport.push_bytes)

    def metadata(self, engine: str) -> dict[str, Any]:
        """Returns a trace's metadata, except the end of the run."""
        policy = self.policy
        lead = policy.max_lead  # a pipeline adds one clock
        bound = None if lead is None or lead == math.inf else lead + self.transport.pipelined
        seconds = self.service_seconds
        return {
            "engine": engine,
            "policy": policy.name,
            "max_lead": bound,
            "compensation": self.compensation,
            "num_workers": self.cluster.num_workers,
            "cluster": self.cluster.describe(),
            "load": self.load.name,
            "transport": self.transport.name,
            "changes_values": self.transport.changes_values,
            "pipelined": self.transport.pipelined,
            "parameter_bytes": self.parameter_bytes,
            "transfer_bytes": list(self.transferred_bytes()),
            **({"tensor_shapes": [*map(list, self.tensor_shapes)]} if self.transport.changes_values else {}),
            **({"service_seconds": seconds} if seconds is not None else {}),
            "batch_size": self.batch_size,
            **({"local": self.local.name, "step_size": self.step_size} if self.local is not None else {}),
            **({} if self.aggregate.plain else {"aggregate": self.aggregate.name}),
            "seed": self.seed,
            "versions": versions(),
        }
