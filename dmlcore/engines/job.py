"""A run with its problem and optimizer, for engines that compute while the clock runs."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dmlcore.cluster.draws import Draws
from dmlcore.engines.server import Order, Server
from dmlcore.engines.service import Service
from dmlcore.engines.spec import RunSpec
from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace
from dmlcore.training.aggregation import digest, traced
from dmlcore.training.checkpoints import Checkpoints
from dmlcore.training.identity import of_eval_params, of_training, told
from dmlcore.training.local_steps import contribution_of
from dmlcore.training.stepper import Stepper


class Recording(NamedTuple):
    """The result of a run on a real clock.

    Args:
        trace: the trace of the run.
        params: the parameters after its last update.
    """

    trace: Trace
    params: Any


@dataclass(frozen=True)
class Job:
    """A run with its problem and optimizer.

    Args:
        spec: the rest of the run's description.
        problem: the problem to train.
        optimizer: optax optimizer.
        time_scale: real seconds per second of the cluster; 0: no latencies are injected, and times are real
            seconds.
        checkpoint: folder for the server's checkpoints. None: none are kept after the run.
        private: whether only this run uses the folder, so that its checkpoints need no identity.
    """

    spec: RunSpec
    problem: Any
    optimizer: Any
    time_scale: float = 1.0
    checkpoint: Path | None = None
    private: bool = False

    def stepper(self, device: Any = None) -> Stepper:
        """Returns the run's arithmetic, on a device."""
        spec = self.spec
        workers = spec.cluster.num_workers
        return Stepper(self.problem, self.optimizer, spec.seed, device, workers, spec.aggregate)

    def draws(self) -> Draws | None:
        """Returns the times of phases; None if no latencies are injected."""
        return self.spec.draws() if self.time_scale else None

    def service(self) -> Service | None:
        """Returns the queues of a server that takes time; None if it takes none or nothing is injected."""
        return self.spec.service() if self.time_scale else None

    def new_server(
        self, serial: Iterator[int], answered: Mapping[int, tuple[float, float]]
    ) -> Callable[[], Server]:
        """Returns a function that makes new servers.

        Args:
            serial: numbers of attempts, shared by all these servers, so that no number occurs twice.
            answered: attempt -> when the copy has left the server, and how long it waited there, in seconds.
        """
        draws, spec = self.draws(), self.spec
        if not self.time_scale:
            spec = dataclasses.replace(spec, cluster=dataclasses.replace(spec.cluster, server=None))

        def plan(order: Order) -> tuple[float, float, float]:
            if draws is None:
                return order.time, float("inf"), 0.0  # without known times, all its time counts as computing
            since, waited = answered.get(order.attempt, (order.time, 0.0))
            due = draws.computing(order.worker, order.clock, order.batch_size, order.pull, since)
            return (*due, waited)

        return lambda: Server(spec, plan, serial)

    def metadata(self, engine: str) -> dict[str, Any]:
        """Returns a trace's metadata, except the end of the run."""
        return self.spec.metadata(engine) | told(self.problem) | {"time_scale": self.time_scale}

    @contextlib.contextmanager
    def with_folder(self) -> Iterator[Job]:
        """Yields this job with a folder for checkpoints, a temporary one if only faults need it."""
        if self.checkpoint is not None or not self.spec.faults.server_crashes:
            yield self
            return
        with tempfile.TemporaryDirectory(prefix="dmlcore-") as folder:
            yield dataclasses.replace(self, checkpoint=Path(folder), private=True)

    @contextlib.contextmanager
    def checkpoints(self, engine: str) -> Iterator[Checkpoints | None]:
        """Yields the server's checkpoints; None without a folder."""
        if self.checkpoint is None:
            yield None
            return
        run = {} if self.private else described(self.spec, self.problem, self.optimizer)
        run |= self.metadata(engine)
        with contextlib.closing(Checkpoints(self.checkpoint, run)) as kept:
            yield kept


def described(spec: RunSpec, problem: Problem, optimizer: Any, eval_params: Any = None) -> dict[str, Any]:
    """Returns the JSON values that identify a run before its timeline exists.

    A user's own policy, load rule, transport or codec is identified only by its name.
    """
    stop = {name: str(value) for name, value in spec.stop._asdict().items()}
    steps = contribution_of(problem).fingerprint()  # for local steps, it contains their optimizer
    draws, workers = spec.draws(), range(min(spec.cluster.num_workers, 64))
    # A user's own distribution is identified by its name and by some of the resulting times.
    times = [
        (draws.compute_seconds(w, 0, 1), draws.pull_seconds(w, 0), draws.push_seconds(w, 0)) for w in workers
    ]
    aggregate = digest(*traced(spec.aggregate, problem.shapes, places=2))
    own = {"stop": stop, "steps": steps, "times": times, "aggregate": aggregate}
    own |= of_eval_params(eval_params, optimizer, problem.shapes)
    return spec.metadata("") | own | of_training(problem, optimizer)
