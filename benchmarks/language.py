"""How long a study of four methods on the small language model takes: an answer while its reader waits.

.venv/bin/python benchmarks/language.py
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import Any

import optax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timing import console, reported, verdict

import dmlcore as dml

RUNS, LOSS, STEPS, MOST = 10, 2.4, 8, 120.0  # of each method; nats a letter; local steps; seconds


def with_adamw(policy: dml.Policy) -> Any:
    """Every task is one gradient, and AdamW is at the server."""
    return lambda learning_rate: dml.Method(policy, optimizer=optax.adamw(learning_rate))


def diloco(learning_rate: float) -> dml.Method:
    inner = dml.local_steps(STEPS, optax.adamw(0.01), keep_state=True)
    outer = optax.sgd(learning_rate, momentum=0.9, nesterov=True)
    return dml.Method(dml.bsp(), local=inner, optimizer=outer)


def main() -> None:
    problem = dml.problems.language_model()
    narrow = 4 * problem.parameter_bytes  # bytes/s: the parameters in a quarter of a second
    cluster = dml.Cluster.uniform(4, samples_per_second=1000, bandwidth=narrow)
    methods = {
        "AdamW": with_adamw(dml.bsp()),
        "ASP, AdamW": with_adamw(dml.asp()),
        "local SGD": dml.Method(dml.bsp(), local=dml.local_steps(STEPS, optax.sgd(0.5))),
        "DiLoCo": diloco,
    }
    begun = time.perf_counter()
    study = dml.study(methods, problem, cluster, {"loss": LOSS}, budget=RUNS)
    took, used = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    console.print(study.table[["seconds", "outcome", "runs"]].to_string())
    told = f"{took:.0f} s, of a processor {used.ru_utime + used.ru_stime:.0f} s"
    verdict(f"{MOST:.0f} s / a study of {len(methods)} methods ({told})", MOST / took, 1)


if __name__ == "__main__":
    with reported("language"):
        main()
