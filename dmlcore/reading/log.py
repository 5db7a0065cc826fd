"""`read_tasks`: one reader of logs, which says what it assumed and what is probably wrong."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dmlcore import checks, tables
from dmlcore.reading import doubts
from dmlcore.reading.columns import ALIASES, TIMED, Meaning, chosen, meaning, plain
from dmlcore.reading.sources import table_of
from dmlcore.reading.times import lengths, read_unit, stamps

MOST = 2**31 - 1
RESTARTED = 0.9  # share of steps that begin before their worker's step before ends, if times start again
LOGGED = "timestamp", "datetime", "date", "logged_at", "ts"  # times that may be those of a task's end
ROUNDED = 1e-3  # overlaps of tasks up to this share of the median task are rounding
# Columns of a trace that are read under their own names, besides those of `ALIASES`.
TIMES_OF_A_TRACE = "pull_start", "push_end", "update_time"
REALS_OF_A_TRACE = "weight", "pull_queued", "push_queued"
WHOLE_OF_A_TRACE = {"clock": 0, "update": -1, "version_read": -1}  # with the least value
OF_A_TRACE = *TIMES_OF_A_TRACE, *REALS_OF_A_TRACE, *WHOLE_OF_A_TRACE
BATCH_SIZE = "batch_size (samples of a task: a column, or the argument where all have as many)"


@dataclass(frozen=True, repr=False)
class TaskLog:
    """The tasks of a log, with what was assumed to read it and what is probably wrong.

    Args:
        tasks: one row per task, with the columns `worker` (0 to W - 1) and `seconds` of computing; if the log
            says when, `compute_start` and `compute_end` in seconds; if it says how many samples,
            `batch_size`; and the columns of a trace that it has. In the order of rows, or of operations that
            were joined.
        assumed: what was assumed, in sentences.
        doubted: what is probably wrong, with the number that gives it away and what to do, in sentences.
        names: the workers' names in the log, W of them.
        zero: when the time is 0, in seconds on the log's clock.

    >>> log = read_tasks({"host": ["a", "b", "a"], "duration_ms": [300, 500, 310]})
    >>> log.tasks["seconds"].tolist(), log.names
    ([0.3, 0.5, 0.31], ('a', 'b'))
    >>> print(log.notes[0])
    `host` names the worker: 2 of them, a to b
    """

    tasks: pd.DataFrame
    assumed: tuple[str, ...]
    doubted: tuple[str, ...]
    names: tuple[Any, ...]
    zero: float = 0.0

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, and what is probably wrong, in sentences."""
        return self.assumed + self.doubted

    @property
    def timed(self) -> bool:
        """Whether the log says when tasks were computed."""
        return "compute_start" in self.tasks

    @property
    def batch_size(self) -> int | None:
        """Samples per task, if all tasks have the same number and the log says it."""
        sizes = self.tasks["batch_size"].unique().tolist() if "batch_size" in self.tasks else []
        return sizes[0] if len(sizes) == 1 else None

    def plot(self, ax: Any = None) -> Any:
        """Draws the seconds of every task by worker: see `dml.plot.tasks`.

        Args:
            ax: the Axes to draw on. Default: None, a new figure.

        Returns:
            The Axes.

        Raises:
            AttributeError: `ax` is not an Axes.

        >>> log.plot()  # doctest: +SKIP
        <Axes: ...>
        """
        return importlib.import_module("dmlcore.view.plot").tasks(self, ax=ax)

    def __repr__(self) -> str:
        counts = f"{len(self.names)} workers, {len(self.tasks)} tasks"
        lines = [f"- {each}" for each in self.assumed] + [
            f"- Probably wrong: {each}" for each in self.doubted
        ]
        return "\n".join([f"TaskLog({counts})", *lines])


def read_tasks(source: Any, columns: Any = None, unit: Any = None, events: Any = None) -> TaskLog:
    """Reads a log of tasks that another system recorded, and says what it assumed.

    Guarantees: what the log does not say is not made up: it is assumed and told in `notes`, or refused in a
    message that names row and column. Nothing that is probably wrong is repaired: `notes` tells it, with the
    number that gives it away, and what to do.

    Args:
        source: a DataFrame, a mapping of columns, or a table with the dataframe interchange protocol; or the
            path of a file: CSV with any separator, Parquet, JSON records, JSON lines, or a Chrome trace
            (torch.profiler, Ray, Horovod), compressed or not; or a folder or several paths, of which each may
            be a worker's. A row is a task, or an operation of one.
        columns: role -> column, where names are unusual. Roles: `worker` (several columns together name it,
            as in `["host", "gpu"]`), `start` and `end` of computing, `seconds` of computing (several columns
            are added), `batch_size` (or the number of samples of every task), `step` and `part` (operations
            of one worker, step and part are one task), and `event`, the name of an operation. Default: None,
            usual names are known, with units in them, such as `duration_ms`.
        unit: of numbers that are times: "ns", "us", "ms", "s", "min" or "h"; or role -> unit. Default: None,
            as column names say, else microseconds in a Chrome trace, else by size for stamps since 1970, else
            seconds.
        events: which operations are a task's computing: a name, or a regular expression that is searched in
            names; several of them; or column -> values. Default: None, all rows, if they are of one kind.

    Returns:
        The log.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it cannot be read, columns are missing, a value is impossible, or there are several kinds
            of operations and none is chosen.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"host": ["n1", "n2"], "start": ["2024-05-01T12:00:00Z", "2024-05-01T12:00:01Z"],
    ...                       "end": ["2024-05-01T12:00:03Z", "2024-05-01T12:00:05Z"]})
    >>> read_tasks(frame).tasks[["worker", "compute_start", "compute_end"]].values.tolist()
    [[0.0, 0.0, 3.0], [1.0, 1.0, 5.0]]
    """
    return read("source", source, columns, unit, events)


def sized(log: TaskLog, batch_size: Any) -> TaskLog:
    """Returns the log with the samples of every task, unless it says them or there is no such number."""
    if batch_size is None or "batch_size" in log.tasks:
        return log
    size = checks.integer("batch_size", batch_size, low=1, high=MOST)
    return dataclasses.replace(log, tasks=log.tasks.assign(batch_size=size))


def warned(log: TaskLog, source: Any) -> None:
    """Warns of what is probably wrong, unless the source is a log, which has told it."""
    if log is not source:
        for each in log.doubted:
            warnings.warn(each, stacklevel=4)


def read(
    name: str,
    source: Any,
    columns: Any = None,
    unit: Any = None,
    events: Any = None,
    lacking: Any = None,
) -> TaskLog:
    """Returns the log of `read_tasks`; a log is returned as it is.

    Args:
        name: of the argument that is the source, for messages.
        source: see `read_tasks`.
        columns: see `read_tasks`.
        unit: see `read_tasks`.
        events: see `read_tasks`.
        lacking: function of role -> column; returns what else is missing, for the message about columns.
    """
    if isinstance(source, TaskLog):
        return source
    if isinstance(source, Mapping):
        try:
            source = pd.DataFrame(source)
        except ValueError as error:
            checks.reject(name, str(error), "columns of equal lengths")
    table = table_of(name, source)
    unnamed = all(each is None for each in table.frame.index.names)
    table = table._replace(frame=table.frame.reset_index(drop=unnamed))
    said: list[str] = []
    if table.unfinished:
        said.append(f"{table.unfinished} operations have no end and are left out")
    table = chosen(name, table, columns, events, said)
    frame, found = table.frame, meaning(name, table, columns, OF_A_TRACE)
    if table.chrome and unit is None:
        unit = "us"
    _require(name, frame, found, [] if lacking is None else lacking({*found.of, *frame}))
    worker, names = _workers(name, frame, found.of["worker"], said)
    tasks = pd.DataFrame({"worker": worker}, frame.index)
    if (size := found.of.get("batch_size")) is not None:
        if size in [*frame.columns]:
            tasks["batch_size"] = tables.integers(name, frame, size, low=1, high=MOST)
        else:
            tasks["batch_size"] = checks.integer("columns, batch_size", size, low=1, high=MOST)
        if size != "batch_size":
            said.append(f"`{size}` is the samples of a task")
    for column in WHOLE_OF_A_TRACE.keys() & {*frame}:
        low = WHOLE_OF_A_TRACE[column]
        nan = -1 if low < 0 else None
        tasks[column] = tables.integers(name, frame, column, low=low, high=MOST, nan=nan)
    for column in REALS_OF_A_TRACE:
        if column in frame:
            tasks[column] = tables.numbers(name, frame, column, nan=column == "weight")
    zero, step = _times(name, tasks, frame, found, unit, said)
    tasks = _joined(tasks, frame, found, said)
    with np.errstate(over="ignore", invalid="ignore"):
        doubted = doubts.doubts(tasks, names, step, said)
    if "event" in found.of and table.chrome | (events is not None):
        doubted += doubts.collectives(frame[found.of["event"]])
    doubted += _unread(found)
    return TaskLog(tasks.reset_index(drop=True), tuple(said), tuple(doubted), names, zero)


def _require(name: str, frame: pd.DataFrame, found: Meaning, more: list[str]) -> None:
    """Raises one ValueError that lists everything that is missing."""
    wanted = [] if "worker" in found.of else ["worker (number or name)"]
    have = {role for role in TIMED if role in found.of}
    if not have & {"seconds"} and have != {"start", "end"}:
        other = {"start", "end"} - have
        wanted += [f"{role} (of computing)" for role in sorted(other, reverse=True)]
        wanted[-1] += ", or seconds (of computing)"
    if wanted or more:
        columns = [f"columns that include {', '.join(wanted)}"] * bool(wanted)
        hint = f"columns={{{', '.join(f'{each.split()[0]!r}: ...' for each in wanted)}}}" if wanted else ""
        checks.reject(name, f"columns {[*frame.columns]}", " and ".join([*columns, *more]), hint)


def _workers(
    name: str, frame: pd.DataFrame, columns: tuple[str, ...], said: list[str]
) -> tuple[np.ndarray, tuple[Any, ...]]:
    """Returns the number of each row's worker, shape (T,), and the workers' names in the log.

    Numbers from 0 without gaps stay as they are; other numbers and names are numbered in order.
    """
    values: Any = frame[columns[0]]
    shown = "` and `".join(map(str, columns))
    for column in columns:
        if (missing := frame[column].isna()).any():
            where = f"{name}, row {frame.index[int(missing.argmax())]}, column {column}"
            checks.fail(where, None, "a worker's number or name")
    if len(columns) > 1:
        values = frame[list(columns)].astype(str).agg(" / ".join, axis=1)
    texts = not pd.api.types.is_numeric_dtype(values) and values.map(type).eq(str).all()
    if texts and (digits := pd.to_numeric(values, errors="coerce")).notna().all():
        values, texts = digits, False
    if not texts:
        told = values.to_frame(columns[0])
        values = pd.Series(tables.integers(name, told, columns[0], low=0, high=2**53), frame.index)
    codes, kinds = pd.factorize(values, sort=not texts)
    kinds = [*kinds] if texts else kinds.tolist()
    if kinds == [*range(len(kinds))]:
        if columns[0] != "worker":
            said.append(f"`{shown}` is the number of the worker: {len(kinds)} of them")
        return codes.astype(np.int64), tuple(kinds)
    order = sorted(range(len(kinds)), key=lambda i: _natural(str(kinds[i])))
    kinds = [kinds[i] for i in order]
    span = f", {kinds[0]} to {kinds[-1]}" if len(kinds) > 1 else f", {kinds[0]}"
    verb = "names" if len(columns) == 1 else "name"
    said.append(f"`{shown}` {verb} the worker: {len(kinds)} of them{span}")
    return np.argsort(order)[codes], tuple(kinds)


def _natural(text: str) -> list[tuple[int, Any]]:
    """Returns a key that sorts `n2` before `n10`."""
    return [(0, int(each)) if each.isdecimal() else (1, each) for each in re.split(r"(\d+)", text)]


def _times(
    name: str, tasks: pd.DataFrame, frame: pd.DataFrame, found: Meaning, unit: Any, said: list[str]
) -> tuple[float, float]:
    """Adds `seconds`, and the times of a log that has them; returns its zero, and the step of its stamps."""
    roles = {role: found.of[role] for role in ("start", "end") if role in found.of}
    if not roles:
        column, worker = found.of["seconds"], tasks["worker"]
        shown = "` + `".join(map(str, column)) if isinstance(column, tuple) else column
        tasks["seconds"], told = lengths(name, frame, column, read_unit(found, unit, "seconds"))
        if _like_a_clock(tasks["seconds"], worker):
            given = f"{column!r}, which grows from each row of a worker to the next, as a clock does"
            checks.reject(f"{name}, columns", given, "two times of each task, or its seconds")
        middle = f"the median task takes {tasks['seconds'].median():.3g} s"
        if column != "seconds":
            said.append(f"`{shown}` is the time of computing in {told}: {middle}")
        said.append("rows of a worker stand in the order of its tasks")
        return 0.0, 0.0
    own = {role: role for role in TIMES_OF_A_TRACE if role in frame}
    units = {role: read_unit(found, unit, role) for role in (*roles, *own)}
    got = stamps(name, frame, roles | own, units)
    for role in own:
        tasks[role] = got.of[role]
    if len(roles) == 2:
        start, end = got.of["start"], got.of["end"]
        if (wrong := end < start).any():
            row = int(wrong.argmax())
            where = f"{name}, row {frame.index[row]}, worker {tasks['worker'].iloc[row]}, {roles['end']}"
            least = f"a number >= {start[row] + got.zero:.15g} (its {roles['start']})"
            checks.fail(where, float(end[row] + got.zero), least)
        tasks["seconds"] = end - start
    else:
        ((role, _),) = roles.items()
        near = read_unit(found, unit, "seconds") or read_unit(found, unit, role)
        if near is None and (scale := re.match(r"times are (?:in )?(\w+)", got.said)) and scale[1] != "ISO":
            near = scale[1]
        tasks["seconds"], near = lengths(name, frame, found.of["seconds"], near)
        stamp, took = got.of[role], tasks["seconds"].to_numpy()
        start, end = (stamp, stamp + took) if role == "start" else (stamp - took, stamp)
        if role == "start" and plain(roles[role])[0] in LOGGED:
            late = tasks[["worker", "seconds"]].assign(compute_start=stamp - took, compute_end=stamp)
            both = late, late.assign(compute_start=stamp, compute_end=stamp + took)
            as_end, as_start = ((doubts.overlaps(each)[1] > ROUNDED * np.median(took)).sum() for each in both)
            if as_end < as_start:
                start, end = stamp - took, stamp
                said.append(
                    f"`{roles[role]}` is when a task ended: {as_end} tasks of a worker overlap, instead of "
                    f"{as_start} if it were when they began"
                )
        said.append(f"`{found.of['seconds']}` is the time of computing in {near}")
    zero, first = got.zero, float(start.min())
    if zero or -ROUNDED * tasks["seconds"].median() <= first < 0:  # the first end is not the first time
        before = min(first, 0.0)
        for role in own:
            tasks[role] -= before
        start, end, zero = start - before, end - before, zero + before
    tasks["compute_start"], tasks["compute_end"] = start, end
    if {*roles.values()} - {"start", "end", "compute_start", "compute_end"} or got.said != "times are in s":
        said.append(got.said)
    _restarted(tasks, frame, found, said)
    _rounded(tasks, said)
    return zero, got.step


def _like_a_clock(seconds: pd.Series, worker: pd.Series) -> bool:
    """Whether times grow from each row of a worker to the next, in eight rows of each or more."""
    later = seconds.groupby(worker).diff().dropna()
    return bool(len(later) >= 8 * worker.nunique() and (later > 0).all())


def _restarted(tasks: pd.DataFrame, frame: pd.DataFrame, found: Meaning, said: list[str]) -> None:
    """Places steps one after another if their times count from the begin of each step."""
    if "step" not in found.of:
        return
    steps = frame[found.of["step"]]
    own = tasks.groupby([tasks["worker"], steps]).agg({"compute_start": "min", "compute_end": "max"})
    before = own["compute_end"].groupby(level=0).shift().dropna()
    if len(before) < 3 or (own["compute_start"][before.index] < before).mean() < RESTARTED:
        return
    last = tasks["compute_end"].groupby(steps).max()
    begin = steps.map(last.cumsum().shift(fill_value=0.0)).to_numpy(float)
    for column in ("compute_start", "compute_end", *TIMES_OF_A_TRACE):
        if column in tasks:
            tasks[column] += begin
    said.append(
        f"times count from the begin of each `{found.of['step']}`: {len(last)} of them follow one another"
    )


def _rounded(tasks: pd.DataFrame, said: list[str]) -> None:
    """Moves the start of a task to the end of the one before, if they overlap by rounding."""
    order, overlap = doubts.overlaps(tasks)
    small = (overlap > 0) & (overlap <= ROUNDED * tasks["seconds"].median())
    if not small.any():
        return
    rows = order[1:][small]
    start, end = tasks["compute_start"].to_numpy(copy=True), tasks["compute_end"].to_numpy()
    start[rows] = np.minimum(start[rows] + overlap[small], end[rows])
    tasks["compute_start"] = start
    said.append(
        f"{len(rows)} tasks begin up to {overlap[small].max():.2g} s before their worker's task before ends, "
        "by rounding"
    )


def _joined(tasks: pd.DataFrame, frame: pd.DataFrame, found: Meaning, said: list[str]) -> pd.DataFrame:
    """Returns tasks of which each is all operations of one worker, step and part, where there are several."""
    keys = [found.of[role] for role in ("step", "part") if role in found.of]
    kinds = frame[found.of["event"]].nunique() if "event" in found.of else 1
    if not keys or not (kinds > 1 or "part" in found.of):
        return tasks
    group = tasks[["worker"]].assign(**{f"key {i}": frame[key] for i, key in enumerate(keys)})
    if not group.duplicated().any():
        return tasks
    if "compute_start" in tasks:
        order = np.lexsort((tasks["compute_start"], group["key 0"].rank(method="dense")))
        tasks, group = tasks.iloc[order], group.iloc[order]
    columns = {"seconds": "sum"} | {name: "max" for name in ("batch_size",) if name in tasks}
    grouped = tasks.groupby([group[each] for each in group], sort=False).agg(columns)
    made = grouped.reset_index(level="worker").reset_index(drop=True)
    named = "` and `".join(map(str, keys))
    said.append(
        f"operations of one worker and `{named}` are one task, of the sum of their seconds: {len(tasks)} "
        f"rows make {len(made)} tasks of {made['seconds'].median():.3g} s (median)"
    )
    return made


def _unread(found: Meaning) -> list[str]:
    """Returns a sentence for each unread column whose name is almost one of ours."""
    known = [*OF_A_TRACE, "worker", "batch_size", "start", "end", "compute_start", "compute_end", "seconds"]
    usual = {name for names in ALIASES.values() for name in names}
    told = []
    for column in found.unread:
        like = difflib.get_close_matches(plain(column)[0], known, n=1, cutoff=0.82)
        if like and plain(column)[0] not in usual:
            told.append(f"column {column!r} is not read; try {like[0]!r}")
    return told
