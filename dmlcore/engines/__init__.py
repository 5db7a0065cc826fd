"""Engines: what drives a policy - a virtual clock here, real clocks elsewhere - and records a trace."""

from __future__ import annotations

from dmlcore.engines.simulator import simulate

ALL_ENGINES = {"simulate": simulate}

__all__ = ["ALL_ENGINES", "simulate"]
