"""The settings of the explorer, their ranges, and the run that they define."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import optax
from scipy import stats

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.cluster.presets import FULL_SPEED, busy_server
from dmlcore.experiments.runs import Run, train
from dmlcore.methods import policies
from dmlcore.problems.problem import Problem
from dmlcore.types import Policy

BATCH = 32  # samples per task
EPISODE = 10  # mean length of a slow episode, in tasks


class Choice(NamedTuple):
    """A policy of the menu, and the name of the setting that only such policies have, if any."""

    make: Callable[[Settings], Policy]
    goes_by: str | None = None


POLICIES: Mapping[str, Choice] = {
    "BSP": Choice(lambda s: policies.bsp()),
    "SSP": Choice(lambda s: policies.ssp(s.staleness), "staleness"),
    "ESSP": Choice(lambda s: policies.essp(s.staleness), "staleness"),
    "DSSP": Choice(lambda s: policies.dssp(s.staleness, s.staleness + 4), "staleness"),
    "ASP": Choice(lambda s: policies.asp(weight=None)),  # the same weight of a push as under SSP
    "K-sync": Choice(lambda s: policies.k_sync(s.k), "k"),
    "K-batch-sync": Choice(lambda s: policies.k_batch_sync(s.k), "k"),
    "K-async": Choice(lambda s: policies.k_async(s.k), "k"),
    "K-batch-async": Choice(lambda s: policies.k_batch_async(s.k), "k"),
    "deadline": Choice(lambda s: policies.deadline(s.deadline_seconds), "deadline"),
}


def most_load(workers: int) -> float:
    """Returns the largest server load in the explorer; the load of P workers is always less than P.

    >>> most_load(2), most_load(32)
    (1.8, 4.0)
    """
    return min(RANGES["server_load"][1], 0.9 * workers)


def _setting(default: Any, low: Any, high: Any) -> Any:
    """Returns a field with a range; that of a whole number is of ints."""
    return dataclasses.field(default=default, metadata={"range": (low, high)})


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of the explorer.

    Args:
        workers: number of workers, 1 to 32; each computes 1000 samples/s, except the first.
        slowest: speed of the first worker as a fraction of the others' speed, 0.1 to 1.
        jitter: standard deviation over mean of the computing times, 0 to 1 (gamma distribution).
        slow_tasks: fraction of all tasks that are in slow episodes, 0 to 0.5.
        slowdown: factor by which a slow episode lengthens a task, 1 to 10.
        communication_ratio: c, the seconds of a task's two transfers over the seconds of its computation at
            full speed, 0 to 4.
        server_load: rho, the seconds of server work per second that workers would cause if they never waited,
            0 to 4 and at most `most_load(workers)`. From 1 on the server is saturated. 0: the server takes no
            time.
        policy: a name in `POLICIES`.
        staleness: for SSP and ESSP, and the lower bound of DSSP, whose upper bound is 4 larger; 0 to 16
            clocks.
        k: for the K-sync family, 1 to the number of workers.
        deadline: for `deadline`, the length of a round over the mean time of a task at full speed, including
            its transfers on free links, 0.5 to 10.
        learning_rate: of plain SGD, 0.001 to 10; additive problems such as `lasso` do not use it.
        seconds: length of the run on the virtual clock in seconds, 0.5 to 60.
        seed: of all random numbers.

    Raises:
        ValueError: a setting is out of its range.

    >>> Settings(policy="ESSP", staleness=2).method()
    essp(staleness=2)
    >>> Settings(staleness=-1)
    Traceback (most recent call last):
    ValueError: staleness: expected a whole number from 0 to 16, got -1
    """

    workers: int = _setting(8, 1, 32)
    slowest: float = _setting(0.5, 0.1, 1.0)
    jitter: float = _setting(0.25, 0.0, 1.0)
    slow_tasks: float = _setting(0.1, 0.0, 0.5)
    slowdown: float = _setting(4.0, 1.0, 10.0)
    communication_ratio: float = _setting(0.125, 0.0, 4.0)
    server_load: float = _setting(0.0, 0.0, 4.0)
    policy: str = "SSP"
    staleness: int = _setting(3, 0, 16)
    k: int = _setting(6, 1, 32)
    deadline: float = _setting(1.5, 0.5, 10.0)
    learning_rate: float = _setting(0.5, 0.001, 10.0)
    seconds: float = _setting(4.0, 0.5, 60.0)
    seed: int = _setting(0, 0, 2**31 - 1)

    def __post_init__(self) -> None:
        checks.choice("policy", self.policy, POLICIES)
        for name, (low, high) in RANGES.items():
            check: Any = checks.integer if isinstance(low, int) else checks.real
            object.__setattr__(self, name, check(name, getattr(self, name), low=low, high=high))
        if self.server_load > most_load(self.workers):
            expected = f"a number <= {most_load(self.workers):g} (0.9 x the number of workers)"
            checks.fail("server_load", self.server_load, expected)
        if POLICIES[self.policy].goes_by == "k":
            checks.integer("k", self.k, low=1, high=self.workers, why="the number of workers")

    def changed(self, changes: Mapping[str, Any]) -> Settings:
        """Returns a copy with some settings changed.

        Args:
            changes: new values by the name of the setting.

        Returns:
            The new settings.

        Raises:
            ValueError: there is no such setting, or a value is out of its range.

        >>> Settings().changed({"stalness": 2})
        Traceback (most recent call last):
        ValueError: setting: expected one of 'workers', ..., got 'stalness'; try 'staleness'
        """
        for name in changes:
            checks.choice("setting", name, vars(self))
        return dataclasses.replace(self, **changes)

    def cluster(self) -> Cluster:
        """Makes the cluster of these settings; slow episodes are 10 tasks long on average.

        Returns:
            The cluster.

        >>> Settings(workers=4).cluster().stragglers[0].slowdown
        4.0
        >>> print(Settings(server_load=1.5).cluster().regime(0, BATCH))
        c = 0.085, rho = 1.5
        """
        speeds = [FULL_SPEED * self.slowest, *[FULL_SPEED] * (self.workers - 1)]
        gamma = stats.gamma(self.jitter**-2, scale=self.jitter**2) if self.jitter else None
        latency = self.communication_ratio * (BATCH / FULL_SPEED) / 2
        cluster = Cluster.from_speeds(speeds, latency=latency, jitter=gamma)
        if self.slow_tasks:
            cluster = cluster.with_stragglers(self.slowdown, fraction=self.slow_tasks, mean_tasks=EPISODE)
        return busy_server(cluster, self.server_load, batch_size=BATCH) if self.server_load else cluster

    @property
    def deadline_seconds(self) -> float:
        """The length of a round with a deadline, in seconds.

        >>> Settings(deadline=2.0, communication_ratio=0.5).deadline_seconds
        0.096
        """
        return round(self.deadline * (1 + self.communication_ratio) * BATCH / FULL_SPEED, 9)

    def method(self) -> Policy:
        """Makes the policy of these settings.

        Returns:
            The policy.
        """
        return POLICIES[self.policy].make(self)

    def run(self, problem: Problem) -> Run:
        """Trains with these settings; the same settings give the same run.

        Args:
            problem: the problem to train.

        Returns:
            The run.

        Raises:
            ValueError: the problem does not support the settings.

        >>> Settings(policy="ASP").run(problem).history["loss"]  # doctest: +SKIP
        """
        optimizer = optax.identity() if problem.additive else optax.sgd(self.learning_rate)
        options: Any = {"seconds": self.seconds, "seed": self.seed, "batch_size": BATCH}
        with warnings.catch_warnings():
            shown = ".*(no update within|training diverged)"
            warnings.filterwarnings("ignore", message=shown)
            return train(problem, self.cluster(), self.method(), optimizer, **options)


RANGES: Mapping[str, tuple[Any, Any]] = {
    each.name: each.metadata["range"] for each in dataclasses.fields(Settings) if each.metadata
}
