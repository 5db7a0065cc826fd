"""The software versions and the hardware of a run, as far as they may change its numbers."""

import os
import platform
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

_version = cache(metadata.version)
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "scipy", "pandas", "scikit-learn", "matplotlib")


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that numbers and pictures depend on.

    Returns:
        Name of a package, or "python" -> its version.
    """
    return {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES}


def hardware() -> dict[str, str | int]:
    """Returns the number of cores, the CPU model and the kind of device.

    The device is named only if JAX is already imported, since a query would start it.

    Returns:
        The keys are `cores`, `cpu` and `device`.
    """
    jax = sys.modules.get("jax")
    device = jax.devices()[0].device_kind if jax else "not used"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"cores": cores, "cpu": _cpu(), "device": device}


def _cpu() -> str:
    """Returns the CPU's name, with its model numbers on Linux: CPUs of one name can differ much in speed."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    numbers = [f"{key} {told[key]}" for key in ("cpu family", "model") if key in told]
    name = told.get("model name") or platform.processor() or platform.machine()
    return f"{name} ({', '.join(numbers)})" if numbers else name
