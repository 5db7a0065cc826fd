"""dmlcore: ways of synchronising distributed training, modelled in JAX, measured, compared with their papers.

Names are imported when first used, so that the command line and the policies do not wait for JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Cluster": "dmlcore.cluster",
    "Method": "dmlcore.types",
    "Policy": "dmlcore.types",
    "Problem": "dmlcore.problems.problem",
    "Run": "dmlcore.experiments.runs",
    "Trace": "dmlcore.trace",
    "a2s": "dmlcore.methods.policies",
    "adaptive_load": "dmlcore.methods.policies",
    "adaptive_sync": "dmlcore.methods.policies",
    "adasync": "dmlcore.methods.policies",
    "asp": "dmlcore.methods.policies",
    "bsp": "dmlcore.methods.policies",
    "calibrate": "dmlcore.trace.calibration",
    "compare": "dmlcore.experiments.comparison",
    "dbw": "dmlcore.methods.policies",
    "dssp": "dmlcore.methods.policies",
    "essp": "dmlcore.methods.policies",
    "explore": "dmlcore.view.explorer",
    "follow": "dmlcore.trace.following",
    "k_async": "dmlcore.methods.policies",
    "k_batch_async": "dmlcore.methods.policies",
    "k_batch_sync": "dmlcore.methods.policies",
    "k_sync": "dmlcore.methods.policies",
    "k_sync_schedule": "dmlcore.methods.policies",
    "n_softsync": "dmlcore.methods.policies",
    "pflug": "dmlcore.methods.policies",
    "replay": "dmlcore.experiments.runs",
    "replay_lanes": "dmlcore.experiments.runs",
    "simulate": "dmlcore.engines",
    "ssp": "dmlcore.methods.policies",
    "sweep": "dmlcore.experiments.comparison",
    "sync_switch": "dmlcore.methods.policies",
    "train": "dmlcore.experiments.runs",
    "tune": "dmlcore.experiments.tuning",
}
_MODULES = {
    "claims": "dmlcore.reproduce.claims",
    "codecs": "dmlcore.methods.codecs",
    "engines": "dmlcore.engines",
    "explorer": "dmlcore.view.explorer",
    "faults": "dmlcore.cluster.faults",
    "loads": "dmlcore.methods.loads",
    "metrics": "dmlcore.trace.metrics",
    "perfetto": "dmlcore.trace.perfetto",
    "plot": "dmlcore.view.plot",
    "policies": "dmlcore.methods.policies",
    "presets": "dmlcore.cluster.presets",
    "problems": "dmlcore.problems",
    "theory": "dmlcore.theory",
    "transport": "dmlcore.methods.transport",
}

__all__ = [*_HOME, *_MODULES]

if TYPE_CHECKING:  # the same names, for type checkers and editors
    from dmlcore import engines, problems, theory  # noqa: F401
    from dmlcore.cluster import (  # noqa: F401
        Cluster,
        faults,
        presets,
    )
    from dmlcore.engines import simulate  # noqa: F401
    from dmlcore.experiments.comparison import compare, sweep  # noqa: F401
    from dmlcore.experiments.runs import Run, replay, replay_lanes, train  # noqa: F401
    from dmlcore.experiments.tuning import tune  # noqa: F401
    from dmlcore.methods import codecs, loads, policies, transport  # noqa: F401
    from dmlcore.methods.policies.a2s import a2s  # noqa: F401
    from dmlcore.methods.policies.adaptive_load import adaptive_load  # noqa: F401
    from dmlcore.methods.policies.adaptive_sync import adaptive_sync  # noqa: F401
    from dmlcore.methods.policies.adasync import adasync  # noqa: F401
    from dmlcore.methods.policies.asp import asp  # noqa: F401
    from dmlcore.methods.policies.bsp import bsp  # noqa: F401
    from dmlcore.methods.policies.dbw import dbw  # noqa: F401
    from dmlcore.methods.policies.dssp import dssp  # noqa: F401
    from dmlcore.methods.policies.essp import essp  # noqa: F401
    from dmlcore.methods.policies.k_async import k_async  # noqa: F401
    from dmlcore.methods.policies.k_batch_async import k_batch_async  # noqa: F401
    from dmlcore.methods.policies.k_batch_sync import k_batch_sync  # noqa: F401
    from dmlcore.methods.policies.k_sync import k_sync  # noqa: F401
    from dmlcore.methods.policies.k_sync_schedule import k_sync_schedule  # noqa: F401
    from dmlcore.methods.policies.n_softsync import n_softsync  # noqa: F401
    from dmlcore.methods.policies.pflug import pflug  # noqa: F401
    from dmlcore.methods.policies.ssp import ssp  # noqa: F401
    from dmlcore.methods.policies.sync_switch import sync_switch  # noqa: F401
    from dmlcore.problems.problem import Problem  # noqa: F401
    from dmlcore.reproduce import claims  # noqa: F401
    from dmlcore.trace import (  # noqa: F401
        Trace,
        metrics,
        perfetto,
    )
    from dmlcore.trace.calibration import calibrate  # noqa: F401
    from dmlcore.trace.following import follow  # noqa: F401
    from dmlcore.types import Method, Policy  # noqa: F401
    from dmlcore.view import explorer, plot  # noqa: F401
    from dmlcore.view.explorer import explore  # noqa: F401


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    else:
        raise AttributeError(f"module 'dmlcore' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
