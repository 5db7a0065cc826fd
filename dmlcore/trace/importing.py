"""Traces of other systems: a table of tasks becomes a valid trace, and missing columns are derived."""

import contextlib
import json
import math
import os
from collections.abc import Container, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dmlcore import checks, tables
from dmlcore.provenance import versions
from dmlcore.reading.doubts import AT_ONCE, overlaps
from dmlcore.reading.log import BATCH_SIZE, TaskLog, read, sized, warned
from dmlcore.trace.record import updates_frame
from dmlcore.trace.trace import METADATA_KEY, QUEUE_COLUMNS, TASK_COLUMNS, Trace

ROUNDED = 1e-9  # a wait may be longer than its transfer by this rounding error, relative and absolute
TIMES = "pull_start", "compute_start", "compute_end", "push_end"  # of a task, in ascending order
SERVED = "push", "update", "pull", "link_in", "link_out"  # kinds of a server's work, in seconds
SERVICE = "metadata['service_seconds'] and both columns of pull_queued, push_queued (all three or none)"


def record_of(
    name: str, given: Any, columns: Any = None, unit: Any = None, events: Any = None
) -> Trace | TaskLog:
    """Returns a trace as it is, a file of `Trace.save` as the trace, and other logs as `read_tasks` does.

    Args:
        name: of the argument, for messages.
        given: a trace, or a source of `read_tasks`.
        columns: see `read_tasks`.
        unit: see `read_tasks`.
        events: see `read_tasks`.
    """
    if isinstance(given, Trace):
        return given
    if isinstance(given, str | os.PathLike) and Path(given).suffix == ".parquet" and Path(given).is_file():
        import pyarrow.parquet as pq  # here, because most programs have no file of a trace

        with contextlib.suppress(pa.ArrowException, OSError):  # of no such file, which the reader refuses
            if METADATA_KEY in (pq.read_schema(given).metadata or {}):
                return Trace.load(given)
    return read(name, given, columns, unit, events)


def trace_of(
    source: Any,
    batch_size: int | None,
    num_workers: int | None,
    end_time: float | None,
    origin: float | None,
    policy: str | None,
    seed: int | None,
    metadata: Mapping[str, Any] | None,
) -> Trace:
    """Returns the trace that the arguments of `Trace.from_tasks` describe."""
    more = _json(metadata)
    size = more.get("batch_size") if batch_size is None else batch_size
    log = sized(read("frame", source, lacking=lambda columns: _lacking(columns, size, more)), size)
    _check_service(log.tasks, more)
    table, origin = _from_origin(log, origin)
    numbered = all(isinstance(name, int) for name in log.names)
    if numbered and ("num_workers" in more or num_workers is not None):
        table["worker"] = np.array(log.names)[table["worker"]]  # workers without a task are counted, too
    shown = {"compute_start": "start", "compute_end": "end", "pull_start": "start", "push_end": "end"}
    shown |= {name: name for name in ("pull_start", "push_end") if name in log.tasks}
    _check_order(table, shown, origin)
    _check_queues(table, shown)
    _check_overlaps(table)
    if "clock" in table:
        _check_clocks(table)
    table = _by_arrival(table)
    times = _updates(table)
    table["version_read"], table["weight"] = _versions(table, times), _weights(table)
    if "clock" not in table:
        table["clock"] = _by_worker(table).cumcount()
    kinds = TASK_COLUMNS | {name: kind for name, kind in QUEUE_COLUMNS.items() if name in table}
    tasks = table[[*kinds]].astype(kinds)
    last = max(tasks["compute_end"].max(), np.nan_to_num(tasks["push_end"].max()), times.max(initial=0.0))
    if end_time is not None:
        given_end, end_time = end_time, checks.real("end_time", end_time, high=1e300) - origin
        if end_time < last:
            checks.fail(
                "end_time", given_end, f"a number >= {last + origin:.15g} (the last time in the frame)"
            )
    about = {
        "engine": "recorded",
        "policy": "recorded",
        "max_lead": None,
        "num_workers": len(log.names),
        "end_time": float(last),
        "batch_size": log.batch_size,
        "seed": 0,
        "versions": versions(),
    }
    if not {"pull_start", "push_end"} & {*log.tasks}:
        about["transfers"] = "not recorded"
    about |= more
    given = {"policy": policy, "num_workers": num_workers, "end_time": end_time, "seed": seed}
    about |= {name: value for name, value in given.items() if value is not None}
    checks.check_kind("policy", about["policy"], str)
    checks.integer(
        "num_workers", about["num_workers"], low=int(tasks["worker"].max()) + 1, why="those in the frame"
    )
    checks.check_seed("seed", about["seed"])
    if "compensation" in about:
        checks.real("metadata['compensation']", about["compensation"], low=0, high=1e300)
    checks.real("end_time", about["end_time"], low=float(last), high=1e300)
    trace = Trace(tasks, updates_frame(times.tolist(), tasks), about).validate()
    warned(log, source)
    return trace


def _json(metadata: Any) -> dict[str, Any]:
    """Returns further metadata, after a check that a file can hold it as JSON."""
    if metadata is None:
        return {}
    try:
        return dict(json.loads(json.dumps({**metadata}, allow_nan=False)))
    except (TypeError, ValueError):
        checks.fail("metadata", metadata, "a dictionary of JSON values")


def _lacking(columns: Container[str], size: Any, more: Mapping[str, Any]) -> list[str]:
    """Returns what a table lacks besides the columns of any log."""
    queues = [name in columns for name in QUEUE_COLUMNS]
    lacking = [BATCH_SIZE] * (size is None and "batch_size" not in columns)
    return lacking + [SERVICE] * (any(queues) and not (all(queues) and "service_seconds" in more))


def _check_service(table: pd.DataFrame, more: Mapping[str, Any]) -> None:
    """Raises ValueError if a table with queues does not come with the server's times."""
    if not {*QUEUE_COLUMNS} & {*table}:
        return
    given = more["service_seconds"]
    if not isinstance(given, Mapping) or {*given} != {*SERVED}:
        expected = f"the mean seconds of each of {', '.join(SERVED)}"
        checks.fail("metadata['service_seconds']", given, expected)
    for kind in SERVED:
        checks.real(f"metadata['service_seconds'], {kind}", given[kind], low=0, high=1e300)


def _from_origin(log: TaskLog, origin: Any) -> tuple[pd.DataFrame, float]:
    """Returns the log's tasks with all times, from the start of the run, and when that was on its clock."""
    table, zero = log.tasks.copy(), log.zero
    if not log.timed:
        table["compute_end"] = table["seconds"].groupby(table["worker"]).cumsum()
        table["compute_start"] = table.groupby("worker")["compute_end"].shift(fill_value=0.0)
    if origin is not None:
        zero = checks.real("origin", origin, low=-1e300, high=1e300)
        for name in {*TIMES, "update_time"} & {*table}:
            table[name] -= zero - log.zero
    for name, like in (("pull_start", "compute_start"), ("push_end", "compute_end")):
        table[name] = table[name] if name in table else table[like]
    return table, zero


def _check_order(table: pd.DataFrame, shown: Mapping[str, str], origin: float) -> None:
    """Raises ValueError if the times of a task are not in ascending order."""
    times = table[[*TIMES]].assign(origin=0.0)
    for early, late in (("origin", TIMES[0]), ("origin", TIMES[1]), *pairwise(TIMES)):
        wrong, why = times[late] < times[early], f"its {shown[early]}" if early in shown else "the origin"
        _refuse(table, wrong, shown[late], times[late] + origin, ">=", times[early] + origin, why)
    if "update" in table:
        lost = table["push_end"].isna() & (table["update"] >= 0)
        expected = "-1 or NaN (push_end is NaN, and a push that never arrived is in no update)"
        tables.refuse("frame", table, "update", lost, expected)


def _check_queues(table: pd.DataFrame, shown: Mapping[str, str]) -> None:
    """Raises ValueError if a transfer waited longer than it took in total."""
    for queued, early, late in (
        ("pull_queued", "pull_start", "compute_start"),
        ("push_queued", "compute_end", "push_end"),
    ):
        took = (table[late] - table[early]).fillna(math.inf)
        if queued in table:
            wrong = table[queued] > took * (1 + ROUNDED) + ROUNDED
            why = f"from its {shown[early]} to its {shown[late]}"
            _refuse(table, wrong, queued, table[queued], "<=", took, why)


def _check_overlaps(table: pd.DataFrame) -> None:
    """Raises ValueError if a worker computes two tasks at the same time."""
    order, by = overlaps(table)
    wrong = np.flatnonzero(by > 0)
    if len(wrong):
        first, second = order[wrong[0] : wrong[0] + 2]
        found = f"rows {first} and {second}, which overlap by {by[wrong[0]]:g} s"
        expected, hint = "tasks computed one after the other", f"read_tasks: {AT_ONCE}"
        checks.reject(f"frame, worker {table['worker'][first]}", found, expected, hint)


def _check_clocks(table: pd.DataFrame) -> None:
    """Raises ValueError if a worker's clocks do not grow in the order in which it computed its tasks."""
    clock, before = table["clock"], _by_worker(table)["clock"].shift().sort_index()
    _refuse(table, clock <= before, "clock", clock, ">", before, "the clock of its previous task")


def _by_worker(table: pd.DataFrame) -> Any:
    """Returns the tasks of each worker, in the order in which it computed them."""
    return table.sort_values(["worker", "compute_start", "compute_end"], kind="stable").groupby("worker")


def _refuse(
    table: pd.DataFrame,
    wrong: pd.Series,
    column: str,
    given: pd.Series,
    relation: str,
    limit: pd.Series,
    why: str,
) -> None:
    """Raises ValueError for the first row in which a number is beyond its limit."""
    if wrong.any():
        row = int(wrong.argmax())
        where = f"frame, row {row}, worker {table['worker'][row]}, {column}"
        checks.fail(where, given[row].item(), f"a number {relation} {limit[row]:.15g} ({why})")


def _by_arrival(table: pd.DataFrame) -> pd.DataFrame:
    """Returns the tasks in the order of arrival; one that never arrived is placed at its `compute_end`."""
    if table["push_end"].dropna().is_monotonic_increasing:
        return table
    when = table["push_end"].fillna(table["compute_end"]).to_numpy()
    return table.iloc[np.argsort(when, kind="stable")].reset_index(drop=True)


def _updates(table: pd.DataFrame) -> np.ndarray:
    """Returns the times of updates in seconds, shape (U,); numbers the updates if the table does not."""
    if "update" not in table:
        arrived = table["push_end"].notna()
        table["update"] = np.where(arrived, arrived.cumsum() - 1, -1)
    applied = table[table["update"] >= 0]
    numbers, last = np.unique(applied["update"]), int(table["update"].max())
    if len(numbers) <= last:
        absent = int(np.setdiff1d(np.arange(len(numbers) + 1), numbers)[0])
        checks.reject(f"frame, update {absent}", "none", f"a task in each update from 0 to {last}")
    times = np.maximum.accumulate(applied.groupby("update")["push_end"].max().to_numpy())
    if "update_time" in applied:
        told = applied.groupby("update")["update_time"].agg(["min", "max"])
        if (told["min"] < told["max"]).any():
            update = int((told["min"] < told["max"]).argmax())
            checks.fail(
                f"frame, update {update}, update_time", told.iloc[update].tolist(), "one time for all tasks"
            )
        times = told["max"].fillna(pd.Series(times)).to_numpy()
    return times


def _versions(table: pd.DataFrame, times: np.ndarray) -> np.ndarray:
    """Returns the version that each task read, shape (T,).

    It is the version in the table, or else the number of updates made until the task's pull. A task that did
    not pull has the version of its worker's task before.
    """
    pulled = table["pull_start"].notna()
    made = np.searchsorted(times, table["pull_start"].fillna(0.0), side="right")
    made = np.where(table["update"] >= 0, np.minimum(made, table["update"]), made)
    read = pd.Series(made, table.index, float).where(pulled)
    if "version_read" in table:
        told = table["version_read"]
        read = told.astype(float).where(told >= 0, read)
    kept = _by_worker(table.assign(version_read=read))["version_read"].ffill()
    return kept.fillna(0.0).sort_index().to_numpy(np.int64)


def _weights(table: pd.DataFrame) -> np.ndarray:
    """Returns each task's weight, shape (T,): the one in the table, or its share of its update's samples."""
    applied = table["update"] >= 0
    share = table["batch_size"] / table.groupby("update")["batch_size"].transform("sum")
    told = table["weight"].fillna(share) if "weight" in table else share
    return told.where(applied, 0.0).to_numpy()
