"""Delay compensation (DC-ASGD): the formula, on every replay and every engine."""

import itertools

import jax
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, MIXED
from engine_runs import check_replay, plane, relative_error, same_bits
from reference import replay_reference

import dmlcore as dml
from dmlcore.training.mesh import ShardedReplay
from dmlcore.types import Observation

STRENGTH = 2.0  # enough to tell runs apart
POLICIES = {
    "asp": dml.asp(),
    "adaptive_sync": dml.adaptive_sync(4, behind=4, damping="none"),
    "k_async": dml.k_async(2),
}
OPTIMIZERS = {"sgd": optax.sgd(0.1), "momentum": optax.sgd(0.02, momentum=0.9)}


def train(policy, optimizer=OPTIMIZERS["sgd"], problem=None, cluster=MIXED, **options):
    options = {"updates": 120, "seed": 4, "eval_every": 120, "compensation": STRENGTH} | options
    return dml.train(problem or plane(), cluster, policy, optimizer, **options)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("policy", POLICIES)
def test_compiled_equals_reference(policy, optimizer):
    with jax.enable_x64(True):
        problem = plane("float64")
        run = train(POLICIES[policy], OPTIMIZERS[optimizer], problem, updates=60)
        wanted = replay_reference(run.trace, problem, OPTIMIZERS[optimizer])
        assert relative_error(run.params, wanted) <= 1e-10
        plain = train(POLICIES[policy], OPTIMIZERS[optimizer], problem, updates=60, compensation=0.0)
        assert relative_error(run.params, plain.params) > 1e-5, "it does something"


def test_one_stale_gradient_by_hand():
    """Linear regression on two workers: the second gradient was taken on version 0 and lands on version 1."""
    with jax.enable_x64(True):
        problem = dml.problems.linear_regression(num_samples=50, num_features=3, dtype="float64")
        cluster, rate = dml.Cluster.from_speeds([100, 90]), 1e-3
        plain = {"compensation": 0.0, "problem": problem, "cluster": cluster}
        one, two = (train(dml.asp(), optax.sgd(rate), updates=u, **plain) for u in (1, 2))
        assert two.trace.tasks.query("update == 1")["version_read"].item() == 0
        start = train(dml.asp(), optax.sgd(0.0), updates=1, **plain).params
        g = jax.tree.map(lambda after, before: (before - after) / rate, two.params, one.params)
        options = plain | {"compensation": 0.5}
        made = train(dml.asp(), optax.sgd(rate), updates=2, **options).params
        wanted = jax.tree.map(lambda w1, w, g: w1 - rate * (g + 0.5 * g * g * (w1 - w)), one.params, start, g)
        assert relative_error(made, wanted) <= 1e-10


def test_without_staleness_there_is_nothing_to_compensate():
    one, two = (train(dml.bsp(), compensation=strength) for strength in (0.0, STRENGTH))
    assert same_bits(one.params, two.params)


@pytest.mark.parametrize("policy", POLICIES)
def test_on_threads_the_trace_replays_to_the_parameters(policy):
    engine = dml.engines.threads(time_scale=0.05)
    run = train(POLICIES[policy], cluster=EXPONENTIAL, engine=engine)
    assert run.trace.metadata["compensation"] == STRENGTH
    check_replay(run, plane(), OPTIMIZERS["sgd"])


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_under_faults(policy, seed):
    """Crashes, hangs, lost and doubled pushes, a server that forgets: still what the reference says."""
    faults = [*dml.faults.random_faults(4, 1.0, seed=seed), dml.faults.ServerCrash(0.5, 0.1)]
    cluster = EXPONENTIAL.with_faults(*faults, patience=0.1, checkpoint_every=10)
    with jax.enable_x64(True):
        problem = plane("float64")
        run = train(POLICIES[policy], problem=problem, cluster=cluster, updates=None, seconds=1.0)
        kinds = {incident["kind"] for incident in run.trace.metadata["incidents"]}
        assert "down" in kinds
        assert kinds & {"leave", "freeze"}
        wanted = replay_reference(run.trace, problem, OPTIMIZERS["sgd"])
        assert relative_error(run.params, wanted) <= 1e-10


@pytest.mark.parametrize("policy", POLICIES)
def test_sharded(policy):
    run = train(POLICIES[policy])
    replay = ShardedReplay([run.trace], plane(), [OPTIMIZERS["sgd"]])
    replay.advance(120)
    assert relative_error(replay.params(), run.params) <= 1e-5


def test_watched():
    """A policy that watches is shown the losses of the run that it makes."""
    shown = []
    watches = {"on_observation": lambda state, seen: shown.append(seen) or state, "observe_every": 20}
    policy = dml.k_async(2)._replace(**watches)
    run = train(policy, eval_every=1)
    losses = run.history["loss"].to_numpy()
    assert isinstance(shown[-1], Observation)
    np.testing.assert_allclose([s.loss for s in shown], losses[[s.update for s in shown]], rtol=1e-4)


def test_lanes_and_saved_traces(tmp_path):
    problem = plane()
    strengths = itertools.product((STRENGTH, 0.0), range(2))
    runs = [train(dml.asp(), compensation=strength, seed=seed) for strength, seed in strengths]
    lanes = dml.replay_lanes([run.trace for run in runs], problem, [OPTIMIZERS["sgd"]] * 4)
    assert all(relative_error(a.params, b.params) <= 1e-5 for a, b in zip(lanes, runs, strict=True))
    runs[0].trace.save(tmp_path / "trace.parquet")
    again = dml.replay(dml.Trace.load(tmp_path / "trace.parquet"), problem, OPTIMIZERS["sgd"])
    assert same_bits(again.params, runs[0].params)


def test_a_method_brings_its_own():
    method = dml.Method(dml.asp(), compensation=STRENGTH)
    assert same_bits(train(method, compensation=0.0).params, train(dml.asp(), compensation=STRENGTH).params)
    none = dml.Method(dml.asp(), compensation=0.0)
    assert same_bits(train(none, compensation=STRENGTH).params, train(dml.asp(), compensation=0.0).params)


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"compensation: expected .*, got -1"):
        train(dml.asp(), compensation=-1)
    for cluster in (MIXED, MIXED.with_faults(dml.faults.Hang(0, 0.01, 0.01))):
        with pytest.raises(
            ValueError, match=r"policy: expected .*whose tasks all pull.*, got ssp\(staleness=2\)"
        ):
            train(dml.ssp(2), cluster=cluster)
