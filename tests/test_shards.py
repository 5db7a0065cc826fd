"""Data that workers own: who owns what, that tasks draw from their own, and what that does to training."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from clusters import EXPONENTIAL, GROWING, MIXED
from engine_runs import check_fused, check_replay, plane, relative_error, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import replay_reference

import dmlcore as dml
from dmlcore.training.batches import source_of, task_samples

SGD = optax.sgd(0.1)
DIGITS = dml.problems.digits_mlp()
LABELS = DIGITS.data["labels"]
NON_IID = dml.shards.dirichlet(4, 0.1)
POLICIES = [dml.bsp(), dml.asp(), dml.ssp(3), dml.k_sync(2), dml.k_batch_async(3)]


class TestRules:
    @pytest.mark.parametrize("workers", [1, 3, 8])
    def test_iid(self, workers):
        owner = DIGITS.sharded(dml.shards.iid(workers)).owner
        assert np.ptp(np.bincount(owner)) <= 1
        assert workers == 1 or (owner != np.arange(len(owner)) % workers).mean() > 0.3, "they are shuffled"
        shares = [np.bincount(LABELS[owner == w], minlength=10) / (owner == w).sum() for w in range(workers)]
        assert np.abs(np.array(shares) - np.bincount(LABELS) / len(LABELS)).max() < 0.06

    @pytest.mark.parametrize("workers", [2, 10])
    def test_dirichlet_shares(self, workers):
        """Of each label a worker has a share of mean 1 / P and variance (P - 1) / (P^2 (P alpha + 1))."""
        alpha, shares = 0.5, []
        for seed in range(60):
            owner = DIGITS.sharded(dml.shards.dirichlet(workers, alpha, seed=seed)).owner
            for label in range(10):
                rows = owner[label == LABELS]
                shares += (np.bincount(rows, minlength=workers) / len(rows)).tolist()
        variance = (workers - 1) / (workers**2 * (workers * alpha + 1))
        assert np.mean(shares) == pytest.approx(1 / workers)
        assert np.var(shares) == pytest.approx(variance, rel=0.1)

    def test_of_equal_shares_with_a_large_alpha(self):
        owner = DIGITS.sharded(dml.shards.dirichlet(4, 1e6)).owner
        for label in range(10):
            assert np.ptp(np.bincount(owner[label == LABELS], minlength=4)) <= 2

    @settings(max_examples=40)
    @given(st.integers(1, 40), st.floats(1e-3, 10), st.integers(0, 99))
    def test_everybody_owns_something(self, workers, alpha, seed):
        owner = DIGITS.sharded(dml.shards.dirichlet(workers, alpha, seed=seed)).owner
        assert (np.bincount(owner, minlength=workers) > 0).all()
        assert owner.shape == (DIGITS.num_samples,)

    @settings(max_examples=30)
    @given(st.integers(1, 20), st.integers(1, 10), st.integers(0, 9))
    def test_so_many_labels_each(self, workers, each, seed):
        if workers * each < 10:
            with pytest.raises(ValueError, match=f"labels_each: expected a whole number from .*, got {each}"):
                DIGITS.sharded(dml.shards.by_label(workers, each, seed=seed))
            return
        owner = DIGITS.sharded(dml.shards.by_label(workers, each, seed=seed)).owner
        assert [len(np.unique(LABELS[owner == w])) for w in range(workers)] == [each] * workers
        for label in range(10):
            sizes = np.bincount(owner[label == LABELS])
            assert np.ptp(sizes[sizes > 0]) <= 1

    def test_the_same_again_is_the_same_problem(self):
        assert DIGITS.sharded(NON_IID) is DIGITS.sharded(dml.shards.dirichlet(4, 0.1))
        assert DIGITS.sharded(NON_IID) is not DIGITS.sharded(dml.shards.dirichlet(4, 0.1, seed=1))
        assert DIGITS.sharded(np.arange(1437) % 4).name == "digits_mlp, 4 shards"
        assert DIGITS.owner is None

    def test_another_rule_with_the_same_owners_has_its_own_name(self):
        one, other = (DIGITS.sharded(dml.shards.iid(1, seed=seed)) for seed in (0, 1))
        assert np.array_equal(one.owner, other.owner)
        assert [each.name for each in (one, other)] == ["digits_mlp, iid(1)", "digits_mlp, iid(1, seed=1)"]
        assert DIGITS.sharded(one.owner).name == "digits_mlp, 1 shards"

    @pytest.mark.parametrize("kind", [np.asarray, pd.Series, list, pd.Categorical])
    @pytest.mark.parametrize(
        "rule", [partial(dml.shards.by_label, 3, 4), partial(dml.shards.dirichlet, 3, 0.3)]
    )
    def test_words_are_labels_as_numbers_are(self, rule, kind):
        words = kind([f"digit {label}" for label in LABELS])
        assert (DIGITS.sharded(rule(labels=words)).owner == DIGITS.sharded(rule()).owner).all()
        even = DIGITS.sharded(dml.shards.by_label(2, 1, labels=LABELS % 2 == 0)).owner
        assert set(zip(even, LABELS % 2, strict=True)) in ({(0, 0), (1, 1)}, {(0, 1), (1, 0)})

    def test_labels_of_ones_own(self):
        problem = dml.problems.linear_regression()
        groups = np.arange(problem.num_samples) % 6
        owner = problem.sharded(dml.shards.by_label(3, 2, labels=groups)).owner
        assert [len(np.unique(groups[owner == w])) for w in range(3)] == [2, 2, 2]


NUMBERS = np.arange(1437)
WRONG = {
    "owner: expected a rule of dml.shards, or whole numbers of shape (1437,), got int64 numbers": lambda: (
        DIGITS.sharded(range(5))
    ),
    "owner: expected a rule of dml.shards, or whole numbers of shape (1437,), got float64": lambda: (
        DIGITS.sharded(NUMBERS / 2)
    ),
    "owner: expected numbers of workers, >= 0, got -1": lambda: DIGITS.sharded(NUMBERS % 4 - 1),
    "owner: expected at least one of 1437 samples for every worker, got none for worker 1": lambda: (
        DIGITS.sharded(NUMBERS % 2 * 2)
    ),
    "owner: expected at least one of 1437 samples for every worker, got iid(2000)": lambda: DIGITS.sharded(
        dml.shards.iid(2000)
    ),
    "owner: expected a rule of dml.shards, or whole numbers of shape (1437,), got 'iid'": lambda: (
        DIGITS.sharded("iid")
    ),
    "num_workers: expected a whole number >= 1, got 0": lambda: dml.shards.iid(0),
    "alpha: expected a number > 0, got 0": lambda: dml.shards.dirichlet(4, 0),
    "alpha: expected a number > 0, got nan": lambda: dml.shards.dirichlet(4, float("nan")),
    "labels_each: expected a whole number from 3 to 10 (10 labels, 4 workers), got 11": lambda: (
        DIGITS.sharded(dml.shards.by_label(4, 11))
    ),
    "labels: expected the name of a column of the data (inputs, labels), or 1437": lambda: DIGITS.sharded(
        dml.shards.dirichlet(4, 1, labels="label")
    ),
    "labels: expected whole numbers or words of shape (1437,), got values of type int64": lambda: (
        DIGITS.sharded(dml.shards.dirichlet(4, 1, labels=[0, 1, 2]))
    ),
    "labels: expected the name of a column of the data (x, y), or 2000": lambda: (
        dml.problems.linear_regression().sharded(dml.shards.by_label(4, 1))
    ),
    "problem: expected a problem that can be sharded (this one is already sharded), got": lambda: (
        DIGITS.sharded(dml.shards.iid(4)).sharded(dml.shards.iid(4))
    ),
    "problem: expected a problem that can be sharded (this one is additive": lambda: (
        dml.problems.lda().sharded(dml.shards.iid(4))
    ),
    "cluster: expected 3 workers, one for each shard of digits_mlp, iid(3), got 4": lambda: dml.train(
        DIGITS.sharded(dml.shards.iid(3)), EXPONENTIAL, dml.bsp(), SGD, updates=1
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_shards_are_named(message):
    with pytest.raises(ValueError, match="got") as error:
        WRONG[message]()
    assert str(error.value).startswith(message)


def test_a_trace_of_another_number_of_workers_is_refused():
    trace = dml.simulate(dml.bsp(), dml.Cluster.uniform(3), updates=2)
    with pytest.raises(ValueError, match=r"cluster: expected 4 workers, .*, got 3"):
        dml.replay(trace, DIGITS.sharded(NON_IID), SGD)


@settings(max_examples=30)
@given(st.integers(0, 3), st.integers(0, 500), st.sampled_from([8, 32, 128]), st.integers(0, 9))
def test_tasks_draw_from_their_own(worker, clock, width, seed):
    """And fewer samples are the first of more."""
    problem = DIGITS.sharded(NON_IID)
    source = source_of(problem, seed, 4)
    drawn = task_samples(source, jnp.asarray(worker), jnp.asarray(clock), width, problem.num_samples)
    assert (problem.owner[np.asarray(drawn)] == worker).all()
    fewer = task_samples(source, jnp.asarray(worker), jnp.asarray(clock), 4, problem.num_samples)
    assert (fewer == drawn[:4]).all()


def test_all_of_a_shard_is_drawn_equally_often():
    problem = DIGITS.sharded(NON_IID)
    source, clocks = source_of(problem, 0, 4), jnp.arange(2000)
    for worker in range(4):
        drawn = jax.vmap(lambda c: task_samples(source, jnp.asarray(worker), c, 32, 1437))(clocks)  # noqa: B023
        counts = np.bincount(np.ravel(drawn), minlength=1437)[problem.owner == worker]
        expected = 64_000 / len(counts)
        assert (np.abs(counts - expected) < 6 * np.sqrt(expected)).all()


@pytest.mark.parametrize("policy", [dml.ssp(2), dml.k_batch_async(3)], ids=str)
def test_one_shard_is_all_data(policy):
    """To the last bit."""
    cluster = dml.Cluster.uniform(1)
    one, whole = (
        dml.train(each, cluster, policy, SGD, updates=40).params
        for each in (plane().sharded(np.zeros(512, int)), plane())
    )
    assert same_bits(one, whole)


@pytest.mark.parametrize(
    ("policy", "load"), [*((policy, None) for policy in POLICIES), (dml.asp(), GROWING)], ids=str
)
def test_compiled_equals_reference(policy, load):
    with jax.enable_x64(True):
        problem = plane("float64").sharded(NON_IID)
        optimizer = optax.adam(1e-3)
        run = dml.train(problem, MIXED, policy, optimizer, updates=60, load=load)
        assert relative_error(run.params, replay_reference(run.trace, problem, optimizer)) <= 1e-10
        if load is None:
            check_fused(run.trace, problem, optimizer)


def test_lanes_side_by_side():
    problem = plane().sharded(NON_IID)
    traces = [dml.simulate(dml.bsp(), MIXED, updates=20, seed=seed) for seed in range(3)]
    for trace, lane in zip(traces, dml.replay_lanes(traces, problem, [SGD] * 3), strict=True):
        assert relative_error(lane.params, dml.replay(trace, problem, SGD).params) < 1e-5


@pytest.mark.parametrize("policy", [dml.bsp(), dml.ssp(3), dml.k_batch_async(3)], ids=str)
def test_threads_replay_to_the_same_bits(policy):
    problem = plane().sharded(NON_IID)
    engine = dml.engines.threads(time_scale=0.05)
    check_replay(dml.train(problem, EXPONENTIAL, policy, SGD, updates=40, engine=engine), problem, SGD)


@pytest.mark.full  # threads do it in the test before, and test_devices without shards
def test_devices():
    problem = plane().sharded(NON_IID)
    here, there = (
        dml.train(problem, EXPONENTIAL, dml.ssp(3), SGD, updates=60, engine=engine).params
        for engine in ("simulate", "devices")
    )
    assert relative_error(here, there) < 1e-5


def centres(values, rows=16):
    """Worker w owns `rows` copies of values[w], and f_w(x) = (x - values[w])^2 / 2."""
    data = np.repeat(np.asarray(values, np.float32), rows)
    problem = dml.Problem(
        name="centres",
        init=lambda key: jnp.zeros(()),
        data=data,
        losses=lambda x, batch: (x - batch) ** 2 / 2,
        evaluate=lambda x, batch: {"loss": jnp.mean((x - batch) ** 2) / 2, "x": x},
        eval_data=data,
    )
    return problem.sharded(np.repeat(np.arange(len(values)), rows))


VALUES, SPEEDS = [3.0, -1.0, 1.0, 1.0], [4000, 2000, 1000, 1000]


def late_mean(policy, rate=0.01, **options):
    """The mean of x over the second half of a run, and each worker's share of the updates."""
    cluster = dml.Cluster.from_speeds(SPEEDS, jitter=EXPONENTIAL.jitter)
    options = {"updates": 4000, "eval_every": 10, "seed": 1} | options
    run = dml.train(centres(VALUES), cluster, policy, optax.sgd(rate), **options)
    applied = run.trace.tasks.query("update >= 0").groupby("worker")["weight"].sum()
    half = run.history[run.history["update"] >= options["updates"] / 2]
    return half["x"].mean(), (applied / applied.sum()).to_numpy()


def test_lock_step_reaches_the_joint_optimum():
    found, shares = late_mean(dml.bsp())
    assert shares.tolist() == pytest.approx([0.25] * 4)
    assert found == pytest.approx(np.mean(VALUES), abs=1e-3)


def test_asynchronous_updates_are_biased_as_their_shares_predict():
    found, shares = late_mean(dml.asp())
    assert shares == pytest.approx(np.array(SPEEDS) / sum(SPEEDS), abs=0.02)
    biased = shares @ VALUES
    assert abs(biased - np.mean(VALUES)) > 0.4, "else the next line says nothing"
    assert found == pytest.approx(biased, abs=0.06)


def test_while_a_worker_is_away_nobody_draws_its_samples():
    """What is learned then is the optimum of the others."""
    away = dml.faults.Crash(worker=0, time=1e-3, seconds=1e9)
    cluster = dml.Cluster.uniform(4).with_faults(away, patience=0.01)
    run = dml.train(centres(VALUES), cluster, dml.bsp(), optax.sgd(0.1), updates=200)
    assert not run.trace.tasks.query("update >= 0 and worker == 0").size
    assert float(run.params) == pytest.approx(np.mean(VALUES[1:]), abs=1e-5)


def test_the_name_of_a_rule_does_not_list_the_labels():
    labels = np.repeat(["one", "two"], 50)
    assert repr(dml.shards.by_label(2, 1, labels=labels)).endswith("labels=(100 labels))")
