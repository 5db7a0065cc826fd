"""Policies that watch: what they are shown is what their training was, on every engine."""

import itertools

import jax
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, GROWING, MIXED
from coded import PLAIN, REMEMBERING
from engine_runs import check_replay, plane, same_bits, same_timeline
from wheels import wheels

import dmlcore as dml
from dmlcore.engines.segments import TrainingWatch
from dmlcore.engines.spec import RunSpec
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.training.program import NONE, Slots
from dmlcore.training.stepper import Observer, Stepper
from dmlcore.types import Decision, Policy, Start

WATCHING = {name: make for name, make in ALL_POLICIES.items() if make().on_observation is not None}
WATCHING["adasync_sync"] = lambda: dml.adasync(1)  # a variant of the one in the table
SGD = optax.sgd(0.1)


def test_what_a_policy_sees_is_what_the_gradients_were():
    """The compiled watch and a real server's observer agree with gradients computed one by one."""
    problem, shown = plane(), []
    policy = dml.pflug(2, burn_in=5, threshold=1, observe_every=7)
    watch = TrainingWatch(problem, SGD, RunSpec.checked(policy, MIXED, updates=50, seed=3))

    def tell(progress):
        shown.append(watch(progress))
        return shown[-1]

    trace = dml.simulate(policy, MIXED, updates=50, seed=3, watch=tell)
    assert [seen.update for seen in shown] == [0, 1, 2, 4, 8, 15, 22, 29, 36, 43]
    stepper = Stepper(problem, SGD, 3)
    observer, state, before = Observer(stepper), stepper.start(), None
    applied = trace.tasks[trace.tasks["update"] >= 0]
    looks = {seen.update: seen for seen in shown}
    norms, products = [], []
    for update, tasks in applied.groupby("update"):
        parts = [
            (t.weight, stepper.task(state[0], t.worker, t.clock, t.batch_size)[0]) for t in tasks.itertuples()
        ]
        flat = sum(w * np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(g)]) for w, g in parts)
        norms.append(flat @ flat)
        products.append(0.0 if before is None else flat @ before)
        total = stepper.total([stepper.weighed(*part) for part in parts])
        before, state = flat, stepper.step(total, state)
        observer.update(total, len(parts), int(tasks["batch_size"].sum()))
        if update + 1 in looks:
            seen, real = looks[update + 1], observer.observation(update + 1, 0.0, state[0])
            assert list(seen.tasks) == list(real.tasks)
            assert list(seen.samples) == list(real.samples)
            assert seen.loss == pytest.approx(real.loss, rel=1e-5)
            for found in (seen, real):
                np.testing.assert_allclose(found.squared_norms, norms[-len(seen.tasks) :], rtol=1e-4)
                np.testing.assert_allclose(found.products, products[-len(seen.tasks) :], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("policy", WATCHING)
def test_the_run_that_was_watched_is_the_run(policy):
    """Also where versions are old: the loss that the policy saw last is that of the replayed trace."""
    problem, policy, shown = plane(), WATCHING[policy](), []
    watch = TrainingWatch(problem, SGD, RunSpec.checked(policy, MIXED, updates=63, seed=3))
    trace = dml.simulate(
        policy,
        MIXED,
        updates=63,
        seed=3,
        parameter_bytes=problem.parameter_bytes,
        watch=lambda p: shown.append(watch(p)) or shown[-1],
    )
    run = dml.replay(trace, problem, SGD, eval_every=1)
    losses = run.history["loss"].to_numpy()
    np.testing.assert_allclose([s.loss for s in shown], losses[[s.update for s in shown]], rtol=1e-4)
    again = dml.train(problem, MIXED, policy, SGD, updates=63, seed=3)
    assert same_timeline(again.trace, trace)


def check_seen(policy, problem=None, cluster=MIXED, optimizer=SGD, **options):
    """Made to watch, the policy is shown the losses of the replayed trace, all bits of them."""
    problem, shown = problem or plane(), []
    look = {"on_observation": lambda state, seen: shown.append(seen) or state, "observe_every": 3}
    policy = policy._replace(**look)
    run = dml.train(problem, cluster, policy, optimizer, updates=40, seed=3, **options)
    again = dml.replay(run.trace, problem, optimizer, eval_every=1, fuse=False)
    assert same_bits(run.params, again.params)
    losses = again.history["loss"].to_numpy()
    final = {seen.update: seen.loss for seen in shown}  # a server that went back shows an update again
    assert len(final) >= 15
    assert [*final.values()] == losses[[*final]].tolist()
    return run


@pytest.mark.parametrize(
    ("codec", "policy"),
    [
        (codec, policy)
        for codec in (PLAIN[1], REMEMBERING[1])
        for policy in (dml.asp(), dml.bsp(), dml.k_async(2))
    ]
    # what other codecs make of a run is in test_transport
    + [
        pytest.param(codec, dml.asp(), marks=pytest.mark.full)
        for codec in (*PLAIN[3::2], REMEMBERING[0], *REMEMBERING[2:])
    ],
    ids=repr,
)
def test_it_sees_what_codecs_make_of_its_training(codec, policy):
    check_seen(policy, transport=f"coded({codec.name}, {codec.name})")


@pytest.mark.parametrize("transport", ["plain()", "coded(one_bit(), affine(bits=8))"])
def test_it_sees_own_steps_in_a_pipeline(transport):
    check_seen(dml.asp(), optimizer=optax.adam(0.01), transport=f"pipelined({transport}, own_steps=True)")


@pytest.mark.full  # test_it_sees_what_codecs_make_of_its_training
@pytest.mark.parametrize("policy", WATCHING)
def test_it_may_decide_by_what_codecs_make_of_its_training(policy):
    """Its trace replays to the same bits; with coarser values it may decide otherwise."""
    problem = plane()
    options = {"updates": 63, "seed": 3, "transport": "coded(terngrad(), affine(bits=4))"}
    run = dml.train(problem, MIXED, WATCHING[policy](), SGD, **options)
    assert same_bits(run.params, dml.replay(run.trace, problem, SGD, fuse=False).params)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.full),
        pytest.param({"load": GROWING, "optimizer": optax.adam(0.01)}, marks=pytest.mark.full),
        pytest.param(
            {"cluster": EXPONENTIAL.with_faults(dml.faults.Crash(1, 0.1, 0.1))}, marks=pytest.mark.full
        ),
        {  # also with a state in each copy
            "cluster": EXPONENTIAL.with_faults(dml.faults.ServerCrash(0.2, 0.1), checkpoint_every=10),
            "optimizer": optax.adam(0.01),
        },
    ],
    ids=["mixed", "growing", "a worker crashes", "the server crashes"],
)
def test_its_workers_may_keep_copies(options):
    run = check_seen(dml.ssp(2), **options)
    assert run.trace.tasks["pull_start"].isna().any()


@pytest.mark.full  # the test before, with gradients
def test_its_workers_may_keep_copies_of_an_additive_problem():
    check_seen(dml.ssp(2), wheels(), optimizer=optax.identity(), batch_size=4)


def test_versions_find_a_slot_and_give_it_back():
    def allotted(update, version, live):
        columns = [np.array(each) for each in (update, version, [NONE] * 3, [True] * 3)]
        return [slots.tolist() for slots in slots.allot(*columns, live)]

    slots = Slots()
    read, write, _ = allotted([0, 1, 2], [0, 0, 1], {2, 3})
    assert (read[0], read[1], read[2]) == (0, 0, write[0])
    assert slots.count == 2
    assert slots.held == {2: write[1], 3: write[2]}
    read, write, _ = allotted([3, 4, 5], [2, 3, 3], {4, 5, 6})
    assert sorted(slots.held) == [4, 5, 6]
    assert sorted(slots.held.values()) == [0, 1, 2] == sorted(write)
    assert slots.count == 3


def test_a_policy_may_start_workers_long_after_an_update():
    """The newest version is kept, though nobody reads it yet."""

    def on_push(state, push):
        state.append((push.worker, push.clock))
        if len(state) % 3 == 1:
            return state, Decision([(*state[-1], 1.0)])
        if len(state) % 3 == 2:
            return state, Decision(drop=[state[-1]])
        return state, Decision(drop=[state[-1]], start=[Start(worker) for worker in range(3)])

    policy = Policy("late()", lambda workers: [], on_push, on_observation=lambda state, seen: state)
    cluster = dml.Cluster.from_speeds([100, 90, 80])
    run = dml.train(plane(), cluster, policy, SGD, updates=20)
    assert len(run.trace.updates) == 20


def test_after_a_server_crash_it_has_seen_what_it_has_trained():
    """What the server lost, the policy does not know either; the trace replays to the same."""
    cluster = EXPONENTIAL.with_faults(dml.faults.ServerCrash(0.6, 0.2), checkpoint_every=10)
    problem = plane()
    run = dml.train(problem, cluster, dml.adasync(1), SGD, updates=80, seed=0)
    assert run.trace.metadata["incidents"][0]["lost_updates"] > 0
    shown = []
    watch = TrainingWatch(problem, SGD, RunSpec.checked(dml.adasync(1), cluster, updates=80, seed=0))
    trace = dml.simulate(
        dml.adasync(1),
        cluster,
        updates=80,
        seed=0,
        parameter_bytes=problem.parameter_bytes,
        watch=lambda p: shown.append(watch(p)) or shown[-1],
    )
    losses = dml.replay(trace, problem, SGD, eval_every=1).history["loss"].to_numpy()
    since = itertools.pairwise(0 if seen.update == 0 else seen.update for seen in shown)
    assert all(
        len(seen.tasks) == after - before or after <= before
        for seen, (before, after) in zip(shown[1:], since, strict=True)
    )
    final = {seen.update: seen.loss for seen in shown}  # the last time that it was there
    np.testing.assert_allclose([*final.values()], losses[[*final]], rtol=1e-4)


def test_on_threads_with_a_server_that_goes_back():
    cluster = EXPONENTIAL.with_faults(dml.faults.ServerCrash(0.6, 0.2), checkpoint_every=10)
    engine = dml.engines.threads(time_scale=0.5)
    problem = plane()
    run = dml.train(problem, cluster, dml.adasync(1), SGD, updates=80, seed=0, engine=engine)
    assert len(run.trace.updates) == 80
    check_replay(run, problem, SGD)


def test_a_comparison_over_rates_trains_a_watching_policy_at_each():
    runs = dml.sweep(
        {"adasync": dml.adasync(1)},
        plane(),
        EXPONENTIAL,
        optax.sgd,
        [0.01, 0.3],
        seeds=[0],
        updates=60,
        eval_every=30,
    )
    times = runs[runs["update"] == 60].set_index("learning_rate")["time"]
    assert times[0.3] > times[0.01], "the loss falls faster, so it waits for more"
