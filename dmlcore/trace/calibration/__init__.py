"""Calibration: the cluster that a recorded trace ran on, for what-if runs under other policies."""

from dmlcore.trace.calibration.fit import calibrate

__all__ = ["calibrate"]
