"""What a run is asked to be, checked: the same on every engine."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dmlcore import checks
from dmlcore.checks import check_kind, check_seed
from dmlcore.cluster import Cluster
from dmlcore.cluster.draws import Draws
from dmlcore.cluster.faults import Faults, ServerCrash
from dmlcore.engines.server import Order, Server
from dmlcore.engines.stop import Stop, stop_rule
from dmlcore.engines.timing import Timing
from dmlcore.methods.loads import resolve as resolve_load
from dmlcore.methods.transport import resolve as resolve_transport
from dmlcore.provenance import versions
from dmlcore.training.checkpoints import Checkpoints
from dmlcore.training.coding import Coder, coding_by
from dmlcore.training.stepper import Stepper
from dmlcore.types import Codec, Load, Policy, Transport


@dataclass(frozen=True)
class Setup:
    """A run without its arithmetic.

    Args:
        policy: the server's rule.
        cluster: speeds, links, stragglers, faults.
        stop: when it is over.
        seed: of all draws.
        batch_size: samples of one worker's task, before the load rule.
        load: rule for the batch sizes.
        transport: what is sent.
        parameter_bytes: size of the parameters.
        tensor_sizes: numbers in each tensor of the parameters.
    """

    policy: Policy
    cluster: Cluster
    stop: Stop
    seed: int
    batch_size: int
    load: Load
    transport: Transport
    parameter_bytes: int
    tensor_sizes: tuple[int, ...]

    @classmethod
    def checked(
        cls,
        policy: Policy,
        cluster: Cluster,
        *,
        updates: int | None = None,
        seconds: float | None = None,
        samples: int | None = None,
        seed: int = 0,
        batch_size: int = 32,
        load: Load | str | None = None,
        transport: Transport | str | None = None,
        parameter_bytes: int = 0,
        tensor_sizes: Sequence[int] | None = None,
    ) -> Setup:
        """Returns the setup that these arguments of `simulate` or `train` ask for.

        Raises:
            ValueError: one of them is wrong; the message names it.
        """
        check_kind("policy", policy, Policy)
        check_kind("cluster", cluster, Cluster)
        stop = stop_rule(updates, seconds, samples)
        seed = check_seed("seed", seed)
        parameter_bytes = checks.integer("parameter_bytes", parameter_bytes, low=0)
        if tensor_sizes is None:
            tensor_sizes = [-(-parameter_bytes // 4)]
        sizes = tuple(checks.integer("tensor_sizes", size, low=0) for size in tensor_sizes)
        batch_size = checks.integer("batch_size", batch_size, low=1)
        load, transport = resolve_load(load), resolve_transport(transport)
        if policy.batch_size is not None:
            load = resolve_load(None)  # which is not asked, and so should not be told either
        check_transport(transport, policy, cluster)
        return cls(policy, cluster, stop, seed, batch_size, load, transport, parameter_bytes, sizes)

    @property
    def faults(self) -> Faults:
        """What breaks when."""
        return self.cluster.faults

    @property
    def pulls_only(self) -> bool:
        """Whether the server must know what every task is computed on."""
        transport = self.transport
        return bool(self.policy.compensation) or transport.pipelined or transport.changes_values

    @property
    def sizes_change(self) -> bool:
        """Whether the load rule changes batch sizes as it goes."""
        return self.load.observe is not None

    def timing(self) -> Timing:
        """Returns when the phases of a task are due; with draws of its own, since those are not shared."""
        return Timing(Draws(self.cluster, self.seed), *self.transferred_bytes())

    def transferred_bytes(self) -> tuple[int, int]:
        """Returns what a pull and a push transfer, bytes."""
        transport = self.transport

        def count(codec: Codec | None, plainly: Callable[[int], int]) -> int:
            found = codec.num_bytes(self.tensor_sizes) if codec else plainly(self.parameter_bytes)
            return checks.integer(f"transport {transport.name}", found, low=0, why="bytes")

        return count(transport.pull, transport.pull_bytes), count(transport.push, transport.push_bytes)

    def servers(self, plan: Callable[[Order], tuple[float, float]], first: int = 0) -> Callable[[], Server]:
        """Returns what makes empty books; attempts are numbered from `first`, and no number comes again."""
        serial = itertools.count(first)
        workers = self.cluster.num_workers
        return lambda: Server(
            self.policy, workers, self.stop, self.load, self.batch_size, plan, serial, self.pulls_only
        )

    def _staleness(self) -> float | None:
        """The policy's bound, where it has one: a pipeline adds a clock."""
        bound = self.policy.staleness
        return None if bound in (None, math.inf) else bound + self.transport.pipelined

    def metadata(self, engine: str) -> dict[str, Any]:
        """Returns a trace's metadata, all but its end."""
        policy = self.policy
        return {
            "engine": engine,
            "policy": policy.name,
            "staleness": self._staleness(),
            "compensation": policy.compensation,
            "num_workers": self.cluster.num_workers,
            "cluster": self.cluster.describe(),
            "load": self.load.name,
            "transport": self.transport.name,
            "changes_values": self.transport.changes_values,
            "pipelined": self.transport.pipelined,
            "parameter_bytes": self.parameter_bytes,
            "transfer_bytes": list(self.transferred_bytes()),
            "batch_size": self.batch_size,
            "seed": self.seed,
            "versions": versions(),
        }


def check_transport(transport: Transport, policy: Policy, cluster: Cluster) -> None:
    """Raises ValueError where a transport is not for such a policy or cluster."""
    if cluster.faults.events and (transport.pipelined or transport.changes_values):
        checks.fail(
            "transport", transport.name, "one that neither is pipelined nor rounds, where there are faults"
        )
    if policy.on_observation is not None and transport.changes_values:
        checks.fail("transport", transport.name, f"one that sends values as they are, for {policy.name}")


@dataclass(frozen=True)
class Job:
    """A run with its arithmetic, for an engine that computes while the clock runs.

    Args:
        setup: all but the arithmetic.
        problem: what is trained.
        optimizer: optax optimizer.
        time_scale: real seconds of one of the cluster's; 0: nothing is injected, and seconds are real ones.
        checkpoint: folder for the server's checkpoints; None: none are kept after the run.
    """

    setup: Setup
    problem: Any
    optimizer: Any
    time_scale: float = 1.0
    checkpoint: str | None = None

    def stepper(self, device: Any = None) -> Stepper:
        """Returns the run's arithmetic, on a device."""
        setup = self.setup
        workers = setup.cluster.num_workers
        return Stepper(self.problem, self.optimizer, setup.seed, device, workers)

    def coder(self, worker: int, params: Any) -> Coder | None:
        """Returns a worker's end of the links, where they change values."""
        coding = coding_by(self.setup.transport)
        return None if coding is None else Coder(coding, self.setup.seed, worker, params)

    def timing(self) -> Timing | None:
        """Returns when phases are due, where that is injected."""
        return self.setup.timing() if self.time_scale else None

    def servers(self, first: int = 0) -> Callable[[], Server]:
        """Returns what makes empty books, as `Setup.servers`."""
        timing = self.timing()

        def at_once(order: Order) -> tuple[float, float]:
            return order.time, math.inf  # as long as it was at work, where nothing is known

        return self.setup.servers(at_once if timing is None else timing.computing, first)

    def metadata(self, engine: str) -> dict[str, Any]:
        """Returns a trace's metadata, all but its end."""
        return self.setup.metadata(engine) | {"problem": self.problem.name, "time_scale": self.time_scale}

    @contextlib.contextmanager
    def with_folder(self) -> Iterator[Job]:
        """This job with a folder for checkpoints: as asked for, or a passing one where the server crashes."""
        crashes = any(isinstance(fault, ServerCrash) for fault in self.setup.faults.events)
        if self.checkpoint is not None or not crashes:
            yield self
            return
        with tempfile.TemporaryDirectory(prefix="dmlcore-") as folder:
            yield dataclasses.replace(self, checkpoint=folder)

    @contextlib.contextmanager
    def checkpoints(self, engine: str) -> Iterator[Checkpoints | None]:
        """The server's checkpoints, where there is a folder for them."""
        if self.checkpoint is None:
            yield None
            return
        stop = {name: str(value) for name, value in self.setup.stop._asdict().items()}
        run = self.metadata(engine) | {"stop": stop, "optimizer": self.stepper().fingerprint()}
        with contextlib.closing(Checkpoints(self.checkpoint, run)) as kept:
            yield kept
