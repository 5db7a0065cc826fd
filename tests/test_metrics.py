"""Metrics against closed forms on traces made by hand, and against slow, plain counting on simulated ones."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pandas as pd
import pytest
import watched
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dmlcore.cluster import Cluster
from dmlcore.cluster.faults import Crash, Hang
from dmlcore.engines import simulate
from dmlcore.methods.policies import ALL_POLICIES, asp, bsp, essp, k_sync, ssp
from dmlcore.trace import Trace, metrics
from dmlcore.trace.trace import TASK_COLUMNS, UPDATE_COLUMNS

NAN = math.nan
JITTER = Cluster.uniform(5, samples_per_second=32, latency=0.1, jitter=stats.expon())


def hand_made() -> Trace:
    """Two workers, ten seconds: a cached copy, a wait, a push cut by the end, a cancelled computation.

    0  |pull|compute    |push|wait|compute (cached)|push ...|
    1  |pull|cancelled       |pull|compute ...............   |
    """
    rows = [
        # worker, clock, batch, read, pull, compute, computed, arrived, update, weight
        (0, 0, 32, 0, 0.0, 1.0, 4.0, 5.0, 0, 1.0),
        (1, 0, 32, 0, 0.0, 1.0, 5.0, NAN, -1, 0.0),
        (0, 1, 32, 0, NAN, 6.0, 9.0, NAN, -1, 0.0),
        (1, 1, 32, 1, 5.0, 5.5, 10.0, NAN, -1, 0.0),
    ]
    tasks = pd.DataFrame(rows, columns=list(TASK_COLUMNS)).astype(TASK_COLUMNS)
    updates = pd.DataFrame({"time": [5.0], "num_tasks": [1], "samples": [32]}).astype(UPDATE_COLUMNS)
    return Trace(tasks, updates, {"num_workers": 2, "end_time": 10.0})


def schedule(reads: list[tuple[int, int, int, int]], num_workers: int = 2) -> Trace:
    """A trace from (worker, clock, version read, update) alone; times play no part."""
    tasks = pd.DataFrame(reads, columns=["worker", "clock", "version_read", "update"])
    tasks = tasks.assign(
        batch_size=1, pull_start=0.0, compute_start=0.0, compute_end=0.0, push_end=1.0, weight=1.0
    )
    updates = pd.DataFrame({"time": [], "num_tasks": [], "samples": []})
    return Trace(
        tasks[list(TASK_COLUMNS)].astype(TASK_COLUMNS), updates, {"num_workers": num_workers, "end_time": 1.0}
    )


class TestTimes:
    def test_phases_of_a_trace_made_by_hand(self):
        found = metrics.phases(hand_made())[["worker", "kind", "start", "end", "task"]]
        assert list(found.itertuples(index=False, name=None)) == [
            (0, "pull", 0.0, 1.0, 0),
            (0, "compute", 1.0, 4.0, 0),
            (0, "push", 4.0, 5.0, 0),
            (0, "wait", 5.0, 6.0, 2),
            (0, "compute", 6.0, 9.0, 2),
            (0, "push", 9.0, 10.0, 2),
            (1, "pull", 0.0, 1.0, 1),
            (1, "cancelled", 1.0, 5.0, 1),
            (1, "pull", 5.0, 5.5, 3),
            (1, "compute", 5.5, 10.0, 3),
        ]

    def test_breakdown_and_rates_of_a_trace_made_by_hand(self):
        trace = hand_made()
        table = metrics.time_breakdown(trace)
        assert table.loc[0, list(metrics.PHASES)].to_list() == [6.0, 0.0, 1.0, 2.0, 0.0, 1.0, 0.0]
        assert table.loc[1, list(metrics.PHASES)].to_list() == [4.5, 4.0, 1.5, 0.0, 0.0, 0.0, 0.0]
        assert table.loc[0, "compute_share"] == 0.6
        assert metrics.makespan(trace) == 10.0
        assert metrics.updates_per_second(trace) == 0.1
        assert metrics.clocks_per_second(trace) == 1 / 20
        assert metrics.fetches(trace).to_list() == [1, 2]

    @pytest.mark.parametrize("latency", [0.0, 0.1])
    @pytest.mark.parametrize("policy", [bsp(), asp(), ssp(2), essp(2), k_sync(2)], ids=str)
    def test_who_has_crashed_is_away(self, latency, policy):
        """From the crash to the return, and for good where there is none; nobody pushes meanwhile."""
        cluster = Cluster.uniform(3, samples_per_second=32, latency=latency, jitter=stats.expon())
        cluster = cluster.with_faults(Crash(1, 4.0, 3.0), Crash(2, 6.0), Hang(0, 2.0, 5.0), patience=1.5)
        trace = simulate(policy, cluster, seconds=20.0, seed=1)
        found = metrics.phases(trace)
        away = found[found["kind"] == "away"].set_index("worker")[["start", "end"]]
        assert 2.0 <= away.loc[0, "start"] <= 3.5
        assert away.loc[0, "end"] == 7.0
        assert away.loc[1].tolist() == [4.0, 7.0]
        assert away.loc[2].tolist() == [6.0, 20.0]
        table = metrics.time_breakdown(trace)
        np.testing.assert_allclose(table[list(metrics.PHASES)].sum(axis=1), 20.0)
        made = int((trace.updates["time"] < 5.0).sum()) + 1
        cut = metrics.phases(trace.until(made))
        ends = cut[cut["kind"] == "away"].groupby("worker")["end"].last()
        assert ends[1] == min(7.0, trace.until(made).end_time)
        assert (table["push"] > 0).any() == (latency > 0)

    def test_who_leaves_while_it_waits_has_waited_till_then(self):
        cluster = Cluster.from_speeds([32, 8]).with_faults(Crash(0, 2.0, 1.0))  # tasks of 1 s and of 4 s
        found = metrics.phases(simulate(bsp(), cluster, seconds=8.0))
        kinds = found[found["worker"] == 0][["kind", "start", "end"]].values.tolist()
        assert kinds[:3] == [["compute", 0, 1], ["wait", 1, 2], ["away", 2, 3]]

    def test_who_leaves_as_it_comes_back_is_away_all_the_time(self):
        cluster = Cluster.from_speeds([32, 8]).with_faults(Crash(0, 2.0, 1.0), Crash(0, 3.0, 1.0))
        found = metrics.phases(simulate(bsp(), cluster, seconds=8.0))
        kinds = found[found["worker"] == 0][["kind", "start", "end"]].values.tolist()
        assert kinds[1:5] == [["wait", 1, 2], ["away", 2, 3], ["away", 3, 4], ["compute", 4, 5]]

    @settings(max_examples=30)
    @given(
        policy=st.sampled_from(sorted(ALL_POLICIES)),
        seed=st.integers(0, 99),
        seconds=st.floats(0.1, 20),
        latency=st.sampled_from([0.0, 0.2]),
    )
    def test_every_moment_of_every_worker_is_one_phase(self, policy, seed, seconds, latency):
        cluster = Cluster.uniform(5, samples_per_second=32, latency=latency, jitter=stats.expon())
        trace = watched.simulate(ALL_POLICIES[policy](), cluster, seconds=seconds, seed=seed)
        table = metrics.time_breakdown(trace)
        shares = [f"{kind}_share" for kind in metrics.PHASES]
        assert len(table) == 5
        assert (table >= 0).to_numpy().all()
        np.testing.assert_allclose(table[list(metrics.PHASES)].sum(axis=1), trace.end_time)
        np.testing.assert_allclose(table[shares].sum(axis=1), 1)
        cut = metrics.phases(trace)
        follows = cut["worker"].eq(cut["worker"].shift())
        assert (cut["start"] == cut["end"].shift().where(follows, 0.0)).all()

    def test_asynchronous_workers_never_wait_and_rounds_cost_what_the_slowest_costs(self):
        assert metrics.time_breakdown(simulate(asp(), JITTER, seconds=50))["wait"].max() == pytest.approx(0)
        table = metrics.time_breakdown(simulate(bsp(), Cluster.from_speeds([32, 32, 8]), updates=5))
        assert table["wait_share"].to_list() == pytest.approx([0.75, 0.75, 0])
        table = metrics.time_breakdown(simulate(k_sync(2), Cluster.from_speeds([32, 32, 8]), updates=5))
        assert table["cancelled_share"].to_list() == pytest.approx([0, 0, 0.8])  # the last one is in flight

    @pytest.mark.parametrize("sharing", [None, "fifo", "fair"])
    def test_a_push_that_was_cut_is_cancelled(self, sharing):
        """Pushes of 1 s on links of their own, or of 0.4 s on a shared one; the third is late each round."""
        cluster = Cluster.from_speeds(
            [32, 32, 36 if sharing == "fifo" else 20], latency=0.0 if sharing else 1.0
        )
        if sharing:
            cluster = cluster.with_server(bandwidth=1000.0, sharing=sharing)
        trace = simulate(k_sync(2), cluster, updates=5, parameter_bytes=400 if sharing else 0)
        found = metrics.phases(trace)
        third = found[(found["worker"] == 2) & (found["task"].map(trace.tasks["update"]) < 0)]
        third = third[third["kind"].isin(["cancelled", "push"])]
        rounds = third.groupby("task")[["start", "end"]].agg(["min", "max"])
        computed = trace.tasks["compute_end"]
        assert len(rounds) >= 3
        for task, *_ in rounds.iloc[:-1].itertuples():
            kinds = third[third["task"] == task]
            assert kinds["kind"].tolist() == ["cancelled", "cancelled"]
            assert kinds["start"].iloc[1] == computed[task] < kinds["end"].iloc[1]

    @pytest.mark.parametrize("fired", [[], [[3.0, 0, 1]]], ids=["update", "timer"])
    def test_who_was_cut_while_computing_waits_until_its_next_task(self, fired):
        """By the update at 5 s, or a timer at 3 s; computed by itself at 3 s, it was pushing."""
        trace = hand_made()
        trace.tasks.loc[1, "compute_end"] = 3.0 if fired else 5.0
        trace.tasks.loc[3, ["pull_start", "compute_start"]] = 6.0
        trace.metadata["wakes"] = fired
        seconds = metrics.time_breakdown(trace).loc[1, ["cancelled", "wait", "push", "compute"]]
        assert seconds.tolist() == ([2.0, 3.0, 0.0, 4.0] if fired else [4.0, 1.0, 0.0, 4.0])
        trace.tasks.loc[1, "compute_end"] = 2.5
        assert metrics.time_breakdown(trace).loc[1, "cancelled"] == 5.0

    def test_worker_without_a_task_waits(self):
        trace = schedule([(0, 0, 0, 0)], num_workers=3)
        assert metrics.time_breakdown(trace)["wait"].to_list() == [0.0, 1.0, 1.0]

    def test_no_time_is_an_error(self):
        with pytest.raises(ValueError, match="end_time"):
            metrics.makespan(
                Trace(hand_made().tasks, hand_made().updates, {"num_workers": 2, "end_time": 0.0})
            )


class TestConsistency:
    def test_staleness_counts_updates_between_read_and_application(self):
        trace = simulate(asp(), Cluster.uniform(4, jitter=stats.expon()), updates=2000)
        found = metrics.staleness(trace)
        applied = trace.tasks[trace.tasks["update"] >= 0]
        assert (found == applied["update"] - applied["version_read"]).all()
        assert found.mean() == pytest.approx(3, abs=0.02)  # workers - 1
        assert (metrics.staleness(simulate(bsp(), JITTER, updates=20)) == 0).all()

    @pytest.mark.parametrize("policy", [bsp(), ssp(2), essp(2), asp()], ids=str)
    def test_clock_staleness_is_what_plain_counting_finds(self, policy):
        trace = simulate(policy, JITTER, updates=60)
        counts: dict[int, int] = {}
        tasks = list(trace.tasks.itertuples())
        for read in tasks:
            for other in {task.worker for task in tasks} - {read.worker}:
                seen = [t.clock for t in tasks if t.worker == other and 0 <= t.update < read.version_read]
                differential = max(seen, default=-1) - read.clock
                counts[differential] = counts.get(differential, 0) + 1
        assert metrics.clock_staleness(trace).to_dict() == counts

    def test_clock_staleness_of_bsp_ssp_and_essp(self):
        cluster = Cluster.uniform(8, latency=0.001, jitter=stats.expon())
        found = {
            name: metrics.clock_staleness(simulate(policy, cluster, updates=2000))
            for name, policy in {"SSP": ssp(4), "ESSP": essp(4)}.items()
        }
        assert metrics.clock_staleness(simulate(bsp(), cluster, updates=50)).index.to_list() == [-1]
        assert all(counts.index.min() >= -5 for counts in found.values())
        mean = {name: (counts.index * counts).sum() / counts.sum() for name, counts in found.items()}
        assert mean["ESSP"] > mean["SSP"]

    def test_clock_staleness_of_some_tasks(self):
        trace = simulate(ssp(2), JITTER, updates=60)
        assert metrics.clock_staleness(trace, tasks=7).sum() == 7 * 4
        assert metrics.clock_staleness(trace, tasks=10**6).equals(metrics.clock_staleness(trace))
        with pytest.raises(ValueError, match="tasks"):
            metrics.clock_staleness(trace, tasks=0)

    def test_clock_gap(self):
        assert metrics.clock_gap(simulate(bsp(), JITTER, updates=30)) == 0
        assert metrics.clock_gap(simulate(ssp(3), JITTER, updates=300)) == 3
        # One worker is ten times as fast: when it has begun its 41st task, the other is at its fifth.
        assert metrics.clock_gap(simulate(asp(), Cluster.from_speeds([320, 32]), updates=44)) in {35, 36}

    def test_a_worker_without_a_task_is_at_clock_zero(self):
        trace = schedule([(0, clock, clock, clock) for clock in range(4)], num_workers=2)
        assert metrics.clock_gap(trace) == 3

    @pytest.mark.parametrize("staleness", [0, 1, 3])
    def test_valid_runs_have_no_violation_and_the_bound_is_tight(self, staleness):
        for policy in (ssp(staleness), essp(staleness)):
            trace = simulate(policy, JITTER, updates=300)
            assert metrics.read_window_violations(trace, staleness).empty
            if staleness:
                assert not metrics.read_window_violations(trace, staleness - 1).empty

    def test_a_single_update_too_old_is_found(self):
        # With s = 1 a read at clock 2 needs the other's update of clock 0: it is in version 2, not in 1.
        fine = [(0, 0, 0, 0), (1, 0, 0, 1), (0, 1, 0, 2), (0, 2, 2, 3)]
        assert metrics.read_window_violations(schedule(fine), 1).empty
        stale = [*fine[:3], (0, 2, 1, 3)]
        assert metrics.read_window_violations(schedule(stale), 1).index.to_list() == [3]
        assert metrics.read_window_violations(schedule(stale), 2).empty
        assert metrics.read_window_violations(schedule(stale), math.inf).empty

    def test_lost_and_missing_updates_are_violations(self):
        lost = [(0, 0, 0, 0), (1, 0, 0, -1), (1, 1, 1, 1), (0, 1, 2, 2)]
        assert metrics.read_window_violations(schedule(lost), 0).index.to_list() == [3]
        assert metrics.read_window_violations(schedule([(0, 0, 0, 0), (0, 1, 1, 1)], 1), 0).empty
        assert len(metrics.read_window_violations(schedule([(0, 0, 0, 0), (0, 1, 1, 1)], 2), 0)) == 1

    @settings(max_examples=40)
    @given(data=st.data(), num_workers=st.integers(1, 4), staleness=st.integers(0, 3))
    def test_violations_are_what_plain_counting_finds(self, data, num_workers, staleness):
        order = data.draw(st.lists(st.integers(0, num_workers - 1), min_size=1, max_size=20))
        rows, clocks = [], [0] * num_workers
        for update, worker in enumerate(order):
            lost = data.draw(st.integers(0, 9)) == 0
            rows.append((worker, clocks[worker], data.draw(st.integers(0, update)), -1 if lost else update))
            clocks[worker] += 1
        expected = []
        for i, (worker, clock, version, _) in enumerate(rows):
            seen = {(w, c) for w, c, _, update in rows if 0 <= update < version}
            needed = {(w, c) for w in range(num_workers) if w != worker for c in range(clock - staleness)}
            if not needed <= seen:
                expected.append(i)
        found = metrics.read_window_violations(schedule(rows, num_workers), staleness)
        assert found.index.to_list() == expected

    @pytest.mark.parametrize("wrong", [-1, 0.5, NAN])
    def test_wrong_bounds(self, wrong):
        with pytest.raises(ValueError, match="staleness"):
            metrics.read_window_violations(hand_made(), wrong)


def runs_of(**finals: list[float]) -> pd.DataFrame:
    """Two evaluations per run: loss 1 at time 0, and the value given at time 10."""
    rows = [
        {"method": method, "seed": seed, "time": time, "loss": loss}
        for method, values in finals.items()
        for seed, final in enumerate(values)
        for time, loss in ((0.0, 1.0), (10.0, final))
    ]
    return pd.DataFrame(rows)


class TestComparison:
    def test_crossing(self):
        assert metrics.crossing([0, 10], [1, 0], 0.25) == 7.5
        assert metrics.crossing([3, 10], [1, 0], 2) == 3
        assert metrics.crossing([0, 10], [1, 0.5], 0.25) == math.inf
        assert metrics.crossing([0, 10], [0, 1], 0.25, below=False) == 2.5
        assert metrics.crossing([0, 10, 20], [1, NAN, 0.1], 0.25) == 20
        assert metrics.crossing([0, 10], [math.inf, 0.1], 0.25) == 10
        assert metrics.crossing([], [], 0.25) == math.inf

    @given(st.lists(st.floats(-10, 10), min_size=1, max_size=20), st.floats(-10, 10))
    def test_crossing_lies_between_the_evaluations_around_it(self, values, target):
        found = metrics.crossing(range(len(values)), values, target)
        hits = [i for i, value in enumerate(values) if value <= target]
        assert found == math.inf if not hits else max(hits[0] - 1, 0) <= found <= hits[0]

    def test_time_to_keeps_runs_apart(self):
        times = metrics.time_to(runs_of(BSP=[0.0, 0.5], SSP=[NAN, 0.25]), "loss", 0.5)
        assert times.index.names == ["method", "seed"]
        assert times.index.to_list() == [("BSP", 0), ("BSP", 1), ("SSP", 0), ("SSP", 1)]
        np.testing.assert_allclose(times, [5, 10, math.inf, 20 / 3])

    def test_time_to_wants_runs(self):
        with pytest.raises(ValueError, match=r"^metric: expected"):
            metrics.time_to(runs_of(BSP=[0]), "accuracy", 0.5)
        with pytest.raises(ValueError, match="runs"):
            metrics.time_to(runs_of(BSP=[0]).drop(columns=["method", "seed"]), "loss", 0.5)
        with pytest.raises(ValueError, match="target"):
            metrics.time_to(runs_of(BSP=[0]), "loss", NAN)

    @pytest.mark.parametrize(("updates", "apart"), [(1, None), (2, "40%")])
    def test_time_to_warns_where_other_updates_may_have_been_earlier(self, updates, apart):
        times = [0.0, 3.0, 5.0, 7.0]
        rows = {"update": np.arange(4) * updates, "time": times, "loss": [1.0, 0.75, 0.25, 0.0]}
        runs = pd.DataFrame({"method": "BSP", "seed": 0} | rows)
        assert metrics.time_to(runs, "loss", 1.0).item() == 0
        assert metrics.time_to(runs, "loss", -1.0).item() == math.inf
        with pytest.warns(UserWarning, match=f"up to {apart}") if apart else contextlib.nullcontext():
            assert metrics.time_to(runs, "loss", 0.25).item() == 5
        late = runs.assign(time=runs["time"] + 100)
        assert metrics.time_to(late, "loss", 0.25).item() == 105
        with pytest.warns(UserWarning, match="up to 50%") if apart else contextlib.nullcontext():
            assert metrics.time_to(runs, "loss", 0.5).item() == 4

    def test_speedup_pairs_seeds(self):
        index = pd.MultiIndex.from_product([["BSP", "SSP"], range(4)], names=["method", "seed"])
        times = pd.Series([8.0, 9.0, math.inf, math.inf, 2.0, math.inf, 3.0, math.inf], index)
        found = metrics.speedup(times.sample(frac=1, random_state=0), "BSP").sort_index()
        np.testing.assert_array_equal(found["SSP"], [4.0, 0.0, math.inf, NAN])
        np.testing.assert_array_equal(found["BSP"], [1.0, 1.0, NAN, NAN])
        assert metrics.speedup(times.xs(0, level="seed"), "BSP").to_dict() == {"BSP": 1.0, "SSP": 4.0}
        with pytest.raises(ValueError, match="baseline"):
            metrics.speedup(times, "ASP")
        with pytest.raises(ValueError, match="times"):
            metrics.speedup(pd.concat([times, times]), "BSP")

    def test_best_learning_rate(self):
        grid = {0.1: runs_of(BSP=[0.4, 0.4], SSP=[0.0, 0.0], ASP=[0.9, 0.9], DSSP=[0.7, 0.7])}
        grid[0.2] = runs_of(BSP=[0.0, 0.0], SSP=[0.0, 0.0], ASP=[0.8, 0.7], DSSP=[NAN, NAN])
        runs = pd.concat([frame.assign(learning_rate=rate) for rate, frame in grid.items()])
        best = metrics.best_learning_rate(runs, "loss", 0.5)
        # The faster; on a tie the smaller; the lower last loss where none gets there; never a diverged one.
        assert best.to_dict() == {"BSP": 0.2, "SSP": 0.1, "ASP": 0.2, "DSSP": 0.1}
        kept = metrics.fair(runs, "loss", 0.5)
        assert len(kept) == len(runs) / 2
        assert kept.groupby("method")["learning_rate"].unique().map(list).to_dict() == {
            name: [rate] for name, rate in best.items()
        }
        assert metrics.speedup(metrics.time_to(kept, "loss", 0.5), "SSP")["BSP"].to_list() == [1.0, 1.0]
        with pytest.raises(ValueError, match="learning_rate"):
            metrics.fair(grid[0.1], "loss", 0.5)
