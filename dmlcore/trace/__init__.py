"""The trace of a run, which every engine records, and the functions that analyse it."""

from dmlcore.trace.trace import Trace, check_trace, cut_computing, predecessors, starts
