"""Losses that take random keys: dropout with the same numbers on every engine, filled up, fused or not."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from engine_runs import check_fused, plane, relative_error, same_bits, uniform
from reference import replay_reference

import dmlcore as dml
from dmlcore.problems.validation import check_problem
from dmlcore.training.batches import BATCHES, LOSSES, run_key, sample_keys, task_indices
from dmlcore.training.stepper import Stepper

SGD = optax.sgd(0.1)
CLUSTER = dml.Cluster.from_speeds([1000, 600, 1700])
KEY = jax.random.key(0)


@functools.cache
def dropout(rate=0.5, dtype="float32"):
    """`plane()`, where each input of a sample is left out with a probability."""
    whole = plane(dtype)

    def losses(params, batch, keys):
        inputs = batch["x"]
        stays = jax.vmap(lambda key: uniform(key, inputs.shape[1]) >= rate)(keys)
        return whole.losses(params, batch | {"x": jnp.where(stays, inputs / (1 - rate), 0)})

    return dataclasses.replace(whole, name="dropout", losses=losses)


def train(policy, problem=None, **options):
    given = {"updates": 15, "seed": 3, "batch_size": 9, "eval_every": 15}
    return dml.train(problem or dropout(), CLUSTER, policy, SGD, **given | options)


POLICIES = [dml.bsp(), dml.ssp(2), dml.k_batch_async(2)]
ENGINES = ["simulate", "devices", dml.engines.threads(0.05)]


@pytest.mark.full  # test_bits has a network with random keys on threads; test_devices has the other engine
@pytest.mark.parametrize(
    ("policy", "engine", "load"),
    [*itertools.product(POLICIES, ENGINES, ["equal", "speed_proportional"])],
    ids=str,
)
def test_every_engine_gives_the_bits_of_its_replay(policy, load, engine):
    """Several devices add gradients up in another order."""
    run = train(policy, engine=engine, load=load)
    again = dml.replay(run.trace, dropout(), SGD, fuse=engine == "simulate").params
    if engine == "devices":
        assert relative_error(run.params, again) < 1e-5
    else:
        assert same_bits(run.params, again)


@pytest.mark.parametrize("policy", [dml.asp(), dml.ssp(2)], ids=str)
@pytest.mark.parametrize("load", ["equal", "speed_proportional"])
def test_the_readable_replay_has_the_same_bits(policy, load):
    run = train(policy, load=load)
    assert same_bits(run.params, replay_reference(run.trace, dropout(), SGD))


@pytest.mark.full  # test_watching and test_lanes, without keys
def test_policies_that_watch_and_lanes():
    run = train(dml.pflug(1))
    assert same_bits(run.params, dml.replay(run.trace, dropout(), SGD).params)
    traces = [train(dml.asp(), seed=seed).trace for seed in (3, 4)]
    lanes = dml.replay_lanes(traces, dropout(), [SGD] * 2)
    for lane, trace in zip(lanes, traces, strict=True):
        assert relative_error(lane.params, dml.replay(trace, dropout(), SGD).params) < 1e-5


@pytest.mark.usefixtures("both_dtypes")
@pytest.mark.parametrize("load", ["equal", "speed_proportional"])
def test_fused_is_single_up_to_rounding(load):
    check_fused(train(dml.bsp(), dropout(dtype="float64"), load=load).trace, dropout(dtype="float64"), SGD)


@pytest.mark.parametrize("policy", [dml.bsp(), dml.asp()], ids=str)
def test_nothing_dropped_is_no_dropout(policy):
    one, two = (train(policy, problem).params for problem in (dropout(0.0), plane()))
    assert relative_error(one, two) < 1e-6
    assert relative_error(train(policy).params, two) > 1e-2


@pytest.mark.parametrize("size", [pytest.param(3, marks=pytest.mark.full), 8, 9])  # filled up: 9
def test_a_task_has_keys_by_seed_worker_clock_and_place(size):
    """Written down directly, on just as many samples: filling up changes nothing."""
    problem, worker, clock = dropout(), 2, 5
    params = problem.init(KEY)
    task = jax.random.fold_in(jax.random.fold_in(run_key(7, LOSSES), worker), clock)
    keys = jnp.stack([jax.random.fold_in(task, place) for place in range(size)])
    rows = np.asarray(task_indices(run_key(7, BATCHES), worker, clock, size, problem.num_samples))
    batch = jax.tree.map(lambda leaf: leaf[rows], problem.data)
    expected = jax.grad(lambda p: problem.losses(p, batch, keys).mean())(params)
    found = Stepper(problem, SGD, 7).task(params, worker, clock, size)[0]
    assert relative_error(found, expected) < 1e-6


def test_no_two_samples_share_a_key():
    found = [
        jax.random.key_data(sample_keys(run_key(seed, LOSSES), worker, clock, 8))
        for seed in (0, 1)
        for worker in range(3)
        for clock in range(3)
    ]
    assert len(np.unique(np.concatenate(found), axis=0)) == 2 * 3 * 3 * 8


def one_for_all(params, batch, keys):
    """Draws for the whole batch with the key of its first sample."""
    stays = jax.random.bernoulli(keys[0], 0.5, batch["x"].shape)
    return plane().losses(params, batch | {"x": jnp.where(stays, batch["x"], 0)})


def test_numbers_of_one_key_for_all_rows_are_refused():
    wrong = dataclasses.replace(plane(), losses=one_for_all)
    with pytest.raises(ValueError, match=r"losses: expected .*own row alone"):
        train(dml.asp(), wrong)
    check_problem(dataclasses.replace(wrong, coupled=True))


def with_places(params, batch, scale=1.0):
    return 0


def to_keyword(params, batch, *, keys):
    return 0


TAKES_KEYS = [
    (lambda p, b: 0, False),
    (lambda p, b, keys: 0, True),
    (lambda p, b, anything: 0, True),
    (lambda p, b, keys=None: 0, True),
    (lambda p, b, key=None: 0, True),
    (with_places, False),
    (functools.partial(with_places, scale=2.0), False),
    (lambda *args: 0, False),
    (jax.jit(lambda p, b, keys: 0), True),
    (to_keyword, False),
]


@pytest.mark.parametrize(("losses", "takes"), TAKES_KEYS)
def test_which_losses_take_keys(losses, takes):
    assert dataclasses.replace(plane(), losses=losses).keyed == takes
