"""The record of a run, row by row, and the frames that a trace is made of."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from struct import Struct
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


_COLUMNS = [(name, np.dtype(TASK_COLUMNS[name])) for name in Task._fields]
_LAYOUT = Struct("".join(kind.char for _, kind in _COLUMNS))
# `Task` -> bytes. Engines keep them: smaller than tuples, and a frame is made of them without a loop.
pack = _LAYOUT.pack


class Rows:
    """Reads rows of a record, which are packed and may grow, each as a `Task`."""

    def __init__(self, record: Sequence[bytes]):
        self._record = record

    def __len__(self) -> int:
        return len(self._record)

    def __getitem__(self, row: int) -> Task:
        return Task(*_LAYOUT.unpack(self._record[row]))


def tasks_frame(record: Sequence[bytes], landed: Sequence[tuple[int, int, float]]) -> pd.DataFrame:
    """Returns a trace's tasks from their record and the (row, update, weight) of those applied."""
    rows = np.frombuffer(b"".join(record), _COLUMNS)
    columns = {name: rows[name] for name in Task._fields}
    columns |= {"update": np.full(len(record), -1), "weight": np.zeros(len(record))}
    applied, updates, weights = _columns(landed, ("row", "update", "weight")).values()
    columns["update"][applied.astype(np.int64)] = updates
    columns["weight"][applied.astype(np.int64)] = weights
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
