"""What a study is asked, a target of a problem on a cluster, and the runs that answer it."""

from __future__ import annotations

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
from dmlcore.training.identity import check_once
from dmlcore.types import Method

ROUNDS = 200  # rounds of BSP in the simulation that measures a cluster
GRID = 32  # about how many evaluations until the target, before it is resolved
UNTRAINED = ".*no update within"  # the table says that the target was not reached


class Outcome(NamedTuple):
    """The outcome of a run; `seconds`, `samples` and `nbytes` are inf if it did not reach the target.

    Args:
        seconds: time of the cluster until the target.
        last: last value of the metric, negated if large values are good; inf: the run diverged.
        samples: samples computed until the target.
        nbytes: bytes sent until the target.
    """

    seconds: float
    last: float
    samples: float
    nbytes: float


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

    def __str__(self) -> str:
        return f"{self.metric} {self.target:.4g}"

    def check(self, method: Method) -> RunSpec:
        """Returns what a run of a method is; ValueError if the problem or the cluster does not support it."""
        if method.optimizer is not None:
            check_eval_params(self.eval_params, method.optimizer, self.problem)
        options: Any = {"batch_size": self.batch_size, "eval_params": self.eval_params}
        return run_spec(self.problem, method, self.cluster, updates=1, **options)

    def identity(self, method: Method) -> str:
        """Returns a text that tells a method from others, as the journal does."""
        spec = self.check(method)
        problem = spec.steps_of(self.problem)
        return json.dumps(described(spec, problem, method.optimizer, self.eval_params), sort_keys=True)

    def timeline(self, method: Method, *, seed: int = 0, **stop: Any) -> Trace:
        """Returns the trace of a method until `updates` or `seconds`."""
        options: Any = {"batch_size": self.batch_size, "seed": seed, **stop}
        spec = run_spec(self.problem, method, self.cluster, **options)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", UNTRAINED)
            return timeline(self.problem, spec, method.optimizer, resolve("simulate"))

    def key(self, methods: Mapping[str, Method], about: Any) -> str:
        """Returns a text that tells this question, asked of these methods, from others, on every machine.

        Programs differ between releases of JAX, so numbers tell what is asked: the data, the metrics of the
        initial parameters, and the first updates of optimizers. `about` has further JSON values.
        """
        told = {
            **identity.told(self.problem),
            "start": identity.once(self.problem, f"start, {jax.dtypes.canonicalize_dtype(float)}", _start),
            "target": str(self),
            "methods": {name: self._told(method) for name, method in methods.items()},
            "about": about,
        }
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]

    def _told(self, method: Method) -> dict[str, Any]:
        spec = self.check(method)
        told = {name: value for name, value in spec.metadata("").items() if name != "versions"}
        if told.pop("tensor_shapes", None):  # published settings are found by sizes
            told["tensor_sizes"] = [*map(math.prod, spec.tensor_shapes)]
        rules = method.optimizer, getattr(method.local, "optimizer", None)
        told["updates"] = [_updates(rule) for rule in rules if rule is not None]
        return told if self.eval_params is None else told | {"judged": self._judged(method.optimizer)}

    def _judged(self, optimizer: Any) -> list[str]:
        """Returns, in four digits, the metrics of what is evaluated after an update with the parameters."""
        params = self.problem.init(jax.random.key(0))
        updates, state = pacing.updated(optimizer.update, params, optimizer.init(params), params)
        judged = self.eval_params(state, optax.apply_updates(params, updates))
        return [*map(_digits, self.problem.evaluate(judged, self.problem.eval_data).values())]

    def rounds(self) -> Trace:
        """Returns the trace of the first rounds of BSP."""
        return self.timeline(Method(bsp()), updates=ROUNDS)

    def grid(self, method: Method, seconds: float, seed: int) -> int:
        """Returns the updates between two evaluations of a run that takes about `seconds` to the target.

        It is odd, so that it sees what comes back with every second or eighth update. For a method that
        watches its training it is that of BSP, because its updates are not known before.
        """
        counted = Method(bsp()) if method.policy.on_observation is not None else method
        key = str(counted._replace(optimizer=None)), seconds
        if key not in self._grids:
            made = len(self.timeline(counted, seconds=seconds, seed=seed).updates)
            self._grids[key] = max(1, 2 ** int(math.log2(max(made / GRID, 1))) - 1)
        return self._grids[key]

    def runs(
        self,
        methods: Mapping[str, Method],
        seeds: Mapping[str, Sequence[int]],
        seconds: float,
        about: float,
        seed: int,
        resolve: bool = True,
    ) -> tuple[pd.DataFrame | None, bool]:
        """Returns histories until the target, None if no run is finished, and whether Ctrl-C was pressed.

        Args:
            methods: name -> method with its optimizer.
            seeds: name -> seeds of its runs.
            seconds: longest run, in cluster time.
            about: cluster time in which a good run reaches the target.
            seed: of the simulation that counts a method's updates.
            resolve: whether to find the first of all updates that reaches the target, as `compare` does.
        """
        options: Any = {"until": {self.metric: self.target}, "seconds": seconds, "resolve": resolve}
        options |= {"batch_size": self.batch_size, "save": self.save, "executor": self.executor}
        options["eval_params"] = self.eval_params
        together: dict[tuple[int, tuple[int, ...]], dict[str, Method]] = {}
        parts: list[pd.DataFrame] = []
        stopped = False
        try:
            for name, method in methods.items():
                together.setdefault((self.grid(method, about, seed), tuple(seeds[name])), {})[name] = method
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "interrupted")
                warnings.filterwarnings("ignore", UNTRAINED)
                for (every, some), each in together.items():
                    given: Any = each, self.problem, self.cluster, None
                    parts.append(compare(*given, seeds=some, eval_every=every, **options))
                    if stopped := parts[-1].attrs["interrupted"]:
                        break
        except KeyboardInterrupt:
            stopped = True
        return (pd.concat(parts, ignore_index=True) if parts else None), stopped

    def measured(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Returns the outcome of each run by method and seed, with the fields of `Outcome` as columns."""
        ended = runs.groupby(["method", "seed"]).nth(-1).set_index(["method", "seed"]).sort_index()
        last = (self.sign * ended[self.metric]).where(np.isfinite(ended[self.metric]), math.inf)
        reached = last <= self.sign * self.target  # runs end with the first update that does
        columns = {"seconds": "time", "samples": "assigned_samples", "nbytes": "bytes"}
        found = {name: ended[column].where(reached, math.inf) for name, column in columns.items()}
        return pd.DataFrame(found | {"last": last})[[*Outcome._fields]]


def asked(
    problem: Any, cluster: Any, target: Any, optimizer: Any, seeds: Any, batch_size: Any, **more: Any
) -> Goal:
    """Checks what a study is asked, apart from the cluster, and returns it; `more` has further fields."""
    check_once(problem)
    if not isinstance(target, Mapping) or len(target) != 1:
        checks.fail("target", target, "a mapping of one metric to its value, such as {'loss': 0.1}")
    ((metric, value),) = check_until(target, problem, "target").items()
    check_factory(optimizer)
    checks.integer("batch_size", batch_size, low=1)
    judging = checks.several("seeds", seeds, checks.check_seed)
    return Goal(problem, cluster, metric, value, batch_size, judging, **more)


def _start(problem: Problem) -> list[tuple[str, str]]:
    """Returns the metrics of the initial parameters, in four digits."""
    start = problem.evaluate(problem.init(jax.random.key(0)), problem.eval_data)
    return sorted((name, _digits(value)) for name, value in start.items())


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
