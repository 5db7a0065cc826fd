"""What a run did, in numbers: pure functions of a trace, or of the tidy frame that `compare` returns.

Four questions, a file each: where did the time go (`times`), how old was what the workers read
(`consistency`), what did that cost on a convex problem (`regret`), which method was faster (`comparison`).
"""

from dmlcore.trace.accounts import accounts
from dmlcore.trace.metrics.comparison import (
    Interval,
    best_learning_rate,
    crossing,
    fair,
    interval,
    speedup,
    time_to,
)
from dmlcore.trace.metrics.consistency import (
    clock_gap,
    clock_staleness,
    out_of_turn,
    read_window_violations,
    staleness,
)
from dmlcore.trace.metrics.regret import Walk, walk
from dmlcore.trace.metrics.times import (
    PHASES,
    clocks_per_second,
    fetches,
    makespan,
    phases,
    time_breakdown,
    updates_per_second,
)

__all__ = [
    "PHASES",
    "Interval",
    "Walk",
    "accounts",
    "best_learning_rate",
    "clock_gap",
    "clock_staleness",
    "clocks_per_second",
    "crossing",
    "fair",
    "fetches",
    "interval",
    "makespan",
    "out_of_turn",
    "phases",
    "read_window_violations",
    "speedup",
    "staleness",
    "time_breakdown",
    "time_to",
    "updates_per_second",
    "walk",
]
