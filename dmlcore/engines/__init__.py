"""Engines, which run a policy on a virtual clock, on threads or on a Ray cluster, and record a trace."""

from dmlcore.engines.engine import ALL_ENGINES, Engine, devices, ray, simulate, simulated, threads

__all__ = ["ALL_ENGINES", "Engine", "devices", "ray", "simulate", "simulated", "threads"]
