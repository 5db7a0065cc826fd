"""Calibration: the cluster that a recorded trace ran on, for what-if runs under other policies."""

from dmlcore.trace.calibration.fit import calibrate
from dmlcore.trace.calibration.server import service_times

__all__ = ["calibrate", "service_times"]
