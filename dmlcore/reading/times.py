"""Times of a log: stamps and durations, with their units, become seconds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dmlcore import checks, tables
from dmlcore.reading.columns import TIMED, Meaning
from dmlcore.units import TIMES

EPOCHS = {"ns": 1e17, "us": 1e14, "ms": 1e11, "s": 5e8}  # numbers from here on count from 1970: after 1985
LATE = 100  # a log that begins later than this many times its length has a clock of its own
DATE = r"\d{4}[-/]\d|\d[-/.]\d+[-/.]\d|\d{8}T|[A-Z][a-z]{2} +\d"  # what a text with a date has


class Column(NamedTuple):
    """Numbers of a column, and the seconds of one."""

    values: np.ndarray
    scale: float
    said: str  # what they are
    absolute: bool = False  # whether they are times of day


class Stamps(NamedTuple):
    """Times of tasks in seconds from `zero`."""

    of: dict[str, np.ndarray]
    zero: float  # in seconds on the log's clock
    said: str
    step: float  # between two neighbouring numbers that the columns could hold, seconds


def unit_of(name: str, unit: Any, role: str) -> str | None:
    """Returns the unit that the user tells for a role, checked."""
    if isinstance(unit, Mapping):
        for each in unit:
            checks.choice(name, each, dict.fromkeys(TIMED))
        unit = unit.get(role)
    return None if unit is None else str(checks.choice(name, unit, dict.fromkeys(TIMES, unit)))


def number_or_text(name: str, frame: pd.DataFrame, column: str, nan: bool, low: float = -np.inf) -> Column:
    """Returns a column of times as numbers: as they are, from dates, or from texts such as 0:00:01.5."""
    values = frame[column]
    if not pd.api.types.is_numeric_dtype(values):
        values = values.astype(object)
        kind = pd.api.types.infer_dtype(values, skipna=True)
        if kind == "string":
            values = _from_text(name, frame, column, values, values.isna())
        elif kind in ("datetime", "datetime64", "date"):
            values = pd.to_datetime(values, utc=True)
        elif kind in ("timedelta", "timedelta64"):
            values = pd.to_timedelta(values)
        elif kind == "decimal":
            values = values.astype(float)
    if pd.api.types.is_timedelta64_dtype(values):
        whole = values.astype("timedelta64[ns]").astype("int64").to_numpy()
        return _present(name, frame, column, values, Column(whole, 1e-9, "lengths of time"), nan)
    if pd.api.types.is_datetime64_any_dtype(values):
        whole = values.astype("datetime64[ns, UTC]").astype("int64").to_numpy()
        return _present(name, frame, column, values, Column(whole, 1e-9, "ISO stamps", True), nan)
    found = tables.numbers(name, values.to_frame(column), column, nan=nan, low=low)
    kept = values.dtype.kind in "iu"  # floats may not hold all digits
    return Column(values.to_numpy() if kept else found, 1.0, "numbers")


def _present(
    name: str, frame: pd.DataFrame, column: str, values: pd.Series, found: Column, nan: bool
) -> Column:
    """Returns times after a check that none is missing, or with NaN where one is."""
    missing = values.isna().to_numpy()
    if missing.any() and not nan:
        row = frame.index[int(missing.argmax())]
        checks.fail(f"{name}, row {row}, column {column}", frame[column][row], "a time")
    return found._replace(values=np.where(missing, np.nan, found.values)) if missing.any() else found


def _from_text(name: str, frame: pd.DataFrame, column: str, values: pd.Series, missing: Any) -> pd.Series:
    """Returns what texts say, as numbers, dates or lengths of time; refuses the first that says nothing."""
    ways: dict[str, Any] = {
        "a number": lambda: pd.to_numeric(values, errors="coerce"),
        "an ISO time stamp": lambda: pd.to_datetime(values, utc=True, format="ISO8601", errors="coerce"),
        "a time stamp": lambda: pd.to_datetime(values, utc=True, errors="coerce"),
        "a length of time": lambda: pd.to_timedelta(values, errors="coerce"),
    }
    dated = values[~missing].str.contains(DATE).mean() > 0.5 if len(values[~missing]) else False
    for expected, way in ways.items():
        if "stamp" in expected and not dated:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pandas reads texts one by one
            found = way()
        wrong = (found.isna() & ~missing).to_numpy()
        if wrong.mean() < 0.5:
            if wrong.any():
                row = frame.index[int(wrong.argmax())]
                checks.fail(f"{name}, row {row}, column {column}", frame[column][row], expected)
            return found
    row = frame.index[int((~missing).argmax())]
    expected = "a number, a time stamp such as 2024-05-01T12:00:00Z, or a length of time such as 0:00:01.5"
    return checks.fail(f"{name}, row {row}, column {column}", frame[column][row], expected)


def stamps(name: str, frame: pd.DataFrame, of: Mapping[str, str], told: Mapping[str, str | None]) -> Stamps:
    """Returns the times of tasks, from the log's zero on.

    Args:
        name: of the argument that is the source.
        frame: the rows.
        of: role -> column.
        told: role -> unit of its numbers, or None.
    """
    found = {}
    for role, column in of.items():
        nan = role not in ("start", "end")
        each = number_or_text(name, frame, column, nan)
        if each.said == "numbers":
            most = float(np.abs(each.values[~np.isnan(each.values)]).max(initial=0.0))
            epoch = next((unit for unit, least in EPOCHS.items() if most >= least), None)
            unit = told[role] or epoch or "s"
            since = epoch is not None and most * TIMES[unit] >= EPOCHS["s"]
            said = f"{unit} since 1970" if since else f"in {unit}"
            each = each._replace(scale=TIMES[unit], said=said, absolute=since)
        found[role] = each
    first = next(iter(found.values()))
    for role, each in found.items():
        if each.absolute != first.absolute:
            given = f"{of[role]!r}, whose times are {each.said}"
            checks.reject(f"{name}, columns", given, f"times of one clock (others are {first.said})")
    known = {role: each for role, each in found.items() if not np.isnan(each.values).all()}
    begins = [role for role in ("pull_start", "start", "end") if role in known]
    low = {role: float(np.nanmin(known[role].values) * known[role].scale) for role in begins}
    earliest, last = min(low.values()), max(float(np.nanmax(e.values) * e.scale) for e in known.values())
    late = first.absolute or earliest > LATE * (last - earliest) > 0
    zero = earliest if late else 0.0
    same = len({each.scale for each in found.values()}) == 1
    base: Any = min(np.nanmin(found[role].values) for role in begins) if late and same else 0
    times = {}
    for role, each in found.items():
        shifted = (each.values - base) if base else each.values
        times[role] = np.asarray(shifted * each.scale if each.scale != 1 else shifted, float)
        if late and not base:
            times[role] = times[role] - zero
    float32 = [frame[column].dtype for column in of.values() if frame[column].dtype == np.float32]
    step = float(np.spacing(np.float32(last / first.scale))) * first.scale if float32 else 0.0
    said = f"times are {first.said}" + (", zero is the first" if late else "")
    return Stamps(times, zero, said, step)


def lengths(name: str, frame: pd.DataFrame, column: Any, unit: str | None) -> tuple[np.ndarray, str]:
    """Returns durations in seconds, of which several columns are added, and their unit."""
    if isinstance(column, tuple):
        parts = [lengths(name, frame, each, unit) for each in column]
        return np.sum([values for values, _ in parts], axis=0), parts[0][1]
    found = number_or_text(name, frame, column, nan=False, low=0.0)
    if found.absolute:
        given, hint = f"{column!r}, which holds times of day", "columns={'start': ..., 'end': ...}"
        checks.reject(f"{name}, columns", given, "two times of each task, or its seconds", hint)
    if found.said == "numbers":
        found = found._replace(scale=TIMES[unit or "s"], said=unit or "s")
    values = np.asarray(found.values * found.scale if found.scale != 1 else found.values, float)
    if (values < 0).any():
        row = frame.index[int((values < 0).argmax())]
        checks.fail(f"{name}, row {row}, column {column}", str(frame[column][row]), "a time >= 0")
    return values, found.said


def read_unit(meaning: Meaning, unit: Any, role: str) -> str | None:
    """Returns the unit of a role: as the user tells, or as the column's name does."""
    return unit_of("unit", unit, role) or meaning.units.get(role)
