"""Evaluations on the way of the compiled loop: where they are, what they stop, what drivers share."""

import jax
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL
from engine_runs import plane
from hypothesis import example, given
from hypothesis import strategies as st

import dmlcore as dml
from dmlcore.training import evaluation, replay
from dmlcore.training.replay import Repeated, Replay

POLICIES = {
    "rounds": dml.bsp(),
    "cached copies": dml.ssp(2),
    "every push": dml.asp(),
    "rounds of more and more": dml.k_sync_schedule([(0.0, 1), (0.5, 2), (1.0, 4)]),
}
# Marks at every update, at some, and none but the last.
MARKS = {"each": range(121), "few": [0, 7, 8, 64, 120], "the last": [120]}


@pytest.fixture(scope="module")
def problem():
    return plane()


def made(policy, problem):
    """A trace, and a driver along it."""
    trace = dml.train(problem, EXPONENTIAL, policy, optax.sgd(0.1), updates=120, eval_every=120).trace
    return trace, Replay([trace], problem, [optax.sgd(0.1)])


def bits(params):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(params)]


@pytest.mark.parametrize("window", [50, 2048])
@pytest.mark.parametrize("marks", MARKS)
@pytest.mark.parametrize("policy", POLICIES)
def test_one_call_is_as_many_steps_with_looks_between(policy, marks, window, problem, monkeypatch):
    """However the rows are cut into calls: the same parameters and metrics, to the bit."""
    monkeypatch.setattr(replay, "MANY_TASKS", window)
    trace, ahead = made(POLICIES[policy], problem)
    found = [metrics for (metrics,) in ahead.looks([[*MARKS[marks]]], {}, ahead=True)]
    step = Replay([trace], problem, [optax.sgd(0.1)])
    assert len(found) == len(MARKS[marks])
    for mark, metrics in zip(MARKS[marks], found, strict=True):
        step.advance(mark)
        expected = step.evaluate()
        assert metrics == {name: float(value) for name, value in expected.items()}
    assert bits(ahead.params()) == bits(step.params())


@pytest.mark.parametrize("policy", POLICIES)
def test_a_target_ends_a_run_where_it_is_reached(policy, problem):
    """A metric that equals its target has reached it; what comes later is not trained."""
    trace, whole = made(POLICIES[policy], problem)
    losses = [metrics["loss"] for (metrics,) in whole.looks([range(121)], {}, ahead=True)]
    least = min(losses[:61])
    for target in (losses[0], losses[5], least, np.nextafter(least, 0)):
        run = dml.replay(trace, problem, optax.sgd(0.1), until={"loss": target}, eval_every=1)
        end = next((number for number, loss in enumerate(losses) if loss <= target), 120)
        assert len(run.history) == end + 1
        assert run.history["loss"].tolist() == losses[: end + 1]
        step = Replay([trace], problem, [optax.sgd(0.1)])
        step.advance(end)
        assert bits(run.params) == bits(step.params())


def test_an_accuracy_is_reached_from_below():
    problem = dml.problems.digits_mlp(8)
    trace, whole = made(dml.asp(), problem)
    seen = [metrics["accuracy"] for (metrics,) in whole.looks([range(121)], {}, ahead=True)]
    target = max(seen[:60])
    run = dml.replay(trace, problem, optax.sgd(0.1), until={"accuracy": target}, eval_every=1)
    assert run.history["accuracy"].tolist() == seen[: seen.index(target) + 1]


@example(-3.402823364973241e38, -1, "loss")
@example(3.402823364973241e38, 1, "accuracy")
@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-2, 2),
    st.sampled_from(["loss", "accuracy"]),
)
def test_targets_are_rounded_such_that_they_are_reached_as_before(target, ulps, name):
    """A metric of 32 bits is at the rounded target where it is at the target itself."""
    problem = dml.problems.digits_mlp(8)
    limit = evaluation.limits(problem, {name: target})[name]
    with np.errstate(over="ignore"):
        metric = np.float32(target)
        for _ in range(abs(ulps)):
            metric = np.nextafter(metric, np.float32(np.copysign(np.inf, ulps)))
    exact = evaluation.reached({name: float(metric)}, {name: target})
    assert bool(evaluation.reached({name: metric}, {name: np.float32(limit)})) == exact


def test_no_target_is_never_reached():
    problem = dml.problems.digits_mlp(8)  # a loss falls, an accuracy rises
    goals = evaluation.limits(problem, {})
    assert set(goals) == set(problem.metrics)
    for value in (-np.inf, -3e38, 0, 3e38, np.inf, np.nan):
        assert not evaluation.reached(dict.fromkeys(goals, np.float32(value)), goals)


@pytest.mark.parametrize("policy", POLICIES)
def test_drivers_of_one_trace_are_those_made_anew(policy, problem):
    trace, _ = made(POLICIES[policy], problem)
    make = Repeated(Replay)
    for optimizer in (optax.sgd(0.1), optax.sgd(0.3), optax.adam(0.01), optax.sgd(0.1)):
        drivers = [each([trace], problem, [optimizer]) for each in (make, Replay)]
        found = [[*driver.looks([[0, 60, 120]], {}, ahead=True)] for driver in drivers]
        assert found[0] == found[1]
        assert bits(drivers[0].params()) == bits(drivers[1].params())


def test_a_run_is_as_few_calls_as_its_rows_are_drawn(problem, monkeypatch):
    """However many evaluations it has, up to as many as a call has room for."""
    calls, advance = [], replay.advance_to_marks
    monkeypatch.setattr(replay, "advance_to_marks", lambda *given: calls.append(given) or advance(*given))
    dml.train(problem, EXPONENTIAL, dml.asp(), optax.sgd(0.1), updates=600, eval_every=20)
    assert len(calls) == 1
