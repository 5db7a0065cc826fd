"""Faults: seeded schedules of crashes, hangs, lost and doubled pushes, server restarts, on every policy."""

import functools
import math

import jax
import numpy as np
import optax
import pandas as pd
import pytest
from clusters import EXPONENTIAL, LOCK_STEP, MIXED
from engine_runs import KINDS, check_counts, check_fused, check_replay, plane
from watched import simulate

import dmlcore as dml
from dmlcore.cluster.faults import (
    Crash,
    DoubledPush,
    Faults,
    Hang,
    LostPush,
    ServerCrash,
    incidents,
    random_faults,
)
from dmlcore.engines import failures
from dmlcore.methods.policies import ALL_POLICIES

SEEDS, TRAINED, SAMPLES, SECONDS = 50, 40, 32 * 160, 1.3
SGD = optax.sgd(0.1)
# Of these, losses are compared, too: one policy of each kind of update.
LEARNING = ("bsp", "ssp", "asp", "k_sync", "k_batch_async", "adaptive_sync")


def faulty(seed):
    found = random_faults(4, SECONDS, seed=seed)
    return EXPONENTIAL.with_faults(*found, patience=0.1, checkpoint_every=10)


def stop(policy):
    """When a run ends. Where a policy chooses k by times it measured, luck decides how many updates so many
    samples are."""
    by_time = policy.name.startswith(("adaptive_load", "dbw"))
    return {"updates": 60} if by_time else {"samples": SAMPLES}


def last_loss(run):
    return run.history["loss"].iloc[-1]


@functools.cache
def without_faults(policy):
    """Final losses of fault-free runs."""
    problem, rule = plane(), ALL_POLICIES[policy]()
    traces = [simulate(rule, EXPONENTIAL, **stop(rule), seed=seed) for seed in range(40)]
    return np.array([last_loss(dml.replay(trace, problem, SGD, eval_every=10**6)) for trace in traces])


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_simulated_schedules(policy):
    """No deadlock, and losses no worse than those of fault-free runs that are as long.

    They may be lower: a team that is smaller for a while makes smaller updates, and more of them. Each policy
    meets schedules of its own.
    """
    problem, rule = plane(), ALL_POLICIES[policy]()
    losses, seen = [], set()
    first = SEEDS * [*ALL_POLICIES].index(policy)
    for seed in range(first, first + SEEDS):
        trace = simulate(rule, faulty(seed), **stop(rule), seed=seed)
        check_counts(trace, **stop(rule))
        seen |= {incident["kind"] for incident in trace.metadata["incidents"]}
        if seed < first + TRAINED and policy in LEARNING:
            losses.append(last_loss(dml.replay(trace, problem, SGD, eval_every=10**6)))
    assert seen == {"leave", "join", "freeze", "down"}
    if policy not in LEARNING:
        return
    usual = without_faults(policy)
    assert np.mean(losses <= usual.max()) >= 0.95
    assert max(losses) <= usual.max() + np.ptp(usual)


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_fused_gradients(policy):
    rule = ALL_POLICIES[policy]()
    trace = simulate(rule, faulty(1), **stop(rule), seed=1)
    with jax.enable_x64(True):
        check_fused(trace, plane("float64"), SGD)


@pytest.mark.parametrize(
    ("policy", "seed"),
    [pytest.param(name, 0, marks=[pytest.mark.full] * (name not in KINDS)) for name in ALL_POLICIES]
    + [(name, 1) for name in ("bsp", "ssp", "k_batch_async")],
)
def test_schedules_on_threads(policy, seed):
    problem, engine = plane(), dml.engines.threads(time_scale=0.25)
    rule = ALL_POLICIES[policy]()
    options = stop(rule) | {"seed": seed, "engine": engine, "eval_every": 10**6}
    run = dml.train(problem, faulty(seed), rule, SGD, **options)
    check_counts(run.trace, **stop(rule))
    check_replay(run, problem, SGD)
    if policy in LEARNING:
        usual = without_faults(policy)
        assert last_loss(run) <= usual.max() + np.ptp(usual)


PLAIN = 0.32  # seconds of ten rounds of BSP in lock-step


def end(engine, *faults, **options):
    """The trace of ten rounds with faults; on threads a round takes 64 ms, to be safe on a busy machine."""
    cluster = LOCK_STEP.with_faults(*faults, **options)
    made = dml.engines.threads(time_scale=2.0) if engine == "threads" else engine
    options = {"updates": 10, "engine": made, "eval_every": 10}
    return dml.train(plane(), cluster, dml.bsp(), SGD, **options).trace


@pytest.mark.parametrize("engine", ["simulate", "threads"])
def test_each_kind_leaves_its_mark(engine):
    trace = end(engine, Crash(1, 0.1, 0.1))
    assert sorted(set(trace.updates["num_tasks"])) == [3, 4], "the others go on meanwhile"
    assert end(engine, Crash(1, 0.1)).updates["num_tasks"].iloc[-1] == 3, "for good"
    assert end(engine, Hang(2, 0.1, 0.5)).end_time >= PLAIN + 0.5 - 1e-9
    assert end(engine, Hang(2, 0.1, 0.5), patience=0.05).updates["num_tasks"].min() == 3
    assert end(engine, LostPush(3, 4, 0.25)).end_time >= PLAIN + 0.25 - 1e-9
    doubled = end(engine, DoubledPush(3, 4, 0.01))
    assert doubled.metadata["ignored_arrivals"] == 1
    assert (doubled.updates["num_tasks"] == 4).all()
    down = end(engine, ServerCrash(0.17, 0.3), checkpoint_every=2)
    assert down.metadata["incidents"][0]["lost_updates"] in (0, 1)
    assert down.end_time >= PLAIN + 0.3 - 1e-9
    assert (down.updates["num_tasks"] == 4).all()


COSTS = {
    "a crash": (Crash(1, 0.1, 0.01), 0.014),  # its task begins again at 0.11 s, and round 4 ends at 0.142
    "a hang": (Hang(2, 0.1, 0.5), 0.5),
    "a lost push": (LostPush(3, 4, 0.25), 0.25),
    "a doubled push": (DoubledPush(3, 4, 0.01), 0.0),
    # Killed 10 ms into round 5, with round 4 in the checkpoint: those 10 ms and the outage.
    "a server": (ServerCrash(0.17, 0.3), 0.3 + 0.17 - 5 * 0.032 + 0.032),
}


@pytest.mark.parametrize("what", COSTS)
def test_what_a_fault_costs_to_the_millisecond(what):
    fault, seconds = COSTS[what]
    took = end("simulate", fault, checkpoint_every=2).end_time - PLAIN
    assert took == pytest.approx(seconds, abs=1e-9)


def test_a_push_that_is_lost_twice_is_late_twice():
    lost = LostPush(3, 4, 0.25), LostPush(3, 4, 0.5)
    assert Faults(lost).deliveries(3, 4) == [0.75]
    late = dml.simulate(dml.bsp(), LOCK_STEP.with_faults(*lost), updates=10).end_time
    assert late - PLAIN == pytest.approx(0.75, abs=1e-9)


def test_a_hang_costs_a_worker_with_a_kept_copy_its_length():
    """Tasks that were computed before it keep their times, although their pushes are still on their way."""
    cluster = dml.Cluster.uniform(1, samples_per_second=32, latency=10.0)
    plain, hung = (
        dml.simulate(dml.ssp(math.inf), each, seconds=40.0).tasks.set_index("clock")["compute_end"]
        for each in (cluster, cluster.with_faults(Hang(0, 15.5, 1.0)))
    )
    late = (hung - plain).loc[:10]
    assert late[:4].abs().max() < 1e-9
    assert late[6:].to_numpy() == pytest.approx(1.0)


def test_a_copy_of_a_push_comes_after_the_push():
    """Also where its worker hangs before it has sent the first."""
    cluster = LOCK_STEP.with_faults(Hang(3, 0.14, 5), DoubledPush(3, 4, 0.01), LostPush(3, 4, 1.0))
    task = dml.simulate(dml.bsp(), cluster, updates=10).tasks.query("worker == 3 and clock == 4").iloc[0]
    assert task["push_end"] == pytest.approx(0.16 + 5 + 1)


@pytest.mark.parametrize("engine", ["simulate", "threads"])
def test_a_server_that_is_down_at_the_end(engine):
    cluster = EXPONENTIAL.with_faults(ServerCrash(0.9, 0.5), checkpoint_every=5)
    made = dml.engines.threads(time_scale=0.5) if engine == "threads" else engine
    run = dml.train(plane(), cluster, dml.asp(), SGD, seconds=1.0, engine=made)
    assert run.trace.end_time == 1.0
    # On a real clock the server dies when it has dealt with the message at hand, and the trace says when.
    down = [each["time"] for each in run.trace.metadata["incidents"] if each["kind"] == "down"]
    assert engine == "threads" or down == [0.9]
    assert run.trace.updates["time"].iloc[-1] <= min(down, default=1.0)


def test_a_leave_may_make_the_last_update():
    cluster = LOCK_STEP.with_faults(Hang(1, 0.0, 5.0), Crash(1, 0.5))
    for engine in ("simulate", dml.engines.threads(time_scale=1.0)):
        run = dml.train(plane(), cluster, dml.bsp(), SGD, updates=1, engine=engine)
        assert run.trace.end_time == run.trace.updates["time"].iloc[0] >= 0.5


def test_k_sync_of_all_is_bsp_also_where_somebody_leaves():
    cluster = LOCK_STEP.with_faults(Crash(0, 0.1, 0.31), Crash(2, 0.2))
    one, two = (dml.simulate(policy, cluster, updates=50, seed=1) for policy in (dml.bsp(), dml.k_sync(4)))
    assert set(one.updates["num_tasks"]) == {2, 3, 4}
    assert one.updates.equals(two.updates)


def test_patience_stays_as_it_was_set():
    cluster = EXPONENTIAL.with_faults(Crash(0, 1.0), patience=2, checkpoint_every=7).with_faults(
        Crash(1, 1.0)
    )
    assert (cluster.faults.patience_seconds, cluster.faults.checkpoint_every) == (2.0, 7)


def test_everybody_may_leave_as_long_as_somebody_returns():
    faults = [Crash(w, 0.1, 0.2 + w / 10) for w in range(4)]
    trace = dml.simulate(dml.bsp(), LOCK_STEP.with_faults(*faults), updates=20)
    assert len(trace.updates) == 20
    with pytest.raises(RuntimeError, match=r"deadlocks at 0\.1 s after 3 updates: every worker has left"):
        dml.simulate(dml.bsp(), LOCK_STEP.with_faults(*(Crash(w, 0.1) for w in range(4))), updates=20)


def test_the_same_seed_breaks_the_same_way():
    one, two = (dml.simulate(dml.ssp(2), faulty(7), samples=SAMPLES, seed=1) for _ in range(2))
    assert one.tasks.equals(two.tasks)
    assert one.metadata["incidents"] == two.metadata["incidents"]
    assert random_faults(4, 2.0, seed=1) != random_faults(4, 2.0, seed=2)


def test_faults_are_in_the_trace_of_a_file(tmp_path):
    trace = dml.simulate(dml.ssp(2), faulty(7), samples=SAMPLES)
    trace.save(tmp_path / "trace.parquet")
    again = dml.Trace.load(tmp_path / "trace.parquet")
    assert again.metadata == trace.metadata
    assert {"kind": "ServerCrash"}.items() <= again.metadata["cluster"]["faults"]["events"][-1].items()


def test_a_server_that_is_down_cannot_crash():
    found = incidents(Faults((ServerCrash(1.2, 5.0), ServerCrash(1.0, 0.5), ServerCrash(1.5, 0.1))))
    assert [(incident.time, incident.seconds) for incident in found] == [(1.0, 0.5), (1.5, 0.1)]


def test_incidents_come_in_order():
    found = incidents(Faults(tuple(random_faults(8, 10.0, seed=3)), patience_seconds=0.5))
    assert found == sorted(found)
    assert {"leave", "join", "freeze", "down"} == {incident.kind for incident in found}


BAD = {
    "Crash.seconds: expected a number > 0.*, got 0": [Crash(0, 1.0, 0)],
    "Crash.worker: expected .*, got 4": [Crash(4, 1.0)],
    "Crash.time: expected .*, got -1": [Crash(0, -1)],
    "Hang.seconds: expected .*, got nan": [Hang(0, 1.0, math.nan)],
    "LostPush.clock: expected .*, got -1": [LostPush(0, -1, 1.0)],
    "ServerCrash.seconds: expected .*, got inf": [ServerCrash(1.0, math.inf)],
    "ServerCrash.seconds: expected a number > 0.*, got 0": [ServerCrash(1.0, 0)],
    "faults: expected a Crash, Hang.*, got 'crash'": ["crash"],
    "patience: expected a finite number of seconds.*, got inf": [Hang(0, 1.0, math.inf)],
}


@pytest.mark.parametrize("message", BAD)
def test_a_wrong_fault_is_one_clear_error(message):
    with pytest.raises(ValueError, match=message):
        EXPONENTIAL.with_faults(*BAD[message])


@pytest.mark.parametrize("options", [{"patience": 0}, {"checkpoint_every": 0}, {"checkpoint_every": 1.5}])
def test_wrong_options_of_faults(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))}: expected"):
        EXPONENTIAL.with_faults(Crash(0, 1.0), **options)


@pytest.mark.parametrize("name", ["bsp", "ssp", "asp", "k_sync", "k_batch_async", "deadline", "ringmaster"])
def test_a_server_goes_on_from_a_copy_as_from_its_journal(name, monkeypatch):
    """Copies save it going through all that had happened; a state that cannot be copied is no fault."""
    cluster = MIXED.with_faults(
        *(dml.faults.ServerCrash(time, 0.1) for time in (0.6, 1.4, 1.5)),
        *dml.faults.random_faults(MIXED.num_workers, 2.0, seed=4),
        patience=0.1,
        checkpoint_every=3,
    )
    policy = ALL_POLICIES[name]()

    class Locked:
        def __init__(self, state):
            self.state = state

        def __deepcopy__(self, memo):
            raise TypeError("cannot be copied")

    def inside(function):
        def called(box, *args):
            box.state, *rest = function(box.state, *args)
            return box, *rest

        return called

    hooks = {each: getattr(policy, each) for each in ("on_push", "on_leave", "on_join", "on_wake")}
    locked = policy._replace(
        init=lambda workers: Locked(policy.init(workers)),
        **{each: None if hook is None else inside(hook) for each, hook in hooks.items()},
        on_pull=policy.on_pull and (lambda box, worker: policy.on_pull(box.state, worker)),
    )
    traces = []
    for rule, first in ((policy, math.inf), (policy, 3), (locked, 3)):
        monkeypatch.setattr(failures, "SNAPSHOT", first)
        traces.append(dml.simulate(rule, cluster, seconds=2.5, seed=2))
    assert sum(each["kind"] == "down" for each in traces[0].metadata["incidents"]) >= 3
    for trace in traces[1:]:
        pd.testing.assert_frame_equal(trace.tasks, traces[0].tasks)
        pd.testing.assert_frame_equal(trace.updates, traces[0].updates)
        assert trace.metadata == traces[0].metadata
