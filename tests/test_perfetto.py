"""The Perfetto export: slices nest, times round-trip, arrows point at updates."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest
import watched
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from dmlcore.cluster import Cluster
from dmlcore.engines import simulate
from dmlcore.methods.policies import ALL_POLICIES, k_sync, ssp
from dmlcore.trace import Trace, metrics, perfetto

CLUSTER = Cluster.uniform(4, samples_per_second=32, latency=0.05, jitter=stats.expon())


def slices(exported: dict) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Start and end of each slice in nanoseconds, as Perfetto reads them, by process and track."""
    tracks = defaultdict(list)
    for event in exported["traceEvents"]:
        if event["ph"] == "X":
            start, duration = (round(event[name] * 1000) for name in ("ts", "dur"))
            tracks[event["pid"], event["tid"]].append((start, start + duration))
    return tracks


def assert_nested(spans: list[tuple[int, int]]) -> None:
    """Any two slices of a track are disjoint, or one holds the other."""
    stack: list[int] = []
    for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        while stack and stack[-1] <= start:
            stack.pop()
        assert not stack or end <= stack[-1], (
            f"slice from {start} to {end} crosses the end of one at {stack[-1]}"
        )
        stack.append(end)


def test_the_nesting_test_finds_what_it_should():
    assert_nested([(0, 4), (0, 2), (2, 4), (4, 5)])
    with pytest.raises(AssertionError, match="crosses"):
        assert_nested([(0, 3), (2, 4)])


@settings(max_examples=25)
@given(
    policy=st.sampled_from(sorted(ALL_POLICIES)),
    seed=st.integers(0, 99),
    latency=st.sampled_from([0.0, 1e-7, 0.3]),
    speed=st.sampled_from([32, 3.2e9]),
)
def test_slices_nest_and_times_agree_for_every_policy(policy, seed, latency, speed):
    # A worker that never pulls would compute 30 million tasks while one push is under way.
    assume(policy != "ssp_unbounded" or latency * speed < 32e6)
    cluster = Cluster.uniform(4, samples_per_second=speed, latency=latency, jitter=stats.expon())
    seconds = 10 * (32 / speed + 2 * latency)  # not updates, of which some policies make none on slow links
    trace = watched.simulate(ALL_POLICIES[policy](), cluster, seconds=seconds, seed=seed)
    tracks = slices(perfetto.to_perfetto(trace))
    for spans in tracks.values():
        assert_nested(spans)
    for worker in range(4):
        busy = sum(
            end - start for (pid, _), spans in tracks.items() if pid == worker + 2 for start, end in spans
        )
        assert busy == round(trace.end_time * 1e9)


def test_a_cancelled_push_is_on_the_track_of_transfers():
    """The third worker's push is cancelled under way in every round, after 0.5 s."""
    cluster = Cluster.from_speeds([32, 32, 20], latency=1.0)
    exported = perfetto.to_perfetto(simulate(k_sync(2), cluster, updates=4))
    names = {
        event["tid"]: event["args"]["name"]
        for event in exported["traceEvents"]
        if event["name"] == "thread_name"
    }
    third = [event for event in exported["traceEvents"] if event["ph"] == "X" and event["pid"] == 4]
    cancelled = [(names[event["tid"]], event["dur"]) for event in third if event["name"] == "cancelled"]
    assert cancelled == [("compute", pytest.approx(1.6e6)), ("transfer", pytest.approx(0.4e6))] * 3
    assert "push" not in {event["name"] for event in third[:-1]}


def test_round_trip_and_counts(tmp_path):
    trace = simulate(k_sync(2), CLUSTER, updates=20)
    exported = perfetto.to_perfetto(trace)
    path = perfetto.write(trace, tmp_path / "run.json")
    assert json.loads(path.read_text()) == exported
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]
    kinds = Counter(event["ph"] for event in exported["traceEvents"])
    applied = int((trace.tasks["update"] >= 0).sum())
    assert kinds["s"] == kinds["f"] == applied == 40
    assert kinds["X"] == len(metrics.phases(trace)) + 20
    assert kinds["C"] == 40
    assert exported["otherData"]["policy"] == "k_sync(k=2)"


@pytest.mark.parametrize("latency", [0.0, 0.05])
def test_arrows_start_and_end_inside_slices(latency):
    cluster = Cluster.uniform(4, samples_per_second=32, latency=latency, jitter=stats.expon())
    trace = simulate(ssp(2), cluster, updates=30)
    exported = perfetto.to_perfetto(trace)
    tracks = slices(exported)
    ends = {"s": {}, "f": {}}
    for event in exported["traceEvents"]:
        if event["ph"] in ends:
            time = round(event["ts"] * 1000)
            assert any(start <= time <= end for start, end in tracks[event["pid"], event["tid"]])
            ends[event["ph"]][event["id"]] = time
    assert ends["s"].keys() == ends["f"].keys()
    assert all(time <= ends["f"][task] for task, time in ends["s"].items())
    times = (trace.updates["time"] * 1e9).round().astype(int)
    assert ends["f"] == {i: times[u] for i, u in enumerate(trace.tasks["update"]) if u >= 0}


def test_names_and_counters():
    trace = simulate(ssp(2), CLUSTER, updates=12)
    events = perfetto.to_perfetto(trace)["traceEvents"]
    names = {(event["pid"], event["args"]["name"]) for event in events if event["ph"] == "M"}
    assert {(1, "server"), (2, "worker 0"), (5, "worker 3"), (5, "compute"), (5, "transfer")} <= names
    versions = [event["args"]["version"] for event in events if event["name"] == "version"]
    assert versions == list(range(1, 13))
    threads = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    assert len({tid for _, tid in threads}) == len(threads)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    trace = simulate(ssp(2), CLUSTER, updates=3)
    path = tmp_path / "run.json"
    path.write_text("old")
    broken = Trace(trace.tasks.drop(columns="clock"), trace.updates, trace.metadata)
    with pytest.raises(KeyError):
        perfetto.write(broken, path)
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]
