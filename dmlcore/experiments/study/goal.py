"""What a study is asked, a target of a problem on a cluster, and the runs that answer it."""

import contextlib
import functools
import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.cluster.faults import Crash
from dmlcore.engines.engine import resolve
from dmlcore.engines.job import described
from dmlcore.engines.spec import RunSpec
from dmlcore.experiments.comparison import check_factory, compare
from dmlcore.experiments.histories import check_eval_params, check_until
from dmlcore.experiments.runs import run_spec, timeline
from dmlcore.methods.policies import bsp
from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace
from dmlcore.training import identity, pacing
from dmlcore.training.evaluation import is_accuracy
from dmlcore.types import Method

TUNING = 1000  # the first seed of the search; judging seeds are left out
ROUNDS = 200  # rounds of BSP in the simulation that measures a cluster
GRID = 32  # about how many evaluations until the target, before it is resolved
UNTRAINED = ".*no update within"  # the table says that the target was not reached
Seeds = Mapping[str, Sequence[int]]  # by the name of a method


class Outcome(NamedTuple):
    """The outcome of a run; `seconds`, `samples` and `bytes` are inf if it did not reach the target.

    Args:
        seconds: time of the cluster until the target.
        last: last value of the metric, negated if large values are good; inf: the run diverged.
        samples: samples computed until the target.
        bytes: bytes sent until the target.
    """

    seconds: float
    last: float
    samples: float
    bytes: float


@dataclass(frozen=True)
class Goal:
    """What a study is asked: how to reach a target of a problem on a cluster.

    Args:
        problem: the problem to train.
        cluster: the cluster to train on.
        metric: column of the history.
        target: the value of the metric to reach.
        batch_size: samples per task.
        seeds: for judging, S of them.
        all_seeds: whether all methods are judged on all of them, also those that are told apart before.
        save: folder of finished runs, or None.
        executor: of the runs, as for `compare`.
        eval_params: makes the parameters that are evaluated, as for `train`, or None.
    """

    problem: Problem
    cluster: Cluster
    metric: str
    target: float
    batch_size: int
    seeds: Sequence[int] = ()
    all_seeds: bool = False
    save: Any = None
    executor: str = "threads"
    eval_params: Any = None
    _grids: dict[Any, int] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def sign(self) -> int:
        """1 if small values of the metric are good, else -1."""
        return -1 if is_accuracy(self.metric) else 1

    @functools.cached_property
    def tuning(self) -> list[int]:
        """The seeds of the search, which do not judge."""
        return [s for s in range(TUNING, TUNING + 2**12 + len(self.seeds)) if s not in self.seeds]

    def __str__(self) -> str:
        return f"{self.metric} {self.target:.4g}"

    def check(self, method: Method, **options: Any) -> RunSpec:
        """Returns what a run of a method is; ValueError if the problem or the cluster does not support it."""
        if method.optimizer is not None:
            check_eval_params(self.eval_params, method.optimizer, self.problem)
        given: Any = {"batch_size": self.batch_size, "eval_params": self.eval_params}
        return run_spec(self.problem, method, self.cluster, **given, **(options or {"updates": 1}))

    def identity(self, method: Method) -> str:
        """Returns a text that tells a method from others, as the journal does."""
        spec = self.check(method)
        problem = spec.steps_of(self.problem)
        return json.dumps(described(spec, problem, method.optimizer, self.eval_params), sort_keys=True)

    def timeline(self, method: Method, **options: Any) -> Trace:
        """Returns the trace of a method until `updates` or `seconds`, with a `seed`."""
        spec = self.check(method, **options)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", UNTRAINED)
            return timeline(self.problem, spec, method.optimizer, resolve("simulate"))

    def key(self, methods: Mapping[str, Method], about: Any) -> str:
        """Returns a text that tells this question, asked of these methods, from others, on every machine.

        Programs differ between releases of JAX, so numbers tell what is asked: the data, the metrics of the
        initial parameters, and the first updates of optimizers. `about` has further JSON values.
        """
        told: dict[str, Any] = {**identity.told(self.problem), "target": str(self), "about": about}
        told["methods"] = {name: self._told(method) for name, method in methods.items()}
        real = jax.dtypes.canonicalize_dtype(float)
        told["start"] = sorted(identity.once(self.problem, f"start, {real}", _metrics).items())
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]

    def _told(self, method: Method) -> dict[str, Any]:
        spec = self.check(method)
        told = {name: value for name, value in spec.metadata("").items() if name != "versions"}
        if told.pop("tensor_shapes", None):  # published settings are found by sizes
            told["tensor_sizes"] = [*map(math.prod, spec.tensor_shapes)]
        rules = method.optimizer, getattr(method.local, "optimizer", None)
        told["updates"] = [_updates(rule) for rule in rules if rule is not None]
        if self.eval_params is not None:  # the metrics after an update with the parameters as its gradient
            params, optimizer = self.problem.init(jax.random.key(0)), method.optimizer
            updates, state = pacing.updated(optimizer.update, params, optimizer.init(params), params)
            judged = self.eval_params(state, optax.apply_updates(params, updates))
            told["judged"] = [*_metrics(self.problem, judged).values()]
        return told

    def rounds(self, count: int = ROUNDS, seed: int = 0) -> Trace:
        """Returns the trace of the first rounds of BSP, or of those until all workers have left for good."""
        crashes = (each for each in self.cluster.faults.events if isinstance(each, Crash))
        ends = {each.worker: each.time for each in crashes if each.seconds == math.inf}
        if len(ends) < self.cluster.num_workers:
            return self.timeline(Method(bsp()), updates=count, seed=seed)
        return self.timeline(Method(bsp()), seconds=max(ends.values()), seed=seed).until(count)

    def grid(self, method: Method, seconds: float) -> int:
        """Returns the updates between two evaluations of a run that takes about `seconds` to the target.

        It is odd, so that it sees what comes back with every second or eighth update. For a method that
        watches its training it is that of BSP, because its updates are not known before.
        """
        counted = Method(bsp()) if method.policy.on_observation is not None else method
        key = str(counted._replace(optimizer=None)), seconds
        if key not in self._grids:
            made = len(self.timeline(counted, seconds=seconds, seed=self.tuning[0]).updates)
            self._grids[key] = max(1, 2 ** int(math.log2(max(made / GRID, 1))) - 1)
        return self._grids[key]

    def runs(
        self, methods: Mapping[str, Method], seeds: Seeds, seconds: float, about: float, resolve: bool = True
    ) -> tuple[pd.DataFrame | None, bool]:
        """Returns histories until the target, None if no run is finished, and whether Ctrl-C was pressed.

        Args:
            methods: name -> method with its optimizer.
            seeds: name -> seeds of its runs.
            seconds: longest run, in cluster time.
            about: cluster time in which a good run reaches the target.
            resolve: whether to find the first of all updates that reaches the target, as `compare` does.
        """
        options: Any = {"problem": self.problem, "cluster": self.cluster, "optimizer": None}
        options |= {"until": {self.metric: self.target}, "seconds": seconds, "batch_size": self.batch_size}
        options |= {"save": self.save, "executor": self.executor, "eval_params": self.eval_params}
        together: dict[tuple[int, tuple[int, ...]], dict[str, Method]] = {}
        parts: list[pd.DataFrame] = []
        stopped = True  # until all runs are made
        with warnings.catch_warnings(), contextlib.suppress(KeyboardInterrupt):
            warnings.filterwarnings("ignore", f"interrupted|{UNTRAINED}")
            for name, method in methods.items():
                together.setdefault((self.grid(method, about), tuple(seeds[name])), {})[name] = method
            for (every, some), each in together.items():
                parts.append(compare(each, seeds=some, eval_every=every, resolve=resolve, **options))
                if parts[-1].attrs["interrupted"]:
                    break
            else:
                stopped = False
        return (pd.concat(parts, ignore_index=True) if parts else None), stopped

    def measured(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Returns the outcome of each run by method and seed, with the fields of `Outcome` as columns."""
        ended = runs.groupby(["method", "seed"]).nth(-1).set_index(["method", "seed"]).sort_index()
        last = (self.sign * ended[self.metric]).where(np.isfinite(ended[self.metric]), math.inf)
        reached = last <= self.sign * self.target  # runs end with the first update that does
        costs = ended[["time", "assigned_samples", "bytes"]].where(reached, math.inf)
        return costs.set_axis(["seconds", "samples", "bytes"], axis=1).assign(last=last)[[*Outcome._fields]]


def asked(problem: Any, target: Any, optimizer: Any, seeds: Any, batch_size: Any, **more: Any) -> Goal:
    """Checks what a study is asked, apart from the cluster, and returns it; `more` has further fields."""
    identity.check_once(problem)
    if not isinstance(target, Mapping) or len(target) != 1:
        checks.fail("target", target, "a mapping of one metric to its value, such as {'loss': 0.1}")
    ((metric, value),) = check_until(target, problem, "target").items()
    check_factory(optimizer)
    checks.integer("batch_size", batch_size, low=1)
    given: Any = problem, None, metric, value, batch_size, checks.several("seeds", seeds, checks.check_seed)
    return Goal(*given, **more)


def _metrics(problem: Problem, params: Any = None) -> dict[str, str]:
    """Returns the metrics of parameters, by default of the initial ones, in four digits."""
    params = problem.init(jax.random.key(0)) if params is None else params
    return {name: _digits(value) for name, value in problem.evaluate(params, problem.eval_data).items()}


def _digits(value: Any) -> str:
    return f"{float(value):.4g}"


def _updates(optimizer: Any) -> list[str]:
    """Returns the first two updates of an optimizer, in four digits."""
    params, found = jnp.asarray([1.0, -2.0, 3.0]), list[str]()
    state = optimizer.init(params)
    for gradient in ([1.0, 2.0, -0.5], [0.25, -1.0, 4.0]):
        at = 100 * len(found), len(found)
        update, state = pacing.updated(optimizer.update, jnp.asarray(gradient), state, params, at)
        found += map(_digits, update)
    return found
