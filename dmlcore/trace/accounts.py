"""What a run has cost by each of its updates, in samples computed and messages sent."""

import numpy as np
import pandas as pd

from dmlcore.calls import checked
from dmlcore.trace import Trace, check_trace, cut_computing, starts

# Parts of a server that work at the same time, each with the name of its share of busy time.
PARTS = {
    "processor_utilisation": "processor",
    "link_in_utilisation": "link in",
    "link_out_utilisation": "link out",
}


@checked(trace=check_trace)
def accounts(trace: Trace) -> pd.DataFrame:
    """Returns what was computed and sent by the time of each version, from the trace alone.

    What an update sets off, such as the next round's broadcast, counts with the version after it.

    Returns:
        A frame with one row for each of U + 1 versions: `time`, seconds; `samples`, those in updates;
        `assigned_samples`, those of all tasks begun, also where they were cancelled or lost; `uplinks`,
        gradients that arrived; `downlinks`, pulls begun; `bytes`, of these two. Where the server takes time,
        `processor_utilisation`, `link_in_utilisation` and `link_out_utilisation`, the share of the time from
        the start in which this part of the server was busy; `utilisation`, the largest of the three, which
        is the part that saturates first; and `mean_queue`, how many messages have waited for them on average.
        Parts work at the same time, so the three may add up to more than 1; a server whose link carries
        pushes half of the time and copies the other half has a utilisation of 0.5, since each direction could
        carry twice as much. Pushes that were under way when their tasks were cancelled are read in vain: they
        keep link and processor busy, counted from the moment at which their workers start anew, but are no
        uplinks, and how long they have waited a trace does not tell. In a pipeline they are not counted.

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

    Source: mean_queue is Little's law, Little 1961: arrivals a second times the mean wait.
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
    """Returns the part of the server that the `utilisation` of a row is of: of equal ones, the first.

    >>> busiest_part(pd.Series({name: busy for name, busy in zip(PARTS, (0.2, 0.6, 0.3))}))
    'link in'
    """
    return PARTS[str(row[[*PARTS]].astype(float).idxmax())]


def _read_in_vain(trace: Trace, update_seconds: float) -> np.ndarray:
    """Returns when tasks were given up whose pushes the server had to read all the same, ascending.

    That is when their workers began anew; those of workers that never did are left out.
    """
    if trace.metadata.get("pipelined"):
        return np.empty(0)
    tasks = trace.tasks
    begun = starts(tasks)
    following = begun.sort_values(kind="stable").groupby(tasks["worker"]).shift(-1).reindex(tasks.index)
    # Workers are let go when the update is made, but what is sent is sent before it was decided.
    sent = tasks["compute_end"] < following - update_seconds
    return np.sort(following[sent & tasks["push_end"].isna() & ~cut_computing(trace)])


def _by_then(times: np.ndarray, when: pd.Series, seconds: pd.Series) -> np.ndarray:
    """Returns the sum of `seconds` of what was done by each of `times`."""
    order = np.argsort(when)  # those that never came are last
    total = np.append(0.0, seconds.to_numpy()[order].cumsum())
    return total[np.searchsorted(when.to_numpy()[order], times, side="right")]
