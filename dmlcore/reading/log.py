"""`read_tasks`: one reader of logs, which says what it assumed and what is probably wrong."""

import dataclasses
import difflib
import importlib
import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dmlcore import checks, tables
from dmlcore.reading import doubts
from dmlcore.reading.columns import ALIASES, TIMED, Meaning, chosen, each_of, meaning, plain
from dmlcore.reading.sources import table_of
from dmlcore.reading.times import lengths, read_unit, resolution, stamps

RESTARTED = 0.9  # share of steps that begin before their worker's step before ends, if times start again
LOGGED = "timestamp", "datetime", "date", "logged_at", "ts", "time"  # times that may be those of a task's end
ROUNDED = 1e-3  # overlaps of tasks up to this share of the median task, or a step of stamps, are rounding
# Columns of a trace that are read under their own names, besides those of `ALIASES`.
TIMES_OF_A_TRACE = "pull_start", "push_end", "update_time"
REALS_OF_A_TRACE = "weight", "pull_queued", "push_queued"
WHOLE_OF_A_TRACE = {"clock": 0, "update": -1, "version_read": -1}  # with the least value
OF_A_TRACE = *TIMES_OF_A_TRACE, *REALS_OF_A_TRACE, *WHOLE_OF_A_TRACE
BATCH_SIZE = "batch_size (samples of a task: a column, or for all read_tasks(..., {'batch_size': 32}))"


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
        return self.assumed + tuple(f"Probably wrong: {each}" for each in self.doubted)

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
        counts = f"TaskLog({len(self.names)} workers, {len(self.tasks)} tasks)"
        return "\n- ".join([counts, *self.notes])


def read_tasks(source: Any, columns: Any = None, unit: Any = None, events: Any = None) -> TaskLog:
    """Reads a log of tasks that another system recorded, and says what it assumed.

    Guarantees: what the log does not say is not made up: it is assumed and told in `notes`, or refused in a
    message that names row and column. Nothing that is probably wrong is repaired: `notes` tells it, with the
    number that gives it away, and what to do.

    Args:
        source: a DataFrame, columns, records, or a table with the dataframe interchange protocol; or the path
            of a file: CSV with any separator, Parquet, JSON records, JSON lines, or a Chrome trace
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
    size = checks.integer("batch_size", batch_size, low=1, high=checks.MAX_COUNT)
    return dataclasses.replace(log, tasks=log.tasks.assign(batch_size=size))


def warned(log: TaskLog, source: Any) -> None:
    """Warns of what is probably wrong, unless the source is a log, which has told it."""
    if log is not source:
        for each in log.doubted:
            warnings.warn(each, stacklevel=4)


def read(
    name: str, source: Any, columns: Any = None, unit: Any = None, events: Any = None, lacking: Any = None
) -> TaskLog:
    """Returns the log of `read_tasks`; a log is returned as it is.

    Args:
        name: of the argument that is the source, for messages.
        source: see `read_tasks`.
        columns: see `read_tasks`.
        unit: see `read_tasks`.
        events: see `read_tasks`.
        lacking: function of the columns; returns what else is missing, for the message about columns.
    """
    if isinstance(source, TaskLog):
        if lacking is not None and (more := lacking({*source.tasks})):
            checks.reject(name, f"a log with the columns {[*source.tasks]}", " and ".join(more))
        return source
    table, said = table_of(name, source), list[str]()
    if table.unfinished:
        said.append(f"{table.unfinished} operations or lines have no end and are left out")
    table = chosen(name, table, columns, events, said)
    frame, found = table.frame, meaning(name, table, columns, OF_A_TRACE)
    if table.chrome and unit is None:
        unit = "us"
    _require(name, frame, found, [] if lacking is None else lacking({*found.of, *frame}))
    worker, names = _workers(name, frame, found.of["worker"], said)
    tasks = pd.DataFrame({"worker": worker}, frame.index)
    if (size := found.of.get("batch_size")) is not None:
        if size in [*frame.columns]:
            tasks["batch_size"] = tables.integers(name, frame, size, low=1, high=checks.MAX_COUNT)
        else:
            tasks["batch_size"] = checks.integer("columns, batch_size", size, low=1, high=checks.MAX_COUNT)
        if size != "batch_size":
            said.append(f"`{size}` is the samples of a task")
    for column, low in WHOLE_OF_A_TRACE.items():
        if column in frame:
            nan = -1 if low < 0 else None
            tasks[column] = tables.integers(name, frame, column, low=low, high=checks.MAX_COUNT, nan=nan)
    for column in REALS_OF_A_TRACE:
        if column in frame:
            tasks[column] = tables.numbers(name, frame, column, nan=column == "weight")
    doubted = []
    zero, step = _times(name, tasks, frame, found, unit, said)
    known = [each for each in (*each_of(found.of), *OF_A_TRACE) if each in frame]
    if "compute_start" in tasks and (
        twice := int((frame[known].duplicated() & (tasks["seconds"] > 0)).sum())
    ):
        doubted.append(f"{twice} rows equal another one; leave them out, as with drop_duplicates")
    tasks = _joined(tasks, frame, found, said)
    with np.errstate(over="ignore", invalid="ignore"):
        doubted += doubts.doubts(tasks, names, step, said)
    if "event" in found.of and table.chrome | (events is not None):
        doubted += doubts.collectives(frame[found.of["event"]])
    doubted += _unread(found)
    return TaskLog(tasks.reset_index(drop=True), tuple(said), tuple(doubted), names, zero)


def _require(name: str, frame: pd.DataFrame, found: Meaning, more: list[str]) -> None:
    """Raises one ValueError that lists everything that is missing."""
    wanted = [] if "worker" in found.of else ["worker (number or name)"]
    have = {role for role in TIMED if role in found.of}
    if not have:
        wanted.append("seconds (of computing; or start and end)")
    elif have in ({"start"}, {"end"}):
        (other,) = {"start", "end"} - have
        wanted.append(f"{other} (of computing), or seconds (of computing)")
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
        tables.refuse(name, frame, column, frame[column].isna(), "a worker's number or name")
    if len(columns) > 1:
        values = frame[list(columns)].astype(str).agg(" / ".join, axis=1)
    texts = not pd.api.types.is_numeric_dtype(values) and values.map(type).eq(str).all()
    if texts and (digits := pd.to_numeric(values, errors="coerce")).notna().all():
        values, texts = digits, False
    if not texts:
        told = values.to_frame(columns[0])
        values = pd.Series(tables.integers(name, told, columns[0], low=0, high=2**53), frame.index)
    kinds = sorted(values.unique().tolist(), key=lambda kind: _natural(str(kind)))
    if kinds != [*range(len(kinds))]:
        span = f", {kinds[0]} to {kinds[-1]}" if len(kinds) > 1 else f", {kinds[0]}"
        verb = "names" if len(columns) == 1 else "name"
        said.append(f"`{shown}` {verb} the worker: {len(kinds)} of them{span}")
    elif columns[0] != "worker":
        said.append(f"`{shown}` is the number of the worker: {len(kinds)} of them")
    return pd.Index(kinds).get_indexer(values).astype(np.int64), tuple(kinds)


def _natural(text: str) -> list[tuple[int, Any]]:
    """Returns a key that sorts `n2` before `n10`."""
    return [(0, int(each)) if each.isdecimal() else (1, each) for each in re.split(r"(\d+)", text)]


def _times(
    name: str, tasks: pd.DataFrame, frame: pd.DataFrame, found: Meaning, unit: Any, said: list[str]
) -> tuple[float, float]:
    """Adds `seconds`, and the times of a log that has them; returns its zero, and the step of its stamps."""
    roles = {role: found.of[role] for role in ("start", "end") if role in found.of}
    own = {role: role for role in TIMES_OF_A_TRACE if role in frame} if roles else {}
    units = {role: read_unit(found, unit, role) for role in (*roles, *own)}
    got = stamps(name, frame, roles | own, units) if roles else None
    if len(roles) < 2:
        near = read_unit(found, unit, "seconds")
        if got is not None and near is None:
            near = units[next(iter(roles))] or got.unit
        _lengths(name, tasks, frame, found.of["seconds"], near, said)
    if got is None:
        said.append("rows of a worker stand in the order of its tasks")
        return 0.0, 0.0
    by, step, took = None, got.step, tasks.get("seconds")
    if took is None:
        start, end = got.of["start"], got.of["end"]
        if (wrong := end < start).any():
            row = int(wrong.argmax())
            where = f"{name}, row {frame.index[row]}, worker {tasks['worker'].iloc[row]}, {roles['end']}"
            least = f"a number >= {start[row] + got.zero:.15g} (its {roles['start']})"
            checks.fail(where, float(end[row] + got.zero), least)
        tasks["seconds"] = end - start
    else:
        ((role, column),) = roles.items()
        stamp, by = got.of[role], f"compute_{role}"
        step = max(step, resolution(stamp))
        if role == "start" and plain(column)[0] in LOGGED:
            by = _logged(tasks, stamp, max(ROUNDED * took.median(), step), column, said)
        start, end = stamp, stamp + took.to_numpy()
        if by == "compute_end":
            start, end = stamp - took.to_numpy(), stamp
    zero, first = got.zero, float(start.min())
    if zero or -ROUNDED * tasks["seconds"].median() <= first < 0:  # the first end is not the first time
        before = min(first, 0.0)
        start, end, zero = start - before, end - before, zero + before
        got = got._replace(of={role: times - before for role, times in got.of.items()})
    tasks["compute_start"], tasks["compute_end"] = start, end
    for each in own:
        tasks[each] = got.of[each]
    said.append(got.said)
    _restarted(tasks, frame, found, said)
    _rounded(tasks, step, by, said)
    return zero, 0.0 if by else step


def _lengths(
    name: str, tasks: pd.DataFrame, frame: pd.DataFrame, column: Any, unit: str | None, said: list[str]
) -> None:
    """Adds `seconds` from one or several columns, unless they are a clock: growing in eight rows or more."""
    shown = "` + `".join(map(str, column)) if isinstance(column, tuple) else column
    tasks["seconds"], told = lengths(name, frame, column, unit)
    later = tasks.groupby("worker")["seconds"].diff().dropna()
    if len(later) >= 8 * tasks["worker"].nunique() and (later > 0).all():
        given = f"{column!r}, which grows from each row of a worker to the next, as a clock does"
        checks.reject(f"{name}, columns", given, "two times of each task, or its seconds")
    if column != "seconds":
        middle = f"the median task takes {tasks['seconds'].median():.3g} s"
        said.append(f"`{shown}` is the time of computing in {told}: {middle}")


def _logged(tasks: pd.DataFrame, stamp: np.ndarray, least: float, column: Any, said: list[str]) -> str:
    """Returns whether the date of a line is when its task began or ended: what makes fewer tasks overlap."""
    took = tasks["seconds"].to_numpy()
    overlapping = {}
    for by, start in (("compute_end", stamp - took), ("compute_start", stamp)):
        each = tasks.assign(compute_start=start, compute_end=start + took)
        overlapping[by] = int((doubts.overlaps(each, [by])[1] > least).sum())
    late, early = overlapping.values()
    if late >= early:
        return "compute_start"
    said.append(
        f"`{column}` is when a task ended: {late} tasks of a worker overlap, instead of {early} if it were "
        "when they began"
    )
    return "compute_end"


def _restarted(tasks: pd.DataFrame, frame: pd.DataFrame, found: Meaning, said: list[str]) -> None:
    """Places steps one after another if their times count from the begin of each step."""
    if "step" not in found.of:
        return
    steps = frame[found.of["step"]]
    own = tasks.groupby([tasks["worker"], steps]).agg({"compute_start": "min", "compute_end": "max"})
    earlier = own.groupby(level=0).shift().dropna()
    start = own["compute_start"][earlier.index]
    again, ahead = start < earlier["compute_end"], start > earlier["compute_start"]
    if len(earlier) < 3 or again.mean() < RESTARTED or ahead.mean() >= RESTARTED:
        return
    last = tasks["compute_end"].groupby(steps).max()
    begin = steps.map(last.cumsum().shift(fill_value=0.0)).to_numpy(float)
    for column in ("compute_start", "compute_end", *TIMES_OF_A_TRACE):
        if column in tasks:
            tasks[column] += begin
    said.append(
        f"times count from the begin of each `{found.of['step']}`: {len(last)} of them follow one another"
    )


def _rounded(tasks: pd.DataFrame, step: float, by: str | None, said: list[str]) -> None:
    """Moves tasks that overlap the one before by rounding: their start, or all if `by` is the only stamp."""
    order, overlap = doubts.overlaps(tasks, [by] if by else doubts.STAMPS)
    allowed = max(ROUNDED * tasks["seconds"].median(), step)
    if not 0 < (most := overlap.max(initial=0.0)) <= allowed:
        return
    start, end = (tasks[name].to_numpy()[order] for name in ("compute_start", "compute_end"))
    took, moved = end - start, 0
    for row in np.flatnonzero(np.isfinite(overlap)) + 1:  # a worker's tasks push each other on
        if end[row - 1] > start[row]:
            start[row] = end[row - 1] if by else min(end[row - 1], end[row])
            end[row] = start[row] + took[row] if by else end[row]
            moved += 1
    before = tasks["compute_start"].to_numpy()[order]
    if (start - before).max() > 2 * allowed:
        return
    tasks.loc[tasks.index[order], ["compute_start", "compute_end"]] = np.stack([start, end], axis=1)
    said.append(f"{moved} tasks begin up to {most:.2g} s before their worker's task before ends, by rounding")


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
