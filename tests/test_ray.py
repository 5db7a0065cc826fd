"""Ray: one local cluster for this file; processes really die, and what is missing is said at once.

Processes of actors take seconds to start: tests that end many of them come last.
"""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time

import hello
import jax
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL
from engine_runs import RECORDED, check_counts, check_replay, plane, relative_error, same_bits
from scipy import stats
from wheels import check_wheels, wheels

import dmlcore as dml
from dmlcore.cluster.faults import Crash, ServerCrash, random_faults
from dmlcore.engines.on_ray import actors as on_ray
from dmlcore.engines.on_ray.connection import kept_actors
from dmlcore.engines.real import WorkerError
from dmlcore.engines.spec import RunSpec, StopRule
from dmlcore.training.checkpoints import SUFFIX
from dmlcore.training.stepper import Stepper

pytestmark = pytest.mark.usefixtures("ray_cluster")
FAST = dml.engines.ray(time_scale=0.02, keep=True)


def train(policy, problem=None, cluster=EXPONENTIAL, **options):
    options = {"updates": 200, "engine": FAST, "seed": 2, "eval_every": 200} | options
    problem = problem or plane()
    return problem, dml.train(problem, cluster, policy, optax.sgd(0.1), **options)


@pytest.mark.parametrize("policy", RECORDED, ids=str)
def test_a_recorded_run_replays_to_its_parameters(policy):
    problem, run = train(policy)
    check_replay(run, problem, optax.sgd(0.1))


@pytest.mark.full  # test_bits has every dtype
@pytest.mark.parametrize("policy", RECORDED, ids=str)
def test_a_recorded_run_replays_in_float64(policy):
    with jax.enable_x64(True):
        problem, run = train(policy, plane("float64"))
        check_replay(run, problem, optax.sgd(0.1))


def test_a_state_of_an_optimizer_travels(ray_cluster):
    problem, optimizer = plane(), optax.adam(1e-3)
    run = dml.train(problem, EXPONENTIAL, dml.ssp(2), optimizer, updates=100, engine=FAST)
    check_replay(run, problem, optimizer)


@pytest.mark.full  # test_transport has them on threads, with the same workers
@pytest.mark.parametrize(
    "transport",
    [
        "coded(push=error_feedback(top_k(0.1)), pull=difference(random_k(0.5, unbiased=False)))",
        "coded(push=error_feedback(power_sgd(2)))",
    ],
    ids=["sparse", "low rank"],
)
def test_short_messages(ray_cluster, transport):
    """With the memories of both ends, which lie in different processes."""
    problem, run = train(dml.asp(), updates=50, transport=transport)
    assert same_bits(run.params, dml.replay(run.trace, problem, optax.sgd(0.1)).params)


@pytest.mark.full  # test_local_steps has them on threads, with the same workers
def test_fragments_and_own_parameters(ray_cluster):
    problem, outer = plane(), optax.sgd(0.7, momentum=0.9, nesterov=True)
    local = dml.local_steps(4, optax.adamw(3e-3), keep_state=True, fragments=3, mixing=0.5)
    options = {"updates": 20, "local": local, "transport": "pipelined()", "eval_every": 20}
    run = dml.train(problem, EXPONENTIAL, dml.bsp(), outer, engine=FAST, **options)
    assert same_bits(run.params, dml.replay(run.trace, problem, outer, local=local).params)
    there = dml.train(problem, EXPONENTIAL, dml.bsp(), outer, **options)
    assert relative_error(run.params, there.params) < 1e-5


@pytest.mark.full  # test_aggregate has the other engines, with the same server
@pytest.mark.parametrize(
    ("policy", "aggregate"),
    [(dml.fedbuff(3), "median()"), (dml.ssp(2), "clipped(0.5)")],
    ids=str,
)
def test_aggregates(policy, aggregate):
    problem, run = train(policy, updates=50, aggregate=aggregate)
    assert run.trace.metadata["aggregate"] == aggregate
    check_replay(run, problem, optax.sgd(0.1))


@pytest.mark.full  # test_additive has the other engines, with the same workers
def test_additive_updates(ray_cluster):
    """Counts are whole, and the trace replays to the same bits; a process is killed on the way."""
    problem, adding = wheels(), optax.identity()
    cluster = EXPONENTIAL.with_faults(Crash(worker=1, time=0.3, seconds=0.2))
    engine = dml.engines.ray(time_scale=0.5, keep=True)
    run = dml.train(problem, cluster, dml.ssp(3), adding, updates=120, batch_size=5, engine=engine)
    check_wheels(run.params)
    assert same_bits(run.params, dml.replay(run.trace, problem, adding).params)


@pytest.mark.parametrize("family", [dml.ssp, dml.essp])
@pytest.mark.parametrize("staleness", [0, 3])
def test_hello_ssp(family, staleness, ray_cluster):
    ray_cluster.cloudpickle.register_pickle_by_value(hello)
    policy = family(staleness, weight=1.0)
    hello.check(on_ray.record(hello.job(policy), None, True), policy)


@pytest.mark.parametrize("policy", [dml.essp(3, weight=1.0), dml.asp()], ids=str)
def test_a_process_that_dies_by_itself_is_replaced(policy, ray_cluster, tmp_path):
    """The others go on, and another takes its place; also where the others never pause."""
    ray_cluster.cloudpickle.register_pickle_by_value(hello)
    job = hello.job(policy)
    dying = hello.with_stepper(hello.dying(str(tmp_path / "died")))
    recording = on_ray.record(dying(job.spec, job.problem, job.optimizer, time_scale=4.0), None, True)
    counted = recording.trace.tasks.query("update >= 0").groupby("worker").size()
    assert (np.asarray(recording.params) == counted.reindex(range(4), fill_value=0)).all()
    assert [incident["kind"] for incident in recording.trace.metadata["incidents"]] == ["died"]


class Ending(Stepper):
    """Its process ends at clock 3 of worker 1."""

    def task(self, params, worker, clock, *more):
        return os._exit(1) if (worker, clock) == (1, 3) else super().task(params, worker, clock, *more)


@pytest.mark.full  # test_local_steps has it on threads, with the same server
def test_scaffold_does_not_go_on_after_a_process_died(ray_cluster):
    ray_cluster.cloudpickle.register_pickle_by_value(hello)
    ray_cluster.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    local = dml.local_steps(2, optax.sgd(0.1), control_variates=True)
    spec = RunSpec.checked(dml.Method(dml.bsp(), local=local), EXPONENTIAL, updates=200)
    job = hello.with_stepper(Ending)(spec, spec.steps_of(plane()), optax.sgd(1.0), time_scale=0.05)
    with pytest.raises(RuntimeError, match=r"worker 1 died at .* so the run cannot go on"):
        on_ray.record(job, None, True)


PROGRAM = """
import sys, optax
import dmlcore as dml
from test_ray import two_workers

dml.train(*two_workers(), updates=80, engine=dml.engines.ray(time_scale=0.5), checkpoint=sys.argv[1])
"""


def two_workers():
    cluster = dml.Cluster.uniform(2, jitter=stats.expon()).with_faults(
        ServerCrash(1e6, 1.0), checkpoint_every=10
    )
    return plane(), cluster, dml.bsp(), optax.sgd(0.1)


@pytest.mark.full  # test_checkpoints does it on threads; in test_faults Ray's server goes on from one
def test_a_killed_program_goes_on_to_the_same_parameters(environment, tmp_path):
    """SIGKILL; another program, on another cluster, goes on from its last checkpoint."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "run")]
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as first:
        deadline = time.monotonic() + 300
        while not any(int(step.stem) >= 20 for step in tmp_path.glob(f"run/[0-9]*{SUFFIX}")):
            assert first.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)
    engine = dml.engines.ray(time_scale=0.5, keep=True)
    resumed = dml.train(*two_workers(), updates=80, engine=engine, checkpoint=tmp_path / "run")
    problem, _, policy, optimizer = two_workers()
    whole = dml.train(problem, dml.Cluster.uniform(2), policy, optimizer, updates=80)
    assert len(resumed.trace.updates) == 80
    assert relative_error(resumed.params, whole.params) <= 1e-4, "BSP's parameters depend on no latency"


@pytest.mark.parametrize(
    ("policy", "seed"),
    # The other run has every kind of fault; test_faults has this policy's on threads, with the same server.
    [pytest.param(dml.k_batch_async(3), 1, marks=pytest.mark.full), (dml.ssp(3), 2)],
    ids=str,
)
def test_faults(policy, seed):
    """Workers' and the server's processes are killed, the server once; samples count once each."""
    faults = random_faults(4, 1.3, seed=seed)
    crashes = [fault for fault in faults if isinstance(fault, ServerCrash)][: seed == 2]
    faults = [fault for fault in faults if not isinstance(fault, ServerCrash)] + crashes
    cluster = EXPONENTIAL.with_faults(*faults, patience=0.1, checkpoint_every=10)
    engine = dml.engines.ray(time_scale=0.5, keep=True)
    problem, run = train(policy, cluster=cluster, engine=engine, updates=None, samples=32 * 160)
    check_counts(run.trace, samples=32 * 160)
    kinds = {incident["kind"] for incident in run.trace.metadata["incidents"]}
    assert kinds >= ({"leave", "freeze"} | ({"down"} if crashes else set()))
    check_replay(run, problem, optax.sgd(0.1))
    usual = [
        dml.train(problem, EXPONENTIAL, policy, optax.sgd(0.1), samples=32 * 160, seed=s) for s in range(12)
    ]
    losses = [each.history["loss"].iloc[-1] for each in usual]
    assert run.history["loss"].iloc[-1] <= max(losses) + np.ptp(losses)


def test_an_error_in_a_gradient_names_worker_clock_and_cause(ray_cluster):
    ray_cluster.cloudpickle.register_pickle_by_value(hello)
    job = hello.job(dml.ssp(3, weight=1.0))
    job = hello.FailingJob(job.spec, job.problem, job.optimizer, job.time_scale)
    with pytest.raises(WorkerError, match="worker 2, clock 3: ArithmeticError: the loss is not finite"):
        on_ray.record(job, None, False)
    deadline = time.monotonic() + 30
    while ray_cluster.available_resources().get("CPU") != 5:
        assert time.monotonic() < deadline, "every actor ends"
        time.sleep(0.1)


class Disordered(on_ray.ServerActor):
    """A server whose every third message comes late, so that others overtake it, as they may in Ray."""

    received = 0

    def receive(self, *message):
        self.received += 1
        if self.received % 3:
            super().receive(*message)
        else:
            threading.Timer(0.03, super().receive, message).start()


@pytest.mark.full  # the next test says that messages are taken in order
def test_pushes_that_overtake_others_count(ray_cluster, monkeypatch):
    """A worker that keeps its copy sends pushes without waiting; one taken before its turn would be lost."""
    ray_cluster.cloudpickle.register_pickle_by_value(hello)
    ray_cluster.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    kept_actors(ray_cluster).end(ray_cluster)
    monkeypatch.setattr(on_ray, "ServerActor", Disordered)
    policy = dml.ssp(3, weight=1.0)
    job = hello.job(policy)
    stop = StopRule(seconds=4.0)  # it ends even where all wait for each other
    spec = dataclasses.replace(job.spec, stop=stop)
    recording = on_ray.record(hello.HelloJob(spec, job.problem, job.optimizer, job.time_scale), None, False)
    hello.check(recording, policy)
    assert recording.trace.metadata["ignored_arrivals"] == 0
    assert len(recording.trace.tasks.query("push_end.notna()")) > hello.WORKERS * (policy.max_lead + 1)


def test_messages_are_taken_in_the_order_they_were_sent_in():
    """Of each sender, in whatever order they come; those of another run are not taken."""

    class Plain:
        unpack = staticmethod(lambda message: message)

    inbox = on_ray.Inbox(Plain(), (7,))
    letters = [
        on_ray.Letter((life, hire), number, (life, hire, number))
        for life in (6, 7)
        for hire in (1, 2)
        for number in range(50)
    ]
    for place in np.random.default_rng(0).permutation(len(letters)):
        inbox.take(letters[place])
    taken = [inbox.get_nowait() for _ in range(100)]
    assert inbox.empty()
    for hire in (1, 2):
        assert [m for m in taken if m[1] == hire] == [(7, hire, number) for number in range(50)]


def test_too_few_cpus_are_counted_at_once():
    begun = time.monotonic()
    with pytest.raises(
        ValueError,
        match=r"cluster: expected a CPU for each worker.*, got 9 workers .* 5 CPUs .5 are missing",
    ):
        train(dml.asp(), cluster=dml.Cluster.uniform(9))
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:port"])
def test_an_address_that_is_none(address):
    from dmlcore.engines.on_ray.connection import reach

    with pytest.raises(ValueError, match=r"address: expected 'HOST:PORT', 'ray://HOST:PORT' or 'auto'"):
        reach(address)


def test_servers_listen_on_loopback_only(ray_cluster):
    nodes = ray_cluster.nodes()
    assert [node["NodeManagerAddress"] for node in nodes] == ["127.0.0.1"]
    assert ray_cluster.get_runtime_context().gcs_address.startswith("127.0.0.1:")


def test_a_comparison_on_ray_is_the_one_in_threads():
    methods = {"BSP": dml.bsp(), "ASP": dml.asp()}
    arguments = methods, plane(), EXPONENTIAL, optax.sgd(0.1)
    options = {"seeds": [1], "updates": 20, "eval_every": 10}
    here, there = (dml.compare(*arguments, **options, executor=where) for where in ("threads", "ray"))
    assert here.equals(there)
    with pytest.raises(ValueError, match=r"executor: expected one of 'threads', 'ray'.*, got 'dask'"):
        dml.compare(*arguments, **options, executor="dask")


def test_a_study_on_ray_is_the_one_in_threads():
    methods, options = {"BSP": dml.bsp(), "ASP": dml.asp()}, {"budget": 6, "batch_size": 8, "seeds": range(2)}
    problem = dml.problems.linear_regression(num_samples=64, num_features=3)
    given = methods, problem, dml.Cluster.from_speeds([1000, 250]), {"loss": 30.0}
    here, there = (dml.study(*given, **options, executor=where) for where in ("threads", "ray"))
    assert here.table.equals(there.table)


def test_real_clocks_are_not_spread():
    with pytest.raises(
        ValueError, match=r"executor: expected 'threads' .the engine has a real clock., got 'ray'"
    ):
        dml.compare(
            {"BSP": dml.bsp()},
            plane(),
            EXPONENTIAL,
            optax.sgd(0.1),
            seeds=[0],
            updates=3,
            engine="threads",
            executor="ray",
        )
