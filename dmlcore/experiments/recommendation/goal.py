"""What methods are to reach, and what a run towards it came to."""

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

ROUNDS = 200  # of BSP, on which a cluster is measured


class Outcome(NamedTuple):
    """What a run came to; inf where the target was not reached.

    Args:
        seconds: of the cluster's time to the target.
        last: value of the metric at the end, with the sign that makes small ones good; inf: it diverged.
        samples: computed until the target.
        nbytes: sent until then.
    """

    seconds: float
    last: float
    samples: float
    nbytes: float


@dataclass(frozen=True)
class Goal:
    """A target of a problem on a cluster.

    Args:
        problem: what is trained.
        cluster: on what.
        metric: column of the history.
        target: its value to reach.
        batch_size: samples of a task.
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
        """Whether the metric is to be small."""
        return not is_accuracy(self.metric)

    def __str__(self) -> str:
        return f"{self.metric} {self.target:g}"

    def options(self, seconds: float, every: int) -> dict[str, Any]:
        """Returns what runs have in common, for `compare` and `sweep`."""
        until = {self.metric: self.target}
        options = {"seconds": seconds, "until": until, "eval_every": every, "batch_size": self.batch_size}
        return options | {"save": self.save}

    def check(self, method: Method) -> None:
        """Raises ValueError where problem and cluster do not allow a method."""
        run_spec(self.problem, method, self.cluster, updates=1, batch_size=self.batch_size)

    def timeline(self, method: Method, *, seed: int = 0, **stop: Any) -> Trace:
        """Returns what a method's workers do, until `updates` or `seconds`."""
        options: Any = {"batch_size": self.batch_size, "seed": seed, **stop}
        if method.policy.on_observation is not None:  # what it does depends on how its training goes
            return train(self.problem, self.cluster, method, None, eval_every=2**20, **options).trace
        sizes: Any = {"parameter_bytes": self.problem.parameter_bytes}
        sizes["tensor_sizes"] = self.problem.tensor_sizes
        return simulate(method, self.cluster, **options, **sizes)

    def rounds(self) -> Trace:
        """Returns the first rounds of BSP."""
        return self.timeline(Method(bsp()), updates=ROUNDS)

    def measured(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Returns what each run came to, by method and seed: the columns are those of `Outcome`."""
        metric: Any = {"metric": self.metric, "target": self.target, "below": self.below}
        columns = {"seconds": "time", "samples": "assigned_samples", "nbytes": "bytes"}
        found = {name: metrics.time_to(runs, column=column, **metric) for name, column in columns.items()}
        ended = runs.groupby(["method", "seed"])[self.metric].agg(lambda values: values.iloc[-1])
        last = ended.where(np.isfinite(ended), math.inf if self.below else -math.inf)
        return pd.DataFrame(found | {"last": last * (1 if self.below else -1)})[[*Outcome._fields]]

    def value(self, last: float) -> float:
        """Returns the value of the metric that an outcome's `last` stands for."""
        return last * (1 if self.below else -1)
