"""The studies of notebooks/01_ssp.ipynb: BSP, SSP and ASP, each at its best rate, SSP with its best s."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import optax
import pandas as pd
from scipy import stats

import dmlcore as dml
from dmlcore import checks
from dmlcore.cluster.regime import with_load
from dmlcore.experiments.study import Study
from dmlcore.reproduce.paper import TUNING_SEEDS

SLOWER, SHARE, RARE, TASKS = 4, 0.1, 0.01, 5  # slow episodes: factor, fractions of tasks, length in tasks
LONGEST = 4  # longest run of a picture, in median times of the best method; a study has the same


def transient(
    num_workers: int, latency: float = 0.01, speed: float = 1000.0, share: float = SHARE
) -> dml.Cluster:
    """Returns a cluster of equal workers with jitter; this share of the tasks is in slow episodes."""
    jitter = stats.gamma(4, scale=0.25)
    cluster = dml.Cluster.uniform(num_workers, samples_per_second=speed, latency=latency, jitter=jitter)
    return cluster.with_stragglers(SLOWER, fraction=share, mean_tasks=TASKS)


class Experiment(NamedTuple):
    """A problem, the loss to reach, and what is searched."""

    problem: Any
    target: float  # loss to reach
    bounds: list[int]  # values of s, the most promising first
    rate: float | None = None  # where the search for learning rates begins, if there are any
    optimizer: Callable[[float], optax.GradientTransformation] | None = None  # None: SGD; additive: no rate
    batch_size: int = 32
    local: Any = None  # local steps of a task

    def cluster(self, num_workers: int, latency: float = 0.01, share: float = SHARE) -> dml.Cluster:
        """Returns a cluster with tasks of 32 ms outside of slow episodes, for any batch size."""
        return transient(num_workers, latency, 1000 * self.batch_size / 32, share)

    def busy(self, num_workers: int, load: float, push: float) -> dml.Cluster:
        """Returns a cluster on free links with this server load under ASP; `push` is the pushes' share."""
        work = {"push": push, "pull": 1 - push}
        return with_load(self.cluster(num_workers, latency=0.0), load, self.problem, self.batch_size, work)

    def methods(self) -> dict[str, Any]:
        """Returns BSP, SSP and ASP, and what is searched of each."""

        def fixed(policy: Any) -> Any:
            return dml.space(lambda: dml.Method(policy, local=self.local))

        def ssp(staleness: int) -> dml.Method:
            return dml.Method(dml.ssp(checks.integer("staleness", staleness, low=1)), local=self.local)

        every = {"BSP": fixed(dml.bsp()), "SSP": dml.space(ssp, staleness=self.bounds)}
        every["ASP"] = fixed(dml.asp(weight=None))
        return {name: each._replace(rate=self.rate, optimizer=self.optimizer) for name, each in every.items()}

    def study(
        self, cluster: Any, judging: Sequence[int], search: int, tuned: Mapping[str, Any] | None = None
    ) -> Study:
        """Returns which method reaches the target first, on one or several clusters.

        The search has so many runs of each method; `tuned` has the settings of earlier ones.
        """
        options: Any = {"budget": search + len(judging), "seeds": judging, "all_seeds": True}
        options |= {"batch_size": self.batch_size, "settings": tuned}
        return dml.study(self.methods(), self.problem, cluster, {"loss": self.target}, **options)

    def at_each_s(self, found: Study, cluster: str = "", seeds: Sequence[int] = TUNING_SEEDS) -> pd.DataFrame:
        """Returns runs of BSP, SSP with each s, and ASP, on tuning seeds, for a picture.

        BSP and ASP have the rates that a study found, each s the better one of those of BSP and SSP.
        """
        answer = found.answers[cluster]
        methods: dict[str, Any] = {f"SSP {s}": dml.ssp(s) for s in sorted(self.bounds)}
        methods = {"BSP": answer.methods["BSP"], **methods, "ASP": answer.methods["ASP"]}
        seconds = LONGEST * float(answer.seconds.median(axis=1).min())
        rates = {*answer.told["learning_rate"][["BSP", "SSP"]]} if self.rate else {1.0}
        runs = dml.sweep(
            methods,
            self.problem,
            answer.goal.cluster,
            self.optimizer or (optax.sgd if self.rate else optax.scale),
            rates,
            seeds=seeds,
            seconds=seconds,
            until={"loss": self.target},
            resolve=True,
            batch_size=self.batch_size,
        )
        return dml.metrics.fair(runs, "loss", self.target)


def best(found: Study, cluster: str = "") -> int:
    """Returns the best s on a cluster."""
    return int(found.answers[cluster].told.loc["SSP", "setting"].removeprefix("staleness = "))
