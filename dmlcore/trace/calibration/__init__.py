"""Calibration: fits a cluster to recorded traces, for what-if runs under other policies."""

from dmlcore.trace.calibration.fit import fit_cluster
from dmlcore.trace.calibration.rounds import predicting
from dmlcore.trace.calibration.server import service_times

__all__ = ["fit_cluster", "predicting", "service_times"]
