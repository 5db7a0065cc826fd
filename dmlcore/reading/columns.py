"""What the columns of a log mean: usual names, units in names, and the operations that are a task."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dmlcore import checks, tables
from dmlcore.files import table
from dmlcore.reading.sources import ON_GPU, Table
from dmlcore.units import TIMES

NAMES = table(__file__, "columns")
ALIASES: Mapping[str, Sequence[str]] = NAMES["aliases"]
TIMED = "start", "end", "seconds"
SEVERAL = "worker", "seconds"  # roles that several columns may have together
COLLECTIVE = re.compile(r"(?i)all.?reduce|all.?gather|reduce.?scatter|broadcast|nccl|negotiate|barrier|wait")
STEP = re.compile(r"ProfilerStep#\d+")
LISTED = 8  # names that a message lists
UNITS = {unit: unit for unit in TIMES} | {name: unit for unit, own in NAMES["units"].items() for name in own}
UNIT = re.compile(rf"^(.+?)[_ (\[]+({'|'.join(sorted(UNITS, key=len, reverse=True))})[)\]]?$")


class Meaning(NamedTuple):
    """Which columns have which role.

    Args:
        of: role -> column; for the worker a tuple of columns.
        units: role of a time -> the unit that its name tells.
        unread: columns without a role.
    """

    of: dict[str, Any]
    units: dict[str, str]
    unread: list[Any]


def plain(name: Any) -> tuple[str, str | None]:
    """Returns a column's name as words with `_` between, and the unit that it ends in.

    >>> plain("startTime (ms)"), plain("duration_us"), plain("ts")
    (('start_time', 'ms'), ('duration', 'us'), ('ts', None))
    """
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name).strip()).lower()
    unit = UNIT.match(text)
    text, found = (unit[1], UNITS[unit[2]]) if unit else (text, None)
    return re.sub(r"[\s\-.]+", "_", text).strip("_"), found


def meaning(name: str, table: Table, columns: Any, exact: Sequence[str]) -> Meaning:
    """Returns what the columns mean: as told, or by their usual names.

    Args:
        name: of the argument that is the source.
        table: the rows.
        columns: role -> column, from the user; may be None.
        exact: further columns of a trace, which are read under their own names.

    Raises:
        ValueError: a role or a column does not exist, or two columns mean the same.
    """
    frame = table.frame
    told, units = _told(columns, frame), dict[str, str]()
    of = dict(told)
    words = {column: plain(column) for column in frame}
    for own, short in (("compute_start", "start"), ("compute_end", "end")):
        if own in frame and short in frame and short not in of:
            found = f"both {short!r} and {own!r}"
            checks.reject(f"{name}, columns", found, "one of the two (they mean the same)")
    taken = {*each_of(of)}
    for role, aliases in ALIASES.items():
        free = [column for column in frame if column not in taken]
        usual = {words[each][0]: each for each in free if words[each][1] is None or role in TIMED}
        usual |= {str(column): column for column in free}
        column = next((usual[alias] for alias in aliases if alias in usual), None)
        if role not in of and column is not None:
            of[role] = (column,) if role == "worker" else column
            taken.add(column)
    if "worker" not in told and table.chrome:
        of["worker"] = _lanes(frame)
    elif "worker" in of.keys() - told and words[of["worker"][0]][0] in NAMES["hosts"]["names"]:
        within = NAMES["hosts"]["within"]
        of["worker"] += tuple(each for each in frame if words[each][0] in within and each not in taken)[:1]
    if {"worker", "seconds"} <= {*of} and not {"start", "end"} & {*of}:
        when = next((column for column in frame if words[column][0] == "time" and column not in taken), None)
        if when is not None and _grows(frame, of["worker"], when):
            of["start"] = when
    for role in TIMED:
        named = {words[each][1] for each in each_of({role: of[role]})} if role in of else {None}
        if len(named) == 1 and (unit := named.pop()):
            units[role] = unit
    read = {*exact, *each_of(of)}
    return Meaning(of, units, [column for column in frame if column not in read])


def _grows(frame: pd.DataFrame, worker: tuple[str, ...], column: Any) -> bool:
    """Whether a column `time` says when, not how long: dates, or numbers that grow with a worker's rows."""
    if not pd.api.types.is_numeric_dtype(frame[column]):
        return True
    return bool((frame.groupby([*worker])[column].diff().dropna() > 0).all())


def each_of(of: Mapping[str, Any]) -> list[Any]:
    """Returns all columns that have a role, of which several may name the worker."""
    return [each for value in of.values() for each in (value if isinstance(value, tuple) else (value,))]


def _told(columns: Any, frame: pd.DataFrame) -> dict[str, Any]:
    """Returns the columns that the user names, checked."""
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        checks.fail("columns", columns, "role -> column, such as {'worker': 'host', 'seconds': 'took'}")
    found: dict[str, Any] = {}
    for role, column in columns.items():
        checks.choice("columns", role, ALIASES)
        several = isinstance(column, list | tuple) and role in SEVERAL
        own = tuple(column) if several else (column,)
        for each in own:
            if each not in [*frame.columns] and not (role == "batch_size" and isinstance(each, int)):
                listed = ", ".join(map(repr, frame.columns))
                near = checks.nearest(each, map(str, frame.columns))
                checks.fail(f"columns, {role}", each, f"one of {listed}", near)
        found[role] = own if role == "worker" or several else column
    return found


def _lanes(frame: pd.DataFrame) -> tuple[str, ...]:
    """Returns the columns that name the worker of an operation of a Chrome trace."""
    for column in ("rank", "file"):
        if column in frame:
            return (column,)
    process = "process" if "process" in frame else "pid"
    thread = "thread" if "thread" in frame else "tid"
    several = frame[["pid", "tid"]].drop_duplicates()["pid"].duplicated().any()
    return (process, thread) if several else (process,)


def chosen(name: str, table: Table, columns: Any, events: Any, notes: list[str]) -> Table:
    """Returns the rows of the operations that are a task's computing.

    Args:
        name: of the argument that is the source.
        table: the rows.
        columns: role -> column, from the user; may be None.
        events: a name or a regular expression, several, or column -> values; None: all rows, if they are of
            one kind.
        notes: what was assumed is added here.

    Raises:
        ValueError: there are several kinds of operations and none is chosen, or none is as chosen.
    """
    frame = table.frame
    if table.chrome and (twice := frame["category"] == ON_GPU).any() and not twice.all():
        notes.append(f"{int(twice.sum())} operations are marks on the GPU of others, and are left out")
        table, frame = table._replace(frame=frame[~twice]), frame[~twice]
    told = columns.get("event") if isinstance(columns, Mapping) else None
    words = {plain(column)[0]: column for column in reversed(frame.columns)}
    known = [words[alias] for alias in ALIASES["event"] if alias in words]
    column = told if told in frame else next(iter(known), None)
    if events is None:
        if column is None or pd.api.types.is_numeric_dtype(frame[column]):
            return table
        steps = frame[column].map(str).str.fullmatch(STEP) if table.chrome else np.zeros(len(frame), bool)
        if steps.any():
            notes.append(f"a task is a `ProfilerStep`: {int(steps.sum())} of {len(frame)} operations")
            return table._replace(frame=frame[steps])
        counts = frame[column].value_counts()
        counts = counts[counts > 0]
        if len(counts) > 1 and (
            table.chrome or {"optype", "op", "operation", "event", "phase"} & {plain(column)[0]}
        ):
            most = ", ".join(f"{each!r} ({count}x)" for each, count in counts.head(LISTED).items())
            more = f" and {len(counts) - LISTED} more" if len(counts) > LISTED else ""
            expected = f"the operations that are a task's computing: {most}{more}"
            checks.fail(
                "events", None, expected, "names or patterns of them, as in events='forward|backward'"
            )
        return table
    if not isinstance(events, Mapping):
        if column is None:
            checks.fail("events", events, "column -> values (no column names the operations)")
        events = {column: events}
    kept, shown = np.ones(len(frame), bool), list[str]()
    for each, given in events.items():
        with checks.within("events"):
            tables.check_column("column", each, frame)
        wanted = given if isinstance(given, list | tuple | set) else [given]
        kept &= _matching(frame[each], wanted)
        shown.append(f"`{each}` {' or '.join(map(str, wanted))}")
    if not kept.any():
        checks.fail("events", events, f"operations of which there is at least one in {name}")
    notes.append(f"{int(kept.sum())} of {len(frame)} rows are chosen: {'; '.join(shown)}")
    return table._replace(frame=frame[kept])


def _matching(values: pd.Series, wanted: Iterable[Any]) -> np.ndarray:
    """Returns which values are one of those wanted; text that is no value is a regular expression."""
    found = np.zeros(len(values), bool)
    kinds = values.drop_duplicates()
    texts = kinds.astype(object).map(str)
    for each in wanted:
        same = (kinds == each) | (texts == str(each))
        if not same.any() and isinstance(each, str):
            try:
                pattern = re.compile(each)
            except re.error:
                checks.fail("events", each, "a name or a regular expression")
            same = texts.map(lambda text, pattern=pattern: bool(pattern.search(text)))
        if not same.any():
            near = difflib.get_close_matches(str(each), texts, n=1)
            listed = ", ".join(map(repr, texts.head(LISTED)))
            checks.fail("events", each, f"operations such as {listed}", repr(near[0]) if near else "")
        found |= values.isin(kinds[same]).to_numpy()
    return found
