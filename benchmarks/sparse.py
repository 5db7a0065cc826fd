"""Time that sparse pushes need over narrow links, with and without error feedback, next to whole ones.

.venv/bin/python benchmarks/sparse.py

A push of all values takes four times as long as a task, and so does a pull, which has all values under
every method: a round of sparse pushes can take 5 / 9 of the time. Expected, before the first run: to the
loss, top-k with error feedback is faster than whole pushes (Stich et al. 2018) and than top-k without it;
random-k with error feedback is slower than top-k with it. Expected, before the first run with PowerSGD
(rank 1 sends 180 of 2410 values): with error feedback it is faster than whole pushes, and than without it
(Vogels et al. 2019); how it compares with top-k is open.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timing import console, reported

import dmlcore as dml

WORKERS, TARGET, BUDGET = 8, {"loss": 0.3}, 200
CODECS = ["top_k(0.01)", "error_feedback(top_k(0.01))", "error_feedback(random_k(0.01, unbiased=False))"]
CODECS += ["power_sgd(1)", "error_feedback(power_sgd(1))"]
FAST = {CODECS[1], CODECS[-1]}


def main() -> None:
    problem = dml.problems.digits_mlp(32)
    computing = 0.032  # seconds, of 32 samples at 1000 a second
    cluster = dml.Cluster.uniform(WORKERS, bandwidth=problem.parameter_bytes / (4 * computing))
    methods = {"whole": dml.Method(dml.bsp())}
    methods |= {codec: dml.Method(dml.bsp(), transport=f"coded(push={codec})") for codec in CODECS}
    console.print(f"bsp(), {WORKERS} workers, {TARGET}, {cluster.regime(problem)}")
    # No run lasts longer than four times the best, so the slower ones are studied once more without the fast.
    for compared in (methods, {name: methods[name] for name in methods if name not in FAST}):
        study = dml.study(compared, problem, cluster, TARGET, budget=BUDGET)
        console.print(study)
        for codec in [*compared][1:]:
            console.print(codec, study.versus(codec, "whole"))


if __name__ == "__main__":
    with reported("sparse"):
        main()
