"""What methods are to reach, and how runs towards it are made and measured."""

from __future__ import annotations

import functools
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd

from dmlcore.cluster import Cluster
from dmlcore.engines import simulate
from dmlcore.experiments.comparison import compare
from dmlcore.experiments.runs import run_spec
from dmlcore.methods.policies import bsp
from dmlcore.problems.problem import Problem
from dmlcore.trace import metrics
from dmlcore.types import Method

LOOKS = 32  # at the metric until the target, about
LONGER, TIMES = 4.0, 3  # by which runs are made longer until a target is reached, and how often


class Outcome(NamedTuple):
    """What a run came to; inf where the target was not reached.

    Args:
        seconds: of the cluster's time to the target.
        last: value of the metric at the end, with the sign that makes small ones good.
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
        return not self.metric.endswith("accuracy")

    def __str__(self) -> str:
        return f"{self.metric} {self.target:g}"

    def options(self, seconds: float, every: int) -> dict[str, Any]:
        """Returns what runs have in common, for `compare` and `sweep`."""
        until = {self.metric: self.target}
        options = {"seconds": seconds, "until": until, "eval_every": every, "batch_size": self.batch_size}
        return options | {"save": self.save}

    def updates(self, method: Method, seconds: float, seed: int) -> int:
        """Returns how many updates a method makes that does not watch its training."""
        options: Any = {"batch_size": self.batch_size, "parameter_bytes": self.problem.parameter_bytes}
        options["tensor_sizes"] = self.problem.tensor_sizes
        return len(simulate(method, self.cluster, seconds=seconds, seed=seed, **options).updates)

    def check(self, method: Method) -> None:
        """Raises ValueError where problem and cluster do not allow a method."""
        run_spec(self.problem, method, self.cluster, updates=1, batch_size=self.batch_size)

    def measured(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Returns what each run came to, by method and seed: the columns are those of `Outcome`."""
        metric: Any = {"metric": self.metric, "target": self.target, "below": self.below}
        columns = {"seconds": "time", "samples": "assigned_samples", "nbytes": "bytes"}
        found = {name: metrics.time_to(runs, column=column, **metric) for name, column in columns.items()}
        ended = runs.groupby(["method", "seed"])[self.metric].agg(lambda values: values.iloc[-1])
        last = ended * (1 if self.below else -1)  # NaN where it has diverged
        return pd.DataFrame(found | {"last": last.fillna(math.inf)})[[*Outcome._fields]]


@dataclass
class Clock:
    """Seconds of computing that there are, and that were spent."""

    budget: float
    began: float = field(default_factory=time.monotonic)
    interrupted: bool = False

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        return self.budget - self.spent


@dataclass
class Runner:
    """Makes runs of methods towards a goal, each looked at about as often in the cluster's time.

    Args:
        goal: that they are to reach.
        clock: which is told of an interrupt.
        about: seconds of the cluster's time in which a good run reaches the target.
        seed: on which it is counted how many updates a method makes.
        advance: is told how many runs were made.
    """

    goal: Goal
    clock: Clock
    about: float
    seed: int
    advance: Callable[[int], None] = lambda number: None
    _counted: dict[str, int] = field(default_factory=dict)

    def every(self, method: Method) -> int:
        """Returns the updates between two looks, a power of two, so that few programs differ.

        A method that watches its training is looked at as BSP is.
        """
        name = str(method._replace(optimizer=None))
        if name not in self._counted:
            counted = Method(bsp()) if method.policy.on_observation is not None else method
            made = self.goal.updates(counted, self.about, self.seed)
            self._counted[name] = 2 ** int(math.log2(max(made / LOOKS, 1)))
        return self._counted[name]

    def runs(self, methods: Mapping[str, Method], seeds: Mapping[str, Sequence[int]], seconds: float) -> Any:
        """Returns histories, of so many seconds at most; where it is interrupted, those that are finished.

        Args:
            methods: with their optimizers, by name.
            seeds: of each.
            seconds: of the cluster's time, at most.
        """
        together: dict[tuple[int, tuple[int, ...]], dict[str, Method]] = {}
        for name, method in methods.items():
            together.setdefault((self.every(method), tuple(seeds[name])), {})[name] = method
        parts = []
        for (every, some), each in together.items():
            if self.clock.interrupted:
                break
            made = self._compare(each, some, self.goal.options(seconds, every))
            if made is not None:
                parts.append(made)
            self.advance(len(each) * len(some))
        return pd.concat(parts, ignore_index=True) if parts else None

    def until_reached(self, methods: Mapping[str, Method], seeds: Sequence[int]) -> Any:
        """Returns histories that last until 4 times the best median: longer runs, where none gets there."""
        seconds = LONGER * self.about
        for _ in range(TIMES):
            runs = self.runs(methods, dict.fromkeys(methods, seeds), seconds)
            least = float(self.goal.measured(runs)["seconds"].groupby("method").median().min())
            if LONGER * least <= seconds:
                break
            seconds = LONGER * (least if math.isfinite(least) else seconds)
        return runs

    def _compare(self, methods: Any, seeds: Sequence[int], options: dict[str, Any]) -> pd.DataFrame | None:
        make = functools.partial(compare, methods, self.goal.problem, self.goal.cluster, None)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "interrupted")
                runs = make(seeds=seeds, **options)
        except KeyboardInterrupt:
            self.clock.interrupted = True
            return None
        done, asked = runs.attrs["finished"]
        self.clock.interrupted = done < asked
        return runs
