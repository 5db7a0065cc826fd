"""recommend: a study of the library on a given or recorded cluster, and the reason."""

import importlib
import math
import re

import matplotlib.pyplot as plt
import numpy as np
import optax
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dmlcore as dml
from dmlcore.experiments import comparison
from dmlcore.experiments.recommendation import clusters, library, reasons
from dmlcore.experiments.study import goal as asking
from dmlcore.experiments.study import search
from dmlcore.experiments.study.goal import Goal
from dmlcore.experiments.study.space import Candidate, Trial
from dmlcore.experiments.study.spending import Spending

STUDY = importlib.import_module("dmlcore.experiments.study.study")  # the function has its name
PROBLEM = dml.problems.linear_regression(num_samples=64, num_features=3)
TARGET = {"loss": 30.0}
SLOW = dml.Cluster.from_speeds([1000, 1000, 250], latency=0.001)  # a worker that BSP waits for
OPTIONS = {"budget": 1e6, "trials": 6, "progress": False, "seeds": range(8), "batch_size": 8}
DIGITS = dml.problems.digits_mlp()
SCALE = library.Scale(8, 32, 0.032, 0.8, 0.1, optax.sgd)


def asked(**options):
    given = {"cluster": SLOW, "target": TARGET, "methods": ["BSP", "ASP"]} | OPTIONS | options
    return dml.recommend(PROBLEM, given.pop("cluster"), given.pop("target"), **given)


@pytest.fixture(scope="module")
def found():
    return asked()


def interrupting(monkeypatch, when):
    """Ctrl-C at the first runs of which that is so, when all of them are finished. Returns how often."""
    original, pressed = comparison._in_threads, []

    def in_threads(function, items, finished):
        original(function, items, finished)
        each = [item for group in items for item in group]  # those of a group share a timeline
        if not pressed and when(each, {spec.seed for spec, _ in each}):
            pressed.append(1)
            raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "_in_threads", in_threads)
    return pressed


class TestLibrary:
    @pytest.mark.parametrize("workers", [1, 2, 5, 32])
    def test_every_setting_makes_a_method_that_runs(self, workers):
        made = library.library(SCALE._replace(workers=workers))
        aim = Goal(PROBLEM, dml.Cluster.uniform(workers), "loss", 30.0, 32)
        for name, space in made.items():
            it = Candidate(name, space, optax.sgd, aim.check)
            assert it.settings, name
            aim.check(it.method(Trial(name, it.settings[0], 0.1)))

    @pytest.mark.parametrize(
        ("methods", "message"),
        [
            (["BSP", "XSP"], "methods: expected one of 'BSP'.*, got 'XSP'"),
            ("BSP", "methods: expected .*, got 'BSP'"),
            (7, "methods: expected .*, got 7"),
            ({}, "methods: expected .*, got {}"),
            ({"SSP": {"slack": [1]}}, r"methods\['SSP'\]: expected one of 'staleness'.*, got 'slack'"),
            ({"SSP": {"staleness": 3}}, r"methods\['SSP'\], staleness: expected .*, got 3"),
            ({"BSP": {"k": [3]}}, r"methods\['BSP'\]: expected .*no knobs"),
            ({"mine": {"k": [3]}}, "methods: expected .*, got 'mine'"),
            ({"mine": dml.ssp}, r"methods\['mine'\]: expected .*; try calling it: ssp"),
            ({"mine": 3}, r"methods\['mine'\]: expected .*, got 3"),
            ({3: dml.bsp()}, "methods: expected .*, got 3"),
            ({"K-sync": {"k": [99]}}, r"methods\['K-sync'\], .*k"),
        ],
    )
    def test_what_is_no_method_is_refused(self, methods, message):
        with pytest.raises(ValueError, match=message):
            asked(methods=methods)

    def test_methods_for_plain_sgd_are_tried_with_it_alone(self):
        told = {"DBW", "adaptive load"}
        assert told <= {*library.library(SCALE)}
        assert not told & {*library.library(SCALE._replace(optimizer=optax.adam))}

    def test_on_a_real_engine_no_worker_takes_a_step_of_its_own(self):
        for own in (True, False):
            method = library.library(SCALE._replace(own_steps=own))["H-PS"].make(bits=8)
            assert method.transport.own_steps == own

    def test_ones_own_methods_stand_beside_those_of_the_library(self):
        mine = {
            "mine": dml.asp(),
            "told": lambda rate: dml.dbw(rate),
            "SSP": {"staleness": [0]},
            "whole": dml.Method(dml.bsp(), optimizer=optax.sgd(1)),
            "space": dml.space(dml.ssp, staleness=[1]),
        }
        made = library.chosen(mine, SCALE)
        assert [space.knobs for space in made.values()] == [
            {},
            {},
            {"staleness": (0,)},
            {},
            {"staleness": (1,)},
        ]
        assert "0.25" in made["told"].make(learning_rate=0.25).name
        assert made["SSP"].make(staleness=0).name == dml.ssp(0).name


class TestClusters:
    def recorded(self, tasks=200, **options):
        cluster = dml.Cluster.from_speeds([1000, 500], jitter="gamma(16)", **options)
        return dml.simulate(dml.asp(), cluster, updates=tasks, parameter_bytes=400)

    def durations(self, **options):
        tasks = self.recorded(**options).tasks.sort_values(["worker", "clock"])
        seconds = tasks["compute_end"] - tasks["compute_start"]
        return pd.DataFrame({"worker": tasks["worker"], "samples": tasks["batch_size"], "seconds": seconds})

    def test_a_cluster_is_taken_as_it_is(self):
        assert clusters.as_cluster(SLOW) == (SLOW, [], None, False)

    @pytest.mark.parametrize("kind", ["trace", "durations", "trace file", "csv", "parquet", "tasks"])
    def test_a_record_is_calibrated(self, kind, tmp_path):
        trace, frame = self.recorded(latency=0.002), self.durations(latency=0.002)
        trace.save(tmp_path / "trace.parquet")
        frame.to_csv(tmp_path / "tasks.csv")
        frame.to_parquet(tmp_path / "tasks.parquet")
        given = {
            "trace": trace,
            "durations": frame,
            "trace file": tmp_path / "trace.parquet",
            "csv": str(tmp_path / "tasks.csv"),
            "parquet": tmp_path / "tasks.parquet",
            "tasks": trace.tasks,
        }[kind]
        cluster, untold, size, _ = clusters.as_cluster(given)
        np.testing.assert_allclose(cluster.samples_per_second, [1000, 500], rtol=0.06)
        seen = kind in ("trace", "trace file", "tasks")
        assert any(cluster.latency_seconds) == seen
        assert any("links and server are modelled as taking no time" in each for each in untold) != seen
        assert any("All tasks have 32 samples" in each for each in untold)
        assert size == 32

    def test_tasks_without_samples_count_as_those_that_are_asked_for(self):
        log = self.durations().drop(columns="samples")
        for size, expected, said in ((None, 32, True), (8, 8, False)):
            cluster, untold, found, _ = clusters.as_cluster(log, size)
            assert found == expected
            assert cluster.samples_per_second[0] == pytest.approx(1000 * expected / 32, rel=0.06)
            assert any("does not say how many samples" in each for each in untold) == said

    def test_what_was_assumed_and_doubted_is_told(self):
        own = self.durations().assign(host=lambda frame: "node" + frame["worker"].astype(str))
        log = dml.read_tasks(own.assign(seconds=1e7 * own["seconds"]).drop(columns="worker"))
        untold = clusters.as_cluster(log).untold
        assert {*log.notes} <= {*untold}
        assert any("`host` names the worker" in each for each in untold)
        assert any("unusual; say the unit" in each for each in untold)

    def test_links_are_those_of_the_user(self):
        fitted = clusters.as_cluster(self.durations())
        links = {"bandwidth": "25Gb/s", "server_bandwidth": 1.25e10, "latency": "50us"}
        cluster, untold, *_ = clusters.with_links(fitted, links)
        assert cluster.bandwidth_bytes_per_second == (3.125e9,) * 2
        assert cluster.latency_seconds == pytest.approx((5e-5,) * 2)
        assert cluster.server.bandwidth_bytes_per_second == 1.25e10
        assert any("Links are as told: bandwidth 3.125e+09 bytes/s" in each for each in untold)
        assert not any("no time" in each for each in untold)
        assert clusters.with_links(fitted, "25Gb/s")[0].bandwidth_bytes_per_second == (3.125e9,) * 2
        assert clusters.with_links(fitted, None) is fitted
        for wrong in ({"bandwidth": "25"[:0]}, {"latency": "5 apples"}, {"speed": 1}, "fast"):
            with pytest.raises(ValueError, match="links"):
                clusters.with_links(fitted, wrong)

    def test_a_short_record_says_how_long_it_should_be(self):
        with pytest.raises(
            ValueError, match=r"at least 20 tasks.*finished \d+ tasks; try a record of about [\d.]+ s"
        ):
            clusters.as_cluster(self.recorded(tasks=12))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda frame: 7, "cluster: expected a DataFrame, or the path of a log .*, got 7"),
            (lambda frame: frame.drop(columns="worker"), "worker"),
            (
                lambda frame: frame.rename(columns={"seconds": "s"}),
                r"columns that include seconds .*or start and end",
            ),
            (lambda frame: frame.assign(seconds=-1.0), "column seconds: expected .*, got -1.0"),
            (lambda frame: frame.assign(seconds="fast"), "column seconds: expected .*, got 'fast'"),
            (lambda frame: frame.iloc[:0], "without rows"),
            (lambda frame: frame.assign(samples=-1), "cluster, row 0, column samples: expected .*, got -1"),
        ],
    )
    def test_what_is_no_record_is_refused(self, change, message):
        with pytest.raises(ValueError, match=message):
            clusters.as_cluster(change(self.durations()))

    def test_a_damaged_trace_is_no_table(self, tmp_path):
        path = tmp_path / "trace.parquet"
        self.recorded().save(path)
        table = pq.read_table(path)
        changed = table.set_column(table.column_names.index("weight"), "weight", [table["clock"]])
        pq.write_table(changed.replace_schema_metadata(table.schema.metadata), path)
        with pytest.raises(ValueError, match=r"damaged|weight|digest|changed"):
            clusters.as_cluster(path)


class TestAxes:
    def aim(self, cluster):
        return Goal(DIGITS, cluster, "loss", 0.1, 32)

    @given(st.floats(0.01, 50), st.sampled_from([0.0, 0.003]), st.sampled_from([math.inf, 1e6]))
    def test_links_are_scaled_to_the_ratio(self, ratio, latency, bandwidth):
        aim = self.aim(dml.Cluster.from_speeds([1000, 300], latency=latency, bandwidth=bandwidth))
        assert clusters.along(aim, {"c": ratio}).regime(aim.problem).communication_ratio == pytest.approx(
            ratio
        )

    @given(st.floats(0.05, 3.5), st.integers(4, 9))
    def test_workers_and_the_servers_load(self, load, workers):
        aim = self.aim(dml.Cluster.from_speeds([1000, 300], latency=0.01))
        cluster = clusters.along(aim, {"rho": load, "workers": workers})
        assert cluster.num_workers == workers
        assert cluster.regime(aim.problem).server_load == pytest.approx(load)

    @given(st.floats(0.3, 20), st.floats(0.5, 3), st.floats(1, 8), st.integers(4, 9), st.booleans())
    def test_no_axis_undoes_another(self, ratio, load, slowdown, workers, link):
        cluster = dml.Cluster.from_speeds([1000, 300], latency=0.01)
        aim = self.aim(cluster.with_server(bandwidth=1e8, shards=2) if link else cluster)
        changed = clusters.along(aim, {"rho": load, "c": ratio, "workers": workers, "slowdown": slowdown})
        assert changed.regime(aim.problem) == pytest.approx((ratio, load))
        assert changed.num_workers == workers
        assert [each.slowdown for each in changed.stragglers] == [slowdown] * (slowdown > 1)
        assert not link or (changed.server.bandwidth_bytes_per_second, changed.server.shards) == (1e8, 2)

    def test_slow_episodes(self):
        aim = self.aim(dml.presets.unstable(4))
        assert clusters.along(aim, {"slowdown": 1}).stragglers == ()
        assert clusters.along(aim, {"slowdown": 3}).stragglers[0].slowdown == 3
        assert clusters.along(aim, {"c": 0}).latency_seconds == (0.0,) * 4

    def test_a_ratio_below_that_of_the_servers_link_is_refused(self):
        aim = self.aim(dml.Cluster.uniform(4).with_server(bandwidth=1e6))
        with pytest.raises(
            ValueError, match=r"c: expected a number >= [\d.]+ .from the server's link.*, got 0.001"
        ):
            clusters.along(aim, {"c": 0.001})


class TestAnswer:
    def test_who_waits_for_a_slow_worker_is_not_recommended(self, found):
        assert [*found.table.index] == ["ASP", "BSP"]
        assert found.table["outcome"].tolist() == ["best", "slower"]

    def test_methods_that_are_not_told_apart_run_on_further_seeds_while_the_budget_lasts(self, monkeypatch):
        near = {"one": dml.asp(), "other": dml.k_async(2), "BSP": dml.bsp()}
        same = {"methods": near, "trials": 3, "seeds": range(16)}
        found = asked(**same)
        ran = found.answer.seconds.notna().sum(axis=1)
        assert ran["BSP"] == 8
        assert ran["one"] == ran["other"] > 8
        outcomes = found.table["outcome"].to_dict()
        assert outcomes["BSP"] in ("slower", "not reached")  # runs last up to four times the best one
        assert f"on up to {ran['one']} seeds" in found._repr_html_()
        monkeypatch.setattr(Spending, "left", lambda self: 0.0)
        assert asked(**same).answer.seconds.shape == (3, 8)

    def test_a_budget_that_ends_before_the_leading_are_tuned_is_told(self, monkeypatch):
        assert STUDY.CUT not in asked(trials=3).notes
        monkeypatch.setattr(Spending, "left", lambda self: 0.0)
        assert STUDY.CUT in asked(trials=3).notes

    def test_the_picture_says_who_missed_seeds_not_who_did_not_run(self, found):
        ax = found.plot()
        ran, reached = found.answer.seconds.notna().sum(axis=1), np.isfinite(found.answer.seconds).sum(axis=1)
        assert [text.get_text() for text in ax.texts] == [
            f"{reached[name]} of {ran[name]} seeds" for name in found.table.index if reached[name] < ran[name]
        ]
        plt.close("all")

    def test_an_interrupt_at_further_seeds_leaves_the_others(self, monkeypatch):
        pressed = interrupting(monkeypatch, lambda items, seeds: seeds == {*range(8, 16)})
        near = {"one": dml.asp(), "other": dml.k_async(2)}
        with pytest.warns(UserWarning, match="more seeds could tell more methods apart"):
            found = asked(methods=near, trials=3, seeds=range(128))
        assert pressed == [1]
        assert [*found.answer.seconds.columns] == [*range(8)]
        assert found.interrupted
        assert "Interrupted: " in found._repr_html_()

    def test_messages_are_as_large_as_those_of_the_users_model(self):
        """Transfers of 1 GB take 40 s at 25 MB/s, which no task of milliseconds hides."""
        few = {"trials": 3, "seeds": [0]}
        found = asked(parameter_bytes="1GB", links="200Mb/s", **few)
        assert found.answer.goal.problem.parameter_bytes == 10**9
        trace = found.answer.goal.timeline(dml.Method(dml.bsp()), updates=2)
        assert trace.metadata["transfer_bytes"] == [10**9, 10**9]
        assert trace.updates["time"].diff().iloc[1] == pytest.approx(80, rel=0.01)
        assert found.table["seconds"].min() > 80
        plain = asked(**few)
        assert found.table["samples"].min() > 0
        assert plain.table["seconds"].min() < 10
        with pytest.raises(ValueError, match=r"parameter_bytes: expected .*, got .large."):
            asked(parameter_bytes="large")

    def test_tasks_are_as_large_as_those_of_the_record(self):
        record = dml.simulate(dml.asp(), SLOW, updates=200, batch_size=8)
        few = {"methods": ["ASP"], "trials": 3, "seeds": [0]}
        for cluster, size, expected in ((record, None, 8), (record, 16, 16), (SLOW, None, 32)):
            assert asked(cluster=cluster, batch_size=size, **few).answer.goal.batch_size == expected

    def test_the_best_is_ready_to_train(self, found):
        options = {
            "seconds": 4 * found.table["seconds"].iloc[0],
            "until": TARGET,
            "batch_size": 8,
            "eval_every": 1,
        }
        run = dml.train(PROBLEM, SLOW, found.best, None, seed=0, **options)
        assert dml.metrics.crossing(run.history["time"], run.history["loss"], 30.0) == pytest.approx(
            found.answer.seconds.loc["ASP", 0], rel=0.1
        )

    def test_the_reason_adds_up(self, found):
        """Times are samples over rates: the two factors of the sentence give the ratio of the times."""
        pattern = r"takes ([\d.]+) times as long: .* ([\d.]+) times as many samples, at ([\d.]+) times the"
        longer, samples, rate = map(float, re.search(pattern, found.why).groups())
        medians = found.table["seconds"]
        assert longer == pytest.approx(found.versus("BSP", "ASP").median, abs=0.01)
        cost = found.answer.measured["samples"].unstack("seed")
        assert samples == pytest.approx(reasons.ratios(cost, "BSP", "ASP").median(), abs=0.01)
        traces = [dml.simulate(each, SLOW, seconds=20, batch_size=8) for each in (dml.bsp(), dml.asp())]
        one, other = (trace.tasks["batch_size"].sum() for trace in traces)
        assert rate == pytest.approx(one / other, rel=0.1)  # counted apart from the times to the target
        share = int(re.search(r"BSP takes .* wait for others (\d+)%", found.why)[1])
        trace = dml.simulate(
            dml.bsp(), SLOW, seconds=medians["ASP"], batch_size=8, parameter_bytes=PROBLEM.parameter_bytes
        )
        assert share == pytest.approx(100 * dml.metrics.time_breakdown(trace)["wait_share"].mean(), abs=1)

    def test_the_same_call_gives_the_same_answer_and_goes_on_from_its_folder(self, tmp_path):
        few = {"trials": 3, "seeds": range(2)}
        found, first = asked(**few), asked(save=tmp_path, **few)
        runs = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")}
        second = asked(save=tmp_path, **few)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")} == runs
        for other in (first, second):
            pd.testing.assert_frame_equal(other.table, found.table)

    def test_it_goes_on_with_the_same_trials_however_fast_the_machine_is_now(self, monkeypatch, tmp_path):
        """The first call can afford 6 trials, and is interrupted when it judges; the second one 3."""
        widths = iter([6, 3])
        monkeypatch.setattr(search, "affordable", lambda *given: next(widths))
        pressed = interrupting(monkeypatch, lambda items, seeds: seeds == {*range(8)})
        with pytest.warns(UserWarning, match="Interrupted"):
            asked(save=tmp_path, trials=None)
        monkeypatch.undo()
        runs = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")}
        second = asked(save=tmp_path, trials=None)
        assert runs.items() <= {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")}.items()
        assert second.table["runs"].min() >= search.runs_of(6)
        assert pressed == [1]

    @pytest.mark.parametrize(
        ("when", "seeds"),
        [
            (
                lambda items, seeds: len({spec.policy.name for spec, _ in items}) == 2,
                {1000},
            ),  # the first rung
            pytest.param(lambda items, seeds: 1001 in seeds, {1000}, marks=pytest.mark.full),  # the second
            pytest.param(  # the rungs of the leading
                lambda items, seeds: 1002 in seeds, {1000, 1001}, marks=pytest.mark.full
            ),
            (lambda items, seeds: seeds == {*range(8)}, {1000, 1001}),  # when methods are judged
        ],
    )
    def test_an_interrupt_leaves_what_is_known(self, monkeypatch, when, seeds):
        assert interrupting(monkeypatch, when) == []
        with pytest.warns(UserWarning, match="Interrupted"):
            found = asked()
        assert found.runs.empty
        assert {*found.answer.seconds.columns} == seeds
        assert found.notes[0].startswith("Interrupted")
        assert found.best.optimizer is not None

    def test_an_interrupt_before_anything_is_known_is_one(self, monkeypatch):
        pressed = interrupting(monkeypatch, lambda items, seeds: True)
        with pytest.raises(KeyboardInterrupt):
            asked()
        assert pressed == [1]

    def test_a_target_that_its_methods_do_not_reach_says_how_far_they_came(self):
        never = {"never": dml.Method(dml.asp(weight=1e-9)), "hardly": dml.Method(dml.asp(weight=1e-8))}
        with pytest.raises(
            ValueError, match=r"target: expected .*(never|hardly) came to \d+.*, got {'loss': 30.0}"
        ):
            asked(methods=never)

    def test_an_interrupt_before_any_tuning_run_is_one(self, monkeypatch):
        def pressed(*given, **options):
            raise KeyboardInterrupt

        monkeypatch.setattr(asking, "compare", pressed)
        with pytest.raises(KeyboardInterrupt):
            asked(trials=3)

    def test_a_method_without_an_update_in_its_time_is_not_reached_and_not_warned_of(self):
        """Warnings are errors here: none comes from rounds that are longer than any run."""
        slow = dml.Method(dml.bsp(), local=dml.local_steps(2000, optax.sgd(0.01)))
        found = asked(methods={"ASP": dml.asp(), "slow": slow}, trials=3, seeds=[0])
        assert found.table["outcome"]["slow"] == "not reached"
        assert any(note.startswith("No setting tried of slow reaches the target") for note in found.notes)

    def test_a_run_that_has_diverged_is_the_worst(self):
        runs = pd.DataFrame(
            {
                "method": "x",
                "seed": [0, 0, 0, 1, 1],
                "loss": [100, 40, math.nan, 100, 90],
                "time": [0, 1, 2, 0, 1],
            }
        ).assign(assigned_samples=1, bytes=1)
        measured = Goal(PROBLEM, SLOW, "loss", 30.0, 8).measured(runs)
        assert measured["last"].tolist() == [math.inf, 90]

    def test_a_target_that_nothing_reaches_says_what_was_reached(self):
        with pytest.raises(ValueError, match=r"target: expected .*came to [\d.]+.*, got {'loss': 0.0}"):
            asked(target={"loss": 0.0}, budget=1.0)

    def test_a_target_of_the_start_says_where_that_is(self):
        with pytest.raises(
            ValueError, match=r"target: expected .*initial parameters .*, got {'loss': 1e\+30}"
        ):
            asked(target={"loss": 1e30})

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"target": {"lss": 1}}, "target: expected .*, got 'lss'"),
            ({"target": {}}, "target: expected .*, got {}"),
            ({"target": {"loss": 1, "other": 2}}, "target: expected"),
            ({"target": 0.1}, "target: expected .*, got 0.1"),
            ({"target": {"loss": "low"}}, r"target\['loss'\]: expected .*, got 'low'"),
            ({"budget": 0}, "budget: expected .*, got 0"),
            ({"trials": 2}, "trials: expected .*, got 2"),
            ({"seeds": []}, "seeds: expected"),
            ({"seeds": [1, 1]}, "seeds: expected"),
            ({"batch_size": 0}, "batch_size: expected .*, got 0"),
            ({"progress": "yes"}, "progress: expected .*, got 'yes'"),
            ({"optimizer": 3}, "optimizer: expected .*, got 3"),
        ],
    )
    def test_wrong_arguments(self, options, message):
        with pytest.raises(ValueError, match=message):
            asked(**options)

    def test_problems_without_gradients_are_refused(self):
        with pytest.raises(ValueError, match=r"problem: expected .*gradients"):
            dml.recommend(dml.problems.lasso(), SLOW, {"loss": 1.0})


class TestWhatIf:
    def test_another_cluster_is_answered_from_the_same_methods(self, found):
        even = dml.Cluster.uniform(3, latency=0.001)
        other = found.with_cluster(even)
        assert other.answer.methods == found.answer.methods
        assert other.cluster == even
        assert other.table[["setting", "learning_rate"]].equals(
            found.table.loc[other.table.index, ["setting", "learning_rate"]]
        )
        assert other.table["seconds"]["BSP"] < found.table["seconds"]["BSP"] / 3
        assert "tuned for another cluster" in other.notes[-1]

    def test_what_was_said_and_asked_stays(self):
        record = dml.simulate(dml.asp(), SLOW, updates=200, batch_size=8)
        once = asked(cluster=record, trials=3, seeds=range(2)).with_cluster(dml.Cluster.uniform(3))
        twice = once.with_cluster(once.cluster)
        assert {*once.notes} == {*twice.notes}
        assert any("tuned for another cluster" in note for note in twice.notes)
        assert any("All tasks have 8 samples" in note for note in twice.notes)
        assert once.over(workers=[3], budget=1e6)["tuned"].all()

    def test_seeds_that_tuned_do_not_judge(self, found):
        with pytest.raises(ValueError, match=r"seeds: expected seeds that did not tune.*, got \[1000\]"):
            found.with_cluster(SLOW, seeds=[1000])
        assert [*found.with_cluster(SLOW, seeds=[77, 78]).answer.seconds.columns] == [77, 78]

    def test_an_interrupt_is_one(self, monkeypatch, found):
        interrupting(monkeypatch, lambda items, seeds: True)
        with pytest.raises(KeyboardInterrupt):
            found.over(workers=[4])

    def test_the_cell_of_the_own_cluster_has_the_answer_of_the_table(self, found):
        assert found.with_cluster(found.cluster) is found
        cells = found.over(workers=[3, 4], progress=False)
        assert cells[["method", "seconds"]].iloc[0].tolist() == [
            found.table.index[0],
            found.table["seconds"].iloc[0],
        ]

    def test_an_interrupted_map_has_the_cells_that_are_finished(self, monkeypatch, found):
        calls, original = [], dml.Recommendation.with_cluster

        def with_cluster(self, cluster):
            calls.append(cluster)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return original(self, cluster)

        monkeypatch.setattr(dml.Recommendation, "with_cluster", with_cluster)
        with pytest.warns(UserWarning, match="1 of 3 cells"):
            assert found.over(workers=[2, 3, 4], progress=False)["workers"].tolist() == [2]

    def test_a_cell_in_which_nothing_arrives_loses_no_other(self, monkeypatch, found):
        monkeypatch.setattr(search, "LENGTHS", 1)
        monkeypatch.setattr(search, "FIRST_ROUNDS", 1)
        with pytest.warns(
            UserWarning, match=r"'workers': 4.*: target: expected a target that a method reaches"
        ):
            cells = found.over(workers=[3, 4], progress=False)
        assert cells["method"].tolist() == [found.table.index[0], "none"]
        cells["c"] = 1.0
        assert "not reached" in [text.get_text() for text in dml.plot.regimes(cells, "workers", "c").texts]
        plt.close("all")

    def test_methods_that_cannot_run_there_are_left_out(self):
        few = {"trials": 3, "seeds": range(2)}
        other = asked(methods={"BSP": {}, "K-sync": {"k": [3]}}, **few).with_cluster(SLOW.resized(2))
        assert [*other.table.index] == ["BSP"]
        assert any("K-sync is left out" in note for note in other.notes)

    def test_a_map_names_the_best_of_each_cell(self, found):
        frame = found.over(workers=[2, 4], c=[0.5])
        assert frame[["workers", "c"]].values.tolist() == [[2, 0.5], [4, 0.5]]
        for row in frame.to_dict("records"):
            aim = Goal(PROBLEM, SLOW, "loss", 30.0, 8)
            cell = found.with_cluster(clusters.along(aim, {"workers": row["workers"], "c": row["c"]}))
            assert row["method"] == cell.table.index[0]
            assert row["uncertain"] == bool(reasons.alike_of(cell.table)) == bool(row["others"])

    @pytest.mark.full  # test_what_was_said_and_asked_stays tunes a cell anew
    def test_a_map_can_be_tuned_anew(self, found):
        frame = found.over(slowdown=[1], budget=1e6)
        again = asked(cluster=clusters.along(Goal(PROBLEM, SLOW, "loss", 30.0, 8), {"slowdown": 1}))
        assert frame["seconds"].tolist() == [again.table["seconds"].iloc[0]]

    @pytest.mark.parametrize(
        "given",
        [{}, {"speed": [1]}, {"c": 1}, {"c": [-1]}, {"workers": [0]}, {"c": [1], "rho": [1], "workers": [1]}],
    )
    def test_wrong_axes(self, found, given):
        with pytest.raises(ValueError, match=r"axis|axes|c: expected|workers: expected"):
            found.over(**given)


class TestShown:
    def test_a_point_for_each_seed_and_a_line_at_each_median(self, found):
        ax = found.plot()
        assert [text.get_text() for text in ax.get_yticklabels()] == [*found.table.index]
        for dots, name in zip(ax.collections[::2], found.table.index, strict=True):
            assert sorted(dots.get_offsets()[:, 0]) == sorted(found.answer.seconds.loc[name])
        assert "ASP is first" in ax.get_title(loc="left")
        plt.close(ax.figure)

    def test_uncertain_cells_are_hatched(self):
        frame = pd.DataFrame(
            {
                "workers": [4, 8],
                "c": [1.0, 1.0],
                "method": ["BSP", "ASP"],
                "seconds": 1.0,
                "uncertain": [False, True],
                "tuned": True,
            }
        )
        ax = dml.plot.regimes(frame, "workers", "c")
        assert [patch.get_hatch() for patch in ax.patches] == [None, "//"]
        assert "1 of 2" in ax.get_title(loc="left")
        with pytest.raises(ValueError, match="one row for each pair"):
            dml.plot.regimes(pd.concat([frame, frame]), "workers", "c")
        with pytest.raises(ValueError, match="rho"):
            dml.plot.regimes(frame, "workers", "rho")
        plt.close(ax.figure)

    def test_the_display_has_table_reason_and_picture(self, found):
        shown = found._repr_html_()
        assert found.why.split(".")[0] in shown
        assert "data:image" in shown
        for name in found.table.index:
            assert f"<th>{name}</th>" in shown
        assert "ASP" in repr(found)
