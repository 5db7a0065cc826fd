"""Export of traces to the Chrome trace format, which https://ui.perfetto.dev displays."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dmlcore import checks, files
from dmlcore.calls import checked
from dmlcore.trace import Trace, check_trace, metrics

__all__ = ["to_perfetto", "write"]

SERVER = 1  # process id of the server; those of the workers follow, and 0 has a special meaning in Perfetto
UPDATE_NANOSECONDS = 1000  # length of an update's slice: an arrow must point at a slice, not at a moment
TRACKS = {"compute": 0, "cancelled": 0, "wait": 0, "away": 0, "pull": 1, "push": 1, "queue": 1}
ARGUMENTS = ["clock", "batch_size", "version_read", "update", "weight"]


@checked(trace=check_trace)
def to_perfetto(trace: Trace) -> dict[str, Any]:
    """Returns a trace as Chrome trace events.

    Each worker is a process with two tracks: `compute`, with the phases compute, cancelled, wait and away,
    and `transfer`, with pull, push, cancelled (a push that was cancelled) and queue (a transfer that waits
    for a busy server). The server is a process with one slice per update, and with counters of its version
    and of the mean staleness of each update. An arrow leads from the push of each task to its update, or from
    the computing if pushes take no time.

    Guarantees: slices on one track never overlap; times are whole nanoseconds, written in microseconds.

    Args:
        trace: the trace of a run.

    Returns:
        A dictionary of plain values, ready for `json.dump`.

    Raises:
        ValueError: `trace` is not a `Trace`, or its run took no time.

    >>> import dmlcore as dml
    >>> exported = to_perfetto(dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=1))
    >>> [(event["name"], event["ts"]) for event in exported["traceEvents"] if event["ph"] == "X"]
    [('compute', 0.0), ('wait', 1000000.0), ('compute', 0.0), ('update', 2000000.0)]

    Source: "Trace Event Format", Google.
    """
    slices = _slices(trace)
    shown = slices[["ph", "name", "pid", "tid", "ts", "dur", "args"]].to_dict("records")
    events = [*_names(trace), *shown, *_server_events(trace), *_arrows(trace, slices)]
    about = {key: str(value) for key, value in trace.metadata.items()}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def write(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Writes a trace as a JSON file for Perfetto; the file is never incomplete.

    Args:
        trace: the trace of a run.
        path: the file; an existing one is replaced, and a missing folder is created.

    Returns:
        The path of the file.

    Raises:
        ValueError: `trace` is not a `Trace`, its run took no time, or `path` is not a path.

    >>> import tempfile
    >>> import dmlcore as dml
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(dml.simulate(dml.asp(), dml.Cluster.uniform(2), updates=9), f"{folder}/run.json").name
    'run.json'
    """
    path = Path(checks.path("path", path))
    files.write(path, json.dumps(to_perfetto(trace), allow_nan=False))
    return path


def _nanoseconds(seconds: pd.Series) -> np.ndarray:
    # Rounded before durations are computed, so that phases that touch in the trace also touch in the file.
    return np.rint(seconds.to_numpy() * 1e9).astype(np.int64)


def _names(trace: Trace) -> Iterator[dict[str, Any]]:
    processes = [("server", ["updates"])]
    processes += [(f"worker {worker}", ["compute", "transfer"]) for worker in range(trace.num_workers)]
    for pid, (process, tracks) in enumerate(processes, start=SERVER):
        named = [("process_name", process, 0)]
        named += [("thread_name", track, 10 * pid + number) for number, track in enumerate(tracks)]
        for what, name, tid in named:
            yield {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}


def _slices(trace: Trace) -> pd.DataFrame:
    """Returns the phases as events, with the task of each."""
    phases = metrics.phases(trace).rename(columns={"kind": "name"})
    start, end = _nanoseconds(phases["start"]), _nanoseconds(phases["end"])
    pid = phases["worker"] + SERVER + 1
    computed = np.append(trace.tasks["compute_end"].to_numpy(), np.inf)[phases["task"]]
    pushed = (phases["name"] == "cancelled") & (phases["start"] >= computed)
    track = phases["name"].map(TRACKS).mask(pushed, TRACKS["push"])
    tid = 10 * pid + track  # Perfetto needs ids that are unique across processes
    arguments = trace.tasks[ARGUMENTS].to_dict("records")
    told = zip(phases["task"], phases["name"], strict=True)
    args = [arguments[task] if task >= 0 and kind != "wait" else {} for task, kind in told]
    phases = phases.assign(ph="X", pid=pid, tid=tid, ts=start / 1e3, dur=(end - start) / 1e3)
    phases["args"] = pd.Series(args, phases.index, dtype=object)
    return phases


def _server_events(trace: Trace) -> Iterator[dict[str, Any]]:
    times = _nanoseconds(trace.updates["time"])
    durations = np.minimum(UPDATE_NANOSECONDS, np.diff(times, append=np.iinfo(np.int64).max))
    mean = metrics.staleness(trace).groupby(trace.tasks["update"]).mean()
    stale = mean.reindex(range(len(times)), fill_value=0.0)
    arguments = trace.updates[["num_tasks", "samples"]].to_dict("records")
    rows = zip((times / 1e3).tolist(), (durations / 1e3).tolist(), stale.tolist(), arguments, strict=True)
    for update, (ts, dur, versions, given) in enumerate(rows):
        place = {"pid": SERVER, "ts": ts}
        detail = {"update": update, **given}
        yield {"ph": "X", "name": "update", "tid": 10 * SERVER, "dur": dur, "args": detail, **place}
        yield {"ph": "C", "name": "version", "args": {"version": update + 1}, **place}
        yield {"ph": "C", "name": "mean staleness", "args": {"versions": versions}, **place}


def _arrows(trace: Trace, slices: pd.DataFrame) -> Iterator[dict[str, Any]]:
    sent = slices[slices["name"].isin(["compute", "push"])].groupby("task")[["pid", "tid", "ts"]].last()
    sent = sent.join(trace.tasks["update"].reset_index(drop=True)).query("update >= 0")
    sent["made"] = _nanoseconds(trace.updates["time"])[sent.pop("update")] / 1e3
    for task, pid, tid, ts, made in sent.itertuples():
        arrow = {"name": "push", "cat": "push", "id": task}
        yield {"ph": "s", "pid": pid, "tid": tid, "ts": ts, **arrow}
        yield {"ph": "f", "bp": "e", "pid": SERVER, "tid": 10 * SERVER, "ts": made, **arrow}
