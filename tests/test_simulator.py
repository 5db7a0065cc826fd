"""The simulator refuses what a policy, load or jitter of one's own does wrong, and names who did it when."""

import gc

import numpy as np
import pytest
from clusters import EXPONENTIAL, LOCK_STEP, MIXED

import dmlcore as dml
from dmlcore.engines import virtual
from dmlcore.engines.server import Order, Server
from dmlcore.engines.service import Service
from dmlcore.engines.virtual import VirtualClock
from dmlcore.types import Decision, Load, Start, Transport


def jittered(quantile):
    return lambda: dml.simulate(dml.asp(), dml.Cluster.uniform(4, jitter=quantile), seconds=1.0)


def late(quantile):
    cluster = dml.Cluster.uniform(4, latency=0.1, latency_jitter=quantile)
    return lambda: dml.simulate(dml.asp(), cluster, updates=10)


def sized(size):
    load = Load("mine()", lambda num_workers, total: None, lambda state, worker: size)
    return lambda: dml.simulate(dml.asp(), EXPONENTIAL, updates=10, load=load)


def ruled(decide, cluster=LOCK_STEP):
    """A policy that decides like `decide(push)`, and otherwise like ASP."""

    def on_push(state, push):
        asp = Decision([(push.worker, push.clock, 1.0)], (), (), [Start(push.worker)])
        return state, asp._replace(**decide(push))

    policy = dml.Policy("mine()", lambda num_workers: None, on_push)
    return lambda: dml.simulate(policy, cluster, updates=10)


def drops(state, push):
    return state, Decision(drop=[(push.worker, push.clock)], start=[Start(push.worker)])


NEVER = dml.Policy("never()", lambda num_workers: None, drops)

FAULTS = {
    "NaN jitter": (jittered(lambda u: u * np.nan), r"jitter of worker 0, clock 0: expected .*, got nan"),
    "infinite jitter": (jittered(lambda u: np.where(u < 0.9, 1, np.inf)), r"jitter of worker \d, clock \d+"),
    "negative jitter": (
        jittered(lambda u: 1 - 4 * u),
        r"jitter of worker \d, clock \d+: expected .*>= 0.*, got -",
    ),
    "jitter of 0": (
        jittered(lambda u: 0 * u),
        r"jitter of worker 0, clocks 0 to 31: expected .*> 0 .the worker's overhead is 0., got 0\.0",
    ),
    "jitter of another shape": (
        jittered(lambda u: u[0]),
        r"jitter, shape: expected .*\(4, 32\).*, got \(32,\)",
    ),
    "NaN latency": (late(lambda u: u * np.nan), r"latency_jitter of worker 0, clock 0: expected .*, got nan"),
    "no samples": (sized(0), r"mine\(\), worker 0, clock 0: expected .*from 1 to.*, got 0"),
    "part of a sample": (sized(10.7), r"mine\(\), worker 0, clock 0: expected .*, got 10\.7"),
    "NaN samples": (sized(np.nan), r"mine\(\), worker 0, clock 0: expected .*, got nan"),
    "a policy's size": (
        ruled(lambda push: {"start": [Start(push.worker, 0)]}),
        r"mine\(\), worker 0, clock 1: expected .*from 1 to.*, got 0",
    ),
    "a start that is a number": (
        ruled(lambda push: {"start": [push.worker]}),
        r"mine\(\), start\[0\]: expected Start\(worker, batch_size, clock\).*, got 0",
    ),
    "a start that is no list": (
        ruled(lambda push: {"start": {"next": Start(push.worker)}}),
        r"mine\(\), start\[0\]: expected Start\(worker, batch_size, clock\).*, got 'next'",
    ),
    "nothing where a list should be": (
        ruled(lambda push: {"apply": None}),
        r"mine\(\), on_push: expected a state and a Decision.*, got .*apply=None",
    ),
    "an update without weights": (
        ruled(lambda push: {"apply": [(push.worker, push.clock)]}),
        r"mine\(\), apply\[0\]: expected \(worker, clock, weight\).*, got \(0, 0\)",
    ),
    "a busy worker": (ruled(lambda push: {"start": [Start(1)]}), r"mine\(\) starts worker 1, which is busy"),
    "a worker twice": (
        ruled(lambda push: {"start": [Start(0), Start(0)]}),
        r"mine\(\) starts worker 0, which is busy, at 0\.032 s",
    ),
    "an unknown worker": (
        ruled(lambda push: {"start": [Start(-1)]}),
        r"mine\(\), start\[0\], worker: expected a whole number >= 0.*, got -1",
    ),
    "cancels nobody": (
        ruled(lambda push: {"cancel": [4]}),
        r"mine\(\) cancels worker 4, which is not present",
    ),
    "applies the unknown": (
        ruled(lambda push: {"apply": [(2, 7, 1.0)]}),
        r"mine\(\) applies the push of worker 2, clock 7, which is not at the server",
    ),
    "applies twice": (
        ruled(lambda push: {"apply": [(0, 0, 1.0), (0, 0, 1.0)]}),
        r"mine\(\) applies the push of worker 0, clock 0, which is not at the server",
    ),
    "drops the unknown": (
        ruled(lambda push: {"drop": [(2, 7)]}),
        r"mine\(\) drops the push of worker 2, clock 7, which is not at the server",
    ),
    "a letter as worker": (
        ruled(lambda push: {"start": [Start("a")]}),
        r"mine\(\), start\[0\], worker: expected a whole number >= 0.*, got 'a'",
    ),
    "a part of a worker": (
        ruled(lambda push: {"cancel": [0.5]}),
        r"mine\(\), cancel\[0\], worker: expected a whole number >= 0.*, got 0\.5",
    ),
    "a number where a list should be": (
        ruled(lambda push: {"drop": 3}),
        r"mine\(\), drop: expected several values, such as a list or a range.*, got 3",
    ),
    "no pair": (
        ruled(lambda push: {"apply": (), "drop": [(0, 0), 7]}),
        r"mine\(\), drop\[1\]: expected \(worker, clock\).*, got 7",
    ),
    "a list as clock": (
        ruled(lambda push: {"apply": [(push.worker, [0], 1.0)]}),
        r"mine\(\), apply\[0\], clock: expected a whole number >= 0.*, got \[0\]",
    ),
    "a clock beyond range": (
        ruled(lambda push: {"start": [Start(push.worker, None, 2**31 - 1)]}),
        r"mine\(\), worker 0: expected a whole number from 0 to 1073741824 \(the clock.*, got 2147483647",
    ),
    "NaN weight": (
        ruled(lambda push: {"apply": [(push.worker, push.clock, np.nan)]}),
        r"mine\(\) on Cluster.*task of worker 0, clock 0 has a weight that is not finite",
    ),
    "a word as weight": (
        ruled(lambda push: {"apply": [(push.worker, push.clock, "1")]}),
        r"mine\(\), apply\[0\], weight: expected a number.*, got '1'",
    ),
    "a word as weight of a push that waited": (
        ruled(lambda push: {"apply": [(0, 0, "1"), (1, 0, 1.0)]} if push.worker == 1 else {"apply": ()}),
        r"mine\(\), apply\[0\], weight: expected a number.*, got '1'",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_clear_error(fault):
    run, message = FAULTS[fault]
    with pytest.raises(ValueError, match=message):
        run()


@pytest.mark.parametrize("nbytes", [-1, np.nan])
def test_bytes_of_a_transport_are_checked(nbytes):
    transport = Transport("mine()", lambda nbytes: nbytes, lambda _: nbytes)
    with pytest.raises(ValueError, match=r"transport mine\(\): expected"):
        dml.simulate(dml.asp(), MIXED, updates=2, transport=transport)
    with pytest.raises(ValueError, match="parameter_bytes: expected"):
        dml.simulate(dml.asp(), MIXED, updates=2, parameter_bytes=nbytes)


def test_jitter_of_0_leaves_the_overhead():
    cluster = dml.Cluster.uniform(2, overhead=0.5, jitter=lambda u: 0 * u)
    assert len(dml.simulate(dml.asp(), cluster, seconds=10.0).updates) == 40


def test_numbers_of_numpy_are_numbers():
    load = Load("mine()", lambda num_workers, total: None, lambda state, worker: np.int64(8))
    assert set(dml.simulate(dml.asp(), MIXED, updates=20, load=load).tasks["batch_size"]) == {8}


def test_a_worker_may_be_let_go_later():
    """A push that is kept and whose worker starts with another's is no fault."""
    trace = dml.simulate(dml.ssp(1), MIXED, updates=50)
    assert (trace.tasks["worker"].value_counts() > 5).all()


@pytest.mark.parametrize(
    "cluster", [LOCK_STEP, LOCK_STEP.with_faults(dml.faults.Crash(0, 1.0, 1.0))], ids=["", "faults"]
)
def test_a_policy_that_never_updates_is_given_up(cluster, monkeypatch):
    monkeypatch.setattr("dmlcore.engines.server.MOST_TASKS", 5000)

    def silent(state, worker, time):
        return state, Decision()

    policy = NEVER._replace(on_leave=silent, on_join=silent)
    with pytest.raises(RuntimeError, match=r"never\(\) makes no update: 5,000 tasks arrived since update 0"):
        dml.simulate(policy, cluster, updates=10)
    assert len(dml.simulate(policy, cluster, seconds=200.0).updates) == 0


@pytest.mark.parametrize("policy", [dml.asp(), dml.bsp(), NEVER], ids=str)
def test_a_run_to_a_time_that_never_comes_is_given_up(policy, monkeypatch):
    """Tasks take some 1e-24 s: it would need as many as no trace has room for."""
    monkeypatch.setattr("dmlcore.engines.server.MOST_TASKS", 500)
    cluster = dml.Cluster.uniform(4, samples_per_second=3.2e25)
    with pytest.raises(
        RuntimeError,
        match=r"seconds: expected a run .*, got 1, but by .* s the last 5\d\d tasks under .* took",
    ):
        dml.simulate(policy, cluster, seconds=1.0)
    assert len(dml.simulate(policy, LOCK_STEP, seconds=10.0).tasks) > 1000


def test_sizes_that_cannot_fit_say_what_they_would_need():
    with pytest.raises(ValueError, match=r"updates: expected a whole number from 1 to 21.*, got 2147483648"):
        dml.simulate(dml.asp(), LOCK_STEP, updates=2**31)
    for make in (dml.Cluster.uniform, LOCK_STEP.resized):
        with pytest.raises(
            ValueError, match=r"num_workers: expected .*needs 93,132 GiB.*, got 1000000000000"
        ):
            make(10**12)


def test_cancelled_pushes_do_not_pile_up(monkeypatch):
    """Of rounds that take the first push of 40 and cancel the rest, at most three rounds are kept."""
    most, carry_out = [], VirtualClock.carry_out

    def counted(clock, *answer):
        over = carry_out(clock, *answer)
        most.append(len(clock.heap))
        return over

    monkeypatch.setattr(virtual, "MANY_CANCELLED", 0)
    monkeypatch.setattr(VirtualClock, "carry_out", counted)
    dml.simulate(dml.k_sync(1), EXPONENTIAL.resized(40), updates=200)
    assert len(most) >= 200
    assert max(most) <= 3 * 40


@pytest.mark.parametrize("workers", [4, 40])
@pytest.mark.parametrize("sharing", ["fifo", "fair"])
def test_a_run_leaves_no_cycle_behind(sharing, workers):
    """What it has used is freed at once: a cycle would keep every message until the collector comes."""
    cluster = EXPONENTIAL.resized(workers).with_server(bandwidth=1e6, sharing=sharing)
    gc.collect()
    gc.disable()
    try:
        dml.simulate(dml.asp(), cluster, updates=50, parameter_bytes=1000)
        kept = [
            each for each in gc.get_objects() if isinstance(each, VirtualClock | Server | Service | Order)
        ]
    finally:
        gc.enable()
    assert not kept
