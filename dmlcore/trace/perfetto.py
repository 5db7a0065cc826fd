"""Export to the Chrome trace format, which https://ui.perfetto.dev opens: a run to zoom into and to query."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dmlcore import files
from dmlcore.trace import metrics

if TYPE_CHECKING:
    from dmlcore.trace import Trace

SERVER = 1  # process ids: the server, then the workers; 0 is special to Perfetto
UPDATE_NANOSECONDS = 1000  # the server takes no time, but an arrow needs a slice to point at
TRACKS = {"compute": 0, "cancelled": 0, "wait": 0, "away": 0, "pull": 1, "push": 1}
TRACK_NAMES = ("compute", "transfer")
ARGUMENTS = ["clock", "batch_size", "version_read", "update", "weight"]


def to_perfetto(trace: Trace) -> dict[str, Any]:
    """Turns a trace into Chrome trace events.

    Each worker is a process with the tracks `compute` (compute, cancelled, wait, away) and `transfer` (pull
    and push); the server is one with a slice per update, and counters of its version and of the mean
    staleness of each update. An arrow leads from the push of each task to the update it is in, from the
    computation where pushing takes no time.

    Guarantees: slices on one track never overlap; times are whole nanoseconds, written in microseconds.

    Returns:
        A dictionary of plain values, ready for `json.dump`.

    >>> import dmlcore as dml
    >>> exported = to_perfetto(dml.simulate(dml.bsp(), dml.Cluster.from_speeds([32, 16]), updates=1))
    >>> [(event["name"], event["ts"]) for event in exported["traceEvents"] if event["ph"] == "X"]
    [('compute', 0.0), ('wait', 1000000.0), ('compute', 0.0), ('update', 2000000.0)]

    Source: "Trace Event Format", Google.
    """
    slices = _slices(trace)
    events = [*_names(trace), *_worker_events(trace, slices), *_server_events(trace), *_arrows(trace, slices)]
    about = {key: str(value) for key, value in trace.metadata.items()}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def write(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """Writes a trace as a JSON file for Perfetto, whole or not at all, and returns its path.

    >>> import tempfile
    >>> import dmlcore as dml
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(dml.simulate(dml.asp(), dml.Cluster.uniform(2), updates=9), f"{folder}/run.json").name
    'run.json'
    """
    path = Path(path)
    files.write(path, json.dumps(to_perfetto(trace), allow_nan=False))
    return path


def _nanoseconds(seconds: pd.Series) -> np.ndarray:
    # Rounded before durations are taken, so that what touches in the trace still touches in the file.
    return np.rint(seconds.to_numpy() * 1e9).astype(np.int64)


def _slices(trace: Trace) -> pd.DataFrame:
    """The phases with their process, track and nanoseconds."""
    phases = metrics.phases(trace)
    process = phases["worker"] + SERVER + 1
    start, end = _nanoseconds(phases["start"]), _nanoseconds(phases["end"])
    track = _track(process, phases["kind"].map(TRACKS))
    return phases.assign(pid=process, tid=track, start=start, duration=end - start)


def _track(process: Any, track: Any) -> Any:
    """Thread ids that are unique across processes, as Perfetto wants them."""
    return 10 * process + track


def _names(trace: Trace) -> list[dict[str, Any]]:
    def named(what: str, name: str, pid: int, tid: int = 0) -> dict[str, Any]:
        return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": {"name": name}}

    events = [
        named("process_name", "server", SERVER),
        named("thread_name", "updates", SERVER, _track(SERVER, 0)),
    ]
    for worker in range(trace.num_workers):
        pid = worker + SERVER + 1
        events.append(named("process_name", f"worker {worker}", pid))
        tracks = enumerate(TRACK_NAMES)
        events += [named("thread_name", name, pid, _track(pid, track)) for track, name in tracks]
    return events


def _worker_events(trace: Trace, slices: pd.DataFrame) -> list[dict[str, Any]]:
    arguments = trace.tasks[ARGUMENTS].to_dict("records")
    slices = slices.rename(columns={"kind": "name"}).assign(ph="X")
    slices["ts"], slices["dur"] = slices["start"] / 1e3, slices["duration"] / 1e3
    told = zip(slices["task"], slices["name"], strict=True)
    slices["args"] = [arguments[task] if task >= 0 and kind != "wait" else {} for task, kind in told]
    events: list[Any] = slices[["ph", "name", "pid", "tid", "ts", "dur", "args"]].to_dict("records")
    return events


def _server_events(trace: Trace) -> list[dict[str, Any]]:
    times = _nanoseconds(trace.updates["time"])
    room = np.diff(times, append=np.iinfo(np.int64).max)
    durations = np.minimum(UPDATE_NANOSECONDS, room)
    tid = _track(SERVER, 0)
    mean = metrics.staleness(trace).groupby(trace.tasks["update"]).mean()
    stale = mean.reindex(range(len(times)), fill_value=0.0)
    arguments = trace.updates[["num_tasks", "samples"]].to_dict("records")
    events: list[dict[str, Any]] = []
    rows = zip(times.tolist(), durations.tolist(), stale.tolist(), arguments, strict=True)
    for update, (time, duration, versions, given) in enumerate(rows):
        place = {"pid": SERVER, "ts": time / 1e3}
        detail = {"update": update, **given}
        events += [
            {"ph": "X", "name": "update", "tid": tid, "dur": duration / 1e3, "args": detail, **place},
            {"ph": "C", "name": "version", "args": {"version": update + 1}, **place},
            {"ph": "C", "name": "mean staleness", "args": {"versions": versions}, **place},
        ]
    return events


def _arrows(trace: Trace, slices: pd.DataFrame) -> list[dict[str, Any]]:
    tasks = trace.tasks.reset_index(drop=True)
    sent = slices[slices["kind"].isin(["compute", "push"])].groupby("task")[["pid", "tid", "start"]].last()
    sent = sent.join(tasks["update"]).query("update >= 0")
    sent["time"] = _nanoseconds(trace.updates["time"])[sent.pop("update")]
    events: list[dict[str, Any]] = []
    for task, pid, tid, start, time in sent.itertuples():
        arrow = {"name": "push", "cat": "push", "id": task}
        events += [
            {"ph": "s", "pid": pid, "tid": tid, "ts": start / 1e3, **arrow},
            {"ph": "f", "bp": "e", "pid": SERVER, "tid": _track(SERVER, 0), "ts": time / 1e3, **arrow},
        ]
    return events
