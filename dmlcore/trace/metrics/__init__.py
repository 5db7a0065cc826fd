"""Metrics of runs: pure functions of a trace, or of the tidy frame that `compare` returns.

Each file answers one question: how workers spent their time (`times`), how old the parameters were that they
read (`consistency`), what stale reads cost on a convex problem (`regret`), which method was faster
(`comparison`), and how sure that is (`decision`).
"""

from dmlcore.trace.accounts import accounts as accounts
from dmlcore.trace.metrics.comparison import best_learning_rate as best_learning_rate
from dmlcore.trace.metrics.comparison import crossing as crossing
from dmlcore.trace.metrics.comparison import fair as fair
from dmlcore.trace.metrics.comparison import speedup as speedup
from dmlcore.trace.metrics.comparison import time_to as time_to
from dmlcore.trace.metrics.consistency import clock_gap as clock_gap
from dmlcore.trace.metrics.consistency import clock_staleness as clock_staleness
from dmlcore.trace.metrics.consistency import out_of_turn as out_of_turn
from dmlcore.trace.metrics.consistency import read_window_violations as read_window_violations
from dmlcore.trace.metrics.consistency import staleness as staleness
from dmlcore.trace.metrics.decision import Ratio as Ratio
from dmlcore.trace.metrics.decision import decide as decide
from dmlcore.trace.metrics.regret import Walk as Walk
from dmlcore.trace.metrics.regret import walk as walk
from dmlcore.trace.metrics.times import PHASES as PHASES
from dmlcore.trace.metrics.times import clocks_per_second as clocks_per_second
from dmlcore.trace.metrics.times import fetches as fetches
from dmlcore.trace.metrics.times import makespan as makespan
from dmlcore.trace.metrics.times import phases as phases
from dmlcore.trace.metrics.times import straggling as straggling
from dmlcore.trace.metrics.times import time_breakdown as time_breakdown
from dmlcore.trace.metrics.times import updates_per_second as updates_per_second
