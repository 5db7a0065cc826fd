"""What tasks cost that are more than a gradient of shared data: local steps, and samples of one's own shard.

.venv/bin/python benchmarks/tasks.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import numpy as np
import optax
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from replay import BATCH, plain_sgd, replayed
from timing import race, reported, show_race, verdict

import dmlcore as dml
from dmlcore.training.batches import INIT, run_key

STEPS, UPDATES, REPEATS = 16, 500, 9
INNER, OUTER = optax.sgd(0.05), optax.sgd(1.0)


def trace_of(method, updates):
    return dml.simulate(method, dml.Cluster.uniform(8, jitter=stats.expon()), updates=updates)


def plain_scan(problem, gradients):
    """As many gradients and steps of the local optimizer, drawn and compiled."""
    draw = jax.jit(lambda key: jax.random.randint(key, (gradients, BATCH), 0, problem.num_samples))
    return plain_sgd(problem, lambda: draw(run_key(0, INIT)), INNER)


def local_steps():
    problem, local = dml.problems.digits_mlp(), dml.local_steps(STEPS, INNER)
    for name, policy in {"asp()": dml.asp(), "ssp(3)": dml.ssp(3)}.items():
        trace = trace_of(dml.Method(policy, local=local), UPDATES)
        gradients = STEPS * int((trace.tasks["update"] >= 0).sum())
        contenders = {
            "plain scan": plain_scan(problem, gradients),
            "local steps": lambda trace=trace: replayed(trace, problem.with_steps(local, BATCH), OUTER),
        }
        seconds = race(contenders, REPEATS)
        show_race(f"{STEPS} local steps a task, {name}", seconds, gradients, "gradients", "plain scan")
        ratio = seconds["plain scan"] / seconds["local steps"]
        verdict(f"{name}: gradients per second in local steps / in a plain scan", ratio, 0.85)


def shards():
    whole = dml.problems.digits_mlp()
    own = whole.sharded(dml.shards.dirichlet(8, 0.1))
    for name, policy in {"asp()": dml.asp(), "bsp()": dml.bsp()}.items():
        trace = trace_of(policy, 8 * UPDATES if name == "asp()" else UPDATES)
        contenders = {
            "shared data": lambda trace=trace: replayed(trace, whole, INNER),
            "own shards": lambda trace=trace: replayed(trace, own, INNER),
        }
        seconds = race(contenders, REPEATS)
        gradients = int((trace.tasks["update"] >= 0).sum())
        show_race(f"Samples of a worker's own, {name}", seconds, gradients, "gradients", "shared data")
        ratio = np.asarray(seconds["shared data"]) / seconds["own shards"]
        verdict(f"{name}: gradients per second from shards / from shared data", ratio, 0.95)


if __name__ == "__main__":
    with reported("tasks"):
        local_steps()
        shards()
