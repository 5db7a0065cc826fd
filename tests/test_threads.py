"""Real threads: what they record replays to what they computed, and what fails ends everything."""

import math
import queue
import threading
import time

import hello
import jax
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL, GROWING, MIXED, UNEQUAL
from engine_runs import RECORDED, check_fused, check_replay, plane, same_bits
from reference import replay_reference

import dmlcore as dml
from dmlcore.engines import on_threads
from dmlcore.engines.job import Job
from dmlcore.engines.real import WorkerError
from dmlcore.engines.server import Server
from dmlcore.engines.spec import RunSpec
from dmlcore.engines.worker import Assignment, Worker

pytestmark = pytest.mark.usefixtures("optimised")

FAST = dml.engines.threads(time_scale=0.02)


def train(policy, problem=None, optimizer=None, **options):
    options = {"updates": 250, "engine": FAST, "seed": 2, "eval_every": 250} | options
    problem = problem or plane()
    return problem, dml.train(problem, EXPONENTIAL, policy, optimizer or optax.sgd(0.1), **options)


@pytest.mark.parametrize("policy", RECORDED, ids=str)
def test_a_recorded_run_replays_to_its_parameters(policy):
    problem, run = train(policy)
    check_replay(run, problem, optax.sgd(0.1))
    assert same_bits(run.params, replay_reference(run.trace, problem, optax.sgd(0.1)))


def test_a_policy_may_list_pushes_in_any_order():
    policy = dml.k_async(3)

    def on_push(state, push):
        state, decision = policy.on_push(state, push)
        return state, decision._replace(apply=decision.apply[::-1])

    problem, run = train(policy._replace(on_push=on_push), updates=100)
    check_replay(run, problem, optax.sgd(0.1))


@pytest.mark.full  # test_bits.py has float64, too
@pytest.mark.parametrize("policy", RECORDED, ids=str)
def test_a_recorded_run_replays_in_float64(policy):
    with jax.enable_x64(True):
        problem, run = train(policy, plane("float64"))
        check_replay(run, problem, optax.sgd(0.1))
        check_fused(run.trace, problem, optax.sgd(0.1))


@pytest.mark.parametrize("optimizer", [optax.adam(1e-3), optax.sgd(0.02, 0.9)], ids=["adam", "momentum"])
@pytest.mark.parametrize("policy", [dml.ssp(2), dml.k_async(3), dml.k_sync(3)], ids=str)
def test_a_recorded_run_replays_with_an_optimizer_that_has_a_state(policy, optimizer):
    problem, run = train(policy, optimizer=optimizer, updates=150)
    check_replay(run, problem, optimizer)


@pytest.mark.parametrize(
    "policy", [dml.ssp(3, weight=1.0), dml.ssp(1, weight=1.0), dml.essp(2, weight=1.0)], ids=str
)
def test_hello_ssp(policy):
    before = next(hello.READS)
    hello.check(on_threads.record(hello.job(policy)), policy)
    assert next(hello.READS) - before > hello.WORKERS * hello.CLOCKS, "the check ran"


def test_times_are_those_that_were_drawn():
    """No task is shorter than it was drawn, and the simulator's run of the same seed is no longer."""
    policy, options = dml.bsp(), {"updates": 20, "seed": 5}
    _, run = train(policy, engine=dml.engines.threads(time_scale=0.2), eval_every=20, **options)
    simulated = dml.simulate(policy, EXPONENTIAL, **options)
    each = run.trace.tasks.merge(simulated.tasks, on=["worker", "clock"], suffixes=("", "_drawn"))
    assert len(each) == 80
    spent, meant = (each["compute_end" + of] - each["compute_start" + of] for of in ("", "_drawn"))
    assert (spent >= meant - 1e-9).all()
    assert run.trace.end_time >= simulated.end_time


def test_nothing_is_injected_at_scale_0():
    _, run = train(dml.asp(), engine=dml.engines.threads(time_scale=0), updates=50)
    assert 0 < run.trace.end_time < 60
    assert len(run.trace.updates) == 50


def test_stops_at_a_time_and_at_a_target():
    slow = dml.engines.threads(time_scale=0.3)
    _, run = train(dml.asp(), updates=None, seconds=2.0, eval_every=10, engine=slow)
    assert run.trace.end_time == 2.0
    assert run.trace.updates["time"].iloc[-1] <= 2.0
    _, run = train(dml.asp(), updates=400, until={"loss": 2.0}, eval_every=10)
    assert run.history["loss"].iloc[-1] <= 2.0 < run.history["loss"].iloc[-2]
    assert len(run.trace.updates) == run.history["update"].iloc[-1] < 400


def test_a_gradient_that_raises_names_worker_clock_and_cause():
    job = hello.job(dml.ssp(3, weight=1.0))
    job = hello.FailingJob(job.spec, job.problem, job.optimizer, job.time_scale)
    with pytest.raises(
        WorkerError, match="worker 2, clock 3: ArithmeticError: the loss is not finite"
    ) as told:
        on_threads.record(job)
    assert "raised under ssp(staleness=3, weight=1.0), at " in told.value.__notes__[0]
    deadline = time.monotonic() + 10
    while any(thread.name.startswith("worker ") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "every thread ends"
        time.sleep(0.01)


@pytest.mark.parametrize("scale", [-1, np.nan, "fast"])
def test_a_wrong_scale_is_one_clear_error(scale):
    with pytest.raises(ValueError, match="time_scale: expected"):
        dml.engines.threads(scale)


def test_a_policy_that_deadlocks_is_told_so():
    from dmlcore.types import Decision

    stuck = dml.Policy("stuck()", lambda num_workers: None, lambda state, push: (state, Decision()))
    with pytest.raises(RuntimeError, match=r"stuck\(\) deadlocks at .* all 4 workers wait"):
        train(stuck, updates=5)
    with pytest.raises(RuntimeError, match=r"stuck\(\) deadlocks at .* all 4 workers wait"):
        train(stuck, updates=5, transport="pipelined()")


@pytest.mark.parametrize("scale", [0, 1.0])
def test_a_worker_that_never_pulls_hears_of_the_end(scale):
    """Also where it is always late: at no latency, or on a cluster that is faster than this machine."""
    cluster = dml.Cluster.uniform(2, samples_per_second=1e7)
    engine = dml.engines.threads(scale)
    problem = plane()
    run = dml.train(problem, cluster, dml.ssp(float("inf")), optax.sgd(0.1), updates=20, engine=engine)
    assert len(run.trace.updates) == 20


def test_a_cancelled_push_does_not_hold_up_those_after_it():
    cluster = dml.Cluster.from_speeds([340, 320, 310]).with_faults(dml.faults.LostPush(0, 2, 3.0))
    problem, engine = plane(), dml.engines.threads()
    run = dml.train(problem, cluster, dml.k_sync(2), optax.sgd(0.1), seconds=2.0, engine=engine)
    assert (run.trace.tasks.query("worker == 0")["update"] >= 0).sum() > 8


def test_links_are_waited_for():
    _, run = train(dml.k_async(2), updates=40)
    assert (run.trace.tasks["compute_start"] >= run.trace.tasks["pull_start"]).all()
    problem = plane()
    run = dml.train(problem, MIXED, dml.asp(), optax.sgd(0.1), updates=40, engine=FAST)
    done = run.trace.tasks[run.trace.tasks["push_end"].notna() & (run.trace.tasks["worker"] == 1)]
    least = problem.parameter_bytes / 5e7
    assert (done["push_end"] - done["compute_end"] >= least).all()
    assert (done["compute_start"] - done["pull_start"] >= least).all()


@pytest.mark.parametrize("load", [UNEQUAL, GROWING], ids=lambda load: load.name)
@pytest.mark.parametrize("policy", [dml.ssp(2), dml.k_async(2)], ids=str)
def test_batch_sizes_that_differ(policy, load):
    problem, run = train(policy, updates=100, load=load)
    assert run.trace.tasks["batch_size"].nunique() > 2
    check_replay(run, problem, optax.sgd(0.1))


def test_a_job_that_cannot_start_ends_at_once():
    class Unable(hello.HelloJob):
        def stepper(self, device=None):
            if threading.current_thread().name.startswith("worker "):
                raise MemoryError("no room for the data")
            return super().stepper(device)

    job = hello.job(dml.ssp(1, weight=1.0))
    with pytest.raises(WorkerError, match=r"worker \d, before its first clock: MemoryError: no room"):
        on_threads.record(Unable(job.spec, job.problem, job.optimizer, job.time_scale))


def test_pushes_of_kept_copies_overlap_as_in_the_simulator():
    """Transfers longer than tasks: a worker that keeps its copy goes on while its push is under way."""
    cluster, options = dml.Cluster.uniform(4, latency=0.1), {"updates": 40, "seed": 1}
    simulated = dml.simulate(dml.ssp(8), cluster, parameter_bytes=9_640, **options)
    run = dml.train(plane(), cluster, dml.ssp(8), optax.sgd(0.1), engine=dml.engines.threads(), **options)
    for trace in (simulated, run.trace):
        tasks = trace.tasks.sort_values(["worker", "clock"])
        assert (tasks["compute_start"] < tasks.groupby("worker")["push_end"].shift()).any()


class LateClock:
    """A clock that stands still but in sleeps, each of which ends 10 ms late."""

    scale, time, late = 1.0, 0.0, 0.01

    def now(self):
        return self.time

    def get(self, timeout):  # of a worker's inbox
        self.time += timeout + self.late
        raise queue.Empty

    def get_nowait(self):
        raise queue.Empty


def test_a_worker_that_keeps_its_copy_does_not_add_up_how_late_it_woke_up():
    clock, problem = LateClock(), plane()
    cluster = dml.Cluster.uniform(2, samples_per_second=320, latency=1.0)
    spec = RunSpec.checked(dml.ssp(math.inf), cluster, updates=100)
    job = Job(spec, problem, optax.sgd(0.1))
    worker = Worker(0, clock, lambda message: None, job, clock, (32,), 0, job.stepper())
    _, _, (order, _) = Server(spec, lambda order: (0.0, 0.0, 0.0)).begin()
    ends, first = [], worker._stepper.start()
    worker._tasks.append(Assignment(order, 0.0, first, order.time))
    for _ in range(21):
        assert worker._carry_out(worker._tasks.popleft()) is None
        ends.append(worker._tasks[0].order.time)
    worker._outbox.close()
    np.testing.assert_allclose(ends, 1.0 + 0.1 * np.arange(1, 22), rtol=1e-12)
