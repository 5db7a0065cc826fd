"""Parallel coordinate descent: the optimum of another solver, w = X beta, and where it diverges."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from reference import replay_reference
from scipy import stats

import dmlcore as dml
from dmlcore.cluster.faults import Crash, DoubledPush, LostPush

SHAPE = {"num_samples": 600, "num_features": 512, "num_nonzeros": 10}
TIMES = {"samples_per_second": 125, "latency": 0.01, "jitter": stats.gamma(4, scale=0.25)}


def cluster(num_workers):
    return dml.Cluster.uniform(num_workers, **TIMES).with_stragglers(4, fraction=0.1, mean_tasks=5)


def error(run):
    """How much the loss is above the optimum, relatively."""
    return run.history["loss"].iloc[-1] / dml.problems.lasso(**SHAPE).optimum - 1


def test_a_task_is_the_papers_step_feature_by_feature():
    problem = dml.problems.lasso(num_samples=30, num_features=12, num_nonzeros=4, l1=0.2)
    x, y = problem.data.astype(float), problem.eval_data.astype(float)
    threshold = 0.2 * np.abs(x @ y).max()  # n lambda
    rng = np.random.default_rng(0)
    beta = rng.normal(size=12)
    features = np.array([7, 2, 11])
    view = {"beta": jnp.array(beta[features], "float32"), "w": jnp.array(beta @ x, "float32")}
    pushed = problem.update(view, problem.data[features], jax.random.key(0))
    expected = beta.copy()
    for j in features:
        z = expected[j] + x[j] @ (y - expected @ x)
        expected[j] = np.sign(z) * max(abs(z) - threshold, 0)
    np.testing.assert_allclose(pushed["beta"], (expected - beta)[features], atol=1e-5)
    np.testing.assert_allclose(pushed["w"], (expected - beta) @ x, atol=1e-5)


@pytest.mark.parametrize("staleness", [0, 1, 3, 8])
@pytest.mark.parametrize("num_workers", [1, 8, 32])
def test_the_optimum_is_reached_where_the_bound_on_parallelism_allows_it(staleness, num_workers):
    problem = dml.problems.lasso(**SHAPE)
    assert 4 * num_workers <= dml.theory.parallel_coordinates(problem.data.T)
    run = dml.train(
        problem, cluster(num_workers), dml.ssp(staleness), optax.identity(), samples=40 * 512, batch_size=4,
        until={"loss": (1 + 1e-5) * problem.optimum},
    )  # fmt: skip
    assert -1e-6 < error(run) <= 1e-4


@pytest.mark.parametrize("num_workers", [2, 32])
def test_correlated_features_diverge_beyond_the_bound(num_workers):
    """Two at a time are allowed: 2 workers come near the optimum, 32 go ever farther away."""
    problem = dml.problems.lasso(**SHAPE, correlation=0.45)
    assert 2 < dml.theory.parallel_coordinates(problem.data.T) < 3
    diverges = pytest.warns(UserWarning, match="training diverged")
    with contextlib.nullcontext() if num_workers == 2 else diverges:
        losses = dml.train(
            problem, cluster(num_workers), dml.bsp(), optax.identity(), samples=20 * 512, batch_size=1
        ).history["loss"]
    if num_workers == 2:
        assert losses.iloc[-1] < 1.01 * problem.optimum
    else:
        assert not losses.iloc[-1] < 1e3 * losses.iloc[0]


@pytest.mark.parametrize(
    ("policy", "faults", "optimizer"),
    [
        (dml.ssp(3), (), optax.identity()),
        (dml.ssp(3), (), optax.scale(0.5)),
        (dml.asp(), (), optax.identity()),
        (dml.k_sync(3), (), optax.identity()),
        (dml.essp(1), (Crash(1, 0.5, 1.0), LostPush(0, 3, 0.1), DoubledPush(2, 5, 0.1)), optax.identity()),
    ],
    ids=["ssp", "damped", "asp", "k_sync", "faults"],
)
def test_w_is_x_beta_after_any_schedule(policy, faults, optimizer):
    problem = dml.problems.lasso(**SHAPE)
    rough = cluster(4).with_faults(*faults) if faults else cluster(4)
    run = dml.train(problem, rough, policy, optimizer, updates=300, batch_size=4)
    assert np.abs(run.params["beta"]).sum() > 0
    np.testing.assert_allclose(run.params["w"], run.params["beta"] @ problem.data, atol=1e-5)


def test_lanes_with_steps_of_their_own_are_the_readable_replay():
    problem, steps = dml.problems.lasso(**SHAPE), [optax.scale(0.5), optax.scale(1.5)]
    trace = dml.simulate(dml.ssp(2), cluster(4), updates=120, batch_size=4)
    for step, lane in zip(steps, dml.replay_lanes([trace] * 2, problem, steps), strict=True):
        expected = replay_reference(trace, problem, step)
        assert np.abs(expected["beta"]).sum() > 0
        for name, values in expected.items():
            np.testing.assert_allclose(lane.params[name], values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("step", [optax.sgd(0.1), optax.clip(3.0), optax.add_decayed_weights(0.01)])
def test_an_optimizer_that_does_more_than_to_scale_is_refused(step):
    with pytest.raises(ValueError, match=r"expected optax.identity\(\), or optax.scale of a positive number"):
        dml.train(dml.problems.lasso(**SHAPE), cluster(2), dml.asp(), step, updates=1, batch_size=4)


def test_one_worker_never_goes_up_and_ends_where_no_feature_wants_to_move():
    problem = dml.problems.lasso(**SHAPE)
    run = dml.train(problem, cluster(1), dml.bsp(), optax.identity(), updates=40 * 8, batch_size=64)
    losses = run.history["loss"].to_numpy()
    assert (np.diff(losses) < 1e-6 * losses[0]).all()
    x, y = problem.data.astype(float), problem.eval_data.astype(float)
    pull, threshold = x @ (y - np.asarray(run.params["w"], float)), 0.1 * np.abs(x @ y).max()
    beta = np.asarray(run.params["beta"])
    np.testing.assert_allclose(pull[beta != 0], threshold * np.sign(beta[beta != 0]), rtol=1e-4)
    assert np.abs(pull).max() <= threshold * (1 + 1e-4)
    assert run.history["nonzeros"].iloc[-1] == (beta != 0).sum()


def test_the_largest_penalty_leaves_nothing():
    problem = dml.problems.lasso(**SHAPE, l1=1.0)
    run = dml.train(problem, cluster(4), dml.ssp(1), optax.identity(), updates=50, batch_size=4)
    assert np.abs(run.params["beta"]).max() < 1e-6
    assert run.history["loss"].iloc[-1] == pytest.approx(problem.optimum)


def test_only_w_travels():
    assert dml.problems.lasso(**SHAPE).parameter_bytes == 4 * 600


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"correlation": 1.0}, "correlation: expected .*, got 1.0"),
        ({"l1": 0}, "l1: expected .*, got 0"),
        ({"num_nonzeros": 513}, "num_nonzeros: expected a whole number from 0 to 512.*, got 513"),
        ({"num_samples": 1}, "num_samples: expected .*, got 1"),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        dml.problems.lasso(**SHAPE | wrong)
