"""What a recommendation is asked: a target on a cluster; and the outcome of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dmlcore.cluster import Cluster
from dmlcore.engines import simulate
from dmlcore.experiments.runs import run_spec, train
from dmlcore.methods.policies import bsp
from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace, metrics
from dmlcore.training.evaluation import is_accuracy
from dmlcore.types import Method

ROUNDS = 200  # rounds of BSP in the simulation that measures a cluster


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
class Question:
    """What `recommend` is asked: how to reach a target of a problem on a cluster.

    Args:
        problem: the problem to train.
        cluster: the cluster to train on.
        metric: column of the history.
        target: the value of the metric to reach.
        batch_size: samples per task.
        save: folder of finished runs, or None.
    """

    problem: Problem
    cluster: Cluster
    metric: str
    target: float
    batch_size: int
    save: Any = None

    @property
    def below(self) -> bool:
        """Whether small values of the metric are good."""
        return not is_accuracy(self.metric)

    def __str__(self) -> str:
        return f"{self.metric} {self.target:g}"

    def options(self, seconds: float, every: int) -> dict[str, Any]:
        """Returns the arguments of `compare` and `sweep` that all runs share."""
        until = {self.metric: self.target}
        options = {"seconds": seconds, "until": until, "eval_every": every, "batch_size": self.batch_size}
        return options | {"save": self.save}

    def check(self, method: Method) -> None:
        """Raises ValueError if the problem or the cluster does not support a method."""
        run_spec(self.problem, method, self.cluster, updates=1, batch_size=self.batch_size)

    def timeline(self, method: Method, *, seed: int = 0, **stop: Any) -> Trace:
        """Returns the trace of a method until `updates` or `seconds`."""
        options: Any = {"batch_size": self.batch_size, "seed": seed, **stop}
        if method.policy.on_observation is not None:  # its decisions depend on the training
            return train(self.problem, self.cluster, method, None, eval_every=2**20, **options).trace
        sizes: Any = {"parameter_bytes": self.problem.parameter_bytes}
        sizes["tensor_sizes"] = self.problem.tensor_sizes
        return simulate(method, self.cluster, **options, **sizes)

    def rounds(self) -> Trace:
        """Returns the trace of the first rounds of BSP."""
        return self.timeline(Method(bsp()), updates=ROUNDS)

    def measured(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Returns the outcome of each run by method and seed, with the fields of `Outcome` as columns."""
        metric: Any = {"metric": self.metric, "target": self.target, "below": self.below}
        columns = {"seconds": "time", "samples": "assigned_samples", "nbytes": "bytes"}
        found = {name: metrics.time_to(runs, column=column, **metric) for name, column in columns.items()}
        ended = runs.groupby(["method", "seed"])[self.metric].agg(lambda values: values.iloc[-1])
        last = ended.where(np.isfinite(ended), math.inf if self.below else -math.inf)
        return pd.DataFrame(found | {"last": last * (1 if self.below else -1)})[[*Outcome._fields]]

    def value(self, last: float) -> float:
        """Returns the value of the metric for an outcome's `last`."""
        return last * (1 if self.below else -1)
