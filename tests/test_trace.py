"""Traces: their invariants, their files, and what becomes of damaged ones."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from clusters import CLUSTERS, LOCK_STEP, MIXED
from scipy import stats
from watched import simulate

import dmlcore as dml
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.trace import Trace, metrics
from dmlcore.trace.trace import TASK_COLUMNS


@pytest.fixture
def trace():
    return dml.simulate(dml.k_sync(3), MIXED, updates=50, seed=2, parameter_bytes=1000)


def test_columns_are_the_fixed_ones(trace):
    names = "worker clock batch_size version_read pull_start compute_start compute_end push_end update weight"
    assert list(trace.tasks) == names.split()
    assert list(trace.updates) == ["time", "num_tasks", "samples"]


@pytest.mark.parametrize("policy", [dml.ssp(2), dml.k_sync(2), dml.k_batch_async(3)], ids=str)
def test_save_and_load(policy, tmp_path):
    trace = dml.simulate(policy, MIXED, updates=50, seed=2)
    trace.save(tmp_path / "trace.parquet")
    again = dml.Trace.load(tmp_path / "trace.parquet")
    assert again.tasks.equals(trace.tasks)
    assert again.updates.equals(trace.updates)
    assert again.metadata == trace.metadata
    assert [path.name for path in tmp_path.iterdir()] == ["trace.parquet"]


def test_a_file_is_plain_parquet_with_json_metadata(trace, tmp_path):
    trace.save(tmp_path / "trace.parquet")
    frame = pd.read_parquet(tmp_path / "trace.parquet")
    assert list(frame) == [*TASK_COLUMNS, "update_time"]


def test_a_failed_save_leaves_nothing(trace, tmp_path):
    trace.metadata["not json"] = object()
    with pytest.raises(TypeError):
        trace.save(tmp_path / "trace.parquet")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "text", "other parquet"])
def test_a_corrupt_file_is_one_clear_error(trace, tmp_path, damage):
    path = tmp_path / "trace.parquet"
    trace.save(path)
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        for i in range(4, len(content), 97):
            content[i] ^= 0xFF
        path.write_bytes(content)
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("not a trace")
    else:
        pd.DataFrame({"worker": [1]}).to_parquet(path)
    with pytest.raises(ValueError, match=r"undamaged file written by Trace\.save, got .*trace\.parquet"):
        dml.Trace.load(path)


def test_a_flipped_bit_is_refused_or_changes_nothing(trace, tmp_path):
    """Wherever it is: a time or a version that has changed may leave a trace that is valid."""
    path = tmp_path / "trace.parquet"
    trace.save(path)
    content, rng, messages = path.read_bytes(), np.random.default_rng(0), []
    for at, bit in zip(rng.integers(0, len(content), 200), rng.integers(0, 8, 200), strict=True):
        flipped = bytearray(content)
        flipped[at] ^= 1 << bit
        path.write_bytes(flipped)
        try:
            again = dml.Trace.load(path)
        except ValueError as error:
            messages.append(str(error))
        else:
            assert again.tasks.equals(trace.tasks)
            assert again.updates.equals(trace.updates)
            assert again.metadata == trace.metadata
    assert len(messages) > 100
    assert all(
        re.match(r"path: expected an undamaged file written.*trace\.parquet", each) for each in messages
    )


@pytest.mark.parametrize("name", ["num_workers", "seed", "end_time"])
@pytest.mark.parametrize("value", [None, "x"])
def test_a_file_without_what_replay_needs_is_one_clear_error(trace, tmp_path, name, value):
    metadata = {k: v for k, v in trace.metadata.items() if k != name} | ({name: value} if value else {})
    Trace(trace.tasks, trace.updates, metadata).save(tmp_path / "trace.parquet")
    with pytest.raises(
        ValueError, match=rf"undamaged file written by Trace\.save, got .*trace\.parquet.*{name}"
    ):
        dml.Trace.load(tmp_path / "trace.parquet")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.parquet"):
        dml.Trace.load(tmp_path / "nowhere.parquet")


BREAKS = {
    "starts to compute before its pull starts": lambda t: t.tasks.loc.__setitem__((5, "pull_start"), 1e9),
    "ends before it starts": lambda t: t.tasks.loc.__setitem__((5, "compute_end"), -1.0),
    "arrives before it is computed": lambda t: t.tasks.loc.__setitem__((5, "push_end"), 0.0),
    "reads a version later than its update": lambda t: t.tasks.loc.__setitem__((0, "version_read"), 40),
    "has a weight that is not finite": lambda t: t.tasks.loc.__setitem__((5, "weight"), np.nan),
    "has a compute time that is not finite": lambda t: t.tasks.loc.__setitem__((5, "compute_start"), np.inf),
    "occurs twice": lambda t: t.tasks.loc.__setitem__(
        (5, ["worker", "clock"]), t.tasks.loc[4, ["worker", "clock"]]
    ),
    "has a worker beyond those of the cluster": lambda t: t.tasks.loc.__setitem__((5, "worker"), 9),
    "has no samples": lambda t: t.tasks.loc.__setitem__((5, "batch_size"), 0),
    "does not match its tasks": lambda t: t.updates.loc.__setitem__((7, "num_tasks"), 2),
    "times that are not finite and ascending": lambda t: t.updates.loc.__setitem__((7, "time"), 0.0),
    "in an update that was made before it arrived": lambda t: t.updates.__setitem__(
        "time", np.append(t.updates["time"].iloc[0], t.updates["time"].iloc[:-1])
    ),
    "in an update beyond the last": lambda t: t.tasks.loc.__setitem__((5, "update"), 99),
    "cached copy that lacks": lambda t: t.tasks.loc.__setitem__((0, "pull_start"), np.nan),
    "lacks the columns ['update']": lambda t: t.tasks.pop("update"),
}


@pytest.mark.parametrize("complaint", BREAKS)
def test_validate_names_what_is_broken(trace, complaint):
    BREAKS[complaint](trace)
    with pytest.raises(ValueError, match="trace") as error:
        trace.validate()
    assert complaint in str(error.value)


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_until_is_the_run_that_stopped_there(policy, cluster):
    """Cut after n updates, a trace is that of the run that was told to stop there, also where times tie."""

    def run(updates):
        return simulate(ALL_POLICIES[policy](), CLUSTERS[cluster], updates=updates, seed=1)

    long = run(80)
    for updates in (1, 29, 30, 31):
        cut, short = long.until(updates).validate(), run(updates)
        assert cut.tasks.equals(short.tasks)
        assert cut.updates.equals(short.updates)
        assert cut.metadata == short.metadata


def test_until_the_start_and_beyond_the_end():
    trace = dml.simulate(dml.asp(), LOCK_STEP, updates=8)
    start = trace.until(0)
    assert (len(start.tasks), len(start.updates), start.end_time) == (0, 0, 0.0)
    assert trace.until(8) is trace
    with pytest.raises(ValueError, match=r"update: expected .*, got -1"):
        trace.until(-1)


def test_a_trace_of_an_earlier_release_loads():
    """It was saved before servers, shards and local steps were there; the same run is made today."""
    old = Trace.load(Path(__file__).parent / "data" / "trace_of_an_earlier_release.parquet")
    cluster = dml.Cluster.from_speeds([1000, 700, 1300], latency=0.004, jitter=stats.expon())
    now = dml.simulate(dml.essp(2), cluster, updates=24, seed=7)
    pd.testing.assert_frame_equal(old.tasks, now.tasks)
    pd.testing.assert_frame_equal(old.updates, now.updates)
    assert old.end_time == now.end_time
    assert len(metrics.accounts(old)) == 25
