"""Sources of logs: tables in memory, CSV, Parquet, JSON and Chrome traces, in one file or several."""

import bz2
import contextlib
import gzip
import io
import json
import lzma
import math
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.interchange

from dmlcore import checks, tables

PACKED: Mapping[bytes, Callable[[bytes], bytes]] = {  # by the first bytes of a file
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ": lzma.decompress,
    b"\x28\xb5\x2f\xfd": lambda raw: bytes(pa.input_stream(pa.BufferReader(raw), compression="zstd").read()),
    b"PK\x03\x04": lambda raw: _only_member(raw),
}
ENDINGS = ".gz", ".bz2", ".xz", ".zst", ".zip"  # of their names
TEXTS = ".csv", ".tsv", ".txt", ".log"
SEPARATORS = ",", ";", "\t", "|"
SUFFIXES = (*TEXTS, ".parquet", ".json", ".jsonl", ".ndjson")
SOURCE = f"a DataFrame, or the path of a log ({', '.join(SUFFIXES)}; {', '.join(ENDINGS)} may follow)"
DAMAGED = (pa.ArrowException, OSError, EOFError, ValueError, lzma.LZMAError, zlib.error, zipfile.BadZipFile)
ON_GPU = "gpu_user_annotation"  # category of an operation that torch.profiler shows on the GPU once more


class Table(NamedTuple):
    """The rows of a log.

    Args:
        frame: one row per task or operation.
        chrome: whether it is a Chrome trace, whose times are microseconds.
        unfinished: number of operations or lines without an end, which are left out.
    """

    frame: pd.DataFrame
    chrome: bool = False
    unfinished: int = 0


def table_of(name: str, source: Any) -> Table:
    """Returns the rows of a source.

    Args:
        name: of the argument, for messages.
        source: a DataFrame, columns, records, a table with the dataframe interchange protocol or Arrow's, a
            path, a folder, or several paths, of which each may be a worker's.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no table, has no rows, or has two columns of one name.
    """
    found = _rows(name, source)
    return found._replace(frame=tables.check_frame(name, found.frame, expected=SOURCE))


def _rows(name: str, source: Any) -> Table:
    several = isinstance(source, list | tuple) and len(source) > 0
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.is_dir():
            inside = sorted(each for each in path.rglob("*") if _suffix(each) in SUFFIXES and each.is_file())
            return _several(name, inside, path)
        return _file(name, path)
    if several and all(isinstance(each, str | os.PathLike) for each in source):
        return _several(name, [Path(each) for each in source], None)
    if isinstance(source, Mapping) or (several and all(isinstance(each, Mapping) for each in source)):
        try:
            return _numbered(pd.DataFrame(source))
        except ValueError as error:
            checks.reject(name, str(error), "columns of equal lengths")
    if isinstance(source, pd.DataFrame):
        return _numbered(source)
    with contextlib.suppress(pa.ArrowException):  # of a column alone, which is no table
        if hasattr(source, "__arrow_c_stream__"):
            return _numbered(pa.table(source).to_pandas())
        if hasattr(source, "__dataframe__"):
            return _numbered(pyarrow.interchange.from_dataframe(source).to_pandas())
    return Table(source)


def _numbered(frame: pd.DataFrame) -> Table:
    """Returns a table whose rows are numbered, and whose index is among the columns if it has names."""
    return Table(frame.reset_index(drop=all(each is None for each in frame.index.names)))


def _several(name: str, paths: list[Path], folder: Path | None) -> Table:
    """Returns several files as one table, whose column `file` and row numbers say where a row stands."""
    if not paths:
        checks.fail(name, str(folder), f"a folder with logs ({', '.join(SUFFIXES)})")
    parts = [_file(name, path) for path in paths]
    files = [path.relative_to(folder).as_posix() if folder else path.name for path in paths]
    if len({part.chrome for part in parts}) > 1:
        checks.fail(name, files, "files of one kind, all Chrome traces or none")
    frames = [part.frame.assign(file=file) for part, file in zip(parts, files, strict=True)]
    whole = pd.concat(frames)
    whole.index = pd.Index([f"{row} of {file}" for row, file in zip(whole.index, whole["file"], strict=True)])
    return Table(whole, parts[0].chrome, sum(part.unfinished for part in parts))


def _suffix(path: Path) -> str:
    """Returns what a file's name ends in, without compression."""
    bare = path.with_suffix("") if path.suffix.lower() in ENDINGS else path
    return ".parquet" if bare.suffix.lower() == ".pq" else bare.suffix.lower()


def _file(name: str, path: Path) -> Table:
    kind = _suffix(path)
    if kind not in SUFFIXES:
        checks.fail(name, str(path), SOURCE)
    checks.existing_file(name, path)
    try:
        content = path.read_bytes()
        unpack = next((way for magic, way in PACKED.items() if content.startswith(magic)), None)
        content = content if unpack is None else unpack(content)
        if kind == ".parquet":
            return _numbered(pd.read_parquet(io.BytesIO(content)))
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
        return _numbered(_csv(text)) if kind in TEXTS else _json(text)
    except DAMAGED as error:
        cause = " ".join(str(error).split())
        found = f"{str(path)!r}, which cannot be read as {kind} ({cause})"
        raise ValueError(checks.message(name, found, "a table")) from error


def _only_member(raw: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(raw)) as packed:
        if len(packed.namelist()) != 1:
            raise ValueError(f"it has {len(packed.namelist())} files: unpack them into a folder")
        return packed.read(packed.namelist()[0])


def _csv(text: str) -> pd.DataFrame:
    """Reads text with the separator that its first line has most often, else spaces.

    With `;` a comma may be decimal. Lines that begin with # are comments. Rows may end with a separator.
    """
    text = re.sub(r"(?m)^#.*\n?", "", text) if text.startswith("#") or "\n#" in text else text
    names = text.lstrip().partition("\n")[0]
    best = max(SEPARATORS, key=names.count)
    options: Any = {"sep": best if best in names else r"\s+", "skipinitialspace": True}
    head = pd.read_csv(io.StringIO(names), header=None, dtype=str, **options).iloc[0].dropna()
    if head.duplicated().any():  # pandas would number them
        raise ValueError(f"several columns named {[*head[head.duplicated()]]}")
    with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
        try:
            frame = pd.read_csv(io.StringIO(text), low_memory=False, index_col=False, **options)
        except pd.errors.ParserWarning:
            raise ValueError("rows have more fields than the first line has names") from None
    for column in frame if best == ";" else ():
        if pd.api.types.is_string_dtype(frame[column]):
            numbers = pd.to_numeric(frame[column].str.replace(",", "."), errors="coerce")
            frame[column] = numbers if numbers.notna().all() else frame[column]
    return frame


def _json(text: str) -> Table:
    """Reads records, JSON lines or a Chrome trace; the last line, or the trace's end, may be cut."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        if not text.lstrip().startswith("["):
            return _json_lines(text)
        found = json.loads(text.rstrip().rstrip(",") + "]")
    about = found if isinstance(found, dict) else {}
    events = about.get("traceEvents", found)
    if isinstance(events, list) and any(isinstance(each, dict) and "ph" in each for each in events):
        return _chrome(events, (about.get("distributedInfo") or {}).get("rank"))
    return Table(_flat(found))


def _json_lines(text: str) -> Table:
    rows, unfinished = [], 0
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    for number, line in lines:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if not rows or number < lines[-1][0]:
                raise ValueError(f"line {number}: {error}") from error
            unfinished = 1
    return Table(_flat(rows), False, unfinished)


def _flat(found: Any) -> pd.DataFrame:
    """Returns records or columns as a table; an object's entries are columns, and lists are text."""
    records = isinstance(found, list) and all(isinstance(each, dict) for each in found)
    frame = pd.json_normalize(found) if records else pd.DataFrame(found)
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
    rows, begun = [], dict[tuple[Any, ...], list[dict[str, Any]]]()
    for event in events:
        if not isinstance(event, dict):
            continue
        kind, own = event.get("ph"), event.get("args")
        own = own if isinstance(own, dict) else dict[str, Any]()
        lane = _plain(event.get("pid")), _plain(event.get("tid"))
        asynchronous = lane[0], _plain(event.get("cat")), _plain(event.get("id"))
        pair = lane if kind in ("B", "E") else asynchronous
        if kind == "M" and event.get("name") in named and "name" in own:
            named[event["name"]][lane if event["name"] == "thread_name" else lane[0]] = str(own["name"])
        elif kind in ("X", "B", "b"):
            row: dict[str, Any] = {
                key: value for key, value in own.items() if isinstance(value, str | int | float)
            }
            row |= {"name": str(event.get("name", "")), "pid": lane[0], "tid": lane[1]}
            row |= {"ts": _number(event.get("ts")), "category": str(event.get("cat", ""))}
            if kind == "X":
                rows.append(row | {"dur": _number(event.get("dur", 0))})
            else:
                begun.setdefault(pair, []).append(row)
        elif kind in ("E", "e") and begun.get(pair):
            row = begun[pair].pop()
            rows.append(row | {"dur": _number(event.get("ts")) - row["ts"]})
    if not rows:
        raise ValueError("a Chrome trace in which no operation has a begin and an end")
    frame = pd.DataFrame(rows)
    lanes = pd.Series([*zip(frame["pid"], frame["tid"], strict=True)])
    for column, ids, told in (("process", frame["pid"], "process_name"), ("thread", lanes, "thread_name")):
        called = ids.map(named[told])
        own = pd.DataFrame({"pid": frame["pid"], "name": called})
        if called.notna().all() and len(own.drop_duplicates()) == ids.nunique():
            frame[column] = called
    if rank is not None:
        frame["rank"] = rank
    return Table(frame, True, sum(map(len, begun.values())))
