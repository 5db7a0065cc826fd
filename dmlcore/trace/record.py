"""The record of a run, row by row, and the frames that a trace is made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    columns = _columns(record, Task._fields)
    columns |= {"update": np.full(len(record), -1), "weight": np.zeros(len(record))}
    rows, updates, weights = _columns(landed, ("row", "update", "weight")).values()
    columns["update"][rows.astype(np.int64)] = updates
    columns["weight"][rows.astype(np.int64)] = weights
    return _frame(columns, TASK_COLUMNS)


def updates_frame(updates: Sequence[tuple[float, int, int]]) -> pd.DataFrame:
    """Returns a trace's updates from tuples of time, number of tasks and samples."""
    return _frame(_columns(updates, UPDATE_COLUMNS), UPDATE_COLUMNS)


def _columns(rows: Sequence[tuple[Any, ...]], names: Collection[str]) -> dict[str, np.ndarray]:
    width = len(names)
    table = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * width).reshape(-1, width)
    return dict(zip(names, table.T, strict=True))


def _frame(columns: Mapping[str, np.ndarray], types: Mapping[str, type]) -> pd.DataFrame:
    return pd.DataFrame({name: columns[name].astype(kind) for name, kind in types.items()})
