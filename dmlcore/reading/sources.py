"""Sources of logs: tables in memory, CSV, Parquet, JSON and Chrome traces, in one file or several."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.interchange

from dmlcore import checks, tables

COMPRESSED: Mapping[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
TEXTS = ".csv", ".tsv", ".txt", ".log"
SEPARATORS = ",", ";", "\t", "|", r"\s+"
SUFFIXES = (*TEXTS, ".parquet", ".json", ".jsonl", ".ndjson")
SOURCE = f"a DataFrame, or the path of a log ({', '.join(SUFFIXES)}; .gz, .bz2 or .xz may follow)"
DAMAGED = (pa.ArrowException, OSError, EOFError, ValueError, lzma.LZMAError, zipfile.BadZipFile)


class Table(NamedTuple):
    """The rows of a log.

    Args:
        frame: one row per task or operation.
        chrome: whether it is a Chrome trace, whose times are microseconds.
        unfinished: number of operations without an end, which are left out.
    """

    frame: pd.DataFrame
    chrome: bool = False
    unfinished: int = 0


def table_of(name: str, source: Any) -> Table:
    """Returns the rows of a source.

    Args:
        name: of the argument, for messages.
        source: a DataFrame, a table with the dataframe interchange protocol or Arrow's, a path, a folder, or
            several paths, of which each may be a worker's.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no table, has no rows, or has two columns of one name.
    """
    found = _rows(name, source)
    return found._replace(frame=tables.check_frame(name, found.frame, expected=SOURCE))


def _rows(name: str, source: Any) -> Table:
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.is_dir():
            return _several(name, sorted(each for each in path.iterdir() if _suffix(each) in SUFFIXES), path)
        return _file(name, path)
    if isinstance(source, list | tuple) and source and all(isinstance(s, str | os.PathLike) for s in source):
        return _several(name, [Path(each) for each in source], source)
    if not isinstance(source, pd.DataFrame) and hasattr(source, "__arrow_c_stream__"):
        return Table(pa.table(source).to_pandas())
    if not isinstance(source, pd.DataFrame) and hasattr(source, "__dataframe__"):
        return Table(pyarrow.interchange.from_dataframe(source).to_pandas())
    return Table(source)


def _several(name: str, paths: list[Path], given: Any) -> Table:
    """Returns several files as one table, whose column `file` says where a row stands."""
    if not paths:
        checks.fail(name, str(given), f"a folder with logs ({', '.join(SUFFIXES)})")
    parts = [_file(name, path) for path in paths]
    if len({part.chrome for part in parts}) > 1:
        checks.fail(name, [path.name for path in paths], "files of one kind, all Chrome traces or none")
    frames = [part.frame.assign(file=path.name) for part, path in zip(parts, paths, strict=True)]
    whole = pd.concat(frames, ignore_index=True)
    return Table(whole, parts[0].chrome, sum(part.unfinished for part in parts))


def _suffix(path: Path) -> str:
    """Returns what a file's name ends in, without compression."""
    bare = path.with_suffix("") if path.suffix.lower() in (*COMPRESSED, ".zip", ".zst") else path
    return ".parquet" if bare.suffix.lower() == ".pq" else bare.suffix.lower()


def _file(name: str, path: Path) -> Table:
    kind = _suffix(path)
    if kind not in SUFFIXES:
        checks.fail(name, str(path), SOURCE)
    if not path.is_file():
        raise FileNotFoundError(checks.message(name, repr(str(path)), "a file that exists"))
    try:
        if kind in TEXTS:
            return Table(_csv(path))
        return Table(pd.read_parquet(path)) if kind == ".parquet" else _json(path)
    except DAMAGED as error:
        cause = " ".join(str(error).split())
        found = f"{str(path)!r}, which cannot be read as {kind} ({cause})"
        raise ValueError(checks.message(name, found, "a table")) from error


def _csv(path: Path) -> pd.DataFrame:
    """Reads text with the separator that gives the most columns; with `;` a comma may be decimal."""
    columns = {}
    for separator in SEPARATORS:
        try:
            columns[separator] = len(pd.read_csv(path, sep=separator, nrows=20, comment="#").columns)
        except pd.errors.ParserError:  # the rows have different numbers of columns
            columns[separator] = 0
    best = max(SEPARATORS, key=lambda each: columns[each])
    frame = pd.read_csv(path, sep=best, comment="#", skipinitialspace=True, low_memory=False)
    for column in frame if best == ";" else ():
        if pd.api.types.is_string_dtype(frame[column]):
            numbers = pd.to_numeric(frame[column].str.replace(",", "."), errors="coerce")
            frame[column] = numbers if numbers.notna().all() else frame[column]
    return frame


def _json(path: Path) -> Table:
    """Reads records, JSON lines or a Chrome trace, which may lack its end."""
    opened: Callable[..., Any] = COMPRESSED.get(path.suffix.lower(), open)
    with opened(path, "rt", encoding="utf-8") as file:
        text = file.read()
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        if not text.lstrip().startswith("["):
            return Table(_flat([json.loads(line) for line in text.splitlines() if line.strip()]))
        found = json.loads(text.rstrip().rstrip(",") + "]")  # of a run that was stopped
    about = found if isinstance(found, dict) else {}
    events = about.get("traceEvents", found)
    if isinstance(events, list) and any(isinstance(each, dict) and "ph" in each for each in events):
        return _chrome(events, (about.get("distributedInfo") or {}).get("rank"))
    return Table(_flat(found))


def _flat(found: Any) -> pd.DataFrame:
    """Returns records or columns as a table, in which lists and objects are text."""
    frame = pd.DataFrame(found)
    return frame.map(lambda value: json.dumps(value) if isinstance(value, list | dict) else value)


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else math.nan


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else str(value)


def _chrome(events: Iterable[Any], rank: Any) -> Table:
    """Returns the operations of a Chrome trace: complete events, and pairs of a begin and an end.

    Processes and threads have the names that the trace gives them. The arguments of an operation are columns.
    """
    named: dict[str, dict[Any, str]] = {"process_name": {}, "thread_name": {}}
    rows, begun = [], dict[tuple[Any, Any], list[dict[str, Any]]]()
    for event in events:
        if not isinstance(event, dict):
            continue
        kind, own = event.get("ph"), event.get("args")
        own = own if isinstance(own, dict) else dict[str, Any]()
        lane = _plain(event.get("pid")), _plain(event.get("tid"))
        if kind == "M" and event.get("name") in named and "name" in own:
            named[event["name"]][lane if event["name"] == "thread_name" else lane[0]] = str(own["name"])
        elif kind in ("X", "B"):
            row: dict[str, Any] = {
                key: value for key, value in own.items() if isinstance(value, str | int | float)
            }
            row |= {"name": str(event.get("name", "")), "pid": lane[0], "tid": lane[1]}
            row["ts"] = _number(event.get("ts"))
            if kind == "X":
                rows.append(row | {"dur": _number(event.get("dur", 0))})
            else:
                begun.setdefault(lane, []).append(row)
        elif kind == "E" and begun.get(lane):
            row = begun[lane].pop()
            rows.append(row | {"dur": _number(event.get("ts")) - row["ts"]})
    frame = pd.DataFrame(rows)
    if rows:
        lanes = pd.Series([*zip(frame["pid"], frame["tid"], strict=True)])
        for column, ids, told in (
            ("process", frame["pid"], "process_name"),
            ("thread", lanes, "thread_name"),
        ):
            called = ids.map(named[told])
            own = pd.DataFrame({"pid": frame["pid"], "name": called})
            if called.notna().all() and len(own.drop_duplicates()) == ids.nunique():
                frame[column] = called
        if rank is not None:
            frame["rank"] = rank
    return Table(frame, True, sum(map(len, begun.values())))
