"""The record of a run, row by row, and the frames that a trace is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dmlcore.trace.trace import TASK_COLUMNS, UPDATE_COLUMNS


class Task(NamedTuple):
    """A task as an engine records it, by the columns of `Trace.tasks`; its update and weight come later."""

    worker: int
    clock: int
    batch_size: int
    version_read: int
    pull_start: float
    compute_start: float
    compute_end: float
    push_end: float


class Rows:
    """Reads rows of a record, which are plain tuples for speed and may grow, each as a `Task`."""

    def __init__(self, record: Sequence[tuple[Any, ...]]):
        self._record = record

    def __len__(self) -> int:
        return len(self._record)

    def __getitem__(self, row: int) -> Task:
        return Task(*self._record[row])


def tasks_frame(record: Sequence[tuple[Any, ...]], landed: Sequence[tuple[int, int, float]]) -> pd.DataFrame:
    """Returns a trace's tasks from their record and the (row, update, weight) of those applied."""
    fate = np.tile([-1.0, 0.0], (len(record), 1))
    applied = _table(landed, 3)
    fate[applied[:, 0].astype(np.int64)] = applied[:, 1:]
    return _frame(np.hstack([_table(record, len(Task._fields)), fate]), TASK_COLUMNS)


def updates_frame(updates: Sequence[tuple[float, int, int]]) -> pd.DataFrame:
    """Returns a trace's updates from tuples of time, number of tasks and samples."""
    return _frame(_table(updates, len(UPDATE_COLUMNS)), UPDATE_COLUMNS)


def _table(rows: Sequence[tuple[Any, ...]], width: int) -> np.ndarray:
    return np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * width).reshape(-1, width)


def _frame(table: np.ndarray, types: Mapping[str, type]) -> pd.DataFrame:
    columns = zip(types.items(), table.T, strict=True)
    return pd.DataFrame({name: column.astype(kind) for (name, kind), column in columns})
