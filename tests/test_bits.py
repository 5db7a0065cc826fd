"""What workers and a server compute task by task, and what the compiled loop does, are the same bits."""

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import every_bit
import optax
import pytest
from clusters import EXPONENTIAL
from engine_runs import plane, same_bits
from reference import replay_reference

import dmlcore as dml
from dmlcore.training.stepper import Stepper

pytestmark = pytest.mark.usefixtures("optimised")

SGD = optax.sgd(0.1)
POLICIES = [dml.bsp(), dml.asp(), dml.asp(weight=0.3), dml.ssp(2), dml.k_async(3), dml.k_batch_async(3)]
SIZES = [(8, 64), (3, 7, 24, 100), (1, 2, 3, 5), (24,), (512, 8, 9, 300)]


def task_by_task(trace, problem, optimizer):
    """The parameters that real workers and a server would end with: each task jitted by itself."""
    seed = int(trace.metadata["seed"])
    stepper = Stepper(problem, optimizer, seed, num_workers=trace.num_workers)
    versions, copies = [stepper.start()], {}
    applied = trace.tasks[trace.tasks["update"] >= 0].sort_values(["update", "worker", "clock"])
    for _, tasks in applied.groupby("update"):
        parts = []
        for task in tasks.itertuples():
            view = copies[task.worker] if math.isnan(task.pull_start) else versions[task.version_read]
            gradient = stepper.task(view[0], task.worker, task.clock, task.batch_size)[0]
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
        tensor_shapes=problem.tensor_shapes,
        **options,
    )
    found = dml.replay(trace, problem, optimizer, eval_every=10**6, fuse=False).params
    assert same_bits(found, task_by_task(trace, problem, optimizer))
    return trace, found


@pytest.mark.parametrize(
    ("policy", "sizes"),
    [(policy, SIZES[0]) for policy in POLICIES]
    + [(dml.ssp(2), sizes) for sizes in SIZES[1:-1]]
    + [pytest.param(dml.ssp(2), SIZES[-1], marks=pytest.mark.full)],  # as the first, with sizes further apart
    ids=str,
)
def test_tasks_of_any_size(policy, sizes):
    """Of a network, because a softmax may be rounded otherwise where a batch is filled up."""
    problem = dml.problems.digits_mlp()
    trace, found = check(problem, policy, SGD, updates=25, load=every_bit.sizes(*sizes))
    assert same_bits(found, replay_reference(trace, problem, SGD))


# The instructions of a processor, by their name in /proc/cpuinfo and in XLA.
PROCESSORS = {"sse4_2": "SSE4_2", "avx2": "AVX2", "avx512f": "AVX512"}


FOUND = {"sse4_2": ("convolution", "float32"), "avx2": ("dense", "float64")}  # where bits once differed


def rows_for(processor):
    """Numbers of rows: each contribution on one processor, and what once differed.

    Those of the same problem have one dtype there, so that they share its programs; others have another one.
    """
    turn = [*PROCESSORS].index(processor)
    for number, (contribution, dtype, *_) in enumerate(every_bit.ROWS):
        kind, place = divmod(number, len(every_bit.DTYPES))
        shared = every_bit.CONTRIBUTIONS[contribution][0] is every_bit.VECTOR
        mine = kind % 3 == turn and place == (turn + (2 if shared else kind % 2)) % 3
        if contribution in {name for name, _ in FOUND.values()}:
            mine = (contribution, dtype) == FOUND.get(processor)
        if mine:
            yield number


def test_rows_for_processors_have_every_name():
    """Each with each dtype, too."""
    chosen = [(each, every_bit.ROWS[n]) for each in PROCESSORS for n in rows_for(each)]
    contributions, _, policies, optimizers = map(set, zip(*(row for _, row in chosen), strict=True))
    assert contributions == {*every_bit.CONTRIBUTIONS}
    assert policies == {*every_bit.POLICIES}
    assert optimizers == {*every_bit.OPTIMIZERS, "add"}
    assert {(each, row[1]) for each, row in chosen} == {*itertools.product(PROCESSORS, every_bit.DTYPES)}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_every_contribution_with_the_instructions_of_every_processor(
    processor, environment, optimised, request
):
    there = Path("/proc/cpuinfo")
    if not there.exists() or processor not in there.read_text().split():
        pytest.skip(f"this processor has no {processor}")
    numbers = [] if request.config.getoption("--all") else map(str, rows_for(processor))
    command = [sys.executable, every_bit.__file__, *numbers]
    own = environment | optimised
    own["XLA_FLAGS"] = f"--xla_cpu_max_isa={PROCESSORS[processor]} {own['XLA_FLAGS']}".rstrip()
    done = subprocess.run(command, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


@pytest.mark.parametrize("load", ["speed_proportional", "equal_finish_time"])
@pytest.mark.parametrize(
    "policy",
    # the children above have other problems under bsp() and asp(weight=0.3) on threads
    [pytest.param(policy, marks=[pytest.mark.full] * (policy not in POLICIES[3::2])) for policy in POLICIES],
    ids=str,
)
def test_on_threads(policy, load):
    """Loads that follow what they measure: every run has sizes of its own."""
    problem, engine = plane(), dml.engines.threads(time_scale=0.01)
    cluster = dml.Cluster.from_speeds([1000, 700, 1300, 400])
    run = dml.train(problem, cluster, policy, SGD, updates=40, load=load, engine=engine, eval_every=40)
    assert run.trace.tasks["batch_size"].nunique() > 1
    assert same_bits(run.params, dml.replay(run.trace, problem, SGD, fuse=False).params)
