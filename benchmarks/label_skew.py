"""Rounds that SCAFFOLD, FedDyn and FedProx need on skewed shards, next to FedAvg's, each at its best rate.

.venv/bin/python benchmarks/label_skew.py

Links are free and workers are even, so the ratio of times is that of rounds. Expected, before the first run:
SCAFFOLD needs fewer rounds than FedAvg (Karimireddy et al. 2020), with all workers and with a sample of them,
and so does FedDyn (Acar et al. 2021).
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import optax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timing import console, reported

import dmlcore as dml

STEPS, TARGET, BUDGET = 16, {"loss": 0.3}, 40
POLICIES = {8: dml.bsp(), 16: dml.sampled(4)}  # by the number of workers
CORRECTIONS = {
    "FedAvg": {},
    "FedProx": {"prox": 0.1},
    "SCAFFOLD": {"control_variates": True},
    "FedDyn": {"prox": 0.1, "dynamic": True},
}


@cache  # a new local optimizer would be compiled anew
def method(policy: dml.Policy, name: str, learning_rate: float) -> dml.Method:
    """Local SGD at a rate, with the correction of this name; the server takes the mean."""
    local = dml.local_steps(STEPS, optax.sgd(learning_rate), **CORRECTIONS[name])
    return dml.Method(policy, local=local, optimizer=optax.sgd(1.0))


def of_rate(policy: dml.Policy, name: str):
    """The method as a function of its learning rate."""
    return lambda learning_rate: method(policy, name, learning_rate)


def main() -> None:
    for workers, policy in POLICIES.items():
        problem = dml.problems.digits_mlp(32).sharded(dml.shards.dirichlet(workers, 0.1))
        methods = {name: of_rate(policy, name) for name in CORRECTIONS}
        study = dml.study(methods, problem, dml.Cluster.uniform(workers), TARGET, budget=BUDGET)
        console.print(f"{policy}, {workers} workers, {STEPS} local steps, Dirichlet(0.1), {TARGET}")
        console.print(study)
        for name in [*CORRECTIONS][1:]:
            console.print(study.versus(name, "FedAvg"))


if __name__ == "__main__":
    with reported("label_skew"):
        main()
