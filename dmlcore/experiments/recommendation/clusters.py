"""The cluster of a recommendation: given by the user, or fitted to a record."""

from __future__ import annotations

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
        said = [*_of_links(trace), *said]
    sizes = trace.tasks["batch_size"].unique().tolist()
    if len(sizes) == 1:
        said.append(
            f"All tasks have {sizes[0]} samples, so the fit cannot separate time that does not depend on "
            "samples, and smaller tasks may take longer than the fitted cluster says"
        )
    real = trace.metadata.get("engine") in REAL
    return Fitted(cluster, said, sizes[0] if len(sizes) == 1 else None, real)


def _trace(given: Any) -> tuple[Trace, bool]:
    """Returns the trace of a file or a table of tasks, and whether it has computing times only."""
    if not isinstance(given, pd.DataFrame | str | os.PathLike):
        expected = "a Cluster, a Trace, or measured tasks (a DataFrame, or the path of a CSV or Parquet file)"
        checks.fail("cluster", given, expected)
    frame = tables.read("cluster", given)
    if not isinstance(given, pd.DataFrame) and _is_trace(Path(given)):
        return Trace.load(given), False
    if "seconds" not in frame:
        if not {"end", "compute_end"} & {*frame}:
            expected = "worker, samples and seconds, or the columns that dml.Trace.from_tasks reads"
            checks.fail("cluster, columns", [*map(str, frame)], expected)
        return Trace.from_tasks(frame), False
    with checks.within("cluster"):
        Durations.checked(frame, "error")  # raises with these column names
    seconds = frame["seconds"].astype(float)
    end = seconds.groupby(frame["worker"]).cumsum()
    start = end.groupby(frame["worker"]).shift(fill_value=0.0)
    tasks = {"worker": frame["worker"], "batch_size": frame["samples"], "start": start, "end": end}
    return Trace.from_tasks(pd.DataFrame(tasks)), True


def _is_trace(path: Path) -> bool:
    return path.suffix.lower() == ".parquet" and METADATA_KEY in (pq.read_schema(path).metadata or {})


def _check_length(trace: Trace) -> None:
    tasks = trace.tasks
    whole = tasks[np.isfinite(tasks["push_end"])].groupby("worker").size()
    whole = whole.reindex(range(trace.num_workers), fill_value=0)
    if whole.min() >= FEWEST:
        return
    least = int(whole.idxmin())
    hint = "a longer record"
    if whole[least] and trace.end_time > 0:
        longer = trace.end_time * FEWEST / whole[least]
        hint = f"a record of about {longer:.2g} s instead of {trace.end_time:.2g} s"
    found = f"one in which worker {least} finished {whole[least]} tasks"
    checks.reject("cluster", found, f"a record with at least {FEWEST} tasks of each worker", hint)


def _of_links(trace: Trace) -> list[str]:
    """Returns sentences on what transfers of a single size do not determine."""
    if not trace.metadata.get("transfer_bytes"):
        return [
            "The record has no bytes of transfers, so the fitted cluster shows no gain from smaller messages"
        ]
    return [
        "The record does not separate latency from bandwidth, so the fitted cluster has latency alone, and "
        "shows no gain from smaller messages"
    ]
