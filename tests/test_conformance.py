"""One table: every policy on every engine keeps the promises of traces and its own."""

import math

import numpy as np
import pytest
from clusters import CLUSTERS
from engine_runs import ENGINES, plane, trace_of
from engine_runs import table as rows
from watched import simulate

import dmlcore as dml
from dmlcore.cluster.draws import Draws
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.trace import metrics, predecessors
from dmlcore.types import Decision, Policy, Start

K_SYNC = ("k_sync", "k_sync_schedule", "pflug", "adaptive_load", "adaptive_load_gradients", "dbw")
K_SYNC += ("deadline", "backup")
LOCK_STEP = ("bsp", "sampled", "k_batch_sync", "rennala", "mindflayer", *K_SYNC)
# Staleness -> weight, of the policies in the table in which it follows from that alone.
DAMPED = {
    "n_softsync": lambda tau: 0.5 / np.maximum(tau, 1),
    "delay_adaptive": lambda tau: 2 / np.maximum(tau, 2),
    "fedbuff": lambda tau: (1 + tau) ** -0.5 / 3,
    "sampled": lambda tau: (1 + tau) ** -0.5 / 2,
    "fedasync": lambda tau: 0.6 / np.maximum(1 + 2 * (tau - 1), 1),
}


@pytest.fixture
def trace(request, engine_is_there):
    return trace_of(*request.param)


@pytest.fixture
def engine_is_there(request):
    """Starts Ray's cluster when the first row needs it."""
    if request.node.callspec.params["trace"][1] == "ray":
        request.getfixturevalue("ray_cluster")


@pytest.fixture
def name(request):
    """Of the policy in the table."""
    return request.node.callspec.params["trace"][0]


def table(function):
    return pytest.mark.parametrize("trace", rows(), indirect=True)(function)


@table
def test_trace_is_valid_and_complete(trace):
    assert trace.validate() is trace
    assert len(trace.updates) == ENGINES[trace.metadata["engine"]][1]
    assert set(trace.metadata) >= {
        "engine",
        "policy",
        "num_workers",
        "cluster",
        "batch_size",
        "seed",
        "versions",
    }


@table
def test_clocks_of_a_worker_are_consecutive_and_follow_each_other(trace):
    tasks = trace.tasks
    for _, own in tasks.groupby("worker"):
        own = own.sort_values("clock")
        assert (own["clock"].to_numpy() == np.arange(len(own))).all()
        pulled = own["pull_start"].to_numpy()
        kept = np.isnan(pulled)
        begun = np.where(kept, own["compute_start"], pulled)
        arrived = own["push_end"].fillna(own["compute_end"]).to_numpy()
        assert (begun[1:] >= own["compute_end"].to_numpy()[:-1]).all()
        assert (kept[1:] | (begun[1:] >= arrived[:-1])).all(), "only a kept copy needs no answer to the push"
        assert (np.diff(own["push_end"].dropna()) >= 0).all(), "pushes of one worker arrive in order"
        assert (np.diff(own["version_read"]) >= 0).all(), "a worker never goes back to an older version"


@table
def test_versions_are_read_as_they_stand(trace):
    """A pull sees exactly the updates made before it: the newest version at that moment."""
    tasks = trace.tasks[trace.tasks["pull_start"].notna()]
    made = trace.updates["time"].to_numpy()
    before = np.searchsorted(made, tasks["pull_start"], side="left")
    upto = np.searchsorted(made, tasks["pull_start"], side="right")
    assert ((before <= tasks["version_read"]) & (tasks["version_read"] <= upto)).all()


@table
def test_a_kept_copy_has_the_version_of_the_task_before(trace):
    kept = trace.tasks["pull_start"].isna().to_numpy()
    previous = predecessors(trace.tasks)
    read = trace.tasks["version_read"].to_numpy()
    assert (read[kept] == read[previous[kept]]).all()


@table
def test_window_of_policies_that_promise_one(trace, name):
    staleness = trace.metadata["max_lead"]
    if staleness is None:
        pytest.skip(f"{trace.metadata['policy']} promises no window")
    if name in K_SYNC:
        pytest.skip("K-sync promises staleness 0 in versions, not in clocks")
    assert metrics.clock_gap(trace) <= staleness
    assert metrics.read_window_violations(trace, staleness).empty, "or is it one for `K_SYNC`?"


@table
def test_lock_step_policies_have_no_staleness(trace, name):
    if name not in LOCK_STEP:
        pytest.skip("not lock-step")
    assert (metrics.staleness(trace) == 0).all()


@table
def test_weights_of_an_update(trace):
    """Means sum to 1; a worker's share in the SSP family is 1 / P; an ASP push counts whole. What opens a
    group's barrier counts beside it. A stale gradient that is damped counts by its age."""
    applied = trace.tasks[trace.tasks["update"] >= 0]
    family = trace.metadata["policy"].split("(")[0]
    if family in ("ssp", "essp", "dssp"):
        np.testing.assert_allclose(applied["weight"], 1 / trace.num_workers)
    elif family == "adaptive_sync":
        assert (applied["weight"] <= 1 + 1e-9).all()
        for _, weights in applied.groupby("update")["weight"]:
            mean = np.isclose(weights.sum() - np.array([0.0, *weights]), 1).any()
            assert mean or len(weights) == 1, "the mean of a group, and at most what opened its barrier"
    elif family in DAMPED:
        np.testing.assert_allclose(applied["weight"], DAMPED[family](metrics.staleness(trace)))
    elif "damping" in trace.metadata["policy"]:
        np.testing.assert_allclose(applied["weight"], 1 / (1 + metrics.staleness(trace)))
    else:
        np.testing.assert_allclose(applied.groupby("update")["weight"].sum(), 1.0)
    assert (applied["weight"] > 0).all()


def update_seconds(trace):
    """How long the server takes over an update, after which a decision is carried out."""
    return trace.metadata["cluster"].get("server", {"seconds_per_update": 0.0})["seconds_per_update"]


def check_starts(trace):
    """Every worker has begun, and begins again when a push arrives or a timer fires, as only then is anything
    decided, or, on a kept copy, when it has computed. Whether it ever does is up to the policy."""
    arrived = [*trace.tasks["push_end"].dropna(), *(time for time, _, _ in trace.metadata.get("wakes", ()))]
    arrived = {*arrived, *(np.array(arrived) + update_seconds(trace))}
    assert set(trace.tasks["worker"]) == {*range(trace.num_workers)}
    for _, own in trace.tasks.sort_values("clock").groupby("worker"):
        pulled, computed = own["pull_start"].to_numpy(), own["compute_end"].to_numpy()
        assert set(pulled[1:][~np.isnan(pulled[1:])]) <= arrived
        assert (own["compute_start"].to_numpy()[1:] == computed[:-1])[np.isnan(pulled[1:])].all()


def check_all_starts(policy, trace):
    """What a policy decides to start has begun just then, and nothing else has: who idles was not started."""
    tasks = trace.tasks[trace.tasks["pull_start"] > 0]
    *steps, _ = dml.follow(policy, trace)  # the run is over before the last decision starts anything
    taken = [step.push.time + (update_seconds(trace) if step.decision.apply else 0.0) for step in steps]
    starts = [(step.decision.start, time) for step, time in zip(steps, taken, strict=True)]
    decided = [(start.worker, time) for each, time in starts for start in each]
    assert sorted(decided) == sorted(zip(tasks["worker"], tasks["pull_start"], strict=True))


@table
def test_workers_begin_when_they_are_started(trace, name):
    check_starts(trace)
    if ALL_POLICIES[name]().on_observation is None:  # else a trace does not hold what it saw
        check_all_starts(ALL_POLICIES[name](), trace)


@pytest.mark.parametrize("cluster", CLUSTERS.values(), ids=CLUSTERS)
def test_a_policy_may_leave_workers_idle(cluster):
    """One that goes on with the two workers whose pushes came first keeps what every policy must."""

    def on_push(state, push):
        state.append(push.worker)
        task = push.worker, push.clock
        if push.worker in state[:2]:
            return state, Decision(apply=[(*task, 1.0)], start=[Start(push.worker)])
        return state, Decision(drop=[task])

    policy = Policy("first_two()", lambda num_workers: [], on_push)
    trace = dml.simulate(policy, cluster, updates=60)
    assert sorted(trace.validate().tasks["worker"].value_counts())[:2] == [1, 1]
    check_starts(trace)
    check_all_starts(policy, trace)


@table
def test_no_worker_of_ours_idles_for_good(trace, request, name):
    """Not asked of every policy: a worker is started again when it is done, when an update is made or when a
    timer fires, and at the end it works, or has to wait."""
    _, _, cluster = request.node.callspec.params["trace"]
    if name.startswith("sampled"):
        pytest.skip("a worker that is not drawn idles")
    nbytes = plane().parameter_bytes
    draws = Draws(CLUSTERS[cluster], 3, nbytes, nbytes)
    fired = [time for time, _, _ in trace.metadata.get("wakes", ())]
    made, end = {*trace.updates["time"], *fired}, trace.end_time
    finished = trace.tasks[trace.tasks["push_end"].notna()]["worker"].value_counts()
    for worker, own in trace.tasks.sort_values("clock").groupby("worker"):
        begun = own["pull_start"].fillna(own["compute_start"]).to_numpy()[1:]
        kept = own["pull_start"].isna().to_numpy()[1:]
        done = np.where(kept, own["compute_end"].to_numpy()[:-1], own["push_end"].to_numpy()[:-1])
        assert len(begun) or "time_scale" in trace.metadata, "on a real clock a first task may last the run"
        assert all(b == d or b in made for d, b in zip(done, begun, strict=True))
        last = own.iloc[-1]
        if np.isnan(last.push_end):
            if name == "mindflayer":
                continue  # its last trial of the round may have been cut off: it waits for the others
            sending = draws.push_seconds(worker, int(last.clock))
            # On a real clock a task may take longer than it was meant to; a busy server keeps pushes waiting.
            if "time_scale" not in trace.metadata and cluster != "contended":
                assert last.compute_end == end or last.compute_end + sending >= end, "it works"
        else:
            waits = last["update"] in (-1, len(trace.updates) - 1)
            assert waits or finished[worker] > finished.min(), "its push waits, or it leads"


@table
def test_following_a_trace_takes_its_decisions_again(trace, name):
    """What a policy decides follows from the calls alone, whatever the engine."""
    policy = ALL_POLICIES[name]()
    if policy.on_observation is not None:
        pytest.skip("it watches its training, which a trace does not hold")
    tasks, made = trace.tasks.set_index(["worker", "clock"]), 0
    for step in dml.follow(policy, trace):
        for worker, clock, weight in step.decision.apply:
            task = tasks.loc[worker, clock]
            assert (task["update"], task["weight"]) == (made, weight)
        if step.decision.apply:
            assert trace.updates["time"].iloc[made] == step.push.time + update_seconds(trace)
        made += bool(step.decision.apply)
    assert made == len(trace.updates)


@pytest.mark.parametrize("name", ALL_POLICIES)
def test_same_seed_same_trace(name):
    policy, cluster = ALL_POLICIES[name](), CLUSTERS["mixed"]
    one, two, other = (simulate(policy, cluster, updates=60, seed=seed) for seed in (5, 5, 6))
    assert one.tasks.equals(two.tasks)
    assert one.updates.equals(two.updates)
    assert not one.tasks.equals(other.tasks)


def test_policies_meet_the_same_stragglers():
    """Common random numbers: a task's compute time depends on seed, worker and clock, not on the policy."""
    runs = {
        name: simulate(policy(), CLUSTERS["mixed"], updates=100, seed=1)
        for name, policy in ALL_POLICIES.items()
    }
    seconds: dict[tuple[int, int, int], float] = {}
    for trace in runs.values():
        done = trace.tasks[trace.tasks["push_end"].notna()]
        for task in done.itertuples():
            spent = task.compute_end - task.compute_start
            same = task.worker, task.clock, task.batch_size
            assert math.isclose(spent, seconds.setdefault(same, spent), abs_tol=1e-9)
