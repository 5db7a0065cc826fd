"""study: settings are searched with equal spending, and judged by one rule on seeds that chose nothing."""

import functools
import inspect
import json
import math
import subprocess
import sys
import warnings
import zlib
from dataclasses import replace
from datetime import timedelta

import jax
import matplotlib.pyplot as plt
import numpy as np
import optax
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from killing import kill_after

import dmlcore as dml
from dmlcore.experiments import comparison, histories
from dmlcore.experiments.study import goal as asking
from dmlcore.experiments.study import judging, search, spending
from dmlcore.experiments.study.goal import Goal, Outcome
from dmlcore.experiments.study.search import Search
from dmlcore.experiments.study.space import Candidate, Trial, as_space
from dmlcore.experiments.study.spending import Spending
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.trace.metrics.decision import LOOKS

PROBLEM = dml.problems.linear_regression(num_samples=64, num_features=3)
TARGET = {"loss": 30.0}
SLOW = dml.Cluster.from_speeds([1000, 1000, 250], latency=0.001)  # a worker that BSP waits for
GOAL = Goal(PROBLEM, SLOW, "loss", 30.0, 8)
METHODS = {"BSP": dml.bsp(), "ASP": dml.asp(), "SSP": dml.space(dml.ssp, staleness=[1, 4])}


def asked(methods=METHODS, **options):
    given = {"cluster": SLOW, "target": TARGET, "budget": 60, "batch_size": 8} | options
    return dml.study(methods, PROBLEM, given.pop("cluster"), given.pop("target"), **given)


@pytest.fixture(scope="module")
def found():
    return asked()


class TestReached:
    """A run reaches its target with the first of all its updates that meets it."""

    @pytest.mark.parametrize("policy", ALL_POLICIES)
    def test_a_ten_times_finer_grid_changes_no_time(self, policy):
        cluster = dml.Cluster.from_speeds([1000, 800, 500, 250])
        options = {"seconds": 60.0, "batch_size": 8, "until": TARGET, "seeds": range(2), "resolve": True}

        def times(every):
            methods = {"method": ALL_POLICIES[policy]()}
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*no update within")
                runs = dml.compare(methods, PROBLEM, cluster, optax.sgd(0.001), eval_every=every, **options)
            return dml.metrics.time_to(runs, "loss", TARGET["loss"])

        coarse, fine = times(40), times(4)
        assert np.isfinite(fine).all() or policy == "ssp_unbounded"  # whose workers never read
        np.testing.assert_allclose(coarse, fine, rtol=0.01)

    def test_it_is_the_first_of_all_updates(self):
        options = {"seconds": 2.0, "batch_size": 8, "until": TARGET, "seeds": range(5)}
        run = functools.partial(dml.compare, {"ASP": dml.asp()}, PROBLEM, SLOW, optax.sgd(0.003), **options)
        whole, resolved = run(eval_every=1), run(eval_every=50, resolve=True)
        last = [runs.groupby("seed")["update"].last() for runs in (whole, resolved)]
        assert last[0].tolist() == last[1].tolist()
        assert resolved.equals(whole)  # of a run that is not long all updates are evaluated
        assert (whole.groupby("seed")["loss"].last() <= 30).all()

    @given(st.integers(0, 2**32 - 1), st.floats(0.0, 0.5), st.sampled_from([7, 20, 50]))
    def test_of_any_noisy_curve(self, seed, noise, every):
        rng = np.random.default_rng(seed)
        curve = 4 * np.exp(-np.arange(1000) / 300) + noise * rng.normal(size=1000)
        curve[-1] = 0.0

        def looks(updates):
            found = []
            for update in updates:
                found.append((update, {"loss": curve[update]}))
                if curve[update] <= 1.0:
                    break
            return found

        first = int(np.flatnonzero(curve <= 1.0)[0])
        coarse = looks([*range(0, 1000, every), 999])
        found = histories.resolved(coarse, {"loss": 1.0}, looks)
        updates = [update for update, _ in found]
        assert updates == sorted({*updates})
        assert found[-1][0] <= coarse[-1][0]
        assert found[-1][0] == first or not found[-1][1]["loss"] <= 1.0

    @pytest.mark.parametrize("every", [7, 63, 511])
    def test_of_a_long_noisy_run_the_time_is_within_a_hundredth(self, every):
        rng = np.random.default_rng(every)
        own = rng.normal(size=30_000)
        noise = np.convolve(own, 0.98 ** np.arange(300))[:30_000] * 0.2  # it lasts some fifty updates
        curve = 4 * np.exp(-np.arange(30_000) / 10_000) + 0.05 * noise

        def looks(updates):
            hits = [n for n, update in enumerate(updates) if curve[update] <= 1.0]
            return [(u, {"loss": curve[u]}) for u in updates[: hits[0] + 1 if hits else None]]

        found = histories.resolved(looks([*range(0, 30_000, every), 29_999]), {"loss": 1.0}, looks)
        assert found[-1][0] == pytest.approx(int(np.flatnonzero(curve <= 1.0)[0]), rel=0.01)

    def test_a_target_that_is_far_costs_nothing(self):
        calls = []
        coarse = [(10 * i, {"loss": 9.0 - 0.01 * i}) for i in range(20)]
        assert histories.resolved(coarse, {"loss": 1.0}, calls.append) == coarse
        assert not calls

    def test_an_accuracy_is_reached_from_below(self):
        curve = np.linspace(0, 1, 101)

        def looks(updates):
            first = next((n for n, u in enumerate(updates) if curve[u] >= 0.555), len(updates))
            return [(u, {"accuracy": curve[u]}) for u in updates[: first + 1]]

        found = histories.resolved(looks(range(0, 101, 20)), {"accuracy": 0.555}, looks)
        assert found[-1][0] == 56

    def test_without_a_target_there_is_nothing_to_resolve(self):
        with pytest.raises(ValueError, match=r"resolve: expected False .*; try until="):
            dml.compare({"BSP": dml.bsp()}, PROBLEM, SLOW, optax.sgd(0.01), updates=5, resolve=True)

    def test_engines_with_a_clock_of_their_own_are_resolved_too(self):
        engine = dml.engines.threads(time_scale=0.05)
        options = {"updates": 900, "batch_size": 8, "until": TARGET, "eval_every": 50, "engine": engine}
        method = {"ASP": dml.asp()}
        runs = dml.compare(method, PROBLEM, SLOW, optax.sgd(0.003), seeds=[0], resolve=True, **options)
        assert runs["loss"].iloc[-1] <= 30 < runs["loss"].iloc[-2]
        assert runs["update"].diff().iloc[-1] == 1


class TestSpace:
    def candidate(self, make=dml.k_sync, optimizer=optax.sgd, **knobs):
        return Candidate("it", dml.space(make, **knobs), optimizer, GOAL.check)

    @pytest.mark.parametrize(
        ("make", "knobs", "message"),
        [
            (dml.ssp, {"slack": [1]}, "knobs: expected one of 'staleness', .*, got 'slack'"),
            (dml.ssp, {}, "staleness: expected values"),
            (dml.ssp, {"staleness": []}, "staleness: expected"),
            (dml.ssp, {"staleness": 3}, "staleness: expected .*, got 3"),
            (dml.bsp(), {}, "make: expected a function"),
            ("ssp", {}, "make: expected a function"),
        ],
    )
    def test_what_is_no_space_is_refused(self, make, knobs, message):
        with pytest.raises(ValueError, match=message):
            dml.space(make, **knobs)

    def test_early_values_come_first(self):
        space = dml.space(lambda steps, bits: dml.bsp(), steps=[8, 2, 8], bits=[4, 1])
        assert space.settings() == [(0, 0), (0, 1), (1, 0), (1, 1)]

    def test_numbers_go_on_beyond_their_ends_as_far_as_they_are_possible(self):
        it = self.candidate(k=[1, 2])
        assert [trial.setting for trial in it.beside(Trial("it", (1,), 1.0))] == [(0,)]  # 4 of 3 workers
        assert [trial.setting for trial in it.beside(Trial("it", (0,), 1.0))] == [(1,)]  # nothing below 1
        it = self.candidate(dml.ssp, staleness=[1, 4])
        assert [it.values["staleness"][trial.setting[0]] for trial in it.beside(Trial("it", (1,), 1.0))] == [
            1,
            16,
        ]
        assert [it.values["staleness"][trial.setting[0]] for trial in it.beside(Trial("it", (2,), 1.0))] == [
            4,
            64,
        ]
        rates = self.candidate(lambda rate: dml.Method(dml.bsp(), local=dml.local_steps(2, optax.sgd(rate))),
                               rate=[0.1, 0.3])  # fmt: skip
        near = [rates.values["rate"][trial.setting[0]] for trial in rates.beside(Trial("it", (0,), 1.0))]
        assert near == pytest.approx([0.3, 0.1 / 3])

    @given(
        st.dictionaries(
            st.sampled_from("abc"),
            st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True),
            min_size=1,
        ),
        st.integers(0, 99),
    )
    def test_trials_beside_one_differ_in_one_value_by_one_step(self, knobs, number):
        make = lambda a=0, b=0, c=0: dml.bsp()  # noqa: E731
        it = Candidate("it", dml.space(make, **knobs), optax.sgd, lambda method: None)
        here = it.settings[number % len(it.settings)]
        for trial in it.beside(Trial("it", here, 1.0)):
            (changed,) = (place for place in range(len(here)) if trial.setting[place] != here[place])
            values = [*it.values.values()][changed]
            old, new = values[here[changed]], values[trial.setting[changed]]
            assert not [value for value in values if min(old, new) < value < max(old, new)]

    def test_values_that_are_no_numbers_have_neighbours_in_their_order(self):
        it = self.candidate(
            lambda load: dml.Method(dml.bsp(), load=load), load=["equal()", "equal_finish_time()"]
        )
        assert [trial.setting for trial in it.beside(Trial("it", (0,), 1.0))] == [(1,)]

    def test_a_value_that_nobody_gave_may_fail_in_any_way(self):
        it = self.candidate(lambda k: dml.k_sync({1: 1, 2: 2}[k]), k=[1, 2])
        assert [trial.setting for trial in it.beside(Trial("it", (1,), 1.0))] == [(0,)]

    def test_a_value_stays_where_another_knob_does_not_allow_it(self):
        it = self.candidate(lambda a, b: dml.ssp(a if a * b <= 16 else -1), a=[1, 4], b=[1, 2])
        near = [trial for here in ((1, 0), (1, 1), (1, 0)) for trial in it.beside(Trial("it", here, 1.0))]
        assert "a = 16, b = 1" in {it.told(trial) for trial in near}  # 16 and 2 are refused in between
        assert all(it.method(trial) for trial in near)

    @pytest.mark.parametrize(
        ("make", "optimizer", "message"),
        [
            (lambda own: dml.Method(dml.bsp(), optimizer=own), optax.sgd, "in all settings or in none"),
            (lambda learning_rate, own=1: dml.bsp(), None, r"no learning rate \(the problem is additive\)"),
        ],
    )
    def test_a_rate_is_for_all_settings_and_for_gradients(self, make, optimizer, message):
        with pytest.raises(ValueError, match=r"methods\['it'\]: expected .*" + message):
            Candidate("it", dml.space(make, own=[None, optax.sgd(0.1)]), optimizer, lambda method: None)

    def test_the_rate_goes_where_it_is_wanted(self):
        def outer(learning_rate):
            return dml.Method(dml.bsp(), optimizer=optax.sgd(learning_rate, momentum=0.9))

        own = dml.Method(dml.bsp(), optimizer=optax.sgd(0.3))
        rated = {"policy": dml.bsp(), "told": dml.dbw, "outer": outer, "own": own}
        made = {
            name: Candidate(name, as_space(name, each), optax.sgd, GOAL.check) for name, each in rated.items()
        }
        assert {name: each.rated for name, each in made.items()} == {
            "policy": True, "told": True, "outer": True, "own": False}  # fmt: skip
        assert "0.25" in made["told"].method(Trial("told", (), 0.25)).policy.name
        assert len(made["outer"].method(Trial("outer", (), 0.25)).optimizer.init({"w": np.ones(2)})) == 2
        assert made["own"].method(Trial("own", (), None)).optimizer is own.optimizer


class Synthetic(Search):
    """A search whose runs take a time that a function of trial and seed says."""

    def outcomes(self, pairs, seconds):
        self.calls = [*getattr(self, "calls", ()), (pairs, seconds)]
        made = {pair: self.times(*pair) for pair in pairs if pair[1] < self.stop}
        self.spending.made.update(trial.method for trial, _ in made)
        return {pair: Outcome(took, took, 1.0, 1.0) for pair, took in made.items()}


def searching(times, runs=None, stop=math.inf, **knobs):
    spaces = {"none": dml.space(dml.asp), "few": dml.space(dml.ssp, staleness=[4, 1]),
              "many": dml.space(dml.ssp, staleness=[4, 1, 2, 8, 16, 32])}  # fmt: skip
    made = {
        name: Candidate(name, each._replace(rate=1.0), optax.sgd, GOAL.check) for name, each in spaces.items()
    }
    found = Synthetic(GOAL, made, range(5000, 6000), Spending(runs, None), 0, 2.0)
    found.times, found.stop = times, stop
    return found


def far(trial, seed, best=1.3):
    """1 + the distance of the rate from the best, of the knob from 8, and a little for the seed."""
    knob = {"none": [8], "few": [4, 1], "many": [4, 1, 2, 8, 16, 32]}[trial.method]
    knob = knob[trial.setting[0]] if trial.setting and trial.setting[0] < len(knob) else 64
    apart = abs(math.log(trial.rate / best)) + 0.1 * abs(math.log2(knob / 8)) * (trial.method != "none")
    return (1 + apart) * (1 + 0.01 * (seed % 3)) + (trial.method == "none") * 3


RATES = dict.fromkeys(("none", "few", "many"), 1.0)


class TestSearch:
    @pytest.mark.parametrize("first", [3, 6, 12, 24])
    def test_every_method_has_equally_many_runs_in_every_rung(self, first):
        found = searching(far)
        search.halve(found, RATES, first)
        for pairs, _ in found.calls:
            counts = pd.Series([trial.method for trial, _ in pairs]).value_counts()
            assert counts.max() - counts.min() <= 2 * len({seed for _, seed in pairs})  # known ones run less
            assert {*counts.index} == {*RATES}
            assert len({*pairs}) == len(pairs)
        assert max(found.spending.made.values()) <= 1.2 * search.runs_of(first)

    @pytest.mark.parametrize("best", [0.02, 1.3, 40.0])  # far beyond the first range, too
    def test_the_best_rate_is_found(self, best):
        found = searching(functools.partial(far, best=best))
        search.halve(found, RATES, 48)
        for trial in found.best().values():
            assert 1 / 1.5 < trial.rate / best < 1.5

    def test_a_rung_has_half_of_the_trials_on_twice_the_seeds_and_shorter_runs(self):
        found = searching(far)
        search.halve(found, RATES, 24)
        for outcomes in found.found.values():
            assert [*outcomes] == [*range(5000, 5000 + len(outcomes))]  # common random numbers
            assert len(outcomes) in (1, 2, 4, 8)
        limits = [limit for _, limit in found.calls]
        assert limits == sorted(limits, reverse=True)

    def test_the_leading_go_on_together(self):
        found = searching(far)
        search.halve(found, RATES, 12)
        found.calls = []
        assert search.improve(found)
        for pairs, _ in found.calls:
            assert {trial.method for trial, _ in pairs} <= {"few", "many"}
        best = found.best()["many"]
        assert found.candidates["many"].told(best) == "staleness = 8"
        assert abs(math.log(best.rate / 1.3)) < math.log(1.25)

    def test_steps_grow_the_range_of_a_knob_while_its_end_wins(self):
        def times(trial, seed):
            value = found.candidates["few"].values["staleness"]
            return 2 - value[trial.setting[0]] / 1000 if trial.method == "few" else far(trial, seed)

        found = searching(times)
        search.halve(found, RATES, 12)
        search.improve(found)
        assert max(found.candidates["few"].values["staleness"]) >= 64

    def test_it_stays_within_its_runs(self):
        for runs in (2, 5, 20, 50, 100):
            found = searching(far, runs)
            first = next(each for each in (24, 12, 6, 3, 1) if search.runs_of(each) <= runs)
            search.halve(found, RATES, first)
            search.improve(found)
            assert max(found.spending.made.values()) <= runs

    @pytest.mark.parametrize("most", [1, 2, 10, 11, 12, 100])
    def test_few_runs_try_the_likeliest_magnitudes(self, most):
        found = searching(far)
        found.candidates = {"none": Candidate("none", dml.space(dml.asp), optax.sgd, GOAL.check)}
        search.magnitudes(found, most)
        rates = [trial.rate for trial, _ in found.calls[0][0]]
        assert len({*rates}) == min(most, 12)
        assert 4.0**-3 in rates

    def test_longer_first_runs_stay_within_the_runs(self):
        found = searching(lambda trial, seed: math.inf, runs=20)
        found.candidates["none"] = Candidate("none", dml.space(dml.asp), optax.sgd, GOAL.check)
        with pytest.raises(ValueError, match=r"target: expected .*many came to inf.*try a larger budget"):
            search.magnitudes(found)
        assert found.spending.made == {"none": 17, "few": 2, "many": 2}  # 12 and 5; a known rate is kept

    def test_a_rung_that_is_interrupted_changes_nothing(self):
        whole, cut = searching(far), searching(far, stop=5001)
        search.halve(whole, RATES, 12)
        search.halve(cut, RATES, 12)
        assert {len(each) for each in cut.found.values()} == {1}
        assert {len(each) for each in whole.found.values()} == {1, 2, 4}

    def test_where_nothing_reaches_the_target_nobody_leads(self):
        found = searching(lambda trial, seed: math.inf)
        search.halve(found, RATES, 6)
        assert found.leading(math.inf) == []

    @given(st.integers(1, 12), st.integers(3, 60))
    def test_the_first_rung_has_so_many_different_trials(self, knobs, first):
        space = dml.space(dml.ssp, staleness=[*range(knobs)])
        made = search.first_trials(Candidate("x", space, optax.sgd, GOAL.check), 0.5, first)
        assert len({*made}) == len(made) == first
        assert all(0.5 / 4 - 1e-9 <= trial.rate <= 0.5 * 4 + 1e-9 for trial in made)

    @given(st.lists(st.floats(0.01, 100), min_size=1, max_size=9, unique=True), st.integers(0, 8))
    def test_new_rates_are_between_those_that_were_tried(self, rates, place):
        best = Trial("x", (), rates[place % len(rates)])
        tried = [best._replace(rate=rate) for rate in rates]
        low, high = (trial.rate for trial in search.neighbours(best, tried, 2.0))
        assert best.rate / 1.4143 < low <= best.rate <= high < best.rate * 1.4143
        assert not [rate for rate in rates if low < rate < high and rate != best.rate]


class TestSpending:
    def test_decisions_are_kept(self, tmp_path):
        path = tmp_path / "decided.json"
        one = Spending(None, 60.0, path)
        assert one.once("first", lambda: 12) == 12
        again = Spending(None, 60.0, path)
        assert again.once("first", lambda: 6) == 12
        assert again.spent >= 0
        path.write_text("{")
        assert Spending(None, 60.0, path).once("first", lambda: 6) == 6

    @pytest.mark.parametrize("budget", [0, 2, -5, True, 2.5, "soon", "2", "0 s", None, timedelta(0)])
    def test_what_is_no_budget_is_refused(self, budget):
        with pytest.raises(ValueError, match="budget: expected a number of runs of each method, >= 3"):
            asked(budget=budget)

    def test_a_time_is_one_of_computing(self):
        assert spending.check_budget(timedelta(minutes=1)) == (None, 60.0)


class TestJudging:
    def judged(self, times, runs=None, seeds=128):
        """What `judge` makes of times by method and seed."""
        calls = []

        def make(methods, own):
            (own,) = {tuple(seeds) for seeds in own.values()}
            calls.append(({*methods}, own))
            rows = [(name, seed) for name in methods for seed in own]
            frame = pd.DataFrame(
                {
                    "method": np.repeat([name for name, _ in rows], 2),
                    "seed": np.repeat([seed for _, seed in rows], 2),
                    "loss": [31.0, 30.0] * len(rows),
                    "time": np.ravel([[0.0, times[name][seed]] for name, seed in rows]),
                }
            )
            return frame.assign(assigned_samples=1, bytes=1), False

        spent = Spending(runs, None)
        spent.made.update(dict.fromkeys(times, 0))
        found = judging.judge(replace(GOAL, seeds=range(seeds)), dict.fromkeys(times), make, spent)
        return GOAL.measured(found)["seconds"].unstack("seed"), calls

    def draws(self, number, methods, spread=0.2, means=None):
        rng = np.random.default_rng(number)
        shared, own = rng.normal(size=128), rng.normal(size=(methods, 128))
        means = np.ones(methods) if means is None else np.array(means)
        return {
            f"m{i}": row for i, row in enumerate(means[:, None] * np.exp(spread * (shared + own) / 2**0.5))
        }

    @pytest.mark.parametrize("methods", [2, 6, 20])
    def test_a_pair_stops_as_soon_as_it_is_decided(self, methods):
        for number in range(2):
            means = np.random.default_rng(number).uniform(1, 1.5, methods)
            seconds, calls = self.judged(self.draws(number, methods, means=means))
            assert [own[0] for _, own in calls] == [0, *LOOKS[: len(calls) - 1]]
            told = judging.compared(seconds)
            best = next(iter(told))
            for name, row in seconds.iterrows():
                ran = row.notna().sum()
                assert ran in LOOKS
                assert row.notna().cummin().eq(row.notna()).all(), "the first so many seeds, without holes"
                if name != best and ran < seconds.loc[best].notna().sum():
                    assert told[name].outcome in ("slower", "level") or ran < 128
            if any(each.outcome == "undecided" for name, each in told.items() if name != best):
                assert seconds.loc[best].notna().sum() == 128

    def test_it_ends_with_the_budget(self):
        times = self.draws(0, 2, means=[1.0, 1.02])
        for runs, seeds in ((3, 3), (8, 8), (15, 8), (16, 16), (31, 16), (128, 128)):
            assert self.judged(times, runs)[0].shape == (2, seeds)

    def test_few_seeds_decide_nothing(self):
        seconds, _ = self.judged(self.draws(0, 2, means=[1.0, 3.0]), seeds=5)
        assert judging.compared(seconds)["m1"].outcome == "undecided"
        assert seconds.shape == (2, 5)

    def test_a_method_against_itself_is_level(self):
        times = self.draws(1, 1)
        seconds, calls = self.judged({"one": times["m0"], "same": times["m0"]})
        assert dml.metrics.decide(judging.ratios(seconds, "same", "one")) == (1.0, 1.0, 1.0, 8, "level", 0)
        assert len(calls) == 1

    def test_seeds_on_which_neither_arrives_are_no_pair(self):
        times = self.draws(2, 2, means=[1.0, 2.0])
        for row in times.values():
            row[:3] = math.inf
        times["m1"][3] = math.inf
        seconds, _ = self.judged(times)
        found = dml.metrics.decide(judging.ratios(seconds, "m1", "m0"))
        assert (found.seeds, found.unpaired, found.outcome) == (13, 3, "slower")

    def test_the_faster_by_pairs_is_the_best_whatever_the_medians_are(self):
        base = np.exp(np.linspace(-1, 1, 8))
        seconds = pd.DataFrame({"a": base, "b": 0.99 * base}).T
        assert judging.first(seconds) == "b"


class TestStudy:
    def test_who_waits_for_a_slow_worker_is_slower(self, found):
        assert found.table.index[0] == "ASP"
        assert found.versus("BSP", "ASP").outcome == "slower"
        assert found.versus("ASP", "BSP").outcome == "faster"
        assert found.versus("ASP", "ASP").outcome == "level"
        ends = found.runs.groupby(["seed", "method"])["time"].last().unstack()  # of the updates that arrive
        assert found.samples("BSP", "ASP").to_dict() == (ends["BSP"] / ends["ASP"]).to_dict()
        assert found.table["runs"].max() <= 60

    def test_seeds_that_judge_chose_nothing(self, found):
        answer = found.answers[""]
        assert not answer.tuning & {*found.runs["seed"]}
        other = asked(seeds=range(1000, 1008), budget=20)
        assert not other.answers[""].tuning & {*range(1000, 1008)}

    def test_all_that_is_compared_ran_on_the_same_seeds(self, found):
        ran = found.runs.groupby("method")["seed"].agg(lambda seeds: tuple(sorted({*seeds})))
        longest = max(ran, key=len)
        assert all(seeds == longest[: len(seeds)] for seeds in ran)

    def test_all_seeds_judge_all_methods_and_do_not_change_the_search(self):
        few, many = (asked(seeds=range(n), all_seeds=True, budget=24 + n) for n in (4, 20))
        assert many.runs.groupby("method")["seed"].nunique().tolist() == [20] * len(METHODS)
        assert many.versus("BSP", "ASP").outcome == "slower"  # which the first eight seeds decide
        pd.testing.assert_frame_equal(few.answers[""].told, many.answers[""].told)
        first = few.samples("BSP", "ASP")
        pd.testing.assert_series_equal(many.samples("BSP", "ASP")[first.index], first)
        with pytest.raises(ValueError, match="budget: expected more runs than the 20 seeds"):
            asked(seeds=range(20), all_seeds=True, budget=20)
        with pytest.raises(ValueError, match="budget: expected more runs"):
            asked(all_seeds=True, budget="1 min")

    def test_settings_of_an_earlier_study_need_no_search(self):
        """The same answer as with the search, also for values beyond the ends that were given."""
        options = {"seeds": range(8), "all_seeds": True}
        methods = METHODS | {"SSP": dml.space(dml.ssp, staleness=[2, 3])}
        first = asked(methods, budget=40, **options)
        known = json.loads(json.dumps(first.settings))
        again = asked(methods, budget=9, settings=known, **options)
        assert (again.table["runs"] == 8).all()
        pd.testing.assert_frame_equal(again.table.drop(columns="runs"), first.table.drop(columns="runs"))
        assert again.settings == first.settings
        assert not again.answers[""].tuning & {*range(8)}
        more = asked(methods, seeds=range(20), budget=30, all_seeds=True, settings=known)
        pd.testing.assert_series_equal(more.samples("BSP", "ASP")[:8], first.samples("BSP", "ASP"))

    @pytest.mark.parametrize(
        "other",
        [
            {"target": {"loss": 31.0}},
            {"cluster": dml.Cluster.from_speeds([500, 300, 250], latency=0.001)},  # the slowest is the same
            {"optimizer": optax.adam},
            {"batch_size": 16},
            pytest.param(
                {"methods": METHODS | {"SSP": dml.space(dml.ssp, staleness=[1, 3])}}, marks=pytest.mark.full
            ),
            {"methods": METHODS | {"SSP": dml.ssp(1)}},
            {"problem": dml.problems.linear_regression(num_samples=64, num_features=3, seed=1)},
        ],
    )
    def test_settings_of_another_question_are_searched(self, found, other):
        methods, problem = other.get("methods", METHODS), other.get("problem", PROBLEM)
        given = {"target": TARGET, "cluster": SLOW, "batch_size": 8} | other
        given = {name: value for name, value in given.items() if name not in ("methods", "problem")}
        cluster, target = given.pop("cluster"), given.pop("target")
        again = dml.study(
            methods, problem, cluster, target, budget=12, seeds=range(8), settings=found.settings, **given
        )
        assert not {*again.settings} & {*found.settings}
        assert again.table["runs"].max() > 8

    def test_local_rates_tell_settings_apart(self):
        own = {"optimizer": optax.sgd(1.0)}
        rates = 0.001, 0.0015
        local = [dml.Method(dml.bsp(), local=dml.local_steps(2, optax.sgd(rate)), **own) for rate in rates]
        keys = [{*asked({"local": each}, budget=9, seeds=range(2)).settings} for each in local]
        assert not keys[0] & keys[1]

    def test_a_record_that_is_none_is_searched(self, found):
        (key,) = found.settings
        for record in ({"best": {}}, {"best": {name: [] for name in METHODS}}, {"whole": True}, {"best": 3}):
            again = asked(budget=6, seeds=range(2), settings={key: record | {"whole": True}})
            assert again.table["runs"].max() > 2

    def test_an_interrupted_study_keeps_no_settings_and_invents_no_times(self, found, monkeypatch):
        def stop(goal, methods, *given, **options):
            return None, True

        monkeypatch.setattr(Goal, "runs", stop)
        with pytest.raises(KeyboardInterrupt):
            asked(settings=found.settings)

    def test_what_are_no_settings_is_refused(self):
        with pytest.raises(ValueError, match="settings: expected the `settings` of an earlier study, got 3"):
            asked(settings=3)

    def test_the_same_runs_give_the_same_answer_on_every_machine(self, found, monkeypatch):
        monkeypatch.setattr(spending.time, "monotonic", lambda: 1e6 * np.random.default_rng().uniform())
        pd.testing.assert_frame_equal(asked().table, found.table)

    def test_seven_percent_more_work_is_seven_percent_slower(self):
        longer = dml.Cluster.from_speeds([1000 / 1.07] * 3)
        even = dml.Cluster.from_speeds([1000] * 3)
        study = asked({"BSP": dml.bsp()}, cluster={"even": even, "longer": longer}, budget=40)
        times = {name: answer.seconds.loc["BSP"] for name, answer in study.answers.items()}
        found = dml.metrics.decide((times["longer"] / times["even"]).dropna())
        assert found.outcome == "slower"
        assert found.median == pytest.approx(1.07, abs=0.01)

    def test_the_best_is_ready_to_train(self, found):
        run = dml.train(
            PROBLEM, SLOW, found.best, None, seed=0, seconds=2.0, until=TARGET, batch_size=8, eval_every=1
        )
        assert run.history["time"].iloc[-1] == found.answers[""].seconds.loc["ASP", 0]

    def test_rates_of_all_optimizers_are_searched(self):
        def diloco(steps, local_rate, learning_rate):
            inner = dml.local_steps(steps, optax.adamw(local_rate), keep_state=True)
            outer = optax.sgd(learning_rate, momentum=0.9, nesterov=True)
            return dml.Method(dml.bsp(), local=inner, optimizer=outer)

        methods = {"DiLoCo": dml.space(diloco, steps=[4, 8], local_rate=[0.1, 0.3]), "BSP": dml.bsp()}
        study = asked(
            methods,
            optimizer=optax.adamw,
            budget=24,
            cluster=dml.Cluster.uniform(2, latency=0.02),
            target={"loss": 60.0},
        )
        row = study.table.loc["DiLoCo"]
        assert "local_rate" in row["setting"]
        assert row["learning_rate"] > 0

    def test_additive_problems_have_no_rate(self):
        problem = dml.problems.lasso(num_samples=40, num_features=60, num_nonzeros=5)
        start = float(problem.evaluate(problem.init(jax.random.key(0)), problem.eval_data)["loss"])
        methods = {"BSP": dml.bsp(), "SSP": dml.space(dml.ssp, staleness=[1, 4])}
        study = dml.study(methods, problem, SLOW, {"loss": 0.9 * start}, budget=12, batch_size=8)
        assert study.table["learning_rate"].isna().all()
        assert np.isfinite(study.table["seconds"]).all()

    def test_several_clusters_make_a_map(self):
        even = dml.Cluster.uniform(3)
        study = asked({"BSP": dml.bsp(), "ASP": dml.asp()}, cluster={"even": even, "slow": SLOW}, budget=30)
        assert [*study.table.index.names] == ["cluster", "method"]
        assert {*study.best} == {"even", "slow"} == {*study.runs["cluster"]}
        assert study.versus("BSP", "ASP", "slow").outcome == "slower"
        with pytest.raises(ValueError, match=r"cluster: expected one of 'even', 'slow', got None"):
            study.versus("BSP", "ASP")
        ax = study.plot()
        assert [text.get_text() for text in ax.get_xticklabels()] == ["even", "slow"]
        plt.close("all")

    def test_a_list_is_named_as_it_is_written(self):
        assert {*asked([dml.bsp(), dml.ssp(3)], budget=20).table.index} == {"bsp()", "ssp(staleness=3)"}

    def test_it_goes_on_from_its_folder(self, tmp_path, monkeypatch):
        few = {"budget": 12, "seeds": range(8)}
        found, first = asked(**few), asked(save=tmp_path, **few)
        runs = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")}
        monkeypatch.setattr(comparison, "timeline", None)  # nothing is made again
        second = asked(save=tmp_path, **few)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.parquet")} == runs
        for other in (first, second):
            pd.testing.assert_frame_equal(other.table, found.table)

    def test_other_methods_make_another_study(self, tmp_path):
        for staleness in (1, 30):
            asked({"M": dml.ssp(staleness)}, save=tmp_path, budget="0.1 s", seeds=range(2))
        assert len([*tmp_path.glob("*.json")]) == 2

    def test_settings_that_the_folder_cannot_tell_apart_are_refused(self, tmp_path):
        def mine(k):
            return dml.k_sync(k)._replace(name="mine")

        with pytest.raises(ValueError, match=r"methods\['M'\]: expected policies.* whose names"):
            asked({"M": dml.space(mine, k=[1, 2])}, save=tmp_path)

    def test_a_cluster_on_which_nothing_arrives_is_told(self, monkeypatch):
        never = dml.Method(dml.asp(weight=1e-9), optimizer=optax.sgd(0.003))
        monkeypatch.setattr(search, "LENGTHS", 1)
        with pytest.raises(ValueError, match=r"on a, target: expected .*; on b, target: expected"):
            asked({"M": never}, cluster={"a": SLOW, "b": dml.Cluster.uniform(2)}, budget=6)

    @pytest.mark.full  # a finished study goes on from the same folder, above
    def test_it_goes_on_where_it_was_killed(self, found, tmp_path, environment):
        code = "import sys, test_study; test_study.asked(save=sys.argv[1])"
        process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=environment)
        kill_after(process, tmp_path, 60)
        runs = {path: path.stat().st_mtime_ns for path in tmp_path.glob("[!.]*.parquet")}
        pd.testing.assert_frame_equal(asked(save=tmp_path).table, found.table)
        assert {path: path.stat().st_mtime_ns for path in runs} == runs

    # before anything is known, and after
    @pytest.mark.parametrize("at", [2, *(pytest.param(at, marks=pytest.mark.full) for at in (4, 6)), 8])
    def test_an_interrupt_leaves_what_is_known(self, monkeypatch, at):
        compare, calls = asking.compare, []

        def interrupted(*given, **options):
            calls.append(options["seeds"])
            if len(calls) == at:
                raise KeyboardInterrupt
            return compare(*given, **options)

        monkeypatch.setattr(asking, "compare", interrupted)
        try:
            with pytest.warns(UserWarning, match="interrupted"):
                study = asked()
        except KeyboardInterrupt:
            assert at <= 4  # in the first runs or the first rung nothing is known
            return
        assert study.interrupted
        assert study.notes[0].startswith("Interrupted")
        assert study.best.optimizer is not None

    def test_what_is_known_is_said(self, found):
        text = repr(found)
        assert "ASP (learning rate" in text
        assert "times as long" in text or "not at the target in time" in text
        shown = found._repr_html_()
        assert "data:image" in shown
        for name in found.table.index:
            assert f"<th>{name}</th>" in shown

    def test_points_have_their_intervals(self, found):
        ax = found.plot()
        assert [text.get_text() for text in ax.get_yticklabels()] == [*found.table.index]
        assert "ASP is first" in ax.get_title(loc="left")
        plt.close(ax.figure)
        with pytest.raises(ValueError, match="found: expected what"):
            dml.plot.study(3)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"methods": {}}, "methods: expected .*, got {}"),
            ({"methods": 3}, "methods: expected .*, got 3"),
            ({"methods": [dml.bsp(), dml.bsp()]}, r"methods: expected a different name for each.*'bsp\(\)'"),
            ({"methods": {3: dml.bsp()}}, "methods: expected .*, got 3"),
            ({"methods": {"SSP": dml.ssp}}, r"methods\['SSP'\]: expected .*; try calling it: ssp"),
            ({"methods": {"K": dml.space(dml.k_sync, k=[2, 9])}}, r"methods\['K'\], .*k"),
            ({"methods": {"x": lambda rate: 3}}, r"methods\['x'\]: expected .*, got 3"),
            ({"target": {"lss": 1}}, "target: expected .*, got 'lss'"),
            ({"target": {}}, "target: expected .*, got {}"),
            (
                {"target": {"loss": 1e30}},
                "target: expected a target that the initial parameters do not reach",
            ),
            ({"cluster": {}}, "cluster: expected"),
            ({"cluster": {"a": 3}}, r"cluster\['a'\]: expected .*, got 3"),
            ({"seeds": []}, "seeds: expected"),
            ({"seeds": [1, 1]}, "seeds: expected"),
            ({"batch_size": 0}, "batch_size: expected .*, got 0"),
            ({"progress": "yes"}, "progress: expected .*, got 'yes'"),
            ({"optimizer": 3}, "optimizer: expected .*, got 3"),
            ({"executor": "fast"}, "executor: expected"),
        ],
    )
    def test_wrong_arguments(self, options, message):
        with pytest.raises(ValueError, match=message):
            asked(**{"methods": METHODS} | options)

    def test_a_target_that_nothing_reaches_says_how_far_each_came(self, monkeypatch):
        monkeypatch.setattr(search, "LENGTHS", 2)
        with pytest.raises(
            ValueError, match=r"target: expected .*(BSP came to [\d.]+.*ASP|ASP came to [\d.]+.*BSP)"
        ):
            asked({"BSP": dml.bsp(), "ASP": dml.asp()}, target={"loss": 0.0}, budget=20)

    def test_all_workers_may_leave_for_good(self):
        """The rounds of BSP, which tell how long runs are, end with them."""
        stays = {"worker": [0, 1, 2], "from": [0, 0, 0], "until": [0.5, 0.4, 0.5]}
        ended = SLOW.with_faults(*dml.faults.absences(stays, 3))
        rounds = Goal(PROBLEM, ended, "loss", 30.0, 8).rounds(1000)
        assert 0 < len(rounds.updates) < 1000
        assert rounds.end_time == 0.5
        assert asked(cluster=ended, budget=20).table["seconds"].iloc[0] < 0.5

    def test_arguments_are_those_that_are_documented(self):
        assert [*inspect.signature(dml.study).parameters][:4] == ["methods", "problem", "cluster", "target"]


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([2.5] * 4 + [math.inf] * 12, "not at the target in time (at least 2.5 times as long; 16 seeds)"),
        ([1.94] * 6 + [3.0] * 6 + [math.inf] * 4, "3 times as long (at least 94% slower; 16 seeds)"),
        ([0.9] * 4 + [math.inf] * 4, "undecided: between 10% faster and not at the target in time (8 seeds)"),
    ],
)
def test_a_target_that_is_not_reached_on_every_seed_in_words(times, words):
    assert words in str(dml.metrics.decide(times))


@pytest.mark.parametrize("spread", [pytest.param(0.1, marks=pytest.mark.full), 0.5])
def test_equal_methods_are_told_apart_at_most_once_in_twenty(spread):
    """500 comparisons of equal methods, a twelfth of whose runs do not reach the target."""
    wrong = 0
    for number in range(500):
        rng = np.random.default_rng([number, zlib.crc32(str(spread).encode())])
        ratios = np.exp(spread * rng.normal(size=128))
        ratios[rng.uniform(size=128) < 1 / 24], ratios[rng.uniform(size=128) < 1 / 24] = math.inf, 0.0
        outcomes = [dml.metrics.decide(ratios[:look]).outcome for look in LOOKS]
        decided = next((each for each in outcomes if each != "undecided"), "undecided")
        wrong += decided in ("faster", "slower")
    assert wrong <= 0.05 * 500


@given(st.lists(st.one_of(st.floats(0.01, 100), st.just(math.inf), st.just(math.nan)), max_size=40))
def test_the_rule_is_symmetric_and_its_interval_holds_the_median(samples):
    with np.errstate(divide="ignore"):
        one, other = (dml.metrics.decide(each) for each in (samples, 1 / np.array(samples, float)))
    mirrored = {"faster": "slower", "slower": "faster"}
    if "level" not in (one.outcome, other.outcome):  # within 5% of 1 is not symmetric
        assert other.outcome == mirrored.get(one.outcome, one.outcome)
    assert one.seeds + one.unpaired == len(samples)
    if one.seeds:
        assert one.low <= one.median <= one.high
    assert one.seeds >= 8 or one.outcome == "undecided"


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(1, 16, "holds"), (0, 2, "fails"), (20, None, "fails"), (0, 10, "undecided"), (None, 14, "holds")],
)
def test_a_range_holds_if_the_interval_is_inside(low, high, outcome):
    assert dml.metrics.decide(np.arange(1.0, 17.0), low, high).outcome == outcome


def test_an_empty_range_is_refused():
    with pytest.raises(ValueError, match="low: expected at most high, got 2, above high = 1"):
        dml.metrics.decide([1.0] * 8, 2, 1)


@pytest.mark.parametrize(
    ("count", "places"), [(8, (0, 7)), (16, (2, 13)), (32, (8, 23)), (64, (21, 42)), (128, (48, 79))]
)
def test_the_interval_consists_of_order_statistics(count, places):
    values = np.random.default_rng(count).normal(size=count)
    found = dml.metrics.decide(values, 0.0)
    assert (found.low, found.high) == tuple(np.sort(values)[[*places]])
