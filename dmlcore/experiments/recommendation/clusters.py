"""The cluster that a recommendation is for: given, or fitted to what was recorded of it."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dmlcore import checks, tables
from dmlcore.cluster import Cluster
from dmlcore.experiments.prediction import calibrate
from dmlcore.trace import Trace

FEWEST = 20  # whole tasks of every worker that a fit needs
COMPUTING = "Seconds of computing alone were given: links and server are taken to cost no time"


def as_cluster(given: Any) -> tuple[Cluster, list[str]]:
    """Returns a cluster, and in sentences what a record of it could not tell.

    Args:
        given: a `Cluster`; a `Trace`; or measured tasks, a DataFrame or the path of a CSV or Parquet file
            with the columns `worker`, `samples` and `seconds`, the tasks of a worker in their order, or with
            those of `Trace.from_tasks`.

    Raises:
        ValueError: it is neither, or too short a record; the message says how long it should be.
    """
    if isinstance(given, Cluster):
        return given, []
    trace, untold = (given, _of_links(given)) if isinstance(given, Trace) else _trace(given)
    _check_length(trace)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cluster = calibrate(trace)
    said = [] if untold == [COMPUTING] else [str(each.message).removeprefix("calibrate: ") for each in caught]
    return cluster, [*untold, *_of_sizes(trace), *said]


def _trace(given: Any) -> tuple[Trace, list[str]]:
    """Returns the trace of a table of tasks, and what such a table cannot tell."""
    if not isinstance(given, pd.DataFrame | str | os.PathLike):
        allowed = "a Cluster, a Trace, or measured tasks, as a DataFrame or the path of a CSV or Parquet file"
        checks.fail("cluster", given, allowed)
    if isinstance(given, str | os.PathLike) and Path(given).suffix == ".parquet":
        try:
            trace = Trace.load(given)
            return trace, _of_links(trace)
        except ValueError:  # a table of tasks, and no trace
            pass
    frame = tables.read("cluster", given)
    if "seconds" not in frame:
        trace = Trace.from_tasks(frame)
        return trace, _of_links(trace)
    for column in ("worker", "samples"):
        checks.choice("column of the measured tasks", column, dict.fromkeys(frame.columns))
    seconds = pd.to_numeric(frame["seconds"], errors="coerce")
    if not (seconds >= 0).all():
        wrong = frame["seconds"][~(seconds >= 0)].tolist()
        checks.fail("cluster, column seconds", wrong[0], "numbers >= 0")
    end = seconds.groupby(frame["worker"]).cumsum()
    start = end.groupby(frame["worker"]).shift(fill_value=0.0)
    tasks = pd.DataFrame(
        {"worker": frame["worker"], "batch_size": frame["samples"], "start": start, "end": end}
    )
    return Trace.from_tasks(tasks, policy="recorded"), [COMPUTING]


def _check_length(trace: Trace) -> None:
    tasks = trace.tasks
    whole = tasks[np.isfinite(tasks["push_end"])].groupby("worker").size()
    whole = whole.reindex(range(trace.num_workers), fill_value=0)
    if whole.min() >= FEWEST:
        return
    least = int(whole.idxmin())
    needed = f"at least {FEWEST} of every worker"
    if whole[least] and trace.end_time > 0:
        needed += (
            f": record about {trace.end_time * FEWEST / whole[least]:.2g} s instead of {trace.end_time:.2g} s"
        )
    checks.fail("cluster", f"a record in which worker {least} finished {whole[least]} tasks", needed)


def _of_sizes(trace: Trace) -> list[str]:
    """Returns what tasks of one size do not tell."""
    sizes = trace.tasks["batch_size"]
    if sizes.nunique() > 1:
        return []
    return [
        f"All tasks have {sizes.iloc[0]} samples: a part of their time that does not depend on samples is "
        "not seen, so that smaller tasks may take longer than is reckoned"
    ]


def _of_links(trace: Trace) -> list[str]:
    """Returns what transfers of one size do not tell."""
    if not trace.metadata.get("transfer_bytes"):
        return ["The record has no bytes: what fewer bytes save is not seen"]
    return [
        "Latency and bandwidth are not told apart: transfers are all latency, so that what fewer bytes save "
        "is not seen"
    ]
