"""The cost of a run up to each update, in samples computed and messages sent."""

import numpy as np
import pandas as pd

from dmlcore.calls import checked
from dmlcore.trace import Trace, check_trace, cut_computing, starts

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
