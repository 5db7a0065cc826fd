"""Engines, which run a policy on a virtual clock, on threads or on a Ray cluster, and record a trace."""

from dmlcore.engines.engine import ALL_ENGINES, Engine, devices, ray, simulated, threads
from dmlcore.engines.simulator import simulate

__all__ = ["ALL_ENGINES", "Engine", "devices", "ray", "simulate", "simulated", "threads"]
