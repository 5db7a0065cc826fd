"""Tasks that are updates: the same on every engine, samples in turn, nothing lost, doubled or half done."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, MIXED
from engine_runs import ENGINES, same_bits
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference import replay_reference
from scipy import stats
from watched import simulate
from wheels import check_wheels, turned, wheels

import dmlcore as dml
from dmlcore.cluster.faults import random_faults
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.problems.problem import Problem
from dmlcore.training.batches import owned_indices
from dmlcore.training.turns import Turn, Turns

POLICIES = {name: make for name, make in ALL_POLICIES.items() if make().batch_size is None}
ADD = optax.identity()
OWNED = jax.jit(owned_indices, static_argnames="width")


def train(policy, problem=None, cluster=MIXED, **options):
    options = {"updates": 60, "seed": 4, "eval_every": 30, "batch_size": 4} | options
    return dml.train(problem or wheels(), cluster, policy, ADD, **options)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy(policy):
    """Every wheel has been turned as often as the trace says, and the readable replay has the same bits."""
    # A fast worker may have many tasks in one update of Ringleader: the same wheels twice would be void.
    number = 960 if policy == "ringleader" else 96
    run = train(POLICIES[policy](), wheels(number))
    check_wheels(run.params)
    assert (run.params["turns"] == turned(run.trace, number)).all()
    assert run.trace.metadata["void_tasks"] == 0
    if policy in ("bsp", "ssp", "k_batch_async"):
        assert same_bits(run.params, replay_reference(run.trace, wheels(), ADD))
    assert run.trace.metadata["parameter_bytes"] == 4 * 5, "the wheels do not travel"


@pytest.mark.parametrize("engine", ["devices", "threads"])
@pytest.mark.parametrize("policy", ["bsp", "ssp", "k_batch_async", "pflug"])
def test_every_engine(policy, engine):
    run = train(POLICIES[policy](), engine=ENGINES[engine][0])
    check_wheels(run.params)
    assert (run.params["turns"] == turned(run.trace, 96)).all()
    assert same_bits(run.params, dml.replay(run.trace, wheels(), ADD).params)


def test_the_whole_batch_of_a_worker_in_every_task():
    """Where workers take the same wheels again while their push waits, tasks are void; the others count."""
    void = 0
    for policy, engine in itertools.product(["k_batch_async", "k_batch_sync"], ["simulate", "threads"]):
        problem = wheels(8)
        run = train(POLICIES[policy](), problem, batch_size=2, engine=ENGINES[engine][0])
        check_wheels(run.params)
        again = dml.replay(run.trace, problem, ADD).trace.metadata["void_tasks"]
        missing = turned(run.trace, 8) - run.params["turns"]
        assert run.trace.metadata["void_tasks"] == again == missing.sum() / 2, "of two wheels each"
        assert (missing >= 0).all()
        void += missing.sum()
    assert void > 0


def test_what_is_void():
    """Of 8 samples a worker of two takes 2 a time: every other task has the same ones."""
    turns = Turns(8, 2, 2)
    first = [Turn(0, clock, 0, True, clock) for clock in range(4)]
    assert turns.weights(first) == [1, 1, 0, 0], "they read version 0, without what tasks 0 and 1 did"
    assert turns.weights([Turn(0, 4, 1, True, 4), Turn(1, 0, 0, True, 4)]) == [1, 1], "version 1 has task 0"
    assert turns.weights([Turn(0, 5, 1, True, 5)]) == [0], "but not task 1"
    assert turns.weights([Turn(0, 7, 0, False, 6)]) == [1], "a kept copy has all"


@settings(max_examples=20)
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    workers=st.integers(3, 6),
    seed=st.integers(0, 1000),
    faulty=st.booleans(),
)
def test_nothing_is_lost_under_any_schedule(policy, workers, seed, faulty):
    """Each worker has five to ten of the wheels, and takes four a time."""
    cluster = dml.Cluster.uniform(workers, samples_per_second=1000, jitter=stats.expon())
    if faulty:
        faults = random_faults(workers, 0.2, seed=seed)
        cluster = cluster.with_faults(*faults, patience=0.02, checkpoint_every=5)
    trace = simulate(POLICIES[policy](), cluster, updates=40, seed=seed, batch_size=4)
    check_wheels(dml.replay(trace, wheels(30), ADD, eval_every=40).params)


def test_two_runs_have_the_same_bits_and_lanes_are_runs():
    runs = [train(dml.k_async(2), seed=seed) for seed in (1, 1, 2)]
    assert same_bits(runs[0].params, runs[1].params)
    assert not same_bits(runs[0].params, runs[2].params)
    lanes = dml.replay_lanes([run.trace for run in runs], wheels(), [ADD] * 3)
    assert all(same_bits(lane.params, run.params) for lane, run in zip(lanes, runs, strict=True))


def test_weights_do_not_scale():
    trace = dml.simulate(dml.ssp(2), MIXED, updates=20, batch_size=4)
    assert (trace.tasks["weight"].loc[trace.tasks["update"] >= 0] == 1 / 4).all()
    assert (dml.replay(trace, wheels(), ADD).params["turns"] == turned(trace, 96)).all()


@pytest.mark.parametrize("policy", [dml.asp(weight=0.3), dml.essp(1, weight=2.0)], ids=str)
def test_weights_that_are_asked_for_are_refused(policy):
    message = r"policy: expected one with weight=1 or weight=None for the additive updates of wh.*, got '.*'"
    with pytest.raises(ValueError, match=message):
        train(policy)
    with pytest.raises(ValueError, match=message):
        dml.replay(dml.simulate(policy, MIXED, updates=4, batch_size=4), wheels(), ADD)


def test_the_optimizer_is_to_add():
    def updates(optimizer):
        return dml.replay(dml.simulate(dml.asp(), MIXED, updates=4, batch_size=4), wheels(), optimizer).trace

    assert len(updates(optax.chain(ADD, optax.identity())).updates) == 4
    doubled = optax.stateless(lambda u, params: jax.tree.map(lambda leaf: 2 * leaf, u))
    tricky = (optax.clip(3.0), optax.clip_by_global_norm(5.0), optax.add_decayed_weights(0.01))
    for other in (doubled, optax.sgd(0.1), optax.adam(1.0), *tricky):
        with pytest.raises(
            ValueError, match=r"expected optax.identity.*, got one that does more than add updates"
        ):
            updates(other)


def test_what_is_local_has_a_row_for_each_sample():
    def init(key):
        return {"place": jnp.zeros(5), "counts": jnp.zeros(3)}

    def problem(local):
        given = {"data": np.arange(5), "evaluate": lambda p, _: {"loss": p["counts"].sum()}, "eval_data": ()}
        return Problem("odd", init, **given, update=lambda view, *_: view, local=local)

    cluster = dml.Cluster.uniform(1)
    assert dml.train(problem(("place",)), cluster, dml.bsp(), ADD, updates=1, batch_size=1).params[
        "place"
    ].shape == (5,)
    for wrong in (("counts",), ("plcae",)):
        with pytest.raises(ValueError, match=f"local: expected names of parameters.*, got '{wrong[0]}'"):
            dml.train(problem(wrong), cluster, dml.bsp(), ADD, updates=1, batch_size=1)
    with pytest.raises(ValueError, match=r"local: expected a tuple.*, got 'place'"):
        problem("place")


@settings(max_examples=100)
@given(
    owners=st.integers(1, 300),
    owned=st.integers(1, 2**23),
    clock=st.integers(0, 2**31 - 1),
    width=st.sampled_from([1, 3, 60_000]),
    data=st.data(),
)
def test_samples_are_taken_in_turn(owners, owned, clock, width, data):
    """Also where the product of clock and batch needs more than 32 bits."""
    num_samples = min(owners * max(owned, width), 2**23 - 1)
    worker = data.draw(st.integers(0, owners - 1))
    own = range(worker, num_samples, owners)
    assume(width <= len(own))
    found = np.asarray(OWNED(owners, worker, clock, width, num_samples))
    assert [found[i] for i in (0, -1)] == [own[(clock * width + i) % len(own)] for i in (0, width - 1)]
    assert len(np.unique(found)) == width


@pytest.mark.parametrize(
    ("policy", "options", "message"),
    [
        (dml.asp(), {"compensation": 0.1}, r"compensation: expected 0 for the additive.*, got 0\.1"),
        (
            dml.asp(),
            {"transport": "coded(push=qsgd(levels=4))"},
            "transport: expected one that sends exact values for the add",
        ),
        (
            dml.asp(),
            {"transport": "pipelined(own_steps=True)"},
            "transport: expected one that sends exact values",
        ),
        (dml.asp(), {"load": "speed_proportional"}, r"load: expected 'equal\(\)'"),
        (
            ALL_POLICIES["adaptive_load"](),
            {},
            "policy: expected .*not change the size of tasks.*, got .adaptive_load",
        ),
        (
            dml.asp(),
            {"batch_size": 25},
            r"batch_size: expected .*from 1 to 24 \(samples that each of 4 workers.*, got 25",
        ),
    ],
    ids=["compensation", "codec", "own steps", "load", "sizes", "batch"],
)
@pytest.mark.parametrize("engine", ["simulate", "threads"])
def test_what_is_refused(policy, options, message, engine):
    with pytest.raises(ValueError, match=message):
        train(policy, engine=engine, **options)


def test_more_workers_than_samples_are_refused():
    with pytest.raises(
        ValueError, match=r"cluster: expected at most 3 workers, one for each sample.*, got 4"
    ):
        train(dml.asp(), wheels(3))


def test_a_problem_has_gradients_or_updates():
    with pytest.raises(ValueError, match=r"losses, update: expected exactly one of the two"):
        Problem("neither", wheels().init, wheels().data, wheels().evaluate, ())


def test_a_pipeline_makes_no_task_void_that_has_other_samples():
    run = train(dml.bsp(), transport="pipelined")
    assert (run.params["turns"] == turned(run.trace, 96)).all()


def test_faults_on_a_real_clock():
    faults = random_faults(4, 0.3, seed=3)
    cluster = EXPONENTIAL.with_faults(*faults, patience=0.1, checkpoint_every=5)
    run = train(dml.ssp(2), cluster=cluster, samples=400, updates=None, engine=dml.engines.threads(1.0))
    check_wheels(run.params)
    assert run.trace.metadata["incidents"]
    assert same_bits(run.params, dml.replay(run.trace, wheels(), ADD).params)
