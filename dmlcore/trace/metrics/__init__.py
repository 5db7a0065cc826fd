"""Metrics of runs: pure functions of a trace, or of the tidy frame that `compare` returns.

Each file answers one question: how workers spent their time and what a run has cost (`times`), how old the
parameters were that they read, and what that costs on a convex problem (`consistency`), which method was
faster (`comparison`), and how sure that is (`decision`).
"""

from dmlcore.trace.metrics.comparison import best_learning_rate, crossing, fair, speedup, time_to
from dmlcore.trace.metrics.consistency import (
    Walk,
    clock_gap,
    clock_staleness,
    out_of_turn,
    read_window_violations,
    staleness,
    walk,
)
from dmlcore.trace.metrics.decision import Ratio, decide
from dmlcore.trace.metrics.times import (
    PHASES,
    accounts,
    clocks_per_second,
    fetches,
    makespan,
    phases,
    straggling,
    time_breakdown,
    updates_per_second,
)
