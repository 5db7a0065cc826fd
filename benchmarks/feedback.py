"""What it costs that a policy watches its training: against the same timeline without.

.venv/bin/python benchmarks/feedback.py
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import optax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timing import race, reported, show_race, verdict

import dmlcore as dml
from dmlcore import theory

UPDATES, REPEATS = 1_000, 7
# Too far ahead for any of them to change k, so that both sides make the same timeline.
POLICIES = {
    "pflug(10)": (dml.pflug(10, burn_in=UPDATES), dml.k_sync(10)),
    "pflug(10), a look at every update": (dml.pflug(10, burn_in=UPDATES, observe_every=1), dml.k_sync(10)),
}


def main() -> None:
    optimizer = optax.sgd(0.05)
    problems = {
        "linear regression": dml.problems.linear_regression(num_features=20, standardize=True),
        "digits MLP": dml.problems.digits_mlp(),
    }
    cluster = dml.Cluster.from_response(20, theory.exponential(1.0, 40.0))
    options = {"updates": UPDATES, "batch_size": 40}
    for problem_name, problem in problems.items():

        def run(policy: dml.Policy, problem: dml.Problem = problem) -> dml.Run:
            return dml.train(problem, cluster, policy, optimizer, **options)

        for name, (watching, blind) in POLICIES.items():
            assert run(watching).trace.tasks.equals(run(blind).trace.tasks)
            seconds = race({"without": partial(run, blind), "watching": partial(run, watching)}, REPEATS)
            show_race(f"{name}, 20 workers, {problem_name}", seconds, UPDATES, "updates", "without")
            if "every" not in name:
                what = f"{name} on {problem_name}, looking after every 10 updates / without"
                verdict(what, seconds["without"] / seconds["watching"], 0.3)


if __name__ == "__main__":
    with reported("feedback"):
        main()
