"""How workers spend their time, in seven phases, and the cost of a run up to each update."""

import math

import numpy as np
import pandas as pd

from dmlcore import checks
from dmlcore.calls import checked
from dmlcore.trace import Trace, check_trace, cut_computing, starts

PHASES = ("compute", "cancelled", "pull", "push", "queue", "wait", "away")
"""The phases of a worker. `cancelled`: it computes or pushes a task that is discarded, or such a push waits.
`queue`: its pull or push waits while the server is busy with other messages. `away`: it has crashed, or has
hung longer than the server's patience. The other names explain themselves."""


@checked(trace=check_trace)
def makespan(trace: Trace) -> float:
    """Returns the length of the run in seconds.

    Args:
        trace: any trace.

    Returns:
        Time from the start to the end of the run, in seconds.

    Raises:
        ValueError: the run took no time, or `trace` is not a `Trace`.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=10)  # tasks of 1 s, 2 s
    >>> makespan(trace)
    20.0
    """
    return checks.real("trace.end_time", trace.end_time, above=0)


@checked(trace=check_trace)
def straggling(trace: Trace) -> float:
    """Returns the cost of waiting for all workers: the mean of each clock's slowest task / the mean task.

    It counts compute time only, not links and server. It is 1 if all tasks of a clock take the same time.

    Args:
        trace: any trace.

    Returns:
        A ratio >= 1, without a unit.

    Raises:
        ValueError: `trace` is not a `Trace`.

    >>> import dmlcore as dml
    >>> straggling(dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=10))  # 2 s over 1.5 s
    1.3333333333333333
    """
    seconds = (trace.tasks["compute_end"] - trace.tasks["compute_start"]).groupby(trace.tasks["clock"])
    return float(seconds.max().mean() / seconds.mean().mean())


@checked(trace=check_trace)
def phases(trace: Trace) -> pd.DataFrame:
    """Returns the phases of each worker, without overlaps and gaps.

    A worker waits from the arrival of one push (or the start of the run) to the start of its next task, then
    pulls, computes and pushes. A task that never arrived ends when its worker's next task starts, or with the
    run. If a worker starts its next task on a cached copy while its push is still travelling, that time
    belongs to the next task. The time in the server's queues is shown at the start of a pull and at the end
    of a push. In a pipeline transfers overlap with computing: a worker that does not compute waits, or pulls
    the copy for its next task.

    Args:
        trace: any trace.

    Returns:
        One row per phase of positive length, sorted by worker and time, with the columns `worker`, `kind`
        (one of `PHASES`), `start` and `end` in seconds, and `task`: the row of `trace.tasks` that the phase
        belongs to or that a wait precedes, or -1 for the wait after a worker's last task and for absences.

    Raises:
        ValueError: the run took no time, or `trace` is not a `Trace`.

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
    sequence = ["wait", "pull", "compute", "push"]  # the phase that ends at each edge
    if queues := "push_queued" in tasks:
        tasks["served"] = np.fmin(tasks["begin"] + tasks["pull_queued"], tasks["compute_start"])
        tasks["sent"] = tasks["push_end"] - tasks["push_queued"]
        edges = ["begin", "served", "compute_start", "compute_end", "sent", "push_end"]
        sequence = ["wait", "queue", "pull", "compute", "push", "queue"]
    columns = ["worker", "task", "left", "cut", *edges]
    # Empty tasks avoid special cases: one at the end of the run ends each worker's last wait, one when a
    # worker leaves ends its wait until then, and one when it is back, before the task that begins then, ends
    # its absence.
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
    """Returns the absences in a trace: worker, when it left, and when it was back or the run ended."""
    frozen: dict[int, tuple[float, float]] = {}  # start and end
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
    """Returns the time of each worker in each phase, in seconds and as a share of the run.

    Args:
        trace: any trace.

    Returns:
        W rows, one per worker: the `PHASES` in seconds, which add up to the makespan, and `compute_share`,
        `pull_share`, ..., which add up to 1.

    Raises:
        ValueError: the run took no time, or `trace` is not a `Trace`.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=10)  # tasks of 1 s, 2 s
    >>> time_breakdown(trace)[["compute", "wait", "compute_share", "wait_share"]]
            compute  wait  compute_share  wait_share
    worker
    0          10.0  10.0            0.5         0.5
    1          20.0   0.0            1.0         0.0

    Source: Ho et al. 2013, section 5, which separates compute time from network waiting time.
    """
    cut = phases(trace)
    seconds = (cut["end"] - cut["start"]).groupby([cut["worker"], cut["kind"]]).sum().unstack(fill_value=0)
    workers = pd.RangeIndex(trace.num_workers, name="worker")
    seconds = seconds.reindex(index=workers, columns=list(PHASES), fill_value=0.0).rename_axis(columns=None)
    return seconds.join((seconds / makespan(trace)).add_suffix("_share"))


@checked(trace=check_trace)
def updates_per_second(trace: Trace) -> float:
    """Returns the throughput of the server: updates / makespan.

    Args:
        trace: any trace.

    Returns:
        Updates per second.

    Raises:
        ValueError: the run took no time, or `trace` is not a `Trace`.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=10)  # tasks of 1 s, 2 s
    >>> updates_per_second(trace)
    0.5
    """
    return len(trace.updates) / makespan(trace)


@checked(trace=check_trace)
def clocks_per_second(trace: Trace) -> float:
    """Returns the mean rate at which a worker finishes tasks: finished tasks / (workers * makespan).

    Args:
        trace: any trace.

    Returns:
        Clocks per second, mean over the W workers.

    Raises:
        ValueError: the run took no time, or `trace` is not a `Trace`.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=10)  # tasks of 1 s, 2 s
    >>> clocks_per_second(trace)
    0.5
    """
    return int(trace.tasks["push_end"].count()) / (trace.num_workers * makespan(trace))


@checked(trace=check_trace)
def fetches(trace: Trace) -> pd.Series:
    """Returns how often each worker pulled parameters instead of keeping its cached copy.

    Args:
        trace: any trace.

    Returns:
        Number of pulls, indexed by worker, shape (W,).

    Raises:
        ValueError: `trace` is not a `Trace`.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=10)  # tasks of 1 s, 2 s
    >>> fetches(trace).to_dict()
    {0: 10, 1: 10}
    """
    begun = trace.tasks["pull_start"] < trace.end_time  # False for NaN, and for pulls at the end of the run
    pulls = np.bincount(trace.tasks.loc[begun, "worker"], minlength=trace.num_workers)
    return pd.Series(pulls, name="fetches").rename_axis("worker")


# The parts of a server, which work concurrently: column with the share of busy time -> name of the part.
PARTS = {
    "processor_utilisation": "processor",
    "link_in_utilisation": "link in",
    "link_out_utilisation": "link out",
}


@checked(trace=check_trace)
def accounts(trace: Trace) -> pd.DataFrame:
    """Returns the samples computed and the messages sent up to each version, from the trace alone.

    Messages that an update causes, such as the broadcast of the next round, count for the version after it.
    The three parts of the server work concurrently, so their utilisations may add up to more than 1. A server
    whose link carries pushes half of the time and pulls the other half has a utilisation of 0.5, since each
    direction could carry twice as much. The server also reads pushes of cancelled tasks that were already on
    their way. They keep link and processor busy, from the moment at which their workers start again, but do
    not count as uplinks, and a trace does not contain their waiting times. In a pipeline they are not
    counted.

    Args:
        trace: the trace of a run.

    Returns:
        A frame with U + 1 rows, one per version: `time` in seconds; `samples` in updates; `assigned_samples`
        of all tasks begun, also of cancelled and lost ones; `uplinks`, the number of gradients that arrived;
        `downlinks`, the number of pulls begun; `bytes` of both. If the server takes time, also
        `processor_utilisation`, `link_in_utilisation` and `link_out_utilisation`, each the share of the time
        since the start in which this part was busy; `utilisation`, the largest of the three, which belongs to
        the part that saturates first; and `mean_queue`, the mean number of messages waiting.

    Raises:
        ValueError: `trace` is not a `Trace`.

    >>> import dmlcore as dml
    >>> cluster = dml.Cluster.from_speeds([100, 200, 300])
    >>> accounts(dml.simulate(dml.k_sync(2), cluster, updates=2, parameter_bytes=100))
       time  samples  assigned_samples  uplinks  downlinks  bytes
    0  0.00        0                 0        0          0      0
    1  0.16       64                96        2          3    500
    2  0.32      128               192        4          6   1000
    >>> busy = dml.Cluster.uniform(8).with_server(seconds_per_push=0.005)
    >>> accounts(dml.simulate(dml.asp(), busy, updates=400))[["utilisation", "mean_queue"]].iloc[-1].round(2)
    utilisation    0.98
    mean_queue     0.65
    Name: 400, dtype: float64

    Source: `mean_queue` follows from Little's law (Little 1961): arrivals per second * mean waiting time.
    """
    tasks, updates = trace.tasks, trace.updates
    times = np.append(0.0, updates["time"].to_numpy())
    pulled = tasks["pull_start"].to_numpy()
    begun = starts(tasks).to_numpy()
    order = np.argsort(begun)
    assigned = np.append(0, tasks["batch_size"].to_numpy()[order].cumsum())
    uplinks = np.searchsorted(np.sort(tasks["push_end"].to_numpy()), times, side="right")
    downlinks = np.searchsorted(np.sort(pulled), times, side="left")
    pull_bytes, push_bytes = trace.metadata.get("transfer_bytes", (0, 0))
    table = pd.DataFrame(
        {
            "time": times,
            "samples": np.append(0, updates["samples"].to_numpy().cumsum()),
            "assigned_samples": assigned[np.searchsorted(begun[order], times, side="left")],
            "uplinks": uplinks,
            "downlinks": downlinks,
            "bytes": uplinks * push_bytes + downlinks * pull_bytes,
        }
    )
    if "push_queued" not in tasks:
        return table
    took, made = trace.metadata["service_seconds"], np.arange(len(times))
    read = uplinks + np.searchsorted(_read_in_vain(trace, took["update"]), times, side="right")
    processor = read * took["push"] + made * took["update"] + downlinks * took["pull"]
    parts = [processor, read * took["link_in"], downlinks * took["link_out"]]
    waited = _by_then(times, tasks["push_end"], tasks["push_queued"])
    waited += _by_then(times, tasks["pull_start"], tasks["pull_queued"])
    share = np.divide([*parts, waited], times, out=np.zeros((len(parts) + 1, len(times))), where=times > 0)
    busy = dict(zip(PARTS, np.minimum(share[:-1], 1.0), strict=True))
    return table.assign(utilisation=np.maximum.reduce([*busy.values()]), mean_queue=share[-1], **busy)


def busiest_part(row: pd.Series) -> str:
    """Returns the name of the server's busiest part in a row of `accounts`; of equal ones the first.

    >>> busiest_part(pd.Series({name: busy for name, busy in zip(PARTS, (0.2, 0.6, 0.3))}))
    'link in'
    """
    return PARTS[str(row[[*PARTS]].astype(float).idxmax())]


def _read_in_vain(trace: Trace, update_seconds: float) -> np.ndarray:
    """Returns when tasks were discarded whose pushes the server still had to read, in ascending order.

    These are the times at which their workers started again; workers that never did are left out.
    """
    if trace.metadata.get("pipelined"):
        return np.empty(0)
    tasks = trace.tasks
    begun = starts(tasks)
    following = begun.sort_values(kind="stable").groupby(tasks["worker"]).shift(-1).reindex(tasks.index)
    # Workers start again when the update is made, but a push was sent only if it left before the decision.
    sent = tasks["compute_end"] < following - update_seconds
    return np.sort(following[sent & tasks["push_end"].isna() & ~cut_computing(trace)])


def _by_then(times: np.ndarray, when: pd.Series, seconds: pd.Series) -> np.ndarray:
    """Returns the sum of `seconds` over all events up to each of `times`."""
    order = np.argsort(when)  # NaN, for messages that never arrived, is last
    total = np.append(0.0, seconds.to_numpy()[order].cumsum())
    return total[np.searchsorted(when.to_numpy()[order], times, side="right")]
