"""Tables that users bring, with every column checked once."""

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from dmlcore import checks


def check_frame(
    name: str, frame: Any, wanted: Mapping[str, str] | None = None, expected: str = "a DataFrame"
) -> pd.DataFrame:
    """Returns a DataFrame if it has rows, each column once, and those that are wanted.

    Args:
        name: of the argument.
        frame: what was given.
        wanted: column -> what it holds.
        expected: what may be given, for the message.
    """
    if not isinstance(frame, pd.DataFrame):
        checks.fail(name, frame, expected)
    if twice := [*frame.columns[frame.columns.duplicated()]]:
        checks.reject(f"{name}, columns", f"several named {twice}", "a different name for each")
    if not len(frame):
        checks.reject(name, "a table without rows", "at least one row")
    require(name, frame, wanted or {})
    return frame


def check_column(name: str, column: Any, frame: pd.DataFrame) -> None:
    """Raises ValueError unless an argument names a column of a table."""
    checks.choice(name, column, dict.fromkeys(frame.columns))


def require(name: str, frame: pd.DataFrame, wanted: Mapping[str, str]) -> None:
    """Raises one ValueError that lists everything that is missing.

    Args:
        name: of the argument.
        frame: the table.
        wanted: column -> what it holds.
    """
    missing = [f"{column} ({meaning})" for column, meaning in wanted.items() if column not in frame]
    if missing:
        others = [str(column) for column in frame if column not in wanted]
        near = [checks.nearest(column, others) for column in wanted if column not in frame]
        hint = f"renaming {', '.join(filter(None, near))}" if any(near) else ""
        expected = f"columns that include {', '.join(missing)}"
        checks.reject(name, f"columns {[*frame.columns]}", expected, hint)


def numbers(
    name: str, frame: pd.DataFrame, column: str, *, low: float = -np.inf, nan: bool = False
) -> np.ndarray:
    """Returns a column as floats if its numbers are finite and >= `low`, or NaN where that is allowed.

    >>> numbers("frame", pd.DataFrame({"seconds": [1.0, float("nan")]}), "seconds", low=0)
    Traceback (most recent call last):
    ValueError: frame, row 1, column seconds: expected a finite number >= 0, got nan
    """
    bound = f" >= {low:g}" if np.isfinite(low) else ""
    values = _floats(frame[column])
    fits = np.isfinite(values) & (values >= low) | (np.isnan(values) & nan & frame[column].isna().to_numpy())
    refuse(name, frame, column, ~fits, f"a finite number{bound}" + ", or NaN" * nan)
    return values


def integers(
    name: str, frame: pd.DataFrame, column: str, *, low: int, high: int, nan: int | None = None
) -> np.ndarray:
    """Returns a column as whole numbers from `low` to `high`; `nan` stands for those that are NaN.

    >>> integers("frame", pd.DataFrame({"worker": [0, 1.5]}), "worker", low=0, high=99)
    Traceback (most recent call last):
    ValueError: frame, row 1, column worker: expected a whole number from 0 to 99, got 1.5
    """
    values = _floats(frame[column])
    if nan is not None:
        values = np.where(frame[column].isna(), nan, values)
    fits = (values >= low) & (values <= high) & (values == np.floor(values))
    expected = f"a whole number from {low} to {high}" + ", or NaN" * (nan is not None)
    refuse(name, frame, column, ~fits, expected)
    return values.astype(np.int64)


def _floats(values: pd.Series) -> np.ndarray:
    """Returns numbers as floats; NaN for what is none, such as text."""
    if values.dtype.kind in "iuf":
        return values.to_numpy(float, na_value=np.nan)
    plain = [v if isinstance(v, Real) and not isinstance(v, bool) else np.nan for v in values]
    return np.array(plain, float)


def refuse(name: str, frame: pd.DataFrame, column: str, wrong: Any, expected: str) -> None:
    """Raises ValueError that names the first row that is wrong, if there is one."""
    if wrong.any():
        row = int(wrong.argmax())
        value = frame[column].iloc[row]
        given = value.item() if isinstance(value, np.generic) else value
        checks.fail(f"{name}, row {frame.index[row]}, column {column}", given, expected)
