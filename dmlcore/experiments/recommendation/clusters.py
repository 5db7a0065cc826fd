"""The cluster of a recommendation: given by the user, or fitted to a record."""

import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from dmlcore import checks, tables
from dmlcore.cluster import Cluster
from dmlcore.cluster.durations import Durations
from dmlcore.experiments.prediction import calibrate
from dmlcore.trace import Trace
from dmlcore.trace.trace import METADATA_KEY

FEWEST = 20  # finished tasks of every worker that a fit needs
REAL = "threads", "ray"  # engines with a real clock
COMPUTING = "The record has only seconds of computing, so links and server are modelled as taking no time"
NO_BYTES = "The record has no bytes of transfers, so the fitted cluster shows no gain from smaller messages"
LATENCY = (
    "The record does not separate latency from bandwidth, so the fitted cluster has latency alone, and "
    "shows no gain from smaller messages"
)
ONE_SIZE = (
    "All tasks have {} samples, so the fit cannot separate time that does not depend on samples, and smaller "
    "tasks may take longer than the fitted cluster says"
)


class Fitted(NamedTuple):
    """A cluster, and facts about the record that it was fitted to.

    Args:
        cluster: given by the user, or fitted to a record.
        untold: sentences that say what the record does not determine.
        batch_size: samples per task of the record, if all tasks have the same number.
        real: whether an engine of this package with a real clock made the record.
    """

    cluster: Cluster
    untold: list[str]
    batch_size: int | None = None
    real: bool = False


def as_cluster(given: Any) -> Fitted:
    """Returns the given cluster, or fits one to a record.

    Args:
        given: a `Cluster`; a `Trace`; or measured tasks, as a DataFrame or the path of a CSV or Parquet file.
            Measured tasks have the columns `worker`, `samples` and `seconds`, in the order in which each
            worker computed them, or the columns of `Trace.from_tasks`.

    Raises:
        ValueError: `given` is none of these, or a record is too short; the message says how long it must be.
    """
    if isinstance(given, Cluster):
        return Fitted(given, [])
    trace, computing = (given, False) if isinstance(given, Trace) else _trace(given)
    _check_length(trace)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cluster = calibrate(trace)
    said = [str(each.message).removeprefix("calibrate: ") for each in caught]
    if computing:
        said = [COMPUTING, *(each for each in said if "seem to have waited" not in each)]
    else:
        said.insert(0, LATENCY if trace.metadata.get("transfer_bytes") else NO_BYTES)
    sizes = trace.tasks["batch_size"].unique().tolist()
    size = sizes[0] if len(sizes) == 1 else None
    return Fitted(
        cluster, said + [ONE_SIZE.format(size)] * bool(size), size, trace.metadata["engine"] in REAL
    )


def _trace(given: Any) -> tuple[Trace, bool]:
    """Returns the trace of a file or a table of tasks, and whether it has computing times only."""
    if not isinstance(given, pd.DataFrame | str | os.PathLike):
        expected = "a Cluster, a Trace, or measured tasks (a DataFrame, or the path of a CSV or Parquet file)"
        checks.fail("cluster", given, expected)
    frame = tables.read("cluster", given)
    path = Path() if isinstance(given, pd.DataFrame) else Path(given)
    if path.suffix.lower() == ".parquet" and METADATA_KEY in (pq.read_schema(path).metadata or {}):
        return Trace.load(path), False
    if "seconds" in frame:
        with checks.within("cluster"):
            Durations.checked(frame, "error")  # raises with these column names
        end = frame["seconds"].astype(float).groupby(frame["worker"]).cumsum()
        start = end.groupby(frame["worker"]).shift(fill_value=0.0)
        tasks = {"worker": frame["worker"], "batch_size": frame["samples"], "start": start, "end": end}
        return Trace.from_tasks(pd.DataFrame(tasks)), True
    if not {"end", "compute_end"} & {*frame}:
        expected = "worker, samples and seconds, or the columns that dml.Trace.from_tasks reads"
        checks.fail("cluster, columns", [*map(str, frame)], expected)
    return Trace.from_tasks(frame), False


def _check_length(trace: Trace) -> None:
    finished = trace.tasks["worker"][np.isfinite(trace.tasks["push_end"])]
    whole = np.bincount(finished, minlength=trace.num_workers)
    worker, least = int(whole.argmin()), int(whole.min())
    if least >= FEWEST:
        return
    longer = trace.end_time * FEWEST / max(least, 1)
    hint = f"a record of about {longer:.2g} s instead of {trace.end_time:.2g} s"
    found = f"one in which worker {worker} finished {least} tasks"
    checks.reject("cluster", found, f"a record with at least {FEWEST} tasks of each worker", hint)
