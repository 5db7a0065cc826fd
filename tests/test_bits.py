"""What workers and a server compute task by task, and what the compiled loop does, are the same bits."""

import math

import jax
import numpy as np
import optax
import pytest
from clusters import EXPONENTIAL
from engine_runs import plane, same_bits

import dmlcore as dml
from dmlcore.data import Labelled
from dmlcore.problems.classification import classification
from dmlcore.problems.networks import LeNet, network
from dmlcore.training.coding import Coder, coding_of
from dmlcore.training.reference import replay_reference
from dmlcore.training.stepper import Stepper
from dmlcore.types import Load

SGD = optax.sgd(0.1)
POLICIES = [dml.bsp(), dml.asp(), dml.asp(weight=0.3), dml.ssp(2), dml.k_async(3), dml.k_batch_async(3)]
SIZES = [(8, 16, 32, 64), (3, 7, 24, 100), (1, 2, 3, 5), (24,), (512, 8, 9, 300)]


def by_size(*sizes):
    """A load that gives each worker its size."""
    return Load(f"by_size{sizes}", lambda *_: None, lambda state, worker: sizes[worker % len(sizes)])


def task_by_task(trace, problem, optimizer):
    """The parameters that real workers and a server would end with: each task jitted by itself."""
    seed, coding = int(trace.metadata["seed"]), coding_of(trace)
    stepper = Stepper(problem, optimizer, seed, num_workers=trace.num_workers)
    versions, copies = [stepper.start()], {}
    coders = {
        worker: Coder(coding, seed, worker, versions[0][0]) for worker in range(trace.num_workers) if coding
    }
    applied = trace.tasks[trace.tasks["update"] >= 0].sort_values(["update", "worker", "clock"])
    for _, tasks in applied.groupby("update"):
        parts = []
        for task in tasks.itertuples():
            view = copies[task.worker] if math.isnan(task.pull_start) else versions[task.version_read]
            params = coders[task.worker].received(task.clock, view[0]) if coding else view[0]
            gradient = stepper.gradient(params, task.worker, task.clock, task.batch_size)
            if coding:
                gradient = coders[task.worker].sent(task.clock, gradient)
            parts.append(stepper.weighed(task.weight, gradient))
            copies[task.worker] = stepper.step(parts[-1], view)
        versions.append(stepper.step(stepper.total(parts), versions[-1]))
    return versions[-1][0]


def check(problem, policy, optimizer, **options):
    trace = dml.simulate(
        policy,
        EXPONENTIAL,
        seed=1,
        parameter_bytes=problem.parameter_bytes,
        tensor_sizes=problem.tensor_sizes,
        **options,
    )
    found = dml.replay(trace, problem, optimizer, eval_every=10**6, fuse=False).params
    assert same_bits(found, task_by_task(trace, problem, optimizer))
    return trace, found


@pytest.mark.parametrize(
    ("policy", "sizes"),
    [(policy, SIZES[0]) for policy in POLICIES] + [(dml.ssp(2), sizes) for sizes in SIZES[1:]],
    ids=str,
)
def test_tasks_of_any_size(policy, sizes):
    """Of a network, because a softmax may be rounded otherwise where a batch is filled up."""
    problem = dml.problems.digits_mlp()
    trace, found = check(problem, policy, SGD, updates=25, load=by_size(*sizes))
    assert same_bits(found, replay_reference(trace, problem, SGD))


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_in_float64(policy):
    with jax.enable_x64(True):
        problem = plane("float64")
        check(problem, policy, optax.sgd(0.02, 0.9), updates=20, load=by_size(3, 7, 24, 100))


@pytest.mark.parametrize(
    ("policy", "optimizer"),
    [(dml.asp(), optax.sgd(0.02, 0.9)), (dml.ssp(2), optax.adam(1e-3))],
    ids=["asp-momentum", "ssp-adam"],
)
def test_a_convolutional_network_and_an_optimizer_with_a_state(policy, optimizer):
    """Within one fused loop Adam's products would be rounded otherwise than by a server."""
    rng = np.random.default_rng(0)
    parts = [(rng.integers(0, 256, (n, 28, 28), np.uint8), rng.integers(0, 10, n)) for n in (500, 20)]
    init, apply = network(lambda rngs: LeNet("float32", rngs))
    problem = classification("lenet", init, apply, Labelled(*parts[0], *parts[1]), dtype="uint8")
    check(problem, policy, optimizer, updates=8, load=by_size(3, 7, 6, 5))


@pytest.mark.parametrize("policy", [dml.asp(), dml.k_batch_async(3)], ids=str)
@pytest.mark.parametrize("transport", ["affine(bits=8)", "error_feedback(one_bit())"])
def test_coded_pushes(policy, transport):
    check(plane(), policy, SGD, updates=40, transport=f"coded(push={transport})")


@pytest.mark.parametrize("load", ["speed_proportional", "equal_finish_time"])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_on_threads(policy, load):
    """Loads that follow what they measure: every run has sizes of its own."""
    problem, engine = plane(), dml.engines.threads(time_scale=0.01)
    cluster = dml.Cluster.from_speeds([1000, 700, 1300, 400])
    run = dml.train(problem, cluster, policy, SGD, updates=40, load=load, engine=engine, eval_every=40)
    assert run.trace.tasks["batch_size"].nunique() > 1
    assert same_bits(run.params, dml.replay(run.trace, problem, SGD, fuse=False).params)
