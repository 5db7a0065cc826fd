"""Time that sparse pushes need over narrow links, with and without error feedback, next to whole ones.

.venv/bin/python benchmarks/sparse.py

A push of all values takes four times as long as a task, and so does a pull, which has all values under
every method: a round of sparse pushes can take 5 / 9 of the time. Expected, before the first run: top-k with
error feedback reaches the loss sooner than whole pushes (Stich et al. 2018), and sooner than top-k without;
random-k with error feedback is slower than top-k with it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timing import console, reported

import dmlcore as dml

WORKERS, TARGET, BUDGET = 8, {"loss": 0.3}, 40
CODECS = ["top_k(0.01)", "error_feedback(top_k(0.01))", "error_feedback(random_k(0.01, unbiased=False))"]


def main() -> None:
    problem = dml.problems.digits_mlp(32)
    computing = 0.032  # seconds, of 32 samples at 1000 a second
    cluster = dml.Cluster.uniform(WORKERS, bandwidth=problem.parameter_bytes / (4 * computing))
    methods = {"whole": dml.Method(dml.bsp())}
    methods |= {codec: dml.Method(dml.bsp(), transport=f"coded(push={codec})") for codec in CODECS}
    study = dml.study(methods, problem, cluster, TARGET, budget=BUDGET)
    console.print(f"bsp(), {WORKERS} workers, {TARGET}, {cluster.regime(problem)}")
    console.print(study)
    for codec in CODECS:
        console.print(study.versus(codec, "whole"))
    console.print(study.versus(*CODECS[:2]))


if __name__ == "__main__":
    with reported("sparse"):
        main()
