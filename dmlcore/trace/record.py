"""The packed record of a run, one row per task, and the frames of a trace made from it."""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np
import pandas as pd

from dmlcore.trace.trace import QUEUE_COLUMNS, TASK_COLUMNS, UPDATE_COLUMNS


class Task(NamedTuple):
    """A task as an engine records it, with the columns of `Trace.tasks`.

    The waiting times in the server's queues are 0 if the server takes no time. Until the task is applied, its
    update is -1 and its weight 0.
    """

    worker: int
    clock: int
    batch_size: int
    version_read: int
    pull_start: float
    compute_start: float
    compute_end: float
    push_end: float
    pull_queued: float
    push_queued: float
    weight: float
    update: int


_COLUMNS = [(name, np.dtype((TASK_COLUMNS | QUEUE_COLUMNS)[name])) for name in Task._fields]
_LAYOUT = Struct("=" + "".join(kind.char for _, kind in _COLUMNS))
# `Task` -> bytes. Engines append rows to one bytearray: it is smaller than tuples and becomes a frame without
# a loop.
pack = _LAYOUT.pack
ROW = _LAYOUT.size  # bytes
# land(record, row * ROW + LANDED, weight, update) writes the last two columns of a task that is applied.
_LANDED = Struct("=di")
land, LANDED = _LANDED.pack_into, ROW - _LANDED.size


class Record:
    """The rows of a packed record; the record may grow meanwhile."""

    def __init__(self, record: bytearray):
        self._record = record

    def __len__(self) -> int:
        return len(self._record) // ROW

    def last(self, worker: int, clock: int) -> int:
        """Returns the last row of a worker's task, or -1; it searches all rows."""
        table = self._table()
        found = np.flatnonzero((table["worker"] == worker) & (table["clock"] == clock))
        return int(found[-1]) if len(found) else -1

    def applied(self, since: int = 0, first: int = 0) -> list[Task]:
        """Returns the tasks of update number `since` and later ones, sorted by update, worker and clock.

        Only the rows from `first` on are searched.
        """
        table = self._table()[first:]
        found = table[table["update"] >= since]
        order = np.lexsort((found["clock"], found["worker"], found["update"]))
        return [Task(*row) for row in found[order].tolist()]

    def last_applied(self) -> int:
        """Returns the last row that is in an update, or 0."""
        rows = np.flatnonzero(self._table()["update"] >= 0)
        return int(rows[-1]) if len(rows) else 0

    def _table(self) -> np.ndarray:
        """Returns the record as an array. It is a view: while it exists, the record cannot grow."""
        return np.frombuffer(self._record, _COLUMNS)


def tasks_frame(record: bytearray, queues: bool = False) -> pd.DataFrame:
    """Returns a trace's tasks from their record; with the columns of waiting times if `queues`."""
    table = np.frombuffer(record, _COLUMNS)
    columns = {name: table[name] for name in Task._fields}
    if not queues:
        return _frame(columns, TASK_COLUMNS)
    columns |= {name: np.maximum(table[name], 0.0) for name in QUEUE_COLUMNS}  # above rounding
    return _frame(columns, TASK_COLUMNS | QUEUE_COLUMNS)


def updates_frame(times: Sequence[float], tasks: pd.DataFrame) -> pd.DataFrame:
    """Returns a trace's updates from their times in seconds, shape (U,), and the tasks of the trace."""
    update, batch_size = tasks["update"].to_numpy(), tasks["batch_size"].to_numpy()
    counts = (np.bincount(update + 1, by, len(times) + 1)[1:] for by in (None, batch_size))
    columns = dict(zip(UPDATE_COLUMNS, (np.array(times, float), *counts), strict=True))
    return _frame(columns, UPDATE_COLUMNS)


def _frame(columns: Mapping[str, np.ndarray], types: Mapping[str, type]) -> pd.DataFrame:
    return pd.DataFrame({name: columns[name].astype(kind) for name, kind in types.items()})
