"""Replay on several devices: wavefronts, the same parameters, tasks that are really spread, few programs."""

import itertools
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from eight_devices import TRIED
from engine_runs import KINDS
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from watched import simulate

import dmlcore as dml
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.training.program import NONE, compile_trace, wavefronts

TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def measured(request):
    """What `eight_devices.py` prints: the number of devices is fixed by a process's first operation."""
    asked = [
        item for item in request.session.items if item.path == request.path and "case" in item.fixturenames
    ]
    cases = [f"{item.originalname} {item.callspec.params['case']}" for item in asked]
    command = [sys.executable, TESTS / "eight_devices.py", *cases]
    process = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def made_by(trace):
    """For each row of the order of replay: the row that made its view, NONE for version 0; and its names."""
    tasks = trace.tasks[trace.tasks["update"] >= 0].sort_values(["update", "worker", "clock"])
    update = tasks["update"].tolist()
    maker = {u + 1: row for row, u in enumerate(update)}  # the last row of an update makes the version
    row_of = {(w, c): row for row, (w, c) in enumerate(zip(tasks["worker"], tasks["clock"], strict=True))}
    sources = []
    for task in tasks.itertuples():
        if math.isnan(task.pull_start):
            before = max(c for w, c in row_of if w == task.worker and c < task.clock)
            sources.append((("copy", row_of[task.worker, before]), row_of[task.worker, before]))
        else:
            sources.append((("version", task.version_read), maker.get(task.version_read, NONE)))
    return sources, update


@settings(max_examples=60)
@given(
    policy=st.sampled_from(sorted(ALL_POLICIES)),
    workers=st.integers(3, 9),
    updates=st.integers(0, 60),
    seed=st.integers(0, 1000),
)
def test_wavefronts(policy, workers, updates, seed):
    """Every row once and in order, nothing read that the wavefront makes, none that could be longer."""
    cluster = dml.Cluster.uniform(workers, jitter=stats.expon()).with_stragglers(3)
    trace = simulate(ALL_POLICIES[policy](), cluster, updates=max(updates, 1), seed=seed).until(updates)
    sources, update = made_by(trace)
    program = compile_trace(trace, fuse=False, slots=True)
    fronts = wavefronts(program).tolist()
    assert fronts[0] == 0
    assert fronts[-1] == len(sources)
    assert fronts == sorted(set(fronts))
    held = dict.fromkeys(range(program.num_slots), ("version", 0))
    for start, stop in itertools.pairwise(fronts):
        assert all(source < start for _, source in sources[start:stop])
        assert stop == len(sources) or sources[stop][1] >= start, "the next row could have been in it"
        # All reads, then all writes: each row finds its own view in its slot.
        assert [held[slot] for slot in program.rows.read[start:stop]] == [v for v, _ in sources[start:stop]]
        for row in range(start, stop):
            held[program.rows.keep[row]] = ("copy", row)
            held[program.rows.write[row]] = ("version", update[row] + 1)


def test_wavefronts_of_lock_step_are_updates():
    trace = dml.simulate(dml.bsp(), dml.Cluster.uniform(5), updates=7)
    assert wavefronts(compile_trace(trace, fuse=False, slots=True)).tolist() == list(range(0, 36, 5))


@pytest.fixture
def found(request, measured, case):
    return measured[f"{request.node.originalname} {case}"]


def cases(function):
    """By default one of each kind: others have the programs, or the parts, of one of these."""
    known = TRIED[function.__name__][0]
    few = {
        "test_every_policy": KINDS,
        "test_float64": ("ssp", "k_async", "asp, compensated"),
        "test_additive_updates": ("k_async",),
        "test_every_part_of_a_method": (
            "memories",
            "own steps",
            "Streaming DiLoCo",
            "asynchronous SCAFFOLD",
            "trimmed",
        ),
    }.get(function.__name__, known)
    each = [pytest.param(case, marks=[pytest.mark.full] * (case not in few)) for case in known]
    return pytest.mark.parametrize("case", each)(function)


def check(found, dtype, error):
    """Parameters and losses are those of a replay on one device."""
    assert found["dtype"] == dtype
    assert found["params"] <= error
    assert found["losses"] <= error


@cases
def test_every_policy(found):
    check(found, "float32", 1e-5)


@pytest.mark.full  # test_tasks_are_spread_over_eight_devices trains on as many
@cases
def test_more_workers(found):
    check(found, "float32", 1e-5)


@cases
def test_float64(found):
    check(found, "float64", 1e-10)


@cases
def test_additive_updates(found):
    assert found is True, "bits, too, are those of a replay on one device"


@cases
def test_every_part_of_a_method(found):
    """Codecs, local steps and aggregates, in lock-step and in wavefronts."""
    assert found <= 1e-10


def test_any_number_of_devices(measured):
    """Three do not divide the tasks; one is the case of every other file."""
    assert measured["three"]["params"] <= 1e-5


def test_tasks_are_spread_over_eight_devices(measured):
    devices, tasks, own = np.array(measured["shardings"]).T
    assert (devices == 8).all()
    assert (own == tasks // 8).all()
    assert set(tasks) == {8, 16}, "twelve workers' wavefronts, padded"


def test_few_programs(measured):
    """Policies on four workers: in lock-step, in wavefronts of up to eight tasks, with a k that changes; and
    two for Ringleader, whose updates have all that fast workers give meanwhile."""
    missing = [policy for policy in ALL_POLICIES if f"test_every_policy {policy}" not in measured]
    assert measured["programs"] <= 4
    assert measured["programs"] == 4 or missing


@pytest.mark.parametrize("way", ["pmap", "shard_map"])
def test_round_on_the_page(measured, way):
    """The code of docs/devices.md gives the gradient of the mean loss."""
    assert measured["page"][way] <= 1e-6


def test_threads_compute_on_devices_of_their_own(measured):
    found = measured["threads"]
    assert found["devices"] == 4
    assert set(found["errors"]) == {"bsp", "ssp", "k_async"}
    assert max(found["errors"].values()) <= 1e-4
