"""A server that takes time: closed forms of queueing, an independent loop, and the same on every engine."""

import heapq
import math
from collections import deque
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import optax
import pandas as pd
import pytest
from engine_runs import check_counts, check_replay, plane
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from watched import simulate

import dmlcore as dml
from dmlcore.cluster.draws import Draws
from dmlcore.engines.service import SharedLink
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.trace import metrics

THINK = 0.1  # seconds of a task
LOCK_STEP = dml.Cluster.uniform(8, samples_per_second=32 / THINK)
RANDOM = dml.Cluster.uniform(8, samples_per_second=32 / THINK, jitter=stats.expon())


def rate(trace):
    return len(trace.updates) / trace.end_time


def mean_value_analysis(customers, service, think, stations=1):
    """Throughput of equal stations in a row and a delay, exactly (Reiser and Lavenberg 1980)."""
    queue = 0.0
    for number in range(1, customers + 1):
        response = service * (1 + queue)
        throughput = number / (stations * response + think)
        queue = throughput * response
    return throughput


@pytest.mark.parametrize("load", [0.25, 0.9, 1.5, 4.0])  # workers x service / (service + think)
@pytest.mark.parametrize("workers", [2, 4, 8, 16, 64])
def test_exponential_service_is_mean_value_analysis(workers, load):
    service = THINK * load / (workers - load) if load < workers else 10 * THINK
    cluster = RANDOM.resized(workers).with_server(seconds_per_push=service, jitter=stats.expon())
    trace = dml.simulate(dml.asp(), cluster, updates=60_000, seed=1)
    assert rate(trace) == pytest.approx(mean_value_analysis(workers, service, THINK), rel=0.02)


def hyper_exponential(uniform):
    """Quantiles of two exponential laws with mean 1 and a squared coefficient of variation of 4."""
    share = (1 - math.sqrt(3 / 5)) / 2
    times = np.append(0.0, np.geomspace(1e-9, 300, 100_000))
    longer = sum(p * np.exp(-2 * p * times) for p in (share, 1 - share))  # P(more than so long)
    return np.interp(uniform, 1 - longer, times)


@pytest.mark.parametrize("law", [None, stats.expon(), hyper_exponential], ids=["fixed", "expon", "hyper"])
@pytest.mark.parametrize(("workers", "load"), [(2, 0.5), (16, 2.0)])
def test_a_link_that_is_shared_equally_is_insensitive(workers, load, law):
    """To the law of the sizes: throughput depends on their mean alone, and is that of exponential ones."""
    transfer = THINK * load / workers
    link = {"bandwidth": 1e4 / transfer, "sharing": "fair", "jitter": law}
    cluster = RANDOM.resized(workers).with_server(**link)
    trace = dml.simulate(dml.asp(), cluster, updates=40_000, seed=1, parameter_bytes=10_000)
    assert rate(trace) == pytest.approx(mean_value_analysis(workers, transfer, THINK, 2), rel=0.02)


def test_first_come_first_served_is_sensitive():
    """So the test before could fail: with very unequal sizes a queue is longer, not so a shared link."""
    link = {"bandwidth": 1e6, "jitter": hyper_exponential}
    options = {"updates": 40_000, "seed": 1, "parameter_bytes": 10_000}
    queue, shared = (
        rate(dml.simulate(dml.asp(), RANDOM.with_server(**link, sharing=how), **options))
        for how in ("fifo", "fair")
    )
    assert queue < 0.97 * shared


@pytest.mark.parametrize("workers", [1, 3, 8, 20])
@pytest.mark.parametrize("seed", range(5))
def test_shared_links_by_an_independent_loop(workers, seed):
    """ASP: from each event to the next, every transfer under way gets its part of the link.

    For few updates, since rounding grows: a push that is sent later lets another arrive earlier.
    """
    transfer, updates = 0.03, 60
    cluster = RANDOM.resized(workers)
    draws = Draws(cluster, seed)
    phase, left = ["pull"] * workers, [transfer] * workers  # seconds, alone
    clocks, taken, now = [0] * workers, [], 0.0
    while len(taken) < updates:
        shares = [1 if each == "compute" else phase.count(each) for each in phase]
        ahead, first = min(
            (seconds * share, w) for w, (seconds, share) in enumerate(zip(left, shares, strict=True))
        )
        now += ahead
        left = [seconds - ahead / share for seconds, share in zip(left, shares, strict=True)]
        if phase[first] == "pull":
            phase[first], left[first] = "compute", draws.compute_seconds(first, clocks[first], 32)
        elif phase[first] == "compute":
            phase[first], left[first] = "push", transfer
        else:
            taken.append(now)
            phase[first], left[first] = "pull", transfer
            clocks[first] += 1
    shared = cluster.with_server(bandwidth=1e4 / transfer, sharing="fair")
    trace = dml.simulate(dml.asp(), shared, updates=updates, parameter_bytes=10_000, seed=seed)
    np.testing.assert_allclose(trace.updates["time"], taken, rtol=1e-7)


@pytest.mark.parametrize("what", ["seconds_per_push", "seconds_per_pull", "seconds_per_update"])
@pytest.mark.parametrize("policy", [dml.asp(), dml.essp(3), dml.k_async(1)], ids=str)
def test_a_saturated_server_makes_one_update_per_service(policy, what):
    trace = dml.simulate(policy, RANDOM.resized(64).with_server(**{what: 0.02}), updates=5_000)
    served = trace.tasks["pull_start"].count() if what == "seconds_per_pull" else len(trace.updates)
    assert served / trace.end_time == pytest.approx(1 / 0.02, rel=0.02)


def test_processor_and_links_are_queues_of_their_own():
    """Full duplex: the slowest of the three sets the pace, not their sum."""
    options = {"seconds_per_push": 0.002, "seconds_per_pull": 0.003, "bandwidth": 1e6}
    sizes = {"parameter_bytes": 10_000}
    trace = dml.simulate(dml.asp(), RANDOM.resized(64).with_server(**options), updates=5_000, **sizes)
    assert rate(trace) == pytest.approx(1 / 0.01, rel=0.02)


@pytest.mark.parametrize("workers", [1, 2, 5, 32])
def test_a_round_of_bsp(workers):
    """Computing, every push one after the other, the update, and every answer."""
    cluster = LOCK_STEP.resized(workers)
    cluster = cluster.with_server(seconds_per_push=0.01, seconds_per_pull=0.002, seconds_per_update=0.05)
    trace = dml.simulate(dml.bsp(), cluster, updates=20)
    first = workers * 0.002 + THINK  # the slowest answer; the others have computed when it has come
    later = max(0.01, 0.002) * (workers - 1) + 0.01 - 0.002 * (workers - 1)
    assert trace.updates["time"][0] == pytest.approx(first + later + 0.05, rel=1e-9)
    rounds = np.diff(trace.updates["time"])
    np.testing.assert_allclose(rounds, THINK + 0.05 + 0.002 + workers * 0.01, rtol=1e-9)


@pytest.mark.parametrize("policy", [dml.asp(), dml.bsp(), dml.essp(2)], ids=str)
def test_a_worker_alone_shares_with_none(policy):
    """A shared link is then one that is first come, first served, queues and all."""
    options = {"seconds_per_push": 0.01, "seconds_per_pull": 0.004, "bandwidth": 1e6}
    one, two = (
        simulate(policy, RANDOM.resized(1).with_server(**options, sharing=how), **SIZE, seconds=5.0, seed=2)
        for how in ("fifo", "fair")
    )
    np.testing.assert_allclose(one.tasks, two.tasks, rtol=1e-9, atol=1e-9)


def test_copies_of_one_worker_arrive_in_order():
    """In a pipeline it waits for two at once, of which a shared link may bring the later one first."""
    cluster = RANDOM.resized(2).with_server(bandwidth=1e5, sharing="fair", jitter=stats.expon())
    failing = cluster.with_faults(dml.faults.ServerCrash(time=0.06, seconds=0.01), checkpoint_every=1)
    for each in (cluster, failing):
        for seed in range(20):
            options = {"parameter_bytes": 400, "transport": "pipelined()", "seed": seed}
            tasks = dml.simulate(dml.asp(), each, updates=40, **options).tasks.dropna(subset="push_end")
            for _, own in tasks.sort_values("push_end", kind="stable").groupby("worker"):
                assert own["clock"].is_monotonic_increasing


def test_the_next_push_joins_a_shared_link_when_the_one_before_is_taken():
    """SSP computes on while its push waits; all of that counts as queueing."""
    rows = [(0, 1.0), (0, 0.1), (0, 100.0), (1, 2.5), (1, 100.0)]
    frame = pd.DataFrame(
        [(worker, 1, seconds) for worker, seconds in rows], columns=["worker", "samples", "seconds"]
    )
    cluster = dml.Cluster.from_durations(frame).with_server(
        bandwidth=1.0, sharing="fair", seconds_per_push=5.0
    )
    tasks = dml.simulate(dml.ssp(100), cluster, seconds=40, parameter_bytes=1, batch_size=1).tasks
    tasks = tasks.dropna(subset="push_end").set_index(["worker", "clock"])
    # Pulls take both to 2 s: pushes of 1 s on the link, 5 s each on the processor.
    assert tasks["push_end"].to_dict() == pytest.approx({(0, 0): 9.0, (1, 0): 14.0, (0, 1): 19.0})
    assert tasks["push_queued"].to_dict() == pytest.approx({(0, 0): 0.0, (1, 0): 3.5, (0, 1): 9.9})


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_first_come_first_served_and_littles_law(policy):
    cluster = RANDOM.with_server(seconds_per_push=0.004, seconds_per_pull=0.002, jitter=stats.expon())
    trace = simulate(ALL_POLICIES[policy](), cluster.with_stragglers(3), updates=300, seed=3)
    tasks = trace.tasks[trace.tasks["push_end"].notna()]
    # The time from the end of computing to the taking of a push is waiting and service.
    response = tasks["push_end"] - tasks["compute_end"]
    served = response - tasks["push_queued"]
    assert (tasks["push_queued"] >= 0).all()
    assert served.mean() == pytest.approx(0.004, rel=0.25)
    assert tasks.sort_values("compute_end", kind="stable")["push_end"].is_monotonic_increasing, "first come"
    # L = lambda W, with L counted at random moments and W taken from the tasks.
    moments = np.random.default_rng(0).uniform(0, trace.end_time, 400_000)
    came, went = (np.searchsorted(np.sort(tasks[c]), moments, "right") for c in ("compute_end", "push_end"))
    assert (came - went).mean() == pytest.approx(len(tasks) / trace.end_time * response.mean(), rel=0.03)


def test_a_sharded_server_is_as_slow_as_its_largest_part():
    """10 numbers on 4 shards: the largest has 3 of them."""
    options = {"updates": 200, "parameter_bytes": 40, "tensor_shapes": [7, 3]}
    sharded = LOCK_STEP.with_server(bandwidth=1e3, seconds_per_push=0.02, seconds_per_update=0.01, shards=4)
    part = 3 / 10
    alone = LOCK_STEP.with_server(
        bandwidth=1e3 / part, seconds_per_push=0.02 * part, seconds_per_update=0.01 * part
    )
    one, two = (dml.simulate(dml.asp(), each, **options) for each in (sharded, alone))
    np.testing.assert_allclose(one.updates["time"], two.updates["time"], rtol=1e-12)
    with pytest.raises(ValueError, match=r"shards: expected at most 10 .the number of parameters., got 11"):
        dml.simulate(dml.asp(), LOCK_STEP.with_server(seconds_per_push=0.1, shards=11), **options)


@pytest.mark.parametrize("workers", [1, 3, 8, 40])
@pytest.mark.parametrize("seed", range(3))
def test_an_independent_loop(workers, seed):
    """ASP with a fixed service, by a loop that knows nothing of the engine."""
    push, pull, update = 0.012, 0.005, 0.003
    cluster = RANDOM.resized(workers)
    draws = Draws(cluster, seed)
    free, arrivals, clocks, taken = 0.0, [], [0] * workers, []
    for worker in range(workers):
        free += pull
        heapq.heappush(arrivals, (free + draws.compute_seconds(worker, 0, 32), worker))
    while len(taken) < 1000:
        time, worker = heapq.heappop(arrivals)
        free = max(free, time) + push
        taken.append(free + update)
        free += update + pull
        clocks[worker] += 1
        heapq.heappush(arrivals, (free + draws.compute_seconds(worker, clocks[worker], 32), worker))
    server = {"seconds_per_push": push, "seconds_per_pull": pull, "seconds_per_update": update}
    trace = dml.simulate(dml.asp(), cluster.with_server(**server), updates=1000, seed=seed)
    np.testing.assert_allclose(trace.updates["time"], taken, rtol=1e-9)


CONTENDED = RANDOM.with_server(seconds_per_push=0.01, seconds_per_pull=0.004, seconds_per_update=0.002)


FAIR = RANDOM.with_server(
    bandwidth=1e6, sharing="fair", seconds_per_push=0.01, seconds_per_pull=0.004, seconds_per_update=0.002
)
SIZE = {"parameter_bytes": 12_000}  # 12 ms on its link


@pytest.mark.parametrize("policy", ALL_POLICIES)
@pytest.mark.parametrize("stop", [{"updates": 60}, {"seconds": 2.0}, {"samples": 32 * 90}], ids=str)
@pytest.mark.parametrize("cluster", [CONTENDED, FAIR], ids=["fifo", "fair"])
def test_every_policy(policy, stop, cluster):
    """Valid, complete, deterministic; a run by seconds ends with a push that is taken in time."""
    one, two = (simulate(ALL_POLICIES[policy](), cluster, **stop, seed=2, **SIZE) for _ in range(2))
    assert one.tasks.equals(two.tasks)
    assert one.updates.equals(two.updates)
    assert one.tasks["push_end"].max() <= one.end_time
    taken = one.tasks["push_end"].dropna().sort_values()
    assert (np.diff(taken) >= 0.01 - 1e-9).all(), "one push after the other"
    if "seconds" in stop:
        assert one.end_time == 2.0
    else:
        check_counts(one, **stop)


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_the_window_of_ssp(staleness):
    for cluster in (CONTENDED, FAIR):
        trace = dml.simulate(dml.ssp(staleness), cluster.with_stragglers(4), updates=500, seed=1, **SIZE)
        assert metrics.read_window_violations(trace, staleness).empty


@pytest.mark.parametrize("policy", ALL_POLICIES)
@pytest.mark.parametrize("cluster", [CONTENDED, FAIR], ids=["fifo", "fair"])
def test_faults(policy, cluster):
    """Crashes, hangs, lost and doubled pushes, and a server that restarts with a queue before it."""
    for seed in range(5):
        faults = dml.faults.random_faults(8, 2.0, seed=seed)
        failing = cluster.with_faults(*faults, patience=0.1, checkpoint_every=10)
        trace = simulate(ALL_POLICIES[policy](), failing, updates=60, seed=seed, **SIZE)
        check_counts(trace, updates=60)


SLOW = {
    sharing: RANDOM.with_server(
        bandwidth=5e5, seconds_per_push=0.02, seconds_per_pull=0.01, seconds_per_update=0.05, sharing=sharing
    )
    for sharing in ("fifo", "fair")
}


@pytest.mark.parametrize("policy", ALL_POLICIES)
@pytest.mark.parametrize("transport", [None, "pipelined()"])
@pytest.mark.parametrize("sharing", ["fifo", "fair"])
def test_faults_of_a_server_that_is_slow(policy, transport, sharing):
    """While updates are under way, too; by seconds; queues are a part of their transfers."""
    rule = ALL_POLICIES[policy]()
    if transport and (rule.keep_copy is not None or rule.on_begin is not None):
        pytest.skip("only the worker has its copy, or not all workers begin")
    for seed in range(3):
        faults = dml.faults.random_faults(8, 3.0, seed=seed)
        cluster = SLOW[sharing].with_faults(*faults, patience=0.1, checkpoint_every=2)
        trace = simulate(rule, cluster, seconds=4.0, seed=seed, transport=transport, **SIZE)
        tasks = trace.tasks
        assert (tasks["push_queued"] <= (tasks["push_end"] - tasks["compute_end"]).fillna(0) + 1e-9).all()
        assert (tasks["pull_queued"] <= (tasks["compute_start"] - tasks["pull_start"]).fillna(0) + 1e-9).all()


@pytest.mark.parametrize("policy", ALL_POLICIES)
@pytest.mark.parametrize("cluster", [CONTENDED, FAIR], ids=["fifo", "fair"])
def test_a_fault_that_never_comes_changes_nothing(policy, cluster):
    never = cluster.with_faults(dml.faults.Crash(worker=0, time=1e6, seconds=1.0))
    one, two = (
        simulate(ALL_POLICIES[policy](), each, updates=100, seed=1, **SIZE) for each in (cluster, never)
    )
    assert one.tasks.equals(two.tasks)


def test_doubled_pushes_are_read_once_each():
    server = dml.Cluster.uniform(4, samples_per_second=320).with_server(seconds_per_push=0.2)
    twice = dml.faults.DoubledPush(worker=3, clock=0, seconds=0.01)
    hangs = [dml.faults.Hang(worker=0, time=0.75 + k / 100, seconds=1e-9) for k in range(10)]
    for more in ([], hangs):
        trace = dml.simulate(dml.asp(), server.with_faults(twice, *more), updates=20)
        assert trace.metadata["ignored_arrivals"] == 1
        assert trace.end_time == pytest.approx(0.1 + 21 * 0.2)


def test_a_link_without_anything_to_send_is_refused():
    """With 0 bytes its bandwidth would silently do nothing."""
    server = LOCK_STEP.with_server(bandwidth=1e6, shards=5)
    with pytest.raises(ValueError, match=r"parameter_bytes: expected the size of the parameters.*, got 0"):
        dml.simulate(dml.asp(), server, updates=2)
    with pytest.raises(ValueError, match=r"shards: expected at most 3 .the number of parameters., got 5"):
        server.regime(12)


@pytest.mark.parametrize(
    ("policy", "updates"), [(dml.asp(), 24), (dml.bsp(), 6), (dml.ssp(2), 24), (dml.k_sync(4), 6)], ids=str
)
@pytest.mark.parametrize("link", ["none", "fair"])
def test_on_threads(policy, updates, link):
    """The same run as on the virtual clock: modelled times stand where the machine keeps up with them."""
    problem, options = plane(), {"updates": updates}
    cluster = LOCK_STEP.with_server(seconds_per_push=0.02, seconds_per_pull=0.004, seconds_per_update=0.006)
    transfer = 0.0
    if link == "fair":
        transfer = 0.01
        shared = {"bandwidth": problem.parameter_bytes / transfer, "sharing": "fair"}
        cluster = LOCK_STEP.with_server(seconds_per_push=0.02, **shared)
    run = dml.train(problem, cluster, policy, optax.sgd(0.1), engine="threads", eval_every=24, **options)
    check_replay(run, problem, optax.sgd(0.1))
    sizes = {"parameter_bytes": problem.parameter_bytes, "tensor_shapes": problem.tensor_shapes}
    meant = dml.simulate(policy, cluster, **options, **sizes)
    if policy.name != "k_sync(k=4)" or link == "none":
        # On a shared link a worker that is late leaves the others more of it: the run may end earlier.
        assert run.trace.end_time >= meant.end_time * (1 - 1e-9 if link == "none" else 0.9)
    tasks = run.trace.tasks.dropna(subset="push_end")
    taken = tasks["push_end"].sort_values()
    # A machine that is late once takes the next in time, so that single distances may be shorter.
    assert taken.iloc[-1] >= taken.iloc[0] + 0.02 * (len(taken) - 1) - 1e-9, "one push after the other"
    pulled = tasks.dropna(subset="pull_start")
    assert (pulled["compute_start"] - pulled["pull_start"] >= transfer * (1 - 1e-9)).all()
    assert (tasks["push_end"] - tasks["compute_end"] >= (0.02 + transfer) * (1 - 1e-9)).all()


def test_shared_links_on_threads_that_fail():
    """Crashes, lost and doubled pushes, and a server that restarts while transfers are under way."""
    problem = plane()
    link = {"bandwidth": problem.parameter_bytes / 0.01, "sharing": "fair", "seconds_per_push": 0.005}
    faults = (
        dml.faults.Crash(worker=1, time=0.2, seconds=0.2),
        dml.faults.DoubledPush(worker=0, clock=1, seconds=0.02),
        dml.faults.LostPush(worker=2, clock=1, seconds=0.1),
        dml.faults.ServerCrash(time=0.5, seconds=0.1),
    )
    cluster = LOCK_STEP.with_server(**link).with_faults(*faults, patience=0.2, checkpoint_every=4)
    run = dml.train(problem, cluster, dml.asp(), optax.sgd(0.1), engine="threads", updates=30, eval_every=30)
    check_counts(run.trace, updates=30)
    check_replay(run, problem, optax.sgd(0.1))


@pytest.mark.parametrize("policy", [dml.asp(), dml.bsp(), dml.ssp(2), dml.k_sync(4)], ids=str)
def test_where_the_time_goes(policy):
    """The phases called queue are what the trace says; less, where a kept copy is computed meanwhile."""
    trace = dml.simulate(policy, CONTENDED, updates=200)
    table = metrics.time_breakdown(trace)
    np.testing.assert_allclose(table[list(metrics.PHASES)].sum(axis=1), trace.end_time)
    waited = trace.tasks.groupby("worker")[["pull_queued", "push_queued"]].sum().sum(axis=1)
    if policy.keep_copy is None:
        # Not the last pulls of the run, which it may cut.
        np.testing.assert_allclose(table["queue"], waited, atol=0.05)
    else:
        assert (table["queue"] <= waited + 1e-9).all()
    assert table["queue"].sum() > 0
    assert (metrics.time_breakdown(dml.simulate(policy, RANDOM, updates=50))["queue"] == 0).all()


@pytest.mark.parametrize("workers", [4, 16, 64])
def test_utilisation_and_queue(workers):
    """Throughput x service; and of an exponential server, what mean-value analysis says about its queue."""
    service = 0.01
    cluster = RANDOM.resized(workers).with_server(seconds_per_push=service, jitter=stats.expon())
    trace = dml.simulate(dml.asp(), cluster, updates=60_000, seed=2)
    last = metrics.accounts(trace).iloc[-1]
    throughput = mean_value_analysis(workers, service, THINK)
    assert last["utilisation"] == pytest.approx(throughput * service, rel=0.02)
    assert last["utilisation"] == last["processor_utilisation"]
    assert last["link_in_utilisation"] == last["link_out_utilisation"] == 0
    inside = workers - throughput * THINK  # in service or waiting
    assert last["mean_queue"] == pytest.approx(inside - throughput * service, rel=0.05)


class TestRegime:
    PROBLEM = plane()

    def measured(self, cluster):
        """c and rho of ASP with one worker, which never waits: seconds in phases, and service a second."""
        sizes = {"parameter_bytes": self.PROBLEM.parameter_bytes, "tensor_shapes": self.PROBLEM.tensor_shapes}
        trace = dml.simulate(dml.asp(), cluster.resized(1), updates=20_000, **sizes)
        seconds = metrics.time_breakdown(trace).iloc[0]
        server = cluster.server
        own = server.seconds_per_push + server.seconds_per_pull
        transfers = (seconds["pull"] + seconds["push"]) / len(trace.updates) - own
        link = self.PROBLEM.parameter_bytes / server.bandwidth_bytes_per_second
        service = max(own + server.seconds_per_update, link)
        ratio = transfers / (seconds["compute"] / len(trace.updates))
        return ratio, cluster.num_workers * service * rate(trace)

    @pytest.mark.parametrize("bandwidth", [1e5, 1e7])
    @pytest.mark.parametrize("latency", [0.0, 0.03])
    def test_what_a_lone_worker_shows(self, latency, bandwidth):
        cluster = dml.Cluster.uniform(
            8, samples_per_second=320, latency=latency, bandwidth=2e6, jitter=stats.expon()
        ).with_stragglers(3, fraction=0.2, mean_tasks=2)
        times = {"seconds_per_push": 0.004, "seconds_per_pull": 0.002, "seconds_per_update": 0.001}
        cluster = cluster.with_server(bandwidth=bandwidth, **times)
        found = cluster.regime(self.PROBLEM)
        np.testing.assert_allclose(found, self.measured(cluster), rtol=0.03)

    def test_bytes_stand_for_a_problem(self):
        cluster = dml.Cluster.uniform(8, bandwidth=1e6).with_server(bandwidth=1e6, shards=3)
        assert cluster.regime(self.PROBLEM.parameter_bytes) == cluster.regime(self.PROBLEM)
        assert cluster.regime(8_000_000, 100).communication_ratio == pytest.approx(
            2 * (8 + 8 / 3) / 0.1, rel=1e-5
        )

    def test_saturation(self):
        """Throughput of ASP follows the load below 1, and the server from 1 on."""
        for workers in (2, 64):
            cluster = LOCK_STEP.resized(workers).with_server(seconds_per_push=0.01)
            load = cluster.regime(self.PROBLEM).server_load
            trace = dml.simulate(dml.asp(), cluster, updates=2000)
            assert rate(trace) == pytest.approx(min(load, 1.0) / 0.01, rel=0.01)

    def test_free_server_and_messages(self):
        assert RANDOM.regime(self.PROBLEM) == (0.0, 0.0)
        for wrong in ("digits", 3.5, True, None):
            with pytest.raises(ValueError, match=r"problem: expected a problem.* or the number of bytes"):
                RANDOM.regime(wrong)
        with pytest.raises(ValueError, match=r"problem: expected a whole number from 0.*, got -1"):
            RANDOM.regime(-1)
        with pytest.raises(ValueError, match=r"batch_size: expected .*, got 0"):
            RANDOM.regime(self.PROBLEM, 0)


def test_traces_keep_their_queues(tmp_path):
    trace = dml.simulate(dml.ssp(2), CONTENDED, updates=50)
    trace.save(tmp_path / "trace.parquet")
    again = dml.Trace.load(tmp_path / "trace.parquet")
    assert again.tasks.equals(trace.tasks)
    assert {"pull_queued", "push_queued"} <= {*again.tasks}
    assert again.metadata["cluster"]["server"]["seconds_per_push"] == 0.01
    assert not {"pull_queued"} & {*dml.simulate(dml.asp(), RANDOM, updates=5).tasks}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "with_server: expected a finite bandwidth or seconds_per_... > 0, got neither"),
        ({"seconds_per_push": 0.0}, "with_server: expected .*, got neither"),
        ({"seconds_per_push": -1.0}, "seconds_per_push: expected a number >= 0.*, got -1.0"),
        ({"seconds_per_pull": math.nan}, "seconds_per_pull: expected .*, got nan"),
        ({"seconds_per_update": "1"}, "seconds_per_update: expected .*, got '1'"),
        ({"bandwidth": 0}, "bandwidth: expected a number >= 1e-09.*, got 0"),
        ({"bandwidth": 1e-320}, "bandwidth: expected a number >= 1e-09.*, got 1e-320"),
        (
            {"bandwidth": 1e6, "sharing": np.array(["fifo", "fair"])},
            r"sharing: expected one of 'fifo', 'fair', got array\(",
        ),
        ({"bandwidth": 1e6, "shards": 0}, "shards: expected a whole number >= 1.*, got 0"),
        ({"bandwidth": 1e6, "sharing": "even"}, "sharing: expected one of 'fifo', 'fair', got 'even'"),
        (
            {"seconds_per_push": 1.0, "sharing": "fair"},
            "sharing: expected 'fifo' .the link.*, got 'fair'; try a finite bandwidth=",
        ),
        (
            {"bandwidth": 1e6, "jitter": stats.expon(1)},
            "jitter: expected a distribution with mean 1, got expon.*with mean 2",
        ),
    ],
)
def test_messages(options, message):
    with pytest.raises(ValueError, match=message):
        RANDOM.with_server(**options)


class TestResized:
    def test_shares_of_kinds_stay(self):
        cluster = dml.Cluster.from_speeds([4, 3, 2, 1], latency=[1, 2, 3, 4])
        cluster = cluster.with_stragglers(3, workers=[0]).with_speed_change(2, clock=5, workers=[2, 3])
        big = cluster.resized(8)
        assert big.samples_per_second == (4, 4, 3, 3, 2, 2, 1, 1)
        assert big.latency_seconds == (1, 1, 2, 2, 3, 3, 4, 4)
        assert big.stragglers[0].workers == (0, 1)
        assert big.changes[0].workers == (4, 5, 6, 7)
        assert big.resized(4) == cluster
        assert Fraction(sum(cluster.resized(2).samples_per_second)) == 6

    def test_server_stays_and_faults_are_refused(self):
        assert CONTENDED.resized(3).server == CONTENDED.server
        crash = RANDOM.with_faults(dml.faults.Crash(worker=2, time=1.5, seconds=3.0))
        with pytest.raises(ValueError, match=r"expected a cluster without faults.*try resizing"):
            crash.resized(4)
        with pytest.raises(ValueError, match=r"num_workers: expected .*, got 0"):
            RANDOM.resized(0)


class Ones:
    """Draws that do not vary, for which a link keeps a heap."""

    def multiplier(self, stream, worker, clock):
        return 1.0


class Sent(NamedTuple):
    """What crosses a link."""

    worker: int
    clock: int


@given(
    seconds=st.sampled_from([0.1, 0.3, 1 / 3, 0.7]),
    start=st.sampled_from([0.0, 10.0, 1000.3]),
    joins=st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.3, 0.7, 1 / 3]), st.integers(0, 12)), max_size=30),
    again=st.lists(st.booleans(), max_size=60),
)
def test_a_shared_link_never_goes_back(seconds, start, joins, again):
    """Also where messages join when others are through, on a grid of times: the same as with a heap."""
    links = SharedLink(seconds), SharedLink(seconds, Ones())
    joins = deque(sorted(start + step * number for step, number in joins))
    count, now, again = 0, 0.0, iter(again)

    def join(time):
        for link in links:
            link.join(time, Sent(count, 0))

    while joins or links[0].due < math.inf:
        if joins and joins[0] <= links[0].due:
            now = joins.popleft()
            join(now)
        else:
            assert links[0].due >= now
            now = links[0].due
            one, two = (link.leave() for link in links)
            assert one == two
            if not next(again, False):
                continue
            join(now)
        count += 1
        assert links[0].due == links[1].due
