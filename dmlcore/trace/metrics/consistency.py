"""The age of the parameters that workers read, checks of what policies guarantee of it, and its regret."""

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from dmlcore import checks
from dmlcore.calls import checked
from dmlcore.trace import Trace, check_trace, starts


@checked(trace=check_trace)
def staleness(trace: Trace) -> pd.Series:
    """Returns the staleness of each applied task: the updates between its read and its own update.

    It is `update - version_read`.

    Args:
        trace: any trace.

    Returns:
        Staleness in versions, one value per applied task, indexed like `trace.tasks`.

    Raises:
        ValueError: `trace` is not a `Trace`.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.essp(1), dml.Cluster.from_speeds([32, 16]), updates=9)  # tasks of 1 s, 2 s
    >>> staleness(trace).head(4).to_dict()
    {0: 0, 1: 1, 2: 1, 3: 0}
    """
    applied = trace.tasks[trace.tasks["update"] >= 0]
    return (applied["update"] - applied["version_read"]).rename("staleness")


@checked(trace=check_trace)
def clock_staleness(trace: Trace, tasks: int | None = None) -> pd.Series:
    """Returns the distribution of the clock differential of SSP.

    A task at clock c reads version v. Let n be the newest clock of another worker whose update is in v, or -1
    if there is none yet. The differential is n - c. Under BSP all differentials are -1; under SSP they range
    from -staleness - 1 upwards; under ESSP most are near -1.

    Args:
        trace: any trace.
        tasks: number of tasks to count, evenly spaced through the run. None: all tasks. The cost grows with
            tasks * workers.

    Returns:
        Number of occurrences of each differential, over pairs of a task and another worker, indexed by
        `clocks`, the differential in clocks.

    Raises:
        ValueError: `tasks` is not a whole number >= 1, or `trace` is not a `Trace`.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.essp(1), dml.Cluster.from_speeds([32, 16]), updates=9)  # tasks of 1 s, 2 s
    >>> clock_staleness(trace).index.to_list()
    [-2, -1, 0]

    Source: Dai et al. 2015, figure 1 (left).
    """
    reads = trace.tasks[["worker", "clock", "version_read"]]
    if tasks is not None:
        wanted = min(checks.integer("tasks", tasks, low=1), len(reads))
        reads = reads.iloc[np.linspace(0, len(reads) - 1, wanted).round().astype(int)]
    worker, clock, version = reads.to_numpy().T
    counts = []
    for other, (updates, clocks) in enumerate(_applied(trace, "update")):
        newest = np.maximum.accumulate(np.concatenate([[-1], clocks]))
        others = worker != other
        seen = newest[np.searchsorted(updates, version[others])]  # version v holds the updates < v
        counts.append(pd.Series(*np.unique(seen - clock[others], return_counts=True)[::-1]))
    return pd.concat(counts).groupby(level=0).sum().rename("reads").rename_axis("clocks")


@checked(trace=check_trace)
def clock_gap(trace: Trace) -> int:
    """Returns the largest lead of the fastest worker over the slowest worker, in clocks.

    The clock of a worker is that of the task it works on or, while it waits, of its last finished task.

    Args:
        trace: any trace.

    Returns:
        The largest lead during the run, in clocks.

    Raises:
        ValueError: `trace` is not a `Trace`.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.essp(1), dml.Cluster.from_speeds([32, 16]), updates=9)  # tasks of 1 s, 2 s
    >>> clock_gap(trace)
    1

    Source: Ho et al. 2013, section 2.
    """
    begun = trace.tasks[["worker", "clock"]].assign(time=starts(trace.tasks))
    first = begun.groupby(["clock", "worker"])["time"].min().groupby("clock").agg(["size", "max"])
    # When the last worker began each clock. Clock 0 is left out: all workers begin it with the run.
    complete = (first["size"] == trace.num_workers) & (first.index > 0)
    slowest = np.searchsorted(np.sort(first.loc[complete, "max"]), begun["time"], side="right")
    return int((begun["clock"] - slowest).max()) if len(begun) else 0


@checked(trace=check_trace, staleness=checks.at_least(0, infinite=True))
def read_window_violations(trace: Trace, staleness: float) -> pd.DataFrame:
    """Returns the tasks that read older parameters than stale synchronous parallel (SSP) allows.

    A read at clock c must see every update of every other worker with clock <= c - staleness - 1. Updates
    that were dropped, cancelled or never made count as missing, so policies that drop work do not pass. The
    check is exact: each task is compared with all workers and all clocks.

    Args:
        trace: any trace.
        staleness: the bound s of the paper, in clocks, >= 0; `math.inf` allows every read.

    Returns:
        The rows of `trace.tasks` that break the rule; empty for a valid SSP run.

    Raises:
        ValueError: `staleness` is neither a whole number >= 0 nor `math.inf`, or `trace` is not a `Trace`.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.essp(1), dml.Cluster.from_speeds([32, 16]), updates=9)  # tasks of 1 s, 2 s
    >>> read_window_violations(trace, staleness=1).empty
    True
    >>> read_window_violations(trace, staleness=0)[["worker", "clock", "version_read"]].head(2)
       worker  clock  version_read
    2       0      1             1
    3       0      2             3

    Source: Ho et al. 2013, section 2.
    """
    tasks = trace.tasks
    if staleness == math.inf or tasks.empty:
        return tasks.iloc[:0]
    worker, clock, version, update = tasks[["worker", "clock", "version_read", "update"]].to_numpy().T
    # ready[w, c]: the first version that holds the updates of worker w at all clocks <= c.
    ready = np.full((trace.num_workers, clock.max() + 1), np.iinfo(np.int64).max)
    applied = update >= 0
    ready[worker[applied], clock[applied]] = update[applied] + 1
    ready = np.maximum.accumulate(ready, axis=1)
    # The latest worker is the bound for all other workers, and the second latest for the latest one.
    latest, everyone = ready.argmax(axis=0), ready.max(axis=0)
    ready[latest, np.arange(len(latest))] = 0
    needed = np.maximum(clock - int(staleness) - 1, 0)
    required = np.where(latest[needed] == worker, ready.max(axis=0)[needed], everyone[needed])
    return tasks[(clock > staleness) & (version < required)]


@checked(trace=check_trace)
def out_of_turn(trace: Trace) -> pd.DataFrame:
    """Returns how many updates each read lacks, and how many it sees early, relative to a serial order.

    In the serial order workers take turns: the read of worker w at clock c sees all updates of clocks < c,
    and those of clock c by workers before w. A cached copy contains its worker's own updates.

    Args:
        trace: a trace of a policy that applies every push, each worker's pushes in order, such as SSP.

    Returns:
        T rows, one per task, indexed like `trace.tasks`, with the columns `missing` and `extra`, numbers of
        updates. For SSP their sum is at most `dmlcore.theory.most_out_of_turn`.

    Raises:
        ValueError: a worker's updates lack a clock or were not applied in the order of clocks.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.essp(1), dml.Cluster.from_speeds([32, 16]), updates=9)  # tasks of 1 s, 2 s
    >>> out_of_turn(trace).head(4).values.tolist()
    [[0, 0], [1, 0], [1, 0], [1, 0]]

    Source: Ho et al. 2013, lemma 1.
    """
    worker, clock, version = trace.tasks[["worker", "clock", "version_read"]].to_numpy().T
    missing, extra = np.zeros((2, len(worker)), int)
    kept = trace.tasks["pull_start"].isna().to_numpy()
    for other, (updates, clocks) in enumerate(_applied(trace, "clock")):
        if (clocks != np.arange(len(clocks))).any() or (np.diff(updates) < 0).any():
            found = f"updates of worker {other} without one of its clocks, or out of order"
            checks.reject("trace", found, "a trace that applies all clocks in order")
        in_turn = clock + (other < worker)
        seen = np.searchsorted(updates, version)  # version v holds the updates < v
        seen = np.where(kept & (worker == other), clock, seen)
        missing += np.maximum(in_turn - seen, 0)
        extra += np.maximum(seen - in_turn, 0)
    return pd.DataFrame({"missing": missing, "extra": extra}, index=trace.tasks.index)


def _applied(trace: Trace, order: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yields the updates and the clocks of each worker's applied tasks, sorted by column `order`."""
    applied = trace.tasks[trace.tasks["update"] >= 0].sort_values(["worker", order])
    bounds = np.searchsorted(applied["worker"], np.arange(trace.num_workers + 1))
    updates, clocks = applied["update"].to_numpy(), applied["clock"].to_numpy()
    for low, high in pairwise(bounds):
        yield updates[low:high], clocks[low:high]


Function = Callable[[int, np.ndarray], tuple[float, np.ndarray]]


class Walk(NamedTuple):
    """The losses and iterates of `walk`, for T tasks and D parameters.

    Args:
        losses: f_t at the parameters of the t-th read, shape (T,).
        iterates: the start, and the result of the first t updates in serial order from it, shape (T + 1, D).

    >>> path = Walk(np.array([3.0, 1.0]), np.array([[3.0], [2.0], [1.0]]))
    >>> path.regret(0.0), path.distance(np.array([0.0]))
    (4.0, 4.5)
    """

    losses: np.ndarray
    iterates: np.ndarray

    def regret(self, least: float) -> float:
        """Returns the regret R: the sum of the losses minus its least value for one fixed x*.

        Args:
            least: the minimum of f_1 + ... + f_T, in the unit of the losses.

        Returns:
            R, in the unit of the losses.
        """
        return float(self.losses.sum() - least)

    def distance(self, optimum: np.ndarray) -> float:
        """Returns the largest D(x* || x_t) = |x* - x_t|^2 / 2 over the iterates.

        Args:
            optimum: x*, shape (D,).

        Returns:
            The largest distance, in squared units of the parameters.
        """
        return float(((self.iterates - optimum) ** 2).sum(axis=1).max() / 2)


@checked(trace=check_trace, function=checks.function, start=checks.array, rates=checks.array)
def walk(trace: Trace, function: Function, start: np.ndarray, rates: np.ndarray) -> Walk:
    """Takes subgradient steps along a trace: u_t = -eta_t grad f_t(x_t), where x_t is what the t-th read saw.

    The index t counts tasks by clock, then by worker: worker w of W has t = c W + w at clock c, 0-based. A
    read sees the version in the trace, or the worker's cached copy with its own updates (read-my-writes).
    Workers stop after T / W clocks. Updates count with weight 1, whatever their weight in the trace.

    Args:
        trace: a trace of a policy that applies every push, such as SSP, with at least T / W clocks of every
            worker.
        function: t, x -> f_t(x) and a subgradient of f_t at x, shape (D,).
        start: x_0, shape (D,).
        rates: eta_t, the step size of each task, shape (T,); T is a multiple of W.

    Returns:
        The losses, shape (T,), and the iterates, shape (T + 1, D).

    Raises:
        ValueError: T is not a multiple of W, or a task of the first T / W clocks was not applied.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.bsp(), dml.Cluster.uniform(2), updates=3)
    >>> walk(trace, lambda t, x: (abs(x[0]), np.sign(x)), np.array([3.0]), np.ones(4)).losses
    array([3., 3., 1., 1.])

    Source: Ho et al. 2013, theorem 1.
    """
    workers = trace.num_workers
    clocks, rest = divmod(len(rates), workers)
    if rest or not clocks:
        checks.reject("rates", f"{len(rates)}", f"a multiple of {workers} rates (the number of workers)")
    tasks = trace.tasks.query("clock < @clocks and update >= 0")
    if len(tasks) < len(rates):
        checks.reject("rates", f"{len(rates)}", f"at most one for each of the {len(tasks)} tasks applied")
    steps, losses = np.zeros((len(rates), len(start))), np.zeros(len(rates))
    landed = np.zeros((len(trace.updates), len(start)))  # the step of each update of the server
    versions = [start]
    copies: dict[int, np.ndarray] = {}
    columns = ["worker", "clock", "version_read", "update", "pull_start"]
    # In order of arrival: all updates in the version that a task read have arrived before the task.
    for worker, clock, version, update, pulled in tasks[columns].itertuples(index=False, name=None):
        while len(versions) <= version:
            versions.append(versions[-1] + landed[len(versions) - 1])
        t, seen = clock * workers + worker, copies[worker] if math.isnan(pulled) else versions[version]
        losses[t], gradient = function(t, seen)
        steps[t] = -rates[t] * gradient
        copies[worker] = seen + steps[t]
        landed[update] += steps[t]
    return Walk(losses, np.concatenate([versions[:1], versions[0] + np.cumsum(steps, axis=0)]))
