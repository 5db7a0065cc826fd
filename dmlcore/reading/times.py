"""Times of a log: stamps and durations, with their units, become seconds."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dmlcore import checks, tables
from dmlcore.reading.columns import TIMED, Meaning
from dmlcore.units import TIMES

SINCE_1970 = 5e8, 4e9  # seconds: stamps between 1985 and 2096
LATE = 100  # a log that begins later than this many times its length has a clock of its own
DATE = r"\d{4}[-/]\d|\d[-/.]\d+[-/.]\d|\d{8}T|[A-Z][a-z]{2} +\d"  # what a text with a date has
STEPS = 60.0, 1.0, 1e-3  # of coarse stamps, seconds
FEW = 8  # times below which their step is not known


class Column(NamedTuple):
    """Numbers of a column, the seconds of one, and what they are.

    Args:
        values: numbers, shape (T,), of which NaN are missing.
        scale: seconds of 1; NaN: not known.
        said: what they are; for numbers their unit, or "".
        absolute: whether they are times of day.
    """

    values: np.ndarray
    scale: float
    said: str
    absolute: bool = False


class Stamps(NamedTuple):
    """Times of tasks in seconds from `zero`.

    Args:
        of: role -> seconds, shape (T,).
        zero: in seconds on the log's clock.
        said: what they are, in a sentence.
        step: between two neighbouring numbers that the columns could hold, seconds.
        unit: of the numbers; None: they are no numbers.
    """

    of: dict[str, np.ndarray]
    zero: float
    said: str
    step: float
    unit: str | None


def read_unit(meaning: Meaning, unit: Any, role: str) -> str | None:
    """Returns the unit of a role: as the user tells, or as the column's name does."""
    if isinstance(unit, Mapping):
        for each in unit:
            checks.choice("unit", each, dict.fromkeys(TIMED))
        unit = unit.get(role)
    return meaning.units.get(role) if unit is None else checks.choice("unit", unit, {u: u for u in TIMES})


def resolution(seconds: np.ndarray) -> float:
    """Returns the step in seconds of which all times are multiples, one of `STEPS`; 0 if there is none.

    >>> resolution(np.array([0, 2, 3, 5, 9, 11, 14, 21.0])), resolution(np.arange(9) / 7)
    (1.0, 0.0)
    """
    us = np.round(1e6 * seconds)
    if len(us) < FEW or us.min() == us.max():
        return 0.0
    return next((step for step in STEPS if not (us % (1e6 * step)).any()), 0.0)


def _column(name: str, frame: pd.DataFrame, column: str, nan: bool, low: float = -np.inf) -> Column:
    """Returns a column of times as numbers: as they are, from dates, or from texts such as 0:00:01.5."""
    values = frame[column]
    if not pd.api.types.is_numeric_dtype(values):
        values = values.astype(object)
        kind = pd.api.types.infer_dtype(values, skipna=True)
        if kind in ("string", "mixed", "mixed-integer"):
            values = _from_text(name, frame, column, values.map(str, na_action="ignore"), values.isna())
        elif kind in ("datetime", "datetime64", "date"):
            values = pd.to_datetime(values, utc=True)
        elif kind in ("timedelta", "timedelta64"):
            values = pd.to_timedelta(values)
        elif kind == "decimal":
            values = values.astype(float)
    kinds: Any = (
        (pd.api.types.is_timedelta64_dtype, "timedelta64[ns]", "lengths of time"),
        (pd.api.types.is_datetime64_any_dtype, "datetime64[ns, UTC]", "ISO stamps"),
    )
    for is_kind, dtype, said in kinds:
        if is_kind(values):
            missing = values.isna().to_numpy()
            if not nan:
                tables.refuse(name, frame, column, missing, "a time")
            whole = values.astype(dtype).astype("int64").to_numpy()
            whole = np.where(missing, np.nan, whole) if missing.any() else whole
            return Column(whole, 1e-9, said, said == "ISO stamps")
    found = tables.numbers(name, values.to_frame(column), column, nan=nan, low=low)
    kept = values.dtype.kind in "iu"  # floats may not hold all digits
    return Column(values.to_numpy() if kept else found, np.nan, "")


def _from_text(name: str, frame: pd.DataFrame, column: str, values: pd.Series, missing: Any) -> pd.Series:
    """Returns what texts say, as numbers, dates or lengths of time; refuses the first that says nothing."""
    said = values[~missing]
    if len(said) and said.str.contains(DATE).mean() > 0.5:
        days = said.str.match(r"\d+\.\d+\.\d").all()  # with dots, the day comes first
        ways: dict[str, Any] = {
            "an ISO time stamp": lambda: pd.to_datetime(values, utc=True, format="ISO8601", errors="coerce"),
            "a time stamp": lambda: pd.to_datetime(values, utc=True, dayfirst=days, errors="coerce"),
        }
    else:
        ways = {
            "a number": lambda: pd.to_numeric(values, errors="coerce"),
            "a length of time": lambda: pd.to_timedelta(values, errors="coerce"),
        }
    wrong, expected = ~missing.to_numpy(), "a number, a time stamp such as 2024-05-01T12:00:00Z, or a length "
    expected += "such as 0:00:01.5"
    for kind, way in ways.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pandas reads texts one by one
            found = way()
        unread = (found.isna() & ~missing).to_numpy()
        if not unread.any():
            return found
        if unread.mean() < 0.5:
            wrong, expected = unread, kind
            break
    row = int(wrong.argmax())
    return checks.fail(f"{name}, row {frame.index[row]}, column {column}", frame[column].iloc[row], expected)


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
        each = _column(name, frame, column, nan=role not in ("start", "end"))
        if not each.said:
            most, (oldest, newest) = float(np.nanmax(np.abs(each.values), initial=0.0)), SINCE_1970
            epoch = [unit for unit in ("s", "ms", "us", "ns") if oldest <= most * TIMES[unit] < newest]
            unit = told[role] or next(iter(epoch), "s")
            since = unit in epoch
            each = Column(each.values, TIMES[unit], f"{unit} since 1970" if since else f"in {unit}", since)
        found[role] = each
    first = next(iter(found.values()))
    for role, each in found.items():
        if each.absolute != first.absolute:
            given = f"{of[role]!r}, whose times are {each.said}"
            checks.reject(f"{name}, columns", given, f"times of one clock (others are {first.said})")
    known = {role: each for role, each in found.items() if not np.isnan(each.values).all()}
    begins = [role for role in ("pull_start", "start", "end") if role in known]
    earliest = min(float(np.nanmin(known[role].values) * known[role].scale) for role in begins)
    last = max(float(np.nanmax(each.values) * each.scale) for each in known.values())
    late = first.absolute or earliest > LATE * (last - earliest) > 0
    zero = earliest if late else 0.0
    same = len({each.scale for each in found.values()}) == 1
    # Large numbers lose digits where they become seconds, so what is subtracted is subtracted before.
    base: Any = min(np.nanmin(found[role].values) for role in begins) if late and same else 0
    times = {}
    for role, each in found.items():
        shifted = (each.values - base) if base else each.values
        times[role] = np.asarray(shifted * each.scale if each.scale != 1 else shifted, float)
        if late and not base:
            times[role] = times[role] - zero
    float32 = any(frame[column].dtype == np.float32 for column in of.values())
    step = float(np.spacing(np.float32(last / first.scale))) * first.scale if float32 else 0.0
    said = f"times are {first.said}" + (", zero is the first" if late else "")
    if first.absolute:
        said += f" ({pd.Timestamp(zero, unit='s'):%Y-%m-%d %H:%M:%S} UTC)"
    numeric = first.said.removeprefix("in ").split()[0]
    return Stamps(times, zero, said, step, numeric if numeric in TIMES else None)


def lengths(name: str, frame: pd.DataFrame, column: Any, unit: str | None) -> tuple[np.ndarray, str]:
    """Returns durations in seconds, of which several columns are added, and their unit."""
    if isinstance(column, tuple):
        parts = [lengths(name, frame, each, unit) for each in column]
        return np.sum([values for values, _ in parts], axis=0), parts[0][1]
    found = _column(name, frame, column, nan=False, low=0.0)
    if found.absolute:
        given, hint = f"{column!r}, which holds times of day", "columns={'start': ..., 'end': ...}"
        checks.reject(f"{name}, columns", given, "two times of each task, or its seconds", hint)
    if not found.said:
        found = found._replace(scale=TIMES[unit or "s"], said=unit or "s")
    values = np.asarray(found.values * found.scale if found.scale != 1 else found.values, float)
    tables.refuse(name, frame, column, values < 0, "a time >= 0")
    return values, found.said
