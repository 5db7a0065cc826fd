"""Traces of other systems: a table of tasks becomes a valid trace, and missing columns are derived."""

from __future__ import annotations

import difflib
import json
import math
import os
import warnings
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from dmlcore import checks, tables
from dmlcore.provenance import versions
from dmlcore.trace.record import updates_frame
from dmlcore.trace.trace import QUEUE_COLUMNS, TASK_COLUMNS, Trace

MOST = 2**31 - 1
LATE = 100  # a log that begins later than this many times its length was recorded on another clock
ROUNDED = 1e-9  # a wait may be longer than its transfer by this rounding error, relative and absolute
WANTED = {"worker": "number, from 0", "start": "of computing, seconds", "end": "of computing, seconds"}
BATCH_SIZE = "batch_size (samples of a task: a column, or the argument where all have as many)"
SERVED = "push", "update", "pull", "link_in", "link_out"  # kinds of a server's work, in seconds
SERVICE = "metadata['service_seconds'] and both columns of pull_queued, push_queued (all three or none)"


def trace_of(
    source: pd.DataFrame | str | os.PathLike[str],
    batch_size: int | None,
    num_workers: int | None,
    end_time: float | None,
    origin: float | None,
    policy: str | None,
    seed: int | None,
    metadata: Mapping[str, Any] | None,
) -> Trace:
    """Returns the trace that the arguments of `Trace.from_tasks` describe."""
    told = origin is not None
    origin, more = checks.real("origin", origin if told else 0.0, low=-1e300, high=1e300), _json(metadata)
    frame = tables.read("frame", source)
    size = more.get("batch_size") if batch_size is None else batch_size
    names = _complete(frame, size, more)
    table = _checked(frame, names, size, origin)
    names = {"pull_start": names["compute_start"], "push_end": names["compute_end"], **names}
    if not told:
        _check_start(table, names)
    if num_workers is None and "num_workers" not in more and (least := int(table["worker"].min())):
        hint = "num_workers=, if worker 0 had no task"
        checks.fail("frame, the smallest worker", least, "0", hint)
    _check_order(table, names, origin)
    _check_queues(table, names)
    _check_overlaps(table)
    if "clock" in table:
        _check_clocks(table)
    table = _by_arrival(table)
    times = _updates(table)
    table["version_read"], table["weight"] = _versions(table, times), _weights(table)
    if "clock" not in table:
        by_start = table.sort_values(["worker", "compute_start", "compute_end"], kind="stable")
        table["clock"] = by_start.groupby("worker").cumcount()
    kinds = TASK_COLUMNS | {name: kind for name, kind in QUEUE_COLUMNS.items() if name in table}
    tasks = table[[*kinds]].astype(kinds)
    last = max(tasks["compute_end"].max(), np.nan_to_num(tasks["push_end"].max()), times.max(initial=0.0))
    if end_time is not None:
        given_end, end_time = end_time, checks.real("end_time", end_time, high=1e300) - origin
        if end_time < last:
            checks.fail(
                "end_time", given_end, f"a number >= {last + origin:.15g} (the last time in the frame)"
            )
    sizes = {*tasks["batch_size"].tolist()}
    about = {
        "engine": "recorded",
        "policy": "recorded",
        "max_lead": None,
        "num_workers": int(tasks["worker"].max()) + 1,
        "end_time": float(last),
        "batch_size": sizes.pop() if len(sizes) == 1 else None,
        "seed": 0,
        "versions": versions(),
    }
    about |= more
    given = {"policy": policy, "num_workers": num_workers, "end_time": end_time, "seed": seed}
    about |= {name: value for name, value in given.items() if value is not None}
    checks.check_kind("policy", about["policy"], str)
    checks.integer(
        "num_workers",
        about["num_workers"],
        low=int(tasks["worker"].max()) + 1,
        why="those in the frame",
    )
    checks.check_seed("seed", about["seed"])
    if "compensation" in about:
        checks.real("metadata['compensation']", about["compensation"], low=0, high=1e300)
    checks.real("end_time", about["end_time"], low=float(last), high=1e300)
    return Trace(tasks, updates_frame(times.tolist(), tasks), about).validate()


def _json(metadata: Any) -> dict[str, Any]:
    """Returns further metadata, after a check that a file can hold it as JSON."""
    if metadata is None:
        return {}
    try:
        return dict(json.loads(json.dumps({**metadata}, allow_nan=False)))
    except (TypeError, ValueError):
        checks.fail("metadata", metadata, "a dictionary of JSON values")


def _complete(frame: pd.DataFrame, size: Any, more: Mapping[str, Any]) -> dict[str, str]:
    """Returns the table's name for each column of the trace; one ValueError lists all missing columns."""
    names = {name: name for name in (*TASK_COLUMNS, *QUEUE_COLUMNS, "update_time") if name in frame}
    for short in ("start", "end"):
        own = f"compute_{short}"
        if short in frame and own in frame:
            checks.reject(
                "frame, columns", f"both {short!r} and {own!r}", "one of the two (they mean the same)"
            )
        names |= {own: short} if short in frame else {}
    wanted = {name: what for name, what in WANTED.items() if not {name, f"compute_{name}"} & {*names, *frame}}
    queues = [name in frame for name in QUEUE_COLUMNS]
    lacking = [BATCH_SIZE] * (size is None and "batch_size" not in frame)
    lacking += [SERVICE] * (any(queues) and not (all(queues) and "service_seconds" in more))
    tables.require("frame", frame, wanted, lacking)
    known = [*TASK_COLUMNS, *QUEUE_COLUMNS, *WANTED, "update_time"]
    for name in frame:
        like = difflib.get_close_matches(str(name), known, n=1, cutoff=0.8)
        if name not in known and like:
            warnings.warn(f"frame: column {name!r} is not read; try {like[0]!r}", stacklevel=4)
    if any(queues):
        given = more["service_seconds"]
        if not isinstance(given, Mapping) or {*given} != {*SERVED}:
            checks.fail(
                "metadata['service_seconds']",
                given,
                f"the mean seconds of each of {', '.join(SERVED)}",
            )
        for kind in SERVED:
            checks.real(f"metadata['service_seconds'], {kind}", given[kind], low=0, high=1e300)
    return names


def _checked(frame: pd.DataFrame, names: Mapping[str, str], size: Any, origin: float) -> pd.DataFrame:
    """Returns the table with the trace's column names, checked, and with times from the start of the run."""

    def whole(column: str, low: int, nan: int | None = None) -> np.ndarray:
        return tables.integers("frame", frame, names[column], low=low, high=MOST, nan=nan)

    def real(column: str, nan: bool = True) -> np.ndarray:
        return tables.numbers("frame", frame, names[column], nan=nan)

    found = {"worker": whole("worker", 0)}
    if "clock" in names:
        found["clock"] = whole("clock", 0)
    if "batch_size" in names:
        found["batch_size"] = whole("batch_size", 1)
    else:
        found["batch_size"] = np.full(len(frame), checks.integer("batch_size", size, low=1, high=MOST))
    for column in ("compute_start", "compute_end"):
        found[column] = real(column, nan=False) - origin
    for column, like in (("pull_start", "compute_start"), ("push_end", "compute_end")):
        found[column] = real(column) - origin if column in names else found[like]
    for column in ("update", "version_read"):
        if column in names:
            found[column] = whole(column, -1, nan=-1)
    if "update_time" in names:
        found["update_time"] = real("update_time") - origin
    for column in ("weight", *QUEUE_COLUMNS):
        if column in names:
            found[column] = real(column, nan=column == "weight")
    return pd.DataFrame(found)


def _check_start(table: pd.DataFrame, names: Mapping[str, str]) -> None:
    """Raises ValueError if times seem to count from an epoch, not from the start of the run."""
    column = "pull_start" if table["pull_start"].notna().any() else "compute_start"
    first, last = float(table[column].min()), float(table["compute_end"].max())
    if first > LATE * (last - first) > 0:
        hint = f"{first:.15g}, the first {names.get(column, column)} of the log"
        checks.fail("origin", None, "the time at which the run began", hint)


def _check_order(table: pd.DataFrame, names: Mapping[str, str], origin: float) -> None:
    """Raises ValueError if the times of a task are not in ascending order."""

    def refuse(wrong: pd.Series, late: str, expected: str, than: str | None) -> None:
        if wrong.any():
            row = int(wrong.argmax())
            where = f"frame, row {row}, worker {table['worker'][row]}, {names[late]}"
            other = " (the origin)" if than is None else f" (its {names[than]})"
            least = origin if than is None else table[than][row] + origin
            checks.fail(where, float(table[late][row] + origin), f"{expected} {least:.15g}{other}")

    columns = ("pull_start", "compute_start", "compute_end", "push_end")
    for column in columns[:2]:
        refuse(table[column] < 0, column, "a number >=", None)
    for early, late in pairwise(columns):
        refuse(table[late] < table[early], late, "a number >=", early)
    if "update" in table:
        lost = table["push_end"].isna() & (table["update"] >= 0)
        if lost.any():
            row = int(lost.argmax())
            expected = "-1 or NaN (push_end is NaN, and a push that never arrived is in no update)"
            checks.fail(f"frame, row {row}, update", int(table["update"][row]), expected)


def _check_queues(table: pd.DataFrame, names: Mapping[str, str]) -> None:
    """Raises ValueError if a transfer waited longer than it took in total."""
    for queued, early, late in (
        ("pull_queued", "pull_start", "compute_start"),
        ("push_queued", "compute_end", "push_end"),
    ):
        took = (table[late] - table[early]).fillna(math.inf)
        if queued in table and (wrong := table[queued] > took * (1 + ROUNDED) + ROUNDED).any():
            row = int(wrong.argmax())
            where = f"frame, row {row}, worker {table['worker'][row]}, {queued}"
            expected = f"a number <= {took[row]:.15g} (from its {names[early]} to its {names[late]})"
            checks.fail(where, float(table[queued][row]), expected)


def _check_overlaps(table: pd.DataFrame) -> None:
    """Raises ValueError if a worker computes two tasks at the same time."""
    columns = ["worker", "compute_start", "compute_end"]
    ordered = table.sort_values(columns, kind="stable")
    worker, start, end = (ordered[column].to_numpy() for column in columns)
    wrong = np.flatnonzero((worker[1:] == worker[:-1]) & (start[1:] < end[:-1]))
    if len(wrong):
        first, second = ordered.index[wrong[0] : wrong[0] + 2]
        found = f"rows {first} and {second}, which overlap by {end[wrong[0]] - start[wrong[0] + 1]:g} s"
        checks.reject(f"frame, worker {worker[wrong[0]]}", found, "tasks computed one after the other")


def _check_clocks(table: pd.DataFrame) -> None:
    """Raises ValueError if a worker's clocks do not grow in the order in which it computed its tasks."""
    by_start = table.sort_values(["worker", "compute_start", "compute_end"], kind="stable")
    worker, clock = by_start["worker"].to_numpy(), by_start["clock"].to_numpy()
    wrong = np.flatnonzero((worker[1:] == worker[:-1]) & (clock[1:] <= clock[:-1]))
    if len(wrong):
        before, row = clock[wrong[0]], wrong[0] + 1
        where = f"frame, row {by_start.index[row]}, worker {worker[row]}, clock"
        checks.fail(where, int(clock[row]), f"a number > {before} (the clock of its previous task)")


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
                f"frame, update {update}, update_time",
                told.iloc[update].tolist(),
                "one time for all tasks",
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
    ordered = read[table.sort_values(["worker", "compute_start", "compute_end"], kind="stable").index]
    kept = ordered.groupby(table["worker"]).ffill().fillna(0.0)
    return kept.sort_index().to_numpy(np.int64)


def _weights(table: pd.DataFrame) -> np.ndarray:
    """Returns each task's weight, shape (T,): the one in the table, or its share of its update's samples."""
    applied = table["update"] >= 0
    share = table["batch_size"] / table.groupby("update")["batch_size"].transform("sum")
    told = table["weight"].fillna(share) if "weight" in table else share
    return told.where(applied, 0.0).to_numpy()
