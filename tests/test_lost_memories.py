"""What codecs and local optimizers remember through crashes, hangs, restarts and cancelled tasks."""

import jax
import numpy as np
import optax
import pytest
from engine_runs import same_bits
from reference import replay_reference

import dmlcore as dml
from dmlcore.cluster.faults import Crash, Hang, ServerCrash
from dmlcore.types import Policy

PROBLEM = dml.problems.linear_regression(num_samples=64, num_features=3)
CLUSTER = dml.Cluster.from_speeds([1000, 900, 400], latency=0.002, jitter="exponential")
FAULTS = {
    "lost": [Crash(1, 0.05, 0.05)],
    "kept": [Crash(1, 0.05, 0.05, keeps_memory=True)],
    "hang": [Hang(1, 0.05, 0.08)],
    "restart": [ServerCrash(0.1, 0.03)],
    "overlap": [Crash(1, 0.05, 0.05, keeps_memory=True), Crash(1, 0.07, 0.01), Hang(1, 0.06, 0.06)],
    "all": [
        Crash(1, 0.05, 0.05, keeps_memory=True),
        Crash(0, 0.08, 0.04),
        Hang(2, 0.03, 0.1),
        ServerCrash(0.2, 0.03),
        Crash(2, 0.19, 0.1, keeps_memory=True),
    ],
}
CLUSTERS = {
    name: CLUSTER.with_faults(*faults, patience=0.02, checkpoint_every=4) for name, faults in FAULTS.items()
}
FEEDBACK = "coded(push=error_feedback(affine(bits=2)))"
HOW = {
    "feedback": {"transport": FEEDBACK},
    "differences": {"transport": "coded(push=difference(affine(bits=4)), pull=difference(affine(bits=4)))"},
    "pipeline": {"transport": "pipelined(coded(push=error_feedback(top_k(fraction=0.4))))"},
    "low rank": {"transport": "coded(push=error_feedback(power_sgd(1)))"},
    "local state": {"local": dml.local_steps(2, optax.sgd(1e-3, momentum=0.9), keep_state=True)},
    "control variates": {"local": dml.local_steps(2, optax.sgd(1e-3), control_variates=True)},
}
LOST = [*HOW][:-1]  # control variates may not be lost
POLICIES = {"bsp": dml.bsp(), "asp": dml.asp(), "k_sync": dml.k_sync(2), "adasync": dml.adasync(1)}
OPTIONS = {"updates": 40, "batch_size": 8, "eval_every": 40, "seed": 1}


def few(names, *selected):
    """All of the names; only the selected ones without `--all`."""
    return [name if name in selected else pytest.param(name, marks=pytest.mark.full) for name in names]


def trained(cluster, policy, how, **options):
    sgd = optax.sgd(0.3 if "local" in HOW[how] else 1e-3)
    return dml.train(PROBLEM, cluster, policy, sgd, **OPTIONS | HOW[how] | options), sgd


def replayed(run, sgd, how):
    own = {"local": HOW[how]["local"]} if "local" in HOW[how] else {}
    return dml.replay(run.trace, PROBLEM, sgd, eval_every=40, fuse=False, **own)


@pytest.mark.parametrize("engine", ["simulate", "threads"])
@pytest.mark.parametrize("how", LOST)
@pytest.mark.parametrize("policy", few(POLICIES, "asp", "k_sync"))  # below one watches
@pytest.mark.parametrize("fault", few(FAULTS, "overlap", "all"))
def test_memories_are_those_of_the_reference(fault, policy, how, engine):
    run, sgd = trained(CLUSTERS[fault], POLICIES[policy], how, engine=engine)
    kinds = {incident["kind"] for incident in run.trace.metadata["incidents"]}
    assert kinds >= ({"down"} if fault == "restart" else {"leave", "join"})
    assert same_bits(replayed(run, sgd, how).params, run.params)
    problem = PROBLEM.with_steps(HOW[how].get("local"), 8)
    for one, two in zip(
        *map(jax.tree.leaves, (replay_reference(run.trace, problem, sgd), run.params)), strict=True
    ):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "engine", few(["simulate", "devices", "threads"], "simulate", "threads")
)  # devices: below
@pytest.mark.parametrize("fault", ["kept", "hang"])
def test_control_variates_are_kept(fault, engine):
    run, sgd = trained(CLUSTERS[fault], dml.asp(), "control variates", engine=engine)
    assert {incident["kind"] for incident in run.trace.metadata["incidents"]} >= {"leave", "join"}
    problem = PROBLEM.with_steps(HOW["control variates"]["local"], 8)
    for one, two in zip(
        *map(jax.tree.leaves, (replay_reference(run.trace, problem, sgd), run.params)), strict=True
    ):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


STREAMED = dml.local_steps(2, optax.sgd(1e-3, momentum=0.9), keep_state=True, fragments=2, mixing=0.5)


@pytest.mark.parametrize("fault", FAULTS)
def test_workers_that_keep_their_parameters_may_not_leave(fault):
    with pytest.raises(ValueError, match="cluster: expected one that no worker leaves"):
        dml.train(PROBLEM, CLUSTERS[fault], dml.bsp(), optax.sgd(0.3), local=STREAMED, **OPTIONS)


@pytest.mark.parametrize("engine", ["simulate", "threads"])
def test_a_hang_that_is_waited_for_loses_nothing(engine):
    cluster, sgd = CLUSTER.with_faults(Hang(1, 0.05, 0.08)), optax.sgd(0.3, momentum=0.9)
    hung, free = (
        dml.train(PROBLEM, each, dml.bsp(), sgd, local=STREAMED, engine=engine, **OPTIONS | {"updates": 12})
        for each in (cluster, CLUSTER)
    )
    assert [incident["kind"] for incident in hung.trace.metadata["incidents"]] == ["freeze"]
    assert same_bits(hung.params, free.params)


@pytest.mark.full  # both make their rows in one place; test_devices has what workers remember
@pytest.mark.parametrize("how", few(LOST, "local state"))
def test_devices_are_the_same(how):
    (run, _), (several, _) = (
        trained(CLUSTERS["all"], dml.asp(), how, engine=engine) for engine in ("simulate", "devices")
    )
    for one, two in zip(*map(jax.tree.leaves, (run.params, several.params)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_a_lost_memory_differs_from_a_kept_one():
    """On the same timeline; runs without any memory are the same."""
    for how in ("feedback", "local state"):
        (lost, _), (kept, _) = (trained(CLUSTERS[fault], dml.bsp(), how) for fault in ("lost", "kept"))
        assert lost.trace.tasks.equals(kept.trace.tasks)
        assert not same_bits(lost.params, kept.params)
    plain = [
        dml.train(PROBLEM, CLUSTERS[fault], dml.bsp(), optax.sgd(1e-3), **OPTIONS).params
        for fault in ("lost", "kept")
    ]
    assert same_bits(*plain)


def test_a_policy_that_watches_sees_the_same_training():
    seen = []
    own = dml.asp()
    told = {"on_observation": lambda state, each: seen.append(each) or state, "observe_every": 4}
    watching = Policy("watching()", own.init, own.on_push, on_leave=own.on_leave, on_join=own.on_join, **told)
    run, sgd = trained(CLUSTERS["all"], watching, "feedback")
    again = dml.replay(run.trace, PROBLEM, sgd, eval_every=1).history
    last = {each.update: each.loss for each in seen}  # after a restart again
    for update, loss in last.items():
        assert loss == pytest.approx(again["loss"][update], rel=1e-4)


def test_a_worker_that_rejoins_is_no_longer_frozen():
    """A hang ends with the crash of its worker, on a real clock and whether it keeps its memory or not."""
    for keeps in (True, False):
        faults = Hang(1, 0.1, 5.0), Crash(1, 0.15, 0.05, keeps_memory=keeps)
        cluster = CLUSTER.with_faults(*faults, patience=10.0)
        for engine in ("simulate", "threads"):
            own = {"updates": None, "seconds": 0.8, "engine": engine}
            tasks = trained(cluster, dml.asp(), "feedback", **own)[0].trace.tasks
            assert (tasks["push_end"][tasks["worker"] == 1] > 0.15).any()


def test_incidents_say_which_memories_were_lost():
    found = {}
    for fault, cluster in CLUSTERS.items():
        log = dml.simulate(dml.bsp(), cluster, updates=40, batch_size=8, seed=1).metadata["incidents"]
        found[fault] = [entry.get("forgets", False) for entry in log if entry["kind"] == "join"]
    assert found["lost"] == found["overlap"] == [True]
    assert found["kept"] == found["hang"] == [False]
    assert CLUSTERS["kept"].describe()["faults"]["events"][0]["keeps_memory"] is True
    with pytest.raises(ValueError, match=r"^Crash.keeps_memory: expected True or False, got 1"):
        CLUSTER.with_faults(Crash(0, 1.0, 1.0, keeps_memory=1))
