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
    "Run": "dmlcore.runs",
    "Trace": "dmlcore.trace",
    "a2s": "dmlcore.policies",
    "adaptive_load": "dmlcore.policies",
    "adaptive_sync": "dmlcore.policies",
    "adasync": "dmlcore.policies",
    "asp": "dmlcore.policies",
    "bsp": "dmlcore.policies",
    "calibrate": "dmlcore.calibration",
    "compare": "dmlcore.comparison",
    "dbw": "dmlcore.policies",
    "dssp": "dmlcore.policies",
    "essp": "dmlcore.policies",
    "explore": "dmlcore.explorer",
    "follow": "dmlcore.following",
    "k_async": "dmlcore.policies",
    "k_batch_async": "dmlcore.policies",
    "k_batch_sync": "dmlcore.policies",
    "k_sync": "dmlcore.policies",
    "k_sync_schedule": "dmlcore.policies",
    "n_softsync": "dmlcore.policies",
    "pflug": "dmlcore.policies",
    "replay": "dmlcore.runs",
    "replay_lanes": "dmlcore.runs",
    "simulate": "dmlcore.engines",
    "ssp": "dmlcore.policies",
    "sweep": "dmlcore.comparison",
    "sync_switch": "dmlcore.policies",
    "train": "dmlcore.runs",
    "tune": "dmlcore.tuning",
}
_MODULES = (
    "claims",
    "codecs",
    "engines",
    "explorer",
    "faults",
    "loads",
    "metrics",
    "perfetto",
    "plot",
    "policies",
    "presets",
    "problems",
    "theory",
    "transport",
)

__all__ = [*_HOME, *_MODULES]

if TYPE_CHECKING:  # the same names, for type checkers and editors
    from dmlcore import (  # noqa: F401
        claims,
        codecs,
        engines,
        explorer,
        faults,
        loads,
        metrics,
        perfetto,
        plot,
        policies,
        presets,
        problems,
        theory,
        transport,
    )
    from dmlcore.calibration import calibrate  # noqa: F401
    from dmlcore.cluster import Cluster  # noqa: F401
    from dmlcore.comparison import compare, sweep  # noqa: F401
    from dmlcore.engines import simulate  # noqa: F401
    from dmlcore.explorer import explore  # noqa: F401
    from dmlcore.following import follow  # noqa: F401
    from dmlcore.policies import (  # noqa: F401
        a2s,
        adaptive_load,
        adaptive_sync,
        adasync,
        asp,
        bsp,
        dbw,
        dssp,
        essp,
        k_async,
        k_batch_async,
        k_batch_sync,
        k_sync,
        k_sync_schedule,
        n_softsync,
        pflug,
        ssp,
        sync_switch,
    )
    from dmlcore.problems.problem import Problem  # noqa: F401
    from dmlcore.runs import Run, replay, replay_lanes, train  # noqa: F401
    from dmlcore.trace import Trace  # noqa: F401
    from dmlcore.tuning import tune  # noqa: F401
    from dmlcore.types import Method, Policy  # noqa: F401


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"dmlcore.{name}")
    else:
        raise AttributeError(f"module 'dmlcore' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(["__version__", *__all__])
