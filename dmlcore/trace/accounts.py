"""What a run has cost by each of its updates, in samples computed and messages sent."""

import numpy as np
import pandas as pd

from dmlcore.trace import Trace, starts


def accounts(trace: Trace) -> pd.DataFrame:
    """Returns what was computed and sent by the time of each version, from the trace alone.

    What an update sets off, such as the next round's broadcast, counts with the version after it.

    Returns:
        A frame with one row for each of U + 1 versions: `time`, seconds; `samples`, those in updates;
        `assigned_samples`, those of all tasks begun, also where they were cancelled or lost; `uplinks`,
        gradients that arrived; `downlinks`, pulls begun; `bytes`, of these two.

    >>> import dmlcore as dml
    >>> cluster = dml.Cluster.from_speeds([100, 200, 300])
    >>> accounts(dml.simulate(dml.k_sync(2), cluster, updates=2, parameter_bytes=100))
       time  samples  assigned_samples  uplinks  downlinks  bytes
    0  0.00        0                 0        0          0      0
    1  0.16       64                96        2          3    500
    2  0.32      128               192        4          6   1000
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
    return pd.DataFrame(
        {
            "time": times,
            "samples": np.append(0, updates["samples"].to_numpy().cumsum()),
            "assigned_samples": assigned[np.searchsorted(begun[order], times, side="left")],
            "uplinks": uplinks,
            "downlinks": downlinks,
            "bytes": uplinks * push_bytes + downlinks * pull_bytes,
        }
    )
