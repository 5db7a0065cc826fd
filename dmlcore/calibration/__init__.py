"""Calibration: the cluster that a recorded trace ran on, for what-if runs under other policies."""

from dmlcore.calibration.fit import calibrate

__all__ = ["calibrate"]
