"""The studies of notebooks/01_ssp.ipynb: rates and s chosen on tuning seeds, methods timed on other seeds."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import optax
import pandas as pd
from scipy import stats

import dmlcore as dml
from dmlcore.reproduce.paper import TUNING_SEEDS

SLOWER, SHARE, TASKS = 4, 0.1, 5  # slow episodes: factor, fraction of tasks, length in tasks
TUNED_COLUMNS = ["method", "seed", "learning_rate", "time", "samples", "loss"]  # columns of tuning runs


def transient(num_workers: int, latency: float = 0.01, speed: float = 1000.0) -> dml.Cluster:
    """Returns a cluster of equal workers with jitter; one task in ten is in a slow episode."""
    jitter = stats.gamma(4, scale=0.25)
    cluster = dml.Cluster.uniform(num_workers, samples_per_second=speed, latency=latency, jitter=jitter)
    return cluster.with_stragglers(SLOWER, fraction=SHARE, mean_tasks=TASKS)


def methods(*bounds: int) -> dict[str, Any]:
    """Returns BSP, SSP with each bound s, and ASP, by name.

    >>> list(methods(3, 8))
    ['BSP', 'SSP 3', 'SSP 8', 'ASP']
    """
    return {"BSP": dml.bsp(), **{f"SSP {s}": dml.ssp(s) for s in bounds}, "ASP": dml.asp(weight=None)}


class Experiment(NamedTuple):
    """A problem, and the settings to try on it."""

    problem: Any
    optimizer: Callable[[float], optax.GradientTransformation]  # learning rate -> optimizer
    rates: list[float]
    target: float  # loss to reach
    seconds: float  # longest run
    batch_size: int = 32
    bounds: tuple[int, ...] = (1, 3, 8, 16)  # values of s to try

    def cluster(self, num_workers: int, latency: float = 0.01) -> dml.Cluster:
        """Returns a cluster with tasks of 32 ms outside of slow episodes, for any batch size."""
        return transient(num_workers, latency, speed=1000 * self.batch_size / 32)


class Study(NamedTuple):
    """The results of `choose` and `study` for an experiment on one cluster."""

    tuned: pd.DataFrame  # every method and rate on the tuning seeds
    rate: pd.Series  # method -> best rate, without methods that have only one rate
    ssp: str  # name of SSP with the best s
    judged: pd.DataFrame = pd.DataFrame()  # BSP, this SSP and ASP, each at its best rate, on other seeds
    only_rate: float = 1.0  # of the methods that have only one rate

    def chosen(self) -> pd.DataFrame:
        """Returns the runs of each method at its best rate on the tuning seeds."""
        return self.tuned[self.tuned["learning_rate"] == self.tuned["method"].map(self.rate)]

    def lead(self, target: float, rival: str) -> list[float]:
        """Returns time of the rival to the target / time of SSP, for each seed of the comparison.

        It is inf if only SSP reaches the target, 0 if only the rival does, and NaN if neither does.
        """
        return dml.metrics.speedup(dml.metrics.time_to(self.judged, "loss", target), rival)[self.ssp].tolist()

    def median_times(self, target: float) -> pd.Series:
        """Returns the median time to the target on the tuning seeds by method, each at its best rate."""
        times = dml.metrics.time_to(self.chosen(), "loss", target)
        return times.groupby("method", sort=False).median()

    def histories(self, name: str) -> dict[str, pd.DataFrame]:
        """Returns the runs of the comparison, with their rates, and the tuning runs, for runs.parquet."""
        rates = self.judged["method"].map(self.rate).fillna(self.only_rate)
        return {name: self.judged.assign(learning_rate=rates), f"{name}, tuning": self.tuned[TUNED_COLUMNS]}

    def ends(self, each: Experiment) -> str:
        """Returns the choices that are at an end of their grid, in words; "" if all are interior."""
        s = int(self.ssp.split()[-1])
        found = [f"s = {s} is the largest tried"] if s == max(each.bounds) else []
        found += [f"s = {s} is the smallest tried"] if s == min(each.bounds) else []
        if len(each.rates) > 1:
            edges = {min(each.rates): "smallest", max(each.rates): "largest"}
            rates = ((name, self.rate[name]) for name in ("BSP", self.ssp, "ASP"))
            found += [f"the rate of {name} is the {edges[rate]}" for name, rate in rates if rate in edges]
        return "; ".join(found)


def sure(runs: pd.DataFrame, target: float) -> pd.DataFrame:
    """Returns the runs of each method at rates that reach the target on all seeds, else all its runs."""
    never = np.isinf(dml.metrics.time_to(runs, "loss", target)).groupby(["method", "learning_rate"]).any()
    fine = ~never | never.groupby("method").transform("all")
    return runs[[fine[each] for each in zip(runs["method"], runs["learning_rate"], strict=True)]]


def choose(
    each: Experiment, cluster: dml.Cluster, *, tuning: Iterable[int] = TUNING_SEEDS, **options: Any
) -> Study:
    """Returns the best rate of every method and the best s on the tuning seeds; with one rate, only s.

    The best choice has the smallest median time to the target, among the rates, or values of s, with which
    all tuning seeds reach it, if there are such.
    """
    every = methods(*each.bounds)
    if len(each.rates) == 1:
        every = {name: policy for name, policy in every.items() if name.startswith("SSP")}
    tuned = dml.sweep(every, each.problem, cluster, each.optimizer, each.rates, seeds=[*tuning], **options)
    best = dml.metrics.best_learning_rate(sure(tuned, each.target), "loss", each.target)
    found = Study(tuned, best, "", only_rate=each.rates[0])
    times = dml.metrics.time_to(found.chosen(), "loss", each.target).groupby("method").agg(["max", "median"])
    bounded = times.loc[[f"SSP {s}" for s in each.bounds]]
    never = np.isinf(bounded["max"])
    return found._replace(ssp=str((bounded if never.all() else bounded[~never])["median"].idxmin()))


def study(
    each: Experiment,
    cluster: dml.Cluster,
    judging: Iterable[int],
    *,
    tuning: Iterable[int] = TUNING_SEEDS,
    **options: Any,
) -> Study:
    """Tunes every method on the tuning seeds, and runs its best setting on the seeds of the comparison."""
    limits: dict[str, Any] = {
        "seconds": each.seconds,
        "batch_size": each.batch_size,
        "until": {"loss": each.target},
    }
    options = limits | options
    found, every = choose(each, cluster, tuning=tuning, **options), methods(*each.bounds)
    chosen = {
        name: dml.Method(every[name], optimizer=each.optimizer(float(found.rate.get(name, each.rates[0]))))
        for name in ("BSP", found.ssp, "ASP")
    }
    runs = dml.compare(chosen, each.problem, cluster, None, seeds=[*judging], **options)
    return found._replace(judged=runs)
