"""The trace of a run: what every engine records, and what is computed from it."""

from dmlcore.trace.trace import (
    QUEUE_COLUMNS,
    TASK_COLUMNS,
    UPDATE_COLUMNS,
    Trace,
    check_trace,
    cut_computing,
    predecessors,
    starts,
)

__all__ = [
    "QUEUE_COLUMNS",
    "TASK_COLUMNS",
    "UPDATE_COLUMNS",
    "Trace",
    "check_trace",
    "cut_computing",
    "predecessors",
    "starts",
]
