"""Measured durations: a cluster that takes them computes for just those times, whatever else it has."""

import dataclasses
import json

import numpy as np
import optax
import pandas as pd
import pytest
from clusters import CLUSTERS, MIXED
from engine_runs import check_replay, plane, same_timeline
from hypothesis import given, settings
from hypothesis import strategies as st
from watched import simulate

import dmlcore as dml
from dmlcore.cluster.draws import Draws
from dmlcore.cluster.faults import random_faults
from dmlcore.engines.real import WorkerError
from dmlcore.methods.policies import ALL_POLICIES

ROWS = pd.DataFrame(
    {"worker": [1, 0, 1, 0, 1], "samples": [32, 32, 8, 16, 32], "seconds": [0.3, 0.1, 0.7, 0.2, 0.4]}
)
OWN = {0: [(0.1, 32), (0.2, 16)], 1: [(0.3, 32), (0.7, 8), (0.4, 32)]}


def compute_seconds(cluster, seed=0):
    return Draws(cluster, seed).compute_seconds


def frame_of(trace, cluster, seed, by_trace):
    """What a measurement of a run's tasks gives: of those that were cut or skipped, as they were drawn."""
    draw = compute_seconds(cluster, seed)
    known = {
        (task.worker, task.clock): (task.batch_size, task.compute_end - task.compute_start, task.push_end)
        for task in trace.tasks.itertuples()
    }
    last = trace.tasks.groupby("worker")["clock"].max()
    rows = []
    for worker, clock in ((w, c) for w, most in last.items() for c in range(most + 1)):
        samples, seconds, arrived = known.get((worker, clock), (32, 0.0, np.nan))
        exact = draw(worker, clock, samples)
        rows.append((worker, samples, seconds if by_trace and arrived == arrived else exact))
    return pd.DataFrame(rows, columns=["worker", "samples", "seconds"])


def with_links_of(frame, cluster, beyond="error"):
    links = {"latency": cluster.latency_seconds, "bandwidth": cluster.bandwidth_bytes_per_second}
    links |= {"latency_jitter": cluster.latency_jitter, "pull_latency": cluster.pull_latency_seconds}
    made = dml.Cluster.from_durations(frame, beyond, **links)
    return dataclasses.replace(made, server=cluster.server)


@settings(max_examples=60)
@given(st.sampled_from(sorted(ALL_POLICIES)), st.sampled_from(sorted(CLUSTERS)), st.integers(0, 99))
def test_a_run_on_its_own_durations_is_the_same_run(policy, cluster, seed):
    """From durations as drawn, to the last bit; from those that the trace tells, up to the rounding of a
    difference of times, and where no arrivals tie."""
    rule, cluster, options = ALL_POLICIES[policy](), CLUSTERS[cluster], {"updates": 40, "seed": seed}
    trace = simulate(rule, cluster, **options)
    exact = with_links_of(frame_of(trace, cluster, seed, by_trace=False), cluster)
    assert same_timeline(simulate(rule, exact, **options), trace)
    if cluster.jitter is None:
        return
    again = simulate(rule, with_links_of(frame_of(trace, cluster, seed, by_trace=True), cluster), **options)
    for one, two in ((again.tasks, trace.tasks), (again.updates, trace.updates)):
        assert list(one) == list(two)
        np.testing.assert_allclose(one.to_numpy(float), two.to_numpy(float), rtol=1e-12, atol=1e-12)


def test_tasks_take_their_rows_scaled_to_their_samples():
    seconds = compute_seconds(dml.Cluster.from_durations(ROWS, "error"))
    for worker, own in OWN.items():
        for clock, (took, samples) in enumerate(own):
            assert seconds(worker, clock, samples) == took
            assert seconds(worker, clock, 3 * samples) == pytest.approx(3 * took, rel=1e-15)
    trace = dml.simulate(dml.bsp(), dml.Cluster.from_durations(ROWS), updates=3, batch_size=16)
    assert np.diff(trace.updates["time"], prepend=0.0).tolist() == pytest.approx([0.15, 1.4, 0.2])


def test_beyond_the_last_row():
    cycle = compute_seconds(dml.Cluster.from_durations(ROWS))
    assert [cycle(1, clock, 32) for clock in range(9)] == 3 * [0.3, 2.8, 0.4]
    cluster = dml.Cluster.from_durations(ROWS, beyond="resample")
    again, other = compute_seconds(cluster, 1), compute_seconds(cluster, 2)
    drawn = [compute_seconds(cluster, 1)(1, clock, 32) for clock in range(900)]
    assert drawn[:3] == [0.3, 2.8, 0.4]
    assert [again(1, clock, 32) for clock in reversed(range(900))][::-1] == drawn
    assert [other(1, clock, 32) for clock in range(900)] != drawn
    values, counts = np.unique(drawn[3:], return_counts=True)
    assert values.tolist() == [0.3, 0.4, 2.8]
    assert (abs(counts - 299) < 4 * np.sqrt(900 * 2 / 9)).all()  # four standard deviations
    with pytest.raises(
        ValueError, match="durations of worker 0, clock 2: expected at least 3 measured tasks, got 2"
    ):
        dml.simulate(dml.asp(), dml.Cluster.from_durations(ROWS, "error"), updates=9)
    trace = dml.simulate(dml.bsp(), dml.Cluster.from_durations(ROWS, "error"), updates=2)
    assert trace.end_time == pytest.approx(0.3 + 2.8)


@pytest.mark.filterwarnings("ignore:times come in steps")
def test_all_tasks_are_drawn():
    """By worker each from its own rows; by round the row of all workers; in runs, rows that follow."""
    rows = pd.DataFrame({"worker": np.repeat([0, 1], 10), "samples": 8, "seconds": np.arange(20.0, 0.0, -1)})

    def drawn(beyond, run=1, seed=0):
        cluster = dml.Cluster.from_durations(rows, beyond)
        cluster = dataclasses.replace(cluster, durations=dataclasses.replace(cluster.durations, run=run))
        seconds = compute_seconds(cluster, seed)
        return np.array(
            [[seconds(worker, clock, 8) - 10 * (worker == 0) for clock in range(400)] for worker in (0, 1)]
        )

    own, whole = drawn("bootstrap"), drawn("rounds")
    assert {*own.ravel()} == {*whole.ravel()} == {*range(1, 11)}
    assert (whole[0] == whole[1]).all()
    assert (own[0] == own[1]).mean() < 0.2
    assert (own[:, :10] != np.arange(10, 0, -1)).any(), "from the first task on"
    assert (drawn("rounds", seed=1) != whole).any()
    runs = drawn("bootstrap", run=5).reshape(2, 80, 5)
    assert ((np.diff(runs) == -1) | (np.diff(runs) == 9)).all()


@pytest.mark.parametrize("beyond", ["cycle", "resample"])
def test_slow_episodes_and_changes_multiply_them(beyond):
    plain = dml.Cluster.from_durations(ROWS, beyond)
    slow = plain.with_stragglers(4, fraction=0.3).with_speed_change(2, clock=5, until=9, workers=[1])
    episodes = dml.Cluster.uniform(2, 1).with_stragglers(4, fraction=0.3)
    before, after, factor = (compute_seconds(cluster, 7) for cluster in (plain, slow, episodes))
    for worker in (0, 1):
        for clock in range(50):
            expected = (
                before(worker, clock, 20) * factor(worker, clock, 1) * (1 + (worker and 5 <= clock < 9))
            )
            assert after(worker, clock, 20) == pytest.approx(expected, rel=1e-14)
    timed = dml.simulate(dml.asp(), plain.with_speed_change(2, at=0.2), updates=3).tasks
    assert timed["compute_end"].iloc[:2].tolist() == pytest.approx([0.1, 0.4])


@pytest.mark.parametrize("transport", ["plain()", "pipelined()"])
def test_with_faults_links_and_a_server(transport):
    """Each task that arrives and that no freeze interrupts has computed for its row."""
    made = dml.Cluster.from_durations(ROWS, latency=[0.01, 0.02], bandwidth=1e6, pull_latency=0.03)
    made = made.with_server(seconds_per_push=0.005).with_faults(*random_faults(2, 5.0, seed=3), patience=0.2)
    trace = dml.simulate(dml.asp(), made, seconds=40.0, transport=transport)
    done, row = trace.tasks[trace.tasks["push_end"].notna()], compute_seconds(made)
    took = (done["compute_end"] - done["compute_start"]).to_numpy()
    own = np.array([row(w, c, 32) for w, c in done[["worker", "clock"]].itertuples(index=False)])
    hangs = sum(each["kind"] == "freeze" for each in trace.metadata["incidents"])
    assert hangs
    assert (took > own - 1e-9).all()
    assert (took > own + 1e-9).sum() <= hangs
    assert len(done) > 20


@pytest.mark.parametrize("engine", ["threads", "one-ray-cluster"])
def test_real_clocks_take_them_too(engine, request):
    if "ray" in engine:
        request.getfixturevalue("ray_cluster")
    made = dml.engines.threads(0.1) if engine == "threads" else dml.engines.ray(time_scale=0.1, keep=True)
    problem, sgd, cluster = plane(), optax.sgd(0.1), dml.Cluster.from_durations(ROWS)
    run = dml.train(problem, cluster, dml.asp(), sgd, updates=20, engine=made, eval_every=20)
    check_replay(run, problem, sgd)
    done, row = run.trace.tasks[run.trace.tasks["push_end"].notna()], compute_seconds(cluster)
    more = [t.compute_end - t.compute_start - row(t.worker, t.clock, 32) for t in done.itertuples()]
    assert min(more) > -1e-9
    assert np.median(more) < 0.05
    over = dataclasses.replace(cluster, durations=dataclasses.replace(cluster.durations, beyond="error"))
    with pytest.raises(
        WorkerError, match="durations of worker 0, clock 2: expected at least 3 measured tasks, got 2"
    ):
        dml.train(problem, over, dml.asp(), sgd, updates=20, engine=made, eval_every=20)


def test_a_resized_cluster_begins_at_other_rows():
    resized = dml.Cluster.from_durations(ROWS, latency=[0.1, 0.2]).resized(6)
    assert resized.latency_seconds == (0.1,) * 3 + (0.2,) * 3
    rows = [
        [*zip(*own, strict=True)] for own in zip(*dataclasses.astuple(resized.durations)[:2], strict=True)
    ]
    zero, one = OWN[0], OWN[1]
    assert rows == [zero, zero, zero[::-1], one, one[1:] + one[:1], one[2:] + one[:2]]
    assert resized.resized(2).durations.seconds == ((0.1, 0.2), (0.3, 0.7, 0.4))
    assert resized.samples_per_second[::3] == (48 / (0.1 + 0.2), 72 / (0.3 + 0.7 + 0.4))


def test_they_are_described():
    cluster = dml.Cluster.from_durations(ROWS, "resample").with_stragglers(2)
    assert "5 measured tasks, beyond: resample, 2x slow on 10% of tasks)" in repr(cluster)
    assert "5 measured tasks, beyond: resample" in cluster._repr_html_()
    described = json.loads(json.dumps(cluster.describe(), allow_nan=False))["durations"]
    assert described == {"tasks": [2, 3], "beyond": "resample", "sha256": cluster.durations.fingerprint}
    other = dml.Cluster.from_durations(ROWS.assign(seconds=ROWS["seconds"] + 1e-9), "resample")
    assert other.describe()["durations"]["sha256"] != described["sha256"]
    assert "durations" not in MIXED.describe()
    assert dml.Cluster.from_durations(ROWS) == dml.Cluster.from_durations(ROWS.copy())


def test_files(tmp_path):
    wanted = dml.Cluster.from_durations(ROWS)
    ROWS.to_csv(tmp_path / "rows.csv", index=False)
    ROWS.to_parquet(tmp_path / "rows.parquet")
    assert dml.Cluster.from_durations(tmp_path / "rows.csv") == wanted
    assert dml.Cluster.from_durations(str(tmp_path / "rows.parquet")) == wanted
    with pytest.raises(FileNotFoundError, match=r"frame: expected a file that exists.*, got '.*none\.csv'"):
        dml.Cluster.from_durations(tmp_path / "none.csv")
    for name in ("bad.parquet", "bad.csv"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00bad" * (name == "bad.parquet"))
        with pytest.raises(
            ValueError, match=rf"frame: .*, got '.*{name}', which cannot be read as \.(csv|parquet) \("
        ):
            dml.Cluster.from_durations(tmp_path / name)


def replaced(row, column, value):
    return ROWS.astype({column: object}).assign(
        **{column: [*ROWS[column][:row], value, *ROWS[column][row + 1 :]]}
    )


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            replaced(3, "seconds", np.nan),
            "frame, row 3, column seconds: expected a finite number >= 0.*, got nan",
        ),
        (replaced(2, "seconds", np.inf), "frame, row 2, column seconds: expected .*, got inf"),
        (replaced(0, "seconds", -0.5), "frame, row 0, column seconds: expected .*, got -0.5"),
        (replaced(0, "seconds", "one"), "frame, row 0, column seconds: expected .*, got 'one'"),
        (
            replaced(4, "worker", 0.5),
            "frame, row 4, column worker: expected a whole number from 0.*, got 0.5",
        ),
        (replaced(4, "worker", "w3"), "frame, row 4, column worker: expected .*, got 'w3'"),
        (replaced(4, "worker", -1), "frame, row 4, column worker: expected .*, got -1"),
        (replaced(1, "samples", 0), "frame, row 1, column samples: expected .*, got 0"),
        (replaced(1, "samples", True), "frame, row 1, column samples: expected .*, got True"),
        (
            ROWS.assign(seconds=[1, 0, 1, 0, 1]),
            "frame, worker 0: expected at least one task that takes time, got only",
        ),
        (ROWS[:0], "frame: expected at least one row.*, got a table without rows"),
        (
            ROWS[["worker"]].assign(time=1.0),
            r"frame: expected batch_size \(samples of a task.*, got columns \['worker', 'time'\]",
        ),
        (
            pd.concat([ROWS, ROWS[["worker"]]], axis=1),
            r"frame, columns: expected a different name for each, got several named \['worker'\]",
        ),
        (
            ROWS.assign(seconds=1e-320),
            r"frame, worker 0, seconds: expected .* a finite speed > 0, got \[1e-320",
        ),
        (
            ROWS.assign(seconds=1e308),
            r"frame, worker 0, seconds: expected .* a finite speed > 0, got \[1e\+308",
        ),
        ([1, 2], "frame: expected a DataFrame, or the path of a log .*, got .1, 2."),
        ("rows.xls", r"frame: expected a DataFrame, or the path of a log \(\.csv.*, got 'rows.xls'"),
    ],
)
def test_wrong_rows_are_named(frame, message):
    with pytest.raises(ValueError, match=message):
        dml.Cluster.from_durations(frame)


def test_beyond_is_one_of_five():
    with pytest.raises(
        ValueError, match=r"beyond: expected one of 'cycle', 'resample', 'error', 'bootstrap'.*, got 'stop'"
    ):
        dml.Cluster.from_durations(ROWS, beyond="stop")
