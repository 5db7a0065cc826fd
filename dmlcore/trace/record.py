"""The record of a run, row by row, and the frames that a trace is made of."""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np
import pandas as pd

from dmlcore.trace.trace import QUEUE_COLUMNS, TASK_COLUMNS, UPDATE_COLUMNS


class Task(NamedTuple):
    """A task as an engine records it, by the columns of `Trace.tasks`.

    How long it has waited in a server's queues is 0 where the server takes no time. Until it is applied, its
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
# `Task` -> bytes. Engines append them to one array: smaller than tuples, and a frame without a loop.
pack = _LAYOUT.pack
ROW = _LAYOUT.size  # bytes
# (record, row * ROW + LANDED, weight, update): notes that a task is applied, in its last two columns.
_LANDED = Struct("=di")
land, LANDED = _LANDED.pack_into, ROW - _LANDED.size


class Rows:
    """Reads rows of a record, which are packed and may grow, each as a `Task`."""

    def __init__(self, record: bytearray):
        self._record = record

    def __len__(self) -> int:
        return len(self._record) // ROW

    def __getitem__(self, row: int) -> Task:
        if not 0 <= row < len(self):
            raise IndexError(row)
        return Task(*_LAYOUT.unpack_from(self._record, row * ROW))

    def last(self, worker: int, clock: int) -> int:
        """Returns the last row of a worker's task, -1 where there is none; looks at all of them."""
        table = self._table()
        found = np.flatnonzero((table["worker"] == worker) & (table["clock"] == clock))
        return int(found[-1]) if len(found) else -1

    def applied(self, since: int = 0, first: int = 0) -> list[Task]:
        """Returns the tasks of updates from number `since` on, by update, worker and clock; they are in the
        rows from `first` on."""
        table = self._table()[first:]
        found = table[table["update"] >= since]
        order = np.lexsort((found["clock"], found["worker"], found["update"]))
        return [Task(*row) for row in found[order].tolist()]

    def last_applied(self) -> int:
        """Returns the last row that is in an update, 0 where none is."""
        rows = np.flatnonzero(self._table()["update"] >= 0)
        return int(rows[-1]) if len(rows) else 0

    def _table(self) -> np.ndarray:
        """The record as an array, a view: while there is one, the record cannot grow."""
        return np.frombuffer(self._record, _COLUMNS)


def tasks_frame(record: bytearray, queues: bool = False) -> pd.DataFrame:
    """Returns a trace's tasks from their record; with how long they have waited in queues, where the server
    has some."""
    table = np.frombuffer(record, _COLUMNS)
    columns = {name: table[name] for name in Task._fields}
    if not queues:
        return _frame(columns, TASK_COLUMNS)
    columns |= {name: np.maximum(table[name], 0.0) for name in QUEUE_COLUMNS}  # 0 may be rounded below
    return _frame(columns, TASK_COLUMNS | QUEUE_COLUMNS)


def updates_frame(times: Sequence[float], tasks: pd.DataFrame) -> pd.DataFrame:
    """Returns a trace's updates, made at `times`, seconds, of the tasks that are in them."""
    update, batch_size = tasks["update"].to_numpy(), tasks["batch_size"].to_numpy()
    counts = (np.bincount(update + 1, by, len(times) + 1)[1:] for by in (None, batch_size))
    columns = dict(zip(UPDATE_COLUMNS, (np.array(times, float), *counts), strict=True))
    return _frame(columns, UPDATE_COLUMNS)


def _frame(columns: Mapping[str, np.ndarray], types: Mapping[str, type]) -> pd.DataFrame:
    return pd.DataFrame({name: columns[name].astype(kind) for name, kind in types.items()})
