"""Where the time goes: every moment of every worker is one of seven phases."""

import math

import numpy as np
import pandas as pd

from dmlcore import checks
from dmlcore.calls import checked
from dmlcore.trace import Trace, check_trace, cut_computing, starts

PHASES = ("compute", "cancelled", "pull", "push", "queue", "wait", "away")
"""What a worker can be doing. `cancelled` is computing or pushing a task that was thrown away, and the queues
that such a push was in; in `queue` its pull or push waits for a server that is busy with others; `away` is a
worker that has crashed, or has hung longer than the server's patience."""


@checked(trace=check_trace)
def makespan(trace: Trace) -> float:
    """Returns how long the run took, seconds.

    Raises:
        ValueError: where the run took no time.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=10)  # tasks of 1 s, 2 s
    >>> makespan(trace)
    20.0
    """
    return checks.real("trace.end_time", trace.end_time, above=0)


@checked(trace=check_trace)
def straggling(trace: Trace) -> float:
    """Returns what waiting for all costs: the mean time of the slowest task of a clock / that of any task.

    It is of computing alone, whatever links and server take; 1 where all tasks take the same time.

    >>> import dmlcore as dml
    >>> straggling(dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=10))  # 2 s over 1.5 s
    1.3333333333333333
    """
    seconds = (trace.tasks["compute_end"] - trace.tasks["compute_start"]).groupby(trace.tasks["clock"])
    return float(seconds.max().mean() / seconds.mean().mean())


@checked(trace=check_trace)
def phases(trace: Trace) -> pd.DataFrame:
    """Cuts the time of each worker into phases that neither overlap nor leave gaps.

    A worker waits from the arrival of one push (or the start of the run) to the start of its next task, then
    pulls, computes and pushes. A task that never arrived ends where its worker's next task starts, or with
    the run. Where a push is still under way when the worker goes on (on a cached copy), the moment belongs to
    the next task. Of a transfer the time in the server's queues is shown first in a pull, last in a push. In
    a pipeline, transfers overlap with computing: a worker that does not compute waits or pulls the copy for
    its next task.

    Returns:
        One row per phase of positive length, by worker and time: `worker, kind` (one of `PHASES`), `start,
        end` in seconds, and `task`, the row of `trace.tasks` that it belongs to or that a wait precedes (-1
        for the wait after a worker's last task, and for absences).

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=10)  # tasks of 1 s, 2 s
    >>> phases(trace).head(4)
       worker     kind  start  end  task
    0       0  compute    0.0  1.0     0
    1       0     wait    1.0  2.0     2
    2       0  compute    2.0  3.0     2
    3       0     wait    3.0  4.0     4
    """
    end, edges = makespan(trace), ["begin", "compute_start", "compute_end", "push_end"]
    tasks = trace.tasks.assign(begin=starts(trace.tasks), task=np.arange(len(trace.tasks)), left=math.nan)
    tasks["cut"] = cut_computing(trace)
    sequence = ["wait", "pull", "compute", "push"]  # what ends at each edge
    if queues := "push_queued" in tasks:
        tasks["served"] = np.fmin(tasks["begin"] + tasks["pull_queued"], tasks["compute_start"])
        tasks["sent"] = tasks["push_end"] - tasks["push_queued"]
        edges = ["begin", "served", "compute_start", "compute_end", "sent", "push_end"]
        sequence = ["wait", "queue", "pull", "compute", "push", "queue"]
    columns = ["worker", "task", "left", "cut", *edges]
    # An empty task of each worker at the end of the run turns the last wait into a case like any other; one
    # when a worker leaves ends what it waited till then, and one when it is back, before what it begins then,
    # the time that it was away.
    width = len(edges)
    absent = [
        (worker, -1, left, False, *[t] * width)
        for worker, left, back in _absences(trace)
        for t in (left, back)
    ]
    last = [(worker, -1, math.nan, False, *[end] * width) for worker in range(trace.num_workers)]
    parts = [pd.DataFrame(rows, columns=columns) for rows in (absent, tasks[columns], last) if len(rows)]
    tasks = pd.concat(parts).sort_values(["worker", "begin"], kind="stable", ignore_index=True)

    after = tasks.groupby("worker").shift(-1)
    cancelled = tasks["push_end"].isna() & ((after["task"] >= 0) | after["left"].notna())
    tasks["push_end"] = np.fmin(tasks["push_end"], after["left"].fillna(after["begin"]))
    cut = cancelled & tasks["cut"]
    tasks.loc[cut, "push_end"] = tasks.loc[cut, "compute_end"]  # there was no push
    kinds = np.tile(np.array(sequence, object), (len(tasks), 1))
    for given_up in ("compute", "push"):
        kinds[cancelled, sequence.index(given_up)] = "cancelled"
    kinds[tasks["begin"] > tasks["left"], 0] = "away"
    if trace.metadata.get("pipelined"):
        kinds[:, sequence.index("push") :] = "wait"
    if queues:
        tasks["sent"] = np.fmin(tasks["sent"], tasks["push_end"])
    bounds = tasks[["worker", "task"]].loc[tasks.index.repeat(width)].reset_index(drop=True)
    bounds["kind"] = kinds.ravel()
    bounds["end"] = tasks[edges].bfill(axis=1).to_numpy(float).clip(0, end).ravel()
    bounds["end"] = bounds.groupby("worker")["end"].cummax()
    bounds["start"] = bounds.groupby("worker")["end"].shift(1, fill_value=0.0)
    whole = bounds.loc[bounds["end"] > bounds["start"], ["worker", "kind", "start", "end", "task"]]
    return whole.reset_index(drop=True)


def _absences(trace: Trace) -> list[tuple[int, float, float]]:
    """Worker, and when it left and was back, or the end of the run, of each absence in the trace."""
    frozen: dict[int, tuple[float, float]] = {}  # from when, until when
    gone: dict[int, float] = {}
    found = []
    for incident in trace.metadata.get("incidents", ()):
        worker, kind, time = incident["worker"], incident["kind"], float(incident["time"])
        if kind == "freeze":
            frozen[worker] = (time, time + float(incident["seconds"]))
        elif kind == "leave":
            since, until = frozen.pop(worker, (time, time))
            gone[worker] = since if until >= time else time
        elif kind == "join" and worker in gone:
            found.append((worker, gone.pop(worker), time))
    found += [(worker, time, math.inf) for worker, time in gone.items()]
    end = trace.end_time
    return [(worker, left, min(back, end)) for worker, left, back in found if left < end]


@checked(trace=check_trace)
def time_breakdown(trace: Trace) -> pd.DataFrame:
    """Seconds that each worker spent in each phase, and their shares of the run.

    Returns:
        One row per worker: the `PHASES` in seconds, which add up to the makespan, and `compute_share`,
        `pull_share`, ..., which add up to 1.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=10)  # tasks of 1 s, 2 s
    >>> time_breakdown(trace)[["compute", "wait", "compute_share", "wait_share"]]
            compute  wait  compute_share  wait_share
    worker
    0          10.0  10.0            0.5         0.5
    1          20.0   0.0            1.0         0.0

    Source: the breakdown of compute against network waiting time in Ho et al. 2013, section 5.
    """
    cut = phases(trace)
    seconds = (cut["end"] - cut["start"]).groupby([cut["worker"], cut["kind"]]).sum().unstack(fill_value=0)
    workers = pd.RangeIndex(trace.num_workers, name="worker")
    seconds = seconds.reindex(index=workers, columns=list(PHASES), fill_value=0.0).rename_axis(columns=None)
    return seconds.join((seconds / makespan(trace)).add_suffix("_share"))


@checked(trace=check_trace)
def updates_per_second(trace: Trace) -> float:
    """Returns server updates per second: updates / makespan.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=10)  # tasks of 1 s, 2 s
    >>> updates_per_second(trace)
    0.5
    """
    return len(trace.updates) / makespan(trace)


@checked(trace=check_trace)
def clocks_per_second(trace: Trace) -> float:
    """Returns finished tasks per second and worker: finished tasks / (workers * makespan).

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=10)  # tasks of 1 s, 2 s
    >>> clocks_per_second(trace)
    0.5
    """
    return int(trace.tasks["push_end"].count()) / (trace.num_workers * makespan(trace))


@checked(trace=check_trace)
def fetches(trace: Trace) -> pd.Series:
    """Returns how often each worker pulled parameters, rather than go on with its cached copy.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=10)  # tasks of 1 s, 2 s
    >>> fetches(trace).to_dict()
    {0: 10, 1: 10}
    """
    begun = trace.tasks["pull_start"] < trace.end_time  # not those that begin as the run ends, nor NaN
    pulls = np.bincount(trace.tasks.loc[begun, "worker"], minlength=trace.num_workers)
    return pd.Series(pulls, name="fetches").rename_axis("worker")
