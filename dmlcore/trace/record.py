"""The record of a run, as frames of its trace."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd

from dmlcore.trace import TASK_COLUMNS, UPDATE_COLUMNS
from dmlcore.types import Policy

# A task as it is recorded, first what orders the simulator's events. Its update and weight come later.
RECORDED = (
    "push_end",
    "sequence",
    "worker",
    "clock",
    "batch_size",
    "version_read",
    "pull_start",
    "compute_start",
    "compute_end",
)


class Task(NamedTuple):
    """A task as an engine recorded it. Its update and weight come later."""

    worker: int
    clock: int
    batch_size: int
    version_read: int
    pull_start: float
    compute_start: float
    compute_end: float
    push_end: float


def recorded(row: tuple) -> Task:
    """Returns the task of a row in the order of `RECORDED`."""
    return Task._make((*row[2:], row[0]))


def tasks_frame(record: Sequence[tuple], landed: Sequence[tuple[int, int, float]]) -> pd.DataFrame:
    """Returns a trace's tasks from `RECORDED` tuples and the (row, update, weight) of those applied."""
    columns = _columns(record, RECORDED) | {
        "update": np.full(len(record), -1),
        "weight": np.zeros(len(record)),
    }
    rows, updates, weights = _columns(landed, ("row", "update", "weight")).values()
    columns["update"][rows.astype(np.int64)] = updates
    columns["weight"][rows.astype(np.int64)] = weights
    return _frame(columns, TASK_COLUMNS)


def updates_frame(updates: Sequence[tuple[float, int, int]]) -> pd.DataFrame:
    """Returns a trace's updates from tuples of time, number of tasks and samples."""
    return _frame(_columns(updates, UPDATE_COLUMNS), UPDATE_COLUMNS)


def not_at_server(policy: Policy, does: str, key: tuple[int, int]) -> ValueError:
    """What to raise where a policy speaks of a push that is not there."""
    worker, clock = key
    return ValueError(
        f"{policy.name} {does} a push that is not at the server: that of worker {worker}, clock {clock}"
    )


def _columns(rows: Sequence[tuple], names: Collection[str]) -> dict[str, np.ndarray]:
    width = len(names)
    table = np.fromiter(chain.from_iterable(rows), np.float64, len(rows) * width).reshape(-1, width)
    return dict(zip(names, table.T, strict=True))


def _frame(columns: Mapping[str, np.ndarray], types: Mapping[str, type]) -> pd.DataFrame:
    return pd.DataFrame({name: columns[name].astype(kind) for name, kind in types.items()})
