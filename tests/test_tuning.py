"""Tuning: every method's best rate has a worse one on either side, whatever it began with."""

import numpy as np
import optax
import pytest

import dmlcore as dml

CLUSTER = dml.Cluster.from_speeds([1000, 700], latency=0.001)
METHODS = {"BSP": dml.bsp(), "ASP": dml.asp()}
TARGET = 30.0


def tuned(**options):
    problem = dml.problems.linear_regression(num_samples=64, num_features=3)
    given = {"target": TARGET, "start": 1e-4, "seeds": [0, 1], "updates": 40} | options
    return dml.tune(METHODS, problem, CLUSTER, optax.sgd, "loss", **given)


@pytest.mark.parametrize("start", [1e-4, {"BSP": 0.05, "ASP": 1e-3}], ids=["one", "each"])
def test_the_best_has_worse_ones_on_either_side(start):
    runs = tuned(start=start)
    best = dml.metrics.best_learning_rate(runs, "loss", TARGET)
    for name, own in runs.groupby("method"):
        rates = sorted(own["learning_rate"].unique())
        assert rates[0] < best[name] < rates[-1]
        np.testing.assert_allclose(np.diff(np.log2(rates)), 1)  # none left out, none twice
        assert (own.groupby(["learning_rate", "seed"])["update"].min() == 0).all()


def test_runs_are_those_of_a_sweep():
    runs = tuned()
    rate = runs["learning_rate"].iloc[0]
    problem = dml.problems.linear_regression(num_samples=64, num_features=3)
    swept = dml.sweep(METHODS, problem, CLUSTER, optax.sgd, [rate], seeds=[0, 1], updates=40)
    again = runs[runs["learning_rate"] == rate].sort_values(["method", "seed", "update"])
    expected = swept.sort_values(["method", "seed", "update"])
    np.testing.assert_array_equal(again["loss"], expected["loss"])


def test_a_method_may_be_told_its_rate():
    """At each rate it is the method for that rate, and its best is interior like any other's."""
    problem = dml.problems.linear_regression(num_samples=64, num_features=3)
    options = {"seeds": [0, 1], "updates": 40}
    methods = {"DBW": dml.dbw, "BSP": dml.bsp()}
    runs = dml.tune(methods, problem, CLUSTER, optax.sgd, "loss", TARGET, start=1e-4, **options)
    best = dml.metrics.best_learning_rate(runs, "loss", TARGET)
    for name, own in runs.groupby("method"):
        rates = sorted(own["learning_rate"].unique())
        assert rates[0] < best[name] < rates[-1]
    for rate, part in runs[runs["method"] == "DBW"].groupby("learning_rate"):
        told = dml.compare({"DBW": dml.dbw(rate)}, problem, CLUSTER, optax.sgd(rate), **options)
        np.testing.assert_array_equal(part["loss"], told["loss"])


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"x": dml.bsp}, r"methods\['x'\]: expected .*; try calling it"),
        ({"x": dml.ringmaster}, r"methods\['x'\]: expected .*; try calling it"),  # its knob is no rate
        ({"x": dml.fedasync}, r"methods\['x'\]: expected .*; try calling it"),
        ({"x": lambda rate: dml.ssp(rate)}, r"methods\['x'\], staleness: expected .*, got "),
        ({"x": lambda rate: None}, r"methods\['x'\]: expected .*, got None"),
        (dml.bsp(), "methods: expected .*a mapping"),
        ([dml.bsp()], "methods: expected .*a mapping"),
        (None, "methods: expected .*a mapping.*, got None"),
        ({}, "methods: expected .*a mapping.*, got {}"),
    ],
)
def test_what_is_no_method_is_refused(methods, message):
    problem = dml.problems.linear_regression(num_samples=64, num_features=3)
    with pytest.raises(ValueError, match=message):
        dml.tune(methods, problem, CLUSTER, optax.sgd, "loss", TARGET, start=0.03, updates=9)


def test_an_end_is_told():
    with pytest.warns(
        UserWarning, match="after 1 steps the best rate is still the lowest or highest one tried for BSP, ASP"
    ):
        tuned(start=1e-6, steps=1, target=1e9)


def test_a_target_that_nobody_reaches_is_told():
    with pytest.warns(UserWarning, match="no run reached a loss of -1 for BSP, ASP"):
        tuned(target=-1.0, start=0.05)


def test_a_metric_is_checked_before_anything_is_run():
    problem = dml.problems.digits_mlp()
    message = "metric: expected one of 'accuracy', 'loss', 'test_loss'.*, got 'los'"
    with pytest.raises(ValueError, match=message):
        dml.tune(METHODS, problem, CLUSTER, optax.sgd, "los", 1.0, start=0.1, updates=10**9)


def test_wrong_arguments():
    for options, message in (
        ({"start": 0}, "start: expected .*, got 0"),
        ({"start": {"BSP": 1.0}}, "start: expected .*one for each method"),
        ({"factor": 1}, "factor: expected .*, got 1"),
        ({"factor": float("inf")}, "factor: expected a number > 1.*, got inf"),
        ({"target": "low"}, "target: expected a number.*, got 'low'"),
        (
            {"step": 3},
            "argument: expected one of 'start', 'factor', 'steps', 'seeds', 'executor'.*, got 'step'",
        ),
        ({"steps": 0}, "steps: expected .*, got 0"),
        ({"seeds": 3}, "seeds: expected several values, such as a list or a range.*, got 3"),
        ({"seeds": [[0]]}, r"seeds: expected a whole number from 0.*, got \[0\]"),
    ):
        with pytest.raises(ValueError, match=message):
            tuned(**options)
    own = {"mine": dml.Method(dml.bsp(), optimizer=optax.sgd(0.1))}
    with pytest.raises(ValueError, match="without an optimizer of its own"):
        dml.tune(own, dml.problems.digits_mlp(), CLUSTER, optax.sgd, "loss", 1.0, start=0.1, updates=2)
