"""recommend: as many runs for all methods, then more for the leading; judged on seeds that chose nothing."""

import importlib
import math
import re
import zlib

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
from dmlcore.experiments.recommendation import (
    axes,
    clusters,
    leading,
    library,
    ranking,
    runner,
    search,
    trials,
)
from dmlcore.experiments.recommendation.progress import SearchLog, SearchProgress
from dmlcore.experiments.recommendation.question import Outcome, Question

CALL = importlib.import_module("dmlcore.experiments.recommendation.recommend")  # the function has its name
PROBLEM = dml.problems.linear_regression(num_samples=64, num_features=3)
TARGET = {"loss": 30.0}
SLOW = dml.Cluster.from_speeds([1000, 1000, 250], latency=0.001)  # a worker that BSP waits for
OPTIONS = {"budget": 1e6, "trials": 6, "progress": False, "seeds": range(5), "batch_size": 8}
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
        if not pressed and when(items, {spec.seed for spec, _ in items}):
            pressed.append(1)
            raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "_in_threads", in_threads)
    return pressed


FAMILIES = {
    name: library.Family(dml.asp, 1.0, [{"knob": i} for i in range(knobs)], optax.sgd)
    for name, knobs in (("none", 1), ("few", 2), ("many", 9))
}


class TestHalving:
    def run(self, first, best=1.3, calls=None, stop=math.inf):
        """Halving where a run takes 1 + the distance of its rate from the best, and a little for its seed."""

        def measure(pairs, limit):
            if calls is not None:
                calls.append((pairs, limit))
            whole = pairs if len(calls or ()) < stop else pairs[: len(pairs) // 2]
            far = {pair: abs(math.log(pair[0].rate / best)) + 0.2 * pair[0].setting for pair in whole}
            return {
                pair: Outcome((1 + far[pair]) * (1 + 0.01 * (pair[1] % 3)), far[pair], 1.0, 1.0)
                for pair in whole
            }

        return trials.halve(FAMILIES, first, range(5000, 6000), 8.0, measure, lambda runs: True)

    @pytest.mark.parametrize("first", [3, 6, 12, 24])
    def test_every_method_has_equally_many_runs_in_every_rung(self, first):
        calls = []
        self.run(first, calls=calls)
        for pairs, _ in calls:
            counts = pd.Series([trial.method for trial, _ in pairs]).value_counts()
            assert counts.nunique() == 1
            assert {*counts.index} == {*FAMILIES}
            assert len({*pairs}) == len(pairs)
        assert sum(len(pairs) for pairs, _ in calls) == trials.runs_of(first) * len(FAMILIES)

    def test_a_rung_has_half_of_the_trials_on_twice_the_seeds(self):
        found = self.run(24)
        for name in FAMILIES:
            seeds = pd.Series([len(found.outcomes[trial]) for trial in found.of(name)]).value_counts()
            assert {*seeds.index} <= {1, 2, 4, 8}
            assert seeds[8] == trials.FEWEST
            for outcomes in map(found.outcomes.get, found.of(name)):
                assert [*outcomes] == [*range(5000, 5000 + len(outcomes))]  # common random numbers

    @pytest.mark.parametrize("best", [0.02, 1.3, 40.0])  # far beyond the first range, too
    def test_the_best_rate_is_found(self, best):
        found = self.run(48, best)
        for name in FAMILIES:
            trial = found.best(name)
            assert trial.setting == 0
            assert 1 / 1.5 < trial.rate / best < 1.5

    def test_no_run_is_longer_than_four_times_the_best(self):
        calls = []
        self.run(24, calls=calls)
        limits = [limit for _, limit in calls]
        assert limits == sorted(limits, reverse=True)
        assert limits[-1] < 4 * 1.2

    def test_a_rung_that_is_interrupted_changes_nothing(self):
        calls, whole = [], self.run(6)
        found = self.run(12, calls=calls, stop=2)
        assert len(calls) == 2
        assert {len(each) for each in found.outcomes.values()} == {1}
        assert {len(each) for each in whole.outcomes.values()} == {1, 2}

    @given(st.integers(1, 12), st.integers(3, 60))
    def test_the_first_rung_has_so_many_different_trials(self, knobs, first):
        family = library.Family(dml.asp, 0.5, [{"knob": i} for i in range(knobs)], optax.sgd)
        made = trials.first_trials("x", family, first)
        assert len({*made}) == len(made) == first
        rates = np.array([trial.rate for trial in made])
        assert (rates >= 0.5 / 4 - 1e-9).all()
        assert (rates <= 0.5 * 4 + 1e-9).all()


class TestLeading:
    def measure(self, seconds, calls):
        """Runs of so many seconds in the mean, whose spread is a fifth; all of one seed share half of it."""

        def measured(pairs, limit):
            calls.append((pairs, limit))
            found = {}
            for trial, seed in pairs:
                shared = np.random.default_rng(seed).normal()
                own = np.random.default_rng([seed, zlib.crc32(repr(trial).encode())]).normal()
                took = seconds(trial) * math.exp(0.2 * (shared + own) / math.sqrt(2))
                found[trial, seed] = Outcome(took, took, 1.0, 1.0)
            return found

        return measured

    def tuned(self, seconds, affords=lambda runs: True, measure=None):
        """Returns the outcomes, the best trial of each method before, and the calls to `measure`."""
        calls = []
        usual = self.measure(seconds, calls)
        found = trials.halve(FAMILIES, 12, range(5000, 6000), 8.0, usual, lambda runs: True)
        before = {name: found.best(name) for name in FAMILIES}
        calls.clear()
        for stage in leading.improve_leading, leading.halve_leading:
            stage(found, FAMILIES, range(5000, 6000), measure or usual, affords)
        return found, before, calls

    def times(self, trial):
        """Seconds where rate 1.3 is the best, and of many settings the third; "none" is far behind."""
        far = {"none": 1.0, "few": 0.1, "many": 0.0}[trial.method]
        return 1 + abs(math.log(trial.rate / 1.3)) + 0.1 * abs(trial.setting - 2) + far

    def test_the_leading_go_on_together_on_common_seeds(self):
        found, before, calls = self.tuned(self.times)
        for pairs, _ in calls:
            assert {trial.method for trial, _ in pairs} <= {"few", "many"}
            assert len({*pairs}) == len(pairs)
        for outcomes in found.outcomes.values():
            assert [*outcomes] == [*range(5000, 5000 + len(outcomes))]
        first = len(found.outcomes[before["none"]])
        seeds = {name: [len(found.outcomes[trial]) for trial in found.of(name)] for name in ("few", "many")}
        led = sum(min(leading.MOST, sum(count >= first for count in seeds[name])) for name in seeds)
        counts = [
            sum(count == first * times for count in seeds["few"] + seeds["many"]) for times in (2, 4, 8)
        ]
        kept = [max(2, led // 2**power) for power in (1, 2, 3)]
        assert counts == [kept[0] - kept[1], kept[1] - kept[2], kept[2]]
        assert leading.MORE == 8
        limits = [limit for _, limit in calls]
        assert limits == sorted(limits, reverse=True)
        assert limits[-1] < 4 * 1.5

    @pytest.mark.parametrize("best", [0.7, 1.0, 1.4])
    def test_steps_lead_to_the_best_setting_and_rate(self, best):
        """Without noise, from two settings away; the best rate depends on the setting."""
        family = library.Family(dml.asp, 1.0, [{"knob": i} for i in (4, 6, 8, 2)], optax.sgd)

        def seconds(trial):
            knob = family.settings[trial.setting]["knob"]
            return 1 + abs(math.log(trial.rate / best / (knob / 8) ** 0.5)) + 0.1 * abs(knob - 8)

        def measure(pairs, limit):
            return {pair: Outcome(seconds(pair[0]), 1.0, 1.0, 1.0) for pair in pairs}

        found = trials.Outcomes()
        found.add(measure([(trials.Trial("x", 0, 1.0), seed) for seed in range(4)], 9.0))
        leading.improve_leading(found, {"x": family}, range(9), measure, lambda runs: True)
        reached = found.best("x")
        assert family.settings[reached.setting] == {"knob": 8}
        assert abs(math.log(reached.rate / best)) < math.log(1.25)

    @given(st.lists(st.floats(0.01, 100), min_size=1, max_size=9, unique=True), st.integers(0, 8))
    def test_new_rates_are_neither_far_nor_close(self, rates, place):
        found, best = trials.Outcomes(), rates[place % len(rates)]
        for rate in rates:
            trial = trials.Trial("none", 0, rate)
            found.add({(trial, 0): Outcome(1.0 if rate == best else 2.0, 1.0, 1.0, 1.0)})
        near = [trial.rate / best for trial in leading.nearby(found, "none", FAMILIES["none"])]
        assert len(near) <= 2
        for ratio in near:
            assert math.log(1.1) < abs(math.log(ratio)) < math.log(1.4143)
            assert all(abs(math.log(ratio * best / rate)) > math.log(1.0999) for rate in rates)

    def test_more_seeds_find_better_trials(self):
        """Over draws of the noise: than the best one after halving alone, if that one were known."""
        gain = []
        for number in range(12):
            draw = np.random.default_rng(number).uniform(size=9)

            def seconds(trial, draw=draw):
                return self.times(trial) + 0.3 * draw[trial.setting]

            found, before, _ = self.tuned(seconds)
            last = min((found.best(name) for name in FAMILIES), key=found.rank)
            gain.append(math.log(min(map(seconds, before.values())) / seconds(last)))
        assert np.mean(gain) > 0

    def test_it_ends_with_the_budget(self):
        steps = [True]
        found, before, calls = self.tuned(self.times, lambda runs: bool(steps and steps.pop()))
        assert len(calls) == 1
        assert max(map(len, found.outcomes.values())) == len(found.outcomes[before["none"]])

    def test_a_rung_that_is_interrupted_changes_nothing(self):
        found, before, _ = self.tuned(self.times, measure=lambda pairs, limit: {})
        assert {name: found.best(name) for name in FAMILIES} == before

    def test_where_nothing_reaches_the_target_nobody_leads(self):
        _, _, calls = self.tuned(lambda trial: math.inf)
        assert calls == []

    def test_limits_stay_finite_where_more_seeds_do_not_reach_the_target(self):
        limits = []

        def measure(pairs, limit):
            limits.append(limit)
            return {pair: Outcome(math.inf, 1.0, math.inf, math.inf) for pair in pairs}

        self.tuned(self.times, measure=measure)
        assert len(limits) > 1
        assert np.isfinite(limits).all()

    @given(
        st.dictionaries(
            st.sampled_from("abc"), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)
        )
    )
    def test_next_settings_differ_in_one_value_by_one_step(self, knobs):
        family = library.Family(dict, 1.0, library.settings(**knobs), None)
        for place, here in enumerate(family.settings):
            near = [family.settings[other] for other in leading.next_settings(family, place)]
            expected = []
            for knob, values in knobs.items():
                rank = sorted(values).index(here[knob])
                steps = [sorted(values)[i] for i in (rank - 1, rank + 1) if 0 <= i < len(values)]
                expected += [here | {knob: value} for value in steps]
            assert near == expected

    def test_values_of_knobs_may_be_arrays_of_one_number(self):
        family = library.Family(dict, 1.0, library.settings(k=[np.array(4), np.array(2)], b=[8, 4]), None)
        near = [family.settings[i] for i in leading.next_settings(family, 0)]
        assert near == [{"k": 2, "b": 8}, {"k": 4, "b": 4}]

    def test_a_setting_that_is_left_out_is_nobodys_neighbour(self):
        family = library.Family(dict, 1.0, [{"k": 1, "b": 4}, {"k": 2, "b": 4}, {"k": 1, "b": 8}], None)
        assert [*leading.next_settings(family, 1)] == [0]


class TestTellingApart:
    def apart(self, times, budget=math.inf, seconds_per_run=1.0):
        """What `tell_apart` makes of times by method and seed; each run takes as long to compute."""

        class Clock(runner.Stopwatch):
            spent = 0.0

        clock = Clock(budget)

        class Synthetic(runner.Runner):
            def runs(self, methods, seeds, seconds):
                rows = [(name, seed) for name in methods for seed in seeds[name]]
                self.made += len(rows)
                clock.spent += seconds_per_run * len(rows)
                loss = [[30.0 + 1, 30.0] for _ in rows]
                return pd.DataFrame(
                    {
                        "method": np.repeat([name for name, _ in rows], 2),
                        "seed": np.repeat([seed for _, seed in rows], 2),
                        "loss": np.ravel(loss),
                        "time": np.ravel([[0.0, times[name][seed]] for name, seed in rows]),
                    }
                ).assign(assigned_samples=1, bytes=1)

        made = Synthetic(Question(PROBLEM, SLOW, "loss", 30.0, 8), clock, 1.0, 0)
        log = SearchLog(SearchProgress({}, 1.0, 6), None)
        of = search.Search(made, {}, range(5), log)
        return search.tell_apart(of, dict.fromkeys(times), range(5, 20), 1.0), clock, log

    @pytest.mark.parametrize("methods", [2, 6, 20])
    def test_a_level_method_has_all_seeds_of_the_best(self, methods):
        for number in range(6):
            rng = np.random.default_rng(number)
            shared, own = rng.normal(size=20), rng.normal(size=(methods, 20))
            means = rng.uniform(1, 1.3, size=methods)
            times = means[:, None] * np.exp(0.2 * (shared + own) / math.sqrt(2))
            runs, _, _ = self.apart({f"m{i}": row for i, row in enumerate(times)})
            seconds = runs[runs["loss"] == 30].pivot(index="method", columns="seed", values="time")
            table = ranking.ranked(seconds)
            full = seconds.loc[[table.index[0], *ranking.level(table)]]
            assert full.notna().all(axis=None)
            for _, row in seconds.iterrows():
                assert row.notna().sum() in (5, 10, 20)
                assert row.notna().cummin().eq(row.notna()).all(), "the first so many seeds, without holes"
            assert (table.loc[table["verdict"] == "slower", "ratio"] > 1).all()

    def test_it_ends_with_the_budget(self):
        times = dict.fromkeys("ab", np.ones(20))
        for budget, seeds in ((19.0, 5), (20.0, 10), (39.0, 10), (40.0, 20)):
            runs, clock, log = self.apart(times, budget)
            assert runs["seed"].nunique() == seeds
            assert clock.spent == 2 * seeds <= budget
            assert log.progress.spent == clock.spent
            assert log.progress.judged == {5: 1, 10: 2, 20: 3}[seeds]


class TestLibrary:
    @pytest.mark.parametrize("workers", [1, 2, 5, 32])
    def test_every_setting_makes_a_method_that_runs(self, workers):
        made = library.library(SCALE._replace(workers=workers))
        aim = Question(PROBLEM, dml.Cluster.uniform(workers), "loss", 30.0, 32)
        for name, family in made.items():
            assert family.settings, name
            aim.check(family.at(family.settings[0], 0.1))

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
            (
                {"mine": dml.Method(dml.bsp(), optimizer=optax.sgd(1))},
                r"methods\['mine'\]: expected .*optimizer",
            ),
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
            method = library.library(SCALE._replace(own_steps=own))["H-PS"].at({"bits": 8}, 0.1)
            assert method.transport.own_steps == own

    def test_ones_own_methods_stand_beside_those_of_the_library(self):
        mine = {
            "mine": dml.asp(),
            "told": lambda rate: dml.dbw(rate),
            "SSP": {"staleness": [0]},
            "whole": dml.Method(dml.bsp()),
        }
        made = library.chosen(mine, SCALE)
        assert [family.settings for family in made.values()] == [[{}], [{}], [{"staleness": 0}], [{}]]
        assert "0.25" in made["told"].at({}, 0.25).policy.name
        assert made["SSP"].at({"staleness": 0}, 0.1).policy.name == dml.ssp(0).name


def several_seeds(seeds):
    times = st.one_of(st.floats(0.1, 100), st.just(math.inf))
    return st.lists(st.lists(times, min_size=seeds, max_size=seeds), min_size=1, max_size=6)


class TestRanking:
    @given(st.integers(1, 7).flatmap(several_seeds))
    def test_verdicts_are_those_of_the_seeds(self, rows):
        seconds = pd.DataFrame(rows, index=[f"m{i}" for i in range(len(rows))])
        table = ranking.ranked(seconds)
        assert {*table.index} == {*seconds.index}
        assert [*table["seconds"]] == sorted(table["seconds"])
        first = table.index[0]
        for name, row in table.iterrows():
            worse, of = (seconds.loc[name] > seconds.loc[first]).sum(), seconds.shape[1]
            as_clear = sum(math.comb(of, count) for count in range(worse, of + 1)) / 2**of  # or clearer
            slower = np.isfinite(seconds.loc[name]).any() and 2 * as_clear <= 1 / 16
            assert (row["verdict"] == "slower") == slower
            assert (row["verdict"] == "best") == (name == first and math.isfinite(row["seconds"]))
        if np.isfinite(seconds).any(axis=0).all():
            assert table["fastest"].sum() == pytest.approx(1)

    def test_ones_that_seeds_do_not_tell_apart_are_level(self):
        rows = {
            "A": [1.0, 2.0, 3.0, 4.0, 5.0],
            "B": [2.0, 1.0, 4.0, 3.0, 6.0],
            "C": [2.0, 3.0, 4.0, 5.0, 6.0],
        }
        seconds = pd.DataFrame(rows).T
        table = ranking.ranked(seconds)
        assert ranking.level(table) == ["B"]
        assert table["verdict"]["B"] == "slower on 3 of 5"

    @pytest.mark.parametrize(
        ("worse", "of", "clear"), [(4, 5, 0), (5, 5, 1), (8, 10, 0), (9, 10, 1), (14, 20, 0), (15, 20, 1)]
    )
    def test_as_many_seeds_as_the_documentation_says_make_it_clear(self, worse, of, clear):
        rows = {"A": [1.0] * of, "B": [1.1] * worse + [0.9] * (of - worse)}
        table = ranking.ranked(pd.DataFrame(rows).T)
        assert (table["verdict"]["B"] == "slower") == clear

    def test_ratios_are_those_of_common_seeds(self):
        rows = {"A": [1.0] * 5 + [3.0] * 15, "C": [1.2] * 5 + [math.nan] * 15}
        assert ranking.ranked(pd.DataFrame(rows).T)["ratio"]["C"] == pytest.approx(1.2)

    def test_ones_with_fewer_seeds_come_after_those_with_more(self):
        """They were slower on the seeds that they had, so their small median is that of easy seeds."""
        rows = {"A": [1.0] * 5 + [3.0] * 5, "B": [1.1] * 5 + [2.0] * 5, "C": [1.2] * 5 + [math.nan] * 5}
        table = ranking.ranked(pd.DataFrame(rows).T)
        assert [*table.index] == ["B", "A", "C"]
        assert [*table["verdict"]] == ["best", "slower on 5 of 10", "slower"]


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

    def test_a_short_record_says_how_long_it_should_be(self):
        with pytest.raises(
            ValueError, match=r"at least 20 tasks.*finished \d+ tasks; try a record of about [\d.]+ s"
        ):
            clusters.as_cluster(self.recorded(tasks=12))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda frame: 7, "cluster: expected a Cluster, a Trace, or measured tasks.*, got 7"),
            (lambda frame: frame.drop(columns="worker"), "worker"),
            (
                lambda frame: frame.rename(columns={"seconds": "time"}),
                "columns: expected .*worker, samples and seconds",
            ),
            (lambda frame: frame.assign(seconds=-1.0), "column seconds: expected .*, got -1.0"),
            (lambda frame: frame.assign(seconds="fast"), "column seconds: expected .*, got 'fast'"),
            (lambda frame: frame.iloc[:0], "without rows"),
            (
                lambda frame: frame.assign(worker=frame["worker"] + 1),
                "cluster, frame, worker 0: expected .*, got none",
            ),
            (lambda frame: frame.assign(samples=-1), "cluster, frame, .*column samples: expected .*, got -1"),
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
        return Question(DIGITS, cluster, "loss", 0.1, 32)

    @given(st.floats(0.01, 50), st.sampled_from([0.0, 0.003]), st.sampled_from([math.inf, 1e6]))
    def test_links_are_scaled_to_the_ratio(self, ratio, latency, bandwidth):
        aim = self.aim(dml.Cluster.from_speeds([1000, 300], latency=latency, bandwidth=bandwidth))
        assert axes.along(aim, {"c": ratio}).regime(aim.problem).communication_ratio == pytest.approx(ratio)

    @given(st.floats(0.05, 3.5), st.integers(4, 9))
    def test_workers_and_the_servers_load(self, load, workers):
        aim = self.aim(dml.Cluster.from_speeds([1000, 300], latency=0.01))
        cluster = axes.along(aim, {"rho": load, "workers": workers})
        assert cluster.num_workers == workers
        assert cluster.regime(aim.problem).server_load == pytest.approx(load)

    @given(st.floats(0.3, 20), st.floats(0.5, 3), st.floats(1, 8), st.integers(4, 9), st.booleans())
    def test_no_axis_undoes_another(self, ratio, load, slowdown, workers, link):
        cluster = dml.Cluster.from_speeds([1000, 300], latency=0.01)
        aim = self.aim(cluster.with_server(bandwidth=1e8, shards=2) if link else cluster)
        changed = axes.along(aim, {"rho": load, "c": ratio, "workers": workers, "slowdown": slowdown})
        assert changed.regime(aim.problem) == pytest.approx((ratio, load))
        assert changed.num_workers == workers
        assert [each.slowdown for each in changed.stragglers] == [slowdown] * (slowdown > 1)
        assert not link or (changed.server.bandwidth_bytes_per_second, changed.server.shards) == (1e8, 2)

    def test_slow_episodes(self):
        aim = self.aim(dml.presets.unstable(4))
        assert axes.along(aim, {"slowdown": 1}).stragglers == ()
        assert axes.along(aim, {"slowdown": 3}).stragglers[0].slowdown == 3
        assert axes.along(aim, {"c": 0}).latency_seconds == (0.0,) * 4

    def test_a_ratio_below_that_of_the_servers_link_is_refused(self):
        aim = self.aim(dml.Cluster.uniform(4).with_server(bandwidth=1e6))
        with pytest.raises(
            ValueError, match=r"c: expected a number >= [\d.]+ .from the server's link.*, got 0.001"
        ):
            axes.along(aim, {"c": 0.001})


class TestAnswer:
    def test_who_waits_for_a_slow_worker_is_not_recommended(self, found):
        assert [*found.table.index] == ["ASP", "BSP"]
        assert found.table["verdict"].tolist() == ["best", "slower"]
        assert found.tuned.runs_each == trials.runs_of(6)

    def test_seeds_that_judge_have_tuned_nothing(self, monkeypatch):
        seen = []
        compare = runner.compare
        monkeypatch.setattr(
            runner,
            "compare",
            lambda *given, seeds, **rest: seen.append([*seeds]) or compare(*given, seeds=seeds, **rest),
        )
        judging = [1000, 1001, 7]
        found = asked(seeds=judging)
        judged = [seeds for seeds in seen if {*seeds} & {*judging}]
        assert all(seeds == judging for seeds in judged)
        assert found.seconds[judging].notna().all(axis=None)
        further = {*found.seconds.columns} - {*judging}
        assert further
        assert not further & found.tuned.seeds
        assert {*seen[-1]} <= further

    def test_methods_that_are_level_run_on_further_seeds_while_the_budget_lasts(self, monkeypatch):
        same = {"methods": {"one": dml.asp(), "other": dml.asp(), "BSP": dml.bsp()}, "trials": 3}
        found = asked(**same)
        assert found.seconds.notna().sum(axis=1).to_dict() == {"one": 20, "other": 20, "BSP": 5}
        verdicts = found.table["verdict"].to_dict()
        assert verdicts.pop("BSP") in ("slower", "not reached")  # runs last up to four times the best one
        assert verdicts == {"one": "best", "other": "slower on 0 of 20"}
        assert "median of 20 seeds" in found._repr_html_()
        elsewhere = found.with_cluster(SLOW.resized(4))
        assert [*elsewhere.seconds.columns] == [*range(5)]
        monkeypatch.setattr(runner.Stopwatch, "left", 0.0)
        assert asked(**same).seconds.shape == (3, 5)

    def test_a_budget_that_ends_before_the_leading_are_tuned_is_told(self, monkeypatch):
        assert search.CUT not in asked(trials=3).notes
        monkeypatch.setattr(runner.Stopwatch, "left", 0.0)
        assert search.CUT in asked(trials=3).notes

    def test_the_picture_says_who_missed_seeds_not_who_did_not_run(self):
        found = asked(methods={"one": dml.asp(), "other": dml.asp(), "BSP": dml.bsp()}, trials=3)
        ax = found.plot()
        ran, reached = found.seconds.notna().sum(axis=1), np.isfinite(found.seconds).sum(axis=1)
        assert {*ran} == {20, 5}
        assert [text.get_text() for text in ax.texts] == [
            f"{reached[name]} of {ran[name]} seeds" for name in found.table.index if reached[name] < ran[name]
        ]
        plt.close("all")

    def test_an_interrupt_at_further_seeds_leaves_the_others(self, monkeypatch):
        pressed = interrupting(monkeypatch, lambda items, seeds: min(seeds) > 1000 + trials.MOST)
        with pytest.warns(UserWarning, match="more seeds could tell more methods apart"):
            found = asked(methods={"one": dml.asp(), "other": dml.asp()}, trials=3)
        assert pressed == [1]
        assert [*found.seconds.columns] == [*range(5)]
        assert found.interrupted
        assert "Interrupted: one" in found._repr_html_()

    def test_tasks_are_as_large_as_those_of_the_record(self):
        record, few = dml.simulate(dml.asp(), SLOW, updates=400, batch_size=8), {"trials": 3, "seeds": [0]}
        for size, expected in ((None, 8), (16, 16)):
            assert asked(cluster=record, batch_size=size, **few).question.batch_size == expected
        assert asked(batch_size=None, **few).question.batch_size == 32

    def test_the_best_is_ready_to_train(self, found):
        options = {
            "seconds": 4 * found.table["seconds"].iloc[0],
            "until": TARGET,
            "batch_size": 8,
            "eval_every": 1,
        }
        run = dml.train(PROBLEM, SLOW, found.best, None, seed=0, **options)
        assert dml.metrics.crossing(run.history["time"], run.history["loss"], 30.0) == pytest.approx(
            found.seconds.loc["ASP", 0], rel=0.1
        )

    def test_the_reason_adds_up(self, found):
        """Times are samples over rates: the two factors of the sentence give the ratio of the medians."""
        pattern = r"takes ([\d.]+) times as long: .* ([\d.]+) times as many samples, at ([\d.]+) times the"
        longer, samples, rate = map(float, re.search(pattern, found.why).groups())
        medians, computed = found.table["seconds"], found.table["samples"]
        assert longer == pytest.approx(medians["BSP"] / medians["ASP"], abs=0.01)
        assert samples == pytest.approx(computed["BSP"] / computed["ASP"], abs=0.01)
        traces = [dml.simulate(each, SLOW, seconds=20, batch_size=8) for each in (dml.bsp(), dml.asp())]
        one, other = (trace.tasks["batch_size"].sum() for trace in traces)
        assert rate == pytest.approx(one / other, rel=0.1)  # counted apart from the times to the target
        share = int(re.search(r"BSP takes .* wait for others (\d+)%", found.why)[1])
        trace = dml.simulate(
            dml.bsp(), SLOW, seconds=medians["ASP"], batch_size=8, parameter_bytes=PROBLEM.parameter_bytes
        )
        assert share == pytest.approx(100 * dml.metrics.time_breakdown(trace)["wait_share"].mean(), abs=1)

    def test_the_same_call_gives_the_same_answer_and_goes_on_from_its_folder(self, found, tmp_path):
        first = asked(save=tmp_path)
        runs = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")}
        second = asked(save=tmp_path)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")} == runs
        for other in (first, second):
            pd.testing.assert_frame_equal(other.table, found.table)

    def test_it_goes_on_with_the_same_trials_however_fast_the_machine_is_now(self, monkeypatch, tmp_path):
        """The first call can afford 12 trials, and is interrupted when it judges; the second one 6."""
        widths = iter([12, 6])
        monkeypatch.setattr(CALL, "affordable", lambda *given: next(widths))
        pressed = interrupting(monkeypatch, lambda items, seeds: seeds == {*range(5)})
        with pytest.warns(UserWarning, match="Interrupted"):
            first = asked(save=tmp_path, trials=None)
        monkeypatch.undo()
        runs = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")}
        second = asked(save=tmp_path, trials=None)
        assert runs.items() <= {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")}.items()
        assert first.tuned == second.tuned
        assert second.tuned.runs_each == trials.runs_of(12)
        assert pressed == [1]

    @pytest.mark.parametrize(
        ("when", "seeds"),
        [
            (lambda items, seeds: len(items) > 1, {1000}),  # the first rung
            (lambda items, seeds: 1001 in seeds, {1000}),  # the second
            (lambda items, seeds: 1002 in seeds, {1000, 1001}),  # the rungs of the leading
            (lambda items, seeds: seeds == {*range(5)}, {1000, 1001}),  # when methods are judged
        ],
    )
    def test_an_interrupt_leaves_what_is_known(self, monkeypatch, when, seeds):
        assert interrupting(monkeypatch, when) == []
        with pytest.warns(UserWarning, match="Interrupted"):
            found = asked()
        assert found.runs is None
        assert {*found.seconds.columns} == seeds
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
            ValueError, match=r"target: expected .*(never|hardly) came closest, to \d+.*, got {'loss': 30.0}"
        ):
            asked(methods=never)

    def test_an_interrupt_before_any_tuning_run_is_one(self, monkeypatch):
        def pressed(*given):
            raise KeyboardInterrupt

        monkeypatch.setattr(runner.Runner, "_compare", pressed)
        with pytest.raises(KeyboardInterrupt):
            asked(trials=3)

    def test_a_method_without_an_update_in_its_time_is_not_reached_and_not_warned_of(self):
        """Warnings are errors here: none comes from rounds that are longer than any run."""
        slow = dml.Method(dml.bsp(), local=dml.local_steps(2000, optax.sgd(0.01)))
        found = asked(methods={"ASP": dml.asp(), "slow": slow}, trials=3, seeds=[0])
        assert found.table["verdict"]["slow"] == "not reached"

    def test_a_run_that_has_diverged_is_the_worst(self):
        runs = pd.DataFrame(
            {
                "method": "x",
                "seed": [0, 0, 0, 1, 1],
                "loss": [100, 40, math.nan, 100, 90],
                "time": [0, 1, 2, 0, 1],
            }
        ).assign(assigned_samples=1, bytes=1)
        measured = Question(PROBLEM, SLOW, "loss", 30.0, 8).measured(runs)
        assert measured["last"].tolist() == [math.inf, 90]

    def test_a_target_that_nothing_reaches_says_what_was_reached(self):
        with pytest.raises(
            ValueError, match=r"target: expected .*came to [\d.]+, with learning rate.*, got {'loss': 0.0}"
        ):
            asked(target={"loss": 0.0}, budget=1.0)

    def test_a_target_of_the_start_says_where_that_is(self):
        with pytest.raises(
            ValueError, match=r"target: expected .*initial parameters .*have \d.*, got {'loss': 1e\+30}"
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
        assert other.methods == found.methods
        assert other.cluster == even
        assert other.table[["setting", "learning_rate"]].equals(
            found.table.loc[other.table.index, ["setting", "learning_rate"]]
        )
        assert other.table["seconds"]["BSP"] < found.table["seconds"]["BSP"] / 3
        assert "tuned for another cluster" in other.notes[-1]

    def test_what_was_said_and_asked_stays(self):
        record = dml.simulate(dml.asp(), SLOW, updates=400, batch_size=8)
        once = asked(cluster=record).with_cluster(dml.Cluster.uniform(3))
        twice = once.with_cluster(once.cluster)
        assert {*once.notes} == {*twice.notes}
        assert any("tuned for another cluster" in note for note in twice.notes)
        assert any("All tasks have 8 samples" in note for note in twice.notes)
        assert once.over(workers=[3], budget=1e6)["tuned"].all()

    def test_seeds_that_tuned_do_not_judge(self, found):
        with pytest.raises(ValueError, match=r"seeds: expected seeds that did not tune.*, got \[1000\]"):
            found.with_cluster(SLOW, seeds=[1000])
        assert [*found.with_cluster(SLOW, seeds=[77, 78]).seconds.columns] == [77, 78]

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

    def test_methods_that_cannot_run_there_are_left_out(self):
        other = asked(methods={"BSP": {}, "K-sync": {"k": [3]}}).with_cluster(SLOW.resized(2))
        assert [*other.table.index] == ["BSP"]
        assert any("K-sync is left out" in note for note in other.notes)

    def test_a_map_names_the_best_of_each_cell(self, found):
        frame = found.over(workers=[2, 4], c=[0.5])
        assert frame[["workers", "c"]].values.tolist() == [[2, 0.5], [4, 0.5]]
        for row in frame.to_dict("records"):
            aim = Question(PROBLEM, SLOW, "loss", 30.0, 8)
            cell = found.with_cluster(axes.along(aim, {"workers": row["workers"], "c": row["c"]}))
            assert row["method"] == cell.table.index[0]
            assert row["uncertain"] == bool(ranking.level(cell.table)) == bool(row["others"])

    def test_a_map_can_be_tuned_anew(self, found):
        frame = found.over(slowdown=[1], budget=1e6)
        again = asked(cluster=axes.along(Question(PROBLEM, SLOW, "loss", 30.0, 8), {"slowdown": 1}))
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
            assert sorted(dots.get_offsets()[:, 0]) == sorted(found.seconds.loc[name])
        assert "ASP is clearly first" in ax.get_title(loc="left")
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
