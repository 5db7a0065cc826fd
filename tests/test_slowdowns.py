"""Changes of speed happen to the tasks they name, or at the time, whatever else a cluster draws."""

import itertools
import json
import math

import numpy as np
import optax
import pytest
from clusters import CONTENDED, MIXED
from engine_runs import check_replay, plane, same_timeline
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from watched import simulate

import dmlcore as dml
from dmlcore.cluster.draws import Draws
from dmlcore.cluster.faults import Crash, Hang
from dmlcore.cluster.slowdowns import Pace
from dmlcore.methods.policies import ALL_POLICIES

PLAIN = dml.Cluster.uniform(40, overhead=0.01)
JITTERED = dml.Cluster.uniform(40, overhead=0.01, jitter=stats.expon()).with_stragglers(4, mean_tasks=5)


@pytest.mark.parametrize("cluster", [PLAIN, JITTERED], ids=str)
def test_a_change_multiplies_the_times_of_its_tasks(cluster):
    changed = cluster.with_speed_change(3, clock=20, until=70, workers=[1, 35])
    changed = changed.with_speed_change(0.5, clock=50)
    before, after = Draws(cluster, seed=2), Draws(changed, seed=2)
    for worker in (0, 1, 35):
        for clock in (0, 19, 20, 31, 32, 49, 50, 69, 70, 200):
            factor = (3 if worker and 20 <= clock < 70 else 1) * (0.5 if clock >= 50 else 1)
            expected = factor * before.compute_seconds(worker, clock, 32)
            assert after.compute_seconds(worker, clock, 32) == pytest.approx(expected, rel=1e-12)


def test_a_change_is_in_the_trace_and_in_the_name():
    changed = PLAIN.with_speed_change(2, clock=5, until=9, workers=[0]).with_speed_change(0.5, clock=3)
    assert "2x as long from task 5 to 9 of 1 worker, 0.5x as long from task 3)" in repr(changed)
    described = dml.simulate(dml.bsp(), changed, updates=12).metadata["cluster"]
    assert json.loads(json.dumps(described, allow_nan=False)) == changed.describe() | {
        "changes": [
            {"slowdown": 2.0, "clock": 5, "until": 9, "workers": [0]},
            {"slowdown": 0.5, "clock": 3, "until": None, "workers": None},
        ]
    }
    assert "changes" not in PLAIN.describe()


def test_simulated_rounds_show_it():
    cluster = dml.Cluster.uniform(2).with_speed_change(2, clock=3, until=5, workers=[1])
    rounds = np.diff(dml.simulate(dml.bsp(), cluster, updates=7).updates["time"], prepend=0.0)
    np.testing.assert_allclose(rounds, [0.032] * 3 + [0.064] * 2 + [0.032] * 2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"slowdown": 0, "clock": 1}, "slowdown: expected .*, got 0"),
        ({"slowdown": 2, "clock": -1}, "clock: expected .*, got -1"),
        ({"slowdown": 2, "clock": 4, "until": 4}, "until: expected a whole number >= 5.*, got 4"),
        ({"slowdown": 2, "clock": 4, "workers": [40]}, "workers: expected .*, got 40"),
        ({"slowdown": 0, "at": 1}, "slowdown: expected .*, got 0"),
        ({"slowdown": 2, "at": -1.0}, "at: expected a number >= 0.*, got -1.0"),
        ({"slowdown": 2, "at": math.nan}, "at: expected .*, got nan"),
        ({"slowdown": 2, "at": 4.0, "until": 4.0}, "until: expected a number > 4.*, got 4.0"),
        ({"slowdown": 2, "at": 4.0, "workers": [-1]}, "workers: expected .*, got -1"),
        ({"slowdown": 2}, "clock, at: expected exactly one.*, got neither"),
        ({"slowdown": 2, "clock": 1, "at": 1.0}, "clock, at: expected exactly one.*, got both"),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        PLAIN.with_speed_change(**wrong)


# Slow, fast, and both at once, of all and of some of four workers; a change lasts, and one is in the past.
CHANGES = [
    {"slowdown": 3, "at": 0.31},
    {"slowdown": 0.25, "at": 0.4, "until": 0.55, "workers": [0, 2]},
    {"slowdown": 5, "at": 0.5, "until": 0.9, "workers": [1, 2]},
    {"slowdown": 2, "at": 0.0, "until": 0.2, "workers": [3]},
]


def changed(cluster):
    for change in CHANGES:
        cluster = cluster.with_speed_change(**change)
    return cluster


def work(worker, start, end, changes=CHANGES, frozen=()):
    """The integral of a worker's speed, 0 while it is frozen: piece by piece, as the definition has it."""
    edges = {start, end, *(change["at"] for change in changes), *(c.get("until", end) for c in changes)}
    edges = np.array(sorted({*edges, *np.ravel(frozen)}))
    edges = edges[(start <= edges) & (edges <= end)]
    total = 0.0
    for left, right in itertools.pairwise(edges):
        middle, speed = (left + right) / 2, 1.0
        for change in changes:
            concerned = worker in change.get("workers", [worker])
            if concerned and change["at"] <= middle < change.get("until", math.inf):
                speed /= change["slowdown"]
        total += (right - left) * speed * (not any(a <= middle < b for a, b in frozen))
    return total


times = st.floats(0, 20)


lengths = st.one_of(st.none(), st.floats(1e-3, 20))


@given(st.lists(st.tuples(st.floats(0.1, 10), times, lengths), max_size=5), times, times)
def test_computing_ends_when_the_integral_of_the_speed_is_the_work(drawn, begun, seconds):
    changes, cluster = [], dml.Cluster.uniform(1)
    for slowdown, at, longer in drawn:
        changes.append({"slowdown": slowdown, "at": at} | ({} if longer is None else {"until": at + longer}))
        cluster = cluster.with_speed_change(**changes[-1])
    pace = Pace(cluster)
    end = pace.finish(0, begun, seconds)
    assert end >= begun
    assert work(0, begun, end, changes) == pytest.approx(seconds, rel=1e-9, abs=1e-9)
    assert pace.work(0, begun, end) == pytest.approx(seconds, rel=1e-9, abs=1e-9)


def test_the_work_done_by_a_time_is_the_integral_of_the_speed():
    """Workers that never wait have computed k tasks when the integral is the sum of their times."""
    cluster = dml.Cluster.uniform(4, jitter=stats.expon())
    trace, draws = dml.simulate(dml.asp(), changed(cluster), seconds=2.0, seed=4), Draws(cluster, 4)
    for worker, own in trace.tasks[trace.tasks["push_end"].notna()].groupby("worker"):
        total = np.cumsum([draws.compute_seconds(worker, clock, 32) for clock in range(len(own))])
        done = [work(worker, 0.0, end) for end in own["compute_end"]]
        np.testing.assert_allclose(done, total, rtol=1e-12)
    rates = trace.tasks.groupby("worker")["push_end"].count()
    assert (rates > 5).all()


HANGS = [Hang(0, 0.3, 0.05), Hang(1, 0.42, 0.2), Hang(2, 0.45, 0.02), Hang(3, 0.1, 0.15), Hang(0, 0.5, 0.1)]
CRASH = Crash(1, 0.8, 0.05)
FAIR = MIXED.with_server(bandwidth=1e6, sharing="fair", seconds_per_push=0.002)


@pytest.mark.parametrize("transport", ["plain()", "pipelined()"])
@pytest.mark.parametrize("faults", [(), (*HANGS, CRASH)], ids=["calm", "hangs"])
@pytest.mark.parametrize("cluster", [MIXED, CONTENDED, FAIR], ids=["mixed", "contended", "fair"])
@pytest.mark.parametrize("policy", ["asp", "bsp", "ssp", "essp", "k_sync", "k_batch_async"])
def test_every_task_computes_its_own_work(policy, cluster, faults, transport):
    """Under any policy, with links, pipelines and freezes the integral over a task is what was drawn."""
    if policy == "ssp" and transport != "plain()":
        pytest.skip("a kept copy and a pipeline exclude each other")
    whole = changed(cluster).with_faults(*faults, patience=0.5)
    options = {"seconds": 4, "seed": 2, "transport": transport, "parameter_bytes": 2000}
    trace = dml.simulate(ALL_POLICIES[policy](), whole, **options)
    draws = Draws(cluster, 2)
    done = trace.tasks[trace.tasks["push_end"].notna()]
    frozen = [[(h.time, h.time + h.seconds) for h in faults[:5] if h.worker == w] for w in range(4)]
    columns = done[["worker", "clock", "batch_size", "compute_start", "compute_end"]]
    found = [work(w, start, end, frozen=frozen[w]) for w, _, _, start, end in columns.itertuples(index=False)]
    drawn = [draws.compute_seconds(w, c, b) for w, c, b, _, _ in columns.itertuples(index=False)]
    np.testing.assert_allclose(found, drawn, rtol=1e-9, atol=1e-12)
    assert len(done) > 25


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_before_a_change_nothing_changes(policy):
    """To the last bit; and a change that is over, or that doubles and halves, leaves none behind."""
    rule = ALL_POLICIES[policy]()
    plain = simulate(rule, MIXED, updates=60, seed=1)
    later = simulate(rule, MIXED.with_speed_change(9, at=2 * plain.end_time), updates=60, seed=1)
    assert same_timeline(plain, later)
    both = MIXED.with_speed_change(2, at=0.0).with_speed_change(0.5, at=0.0)
    assert same_timeline(plain, simulate(rule, both, updates=60, seed=1))


def test_a_change_for_the_whole_run_is_a_slower_cluster():
    slow = dml.simulate(dml.ssp(2), PLAIN.with_speed_change(4, at=0.0), updates=200)
    slower = dml.Cluster.uniform(40, 250, overhead=0.04)
    assert same_timeline(slow, dml.simulate(dml.ssp(2), slower, updates=200))


def test_a_task_that_computes_over_a_change_takes_both_speeds():
    cluster = dml.Cluster.uniform(1, samples_per_second=8).with_speed_change(2, at=3.0, until=7.0)
    tasks = dml.simulate(dml.bsp(), cluster, updates=4).tasks  # 4 s each: 3 + 2, 4 by the end of the change
    assert tasks["compute_end"].tolist() == [5.0, 10.0, 14.0, 18.0]


def test_changes_by_time_are_described_and_resized():
    cluster = PLAIN.with_speed_change(2, at=5, until=9.5, workers=[0]).with_speed_change(0.5, at=3)
    assert "2x as long from 5 s to 9.5 s of 1 worker, 0.5x as long from 3 s)" in repr(cluster)
    described = dml.simulate(dml.bsp(), cluster, updates=2).metadata["cluster"]
    assert json.loads(json.dumps(described, allow_nan=False))["changes"] == [
        {"slowdown": 2.0, "at": 5.0, "until": 9.5, "workers": [0]},
        {"slowdown": 0.5, "at": 3.0, "until": None, "workers": None},
    ]
    assert [each.workers for each in cluster.resized(80).changes] == [(0, 1), None]
    assert "2x as long from 5 s to 9.5 s" in cluster._repr_html_()


@pytest.mark.parametrize(
    ("engine", "faults"),
    [("threads", ()), ("threads", (Hang(0, 0.3, 0.1),)), ("one-ray-cluster", (Hang(0, 0.3, 0.1),))],
)
@pytest.mark.filterwarnings("ignore:.*no update within")  # where the machine is that busy
def test_real_clocks_slow_down_too(engine, faults, request):
    """No task is computed in less than its work takes, at any load of the machine; and the trace replays."""
    if "ray" in engine:
        request.getfixturevalue("ray_cluster")
    made = dml.engines.threads(0.4) if engine == "threads" else dml.engines.ray(time_scale=0.4, keep=True)
    cluster, problem, sgd = (
        dml.Cluster.uniform(4, jitter=stats.expon()),
        plane(),
        optax.sgd(0.1),
    )
    broken = changed(cluster).with_faults(*faults)
    run = dml.train(problem, broken, dml.asp(), sgd, seconds=1.2, seed=4, engine=made, eval_every=999)
    check_replay(run, problem, sgd)
    done, draws = run.trace.tasks[run.trace.tasks["push_end"].notna()], Draws(cluster, 4)
    # When a hang reaches its worker, the trace does not tell.
    seen = [row for row in done.itertuples() if not (faults and row.worker == 0)]
    ratios = [
        work(row.worker, row.compute_start, row.compute_end)
        / draws.compute_seconds(row.worker, row.clock, 32)
        for row in seen
    ]
    assert min(ratios, default=1.0) > 1 - 1e-6


def test_slow_episodes_cost_the_same_however_long_the_run(monkeypatch):
    """Each block is drawn once, and asked for once a worker: blocks before it are not looked at again."""
    cluster = dml.Cluster.uniform(2, 1000, jitter=stats.expon()).with_stragglers(
        4, fraction=0.2, mean_tasks=5
    )
    asked = []

    class Asked(dict):
        def __contains__(self, key):
            asked.append(key)
            return super().__contains__(key)

    draws = Draws(cluster, seed=0)
    monkeypatch.setattr(draws, "_compute", Asked())
    for clock in range(64 * 32):
        for worker in range(2):
            draws.compute_seconds(worker, clock, 32)
    assert len(asked) <= 2 * 64 + 2


@pytest.mark.parametrize("workers", [[0, 0], [1, 2, 1], []])
@pytest.mark.parametrize("change", ["with_stragglers", "with_speed_change"])
def test_workers_of_a_change_are_named_once(change, workers):
    options = {"clock": 3} if change == "with_speed_change" else {}
    with pytest.raises(ValueError, match=r"^workers: expected at least one value, all different"):
        getattr(dml.Cluster.uniform(4), change)(2, workers=workers, **options)
