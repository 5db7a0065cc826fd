"""Finished runs are kept, found again by all that they depend on, and never made twice."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import optax
import pandas as pd
import pytest
from clusters import EXPONENTIAL
from engine_runs import plane
from killing import kill_after

import dmlcore as dml
from dmlcore import files
from dmlcore.engines.job import described
from dmlcore.experiments import comparison
from dmlcore.experiments.journal import Journal
from dmlcore.types import Aggregate

METHODS = {"BSP": dml.bsp(), "SSP": dml.ssp(2), "Adam": dml.Method(dml.asp(), optimizer=optax.adam(0.01))}
OPTIONS = {"seeds": [0, 1], "updates": 30, "eval_every": 10}


def swept(methods=METHODS, rates=(0.1, 0.2), problem=None, **options):
    problem = problem or plane()
    return dml.sweep(methods, problem, EXPONENTIAL, optax.sgd, rates, **{**OPTIONS, **options})


@pytest.fixture
def made(monkeypatch):
    """Of each run that is made: its policy and seed."""
    runs, histories = [], comparison.histories

    def noted(traces, *rest):
        runs.extend((trace.metadata["policy"], trace.metadata["seed"]) for trace in traces)
        return histories(traces, *rest)

    monkeypatch.setattr(comparison, "histories", noted)
    return runs


def test_the_frame_is_the_same_and_no_run_is_made_twice(tmp_path, made):
    plain = swept()
    made.clear()
    first = swept(save=tmp_path / "runs")
    assert len(made) == len({*map(str, (tmp_path / "runs").iterdir())}) == 10
    again = swept(save=tmp_path / "runs")
    assert len(made) == 10
    assert plain.equals(first)
    assert plain.equals(again)
    more = swept(save=tmp_path / "runs", seeds=[0, 1, 2], rates=(0.1, 0.2, 0.4))
    assert len(made) == 10 + 2 * 3 + 2 * 2 + 1  # a seed at all rates, a rate at the other seeds; Adam
    assert more.equals(swept(seeds=[0, 1, 2], rates=(0.1, 0.2, 0.4)))


def test_the_environment_names_a_folder(tmp_path, made, monkeypatch):
    one = {"methods": {"BSP": dml.bsp()}, "rates": [0.1], "problem": plane()}
    monkeypatch.setenv("DMLCORE_SAVE", str(tmp_path / "all"))
    plain = swept(**one)
    assert len([*(tmp_path / "all").iterdir()]) == len(made) == 2
    assert plain.equals(swept(**one))
    assert len(made) == 2
    swept(**one, save=tmp_path / "own")
    assert len(made) == 4, "an argument stands"
    monkeypatch.setenv("DMLCORE_SAVE", "")
    swept(**one)
    assert len(made) == 6
    with pytest.raises(ValueError, match=r"save: expected a folder.*, got ''"):
        swept(**one, save="")


OTHERS = {
    "policy": {"methods": {"BSP": dml.bsp(), "K-sync": dml.k_sync(3)}},
    "rate": {"rates": (0.1, 0.25)},
    "seed": {"seeds": [0, 7]},
    "length": {"updates": 40},
    "evaluations": {"eval_every": 15},
    "target": {"until": {"loss": 6.5}},
    "batch": {"batch_size": 16},
    "load": {"load": dml.loads.fixed([16, 32, 32, 32])},
    "transport": {"transport": "coded(push=one_bit())"},
    "local steps": {"local": dml.local_steps(2, optax.sgd(0.1))},
    "problem": {"problem": plane(seed=6)},
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_a_run_depends_on_tells_it_from_others(tmp_path, other):
    methods = {"BSP": dml.bsp(), "K-sync": dml.k_sync(2)}
    swept(methods, save=tmp_path)
    given = {"methods": methods, **OTHERS[other]}
    assert swept(**given, save=tmp_path).equals(swept(**given))


def injected(rate):
    """Plain SGD whose rate is in its state alone."""
    return optax.inject_hyperparams(optax.sgd)(learning_rate=rate)


def test_a_rate_in_the_initial_state_tells_runs_apart(tmp_path):
    given = {"BSP": dml.bsp()}, dml.problems.digits_mlp(8), EXPONENTIAL, injected, (0.1, 0.4)
    assert dml.sweep(*given, **OPTIONS, save=tmp_path).equals(plain := dml.sweep(*given, **OPTIONS))
    assert plain.groupby("learning_rate")["loss"].last().nunique() == 2


def test_clusters_inner_optimizers_and_aggregates_of_ones_own_do_too():
    problem = plane()

    def scaled(factor):
        given = dml.Method(
            dml.bsp(), aggregate=Aggregate("own", each=lambda push: optax.tree.scale(factor, push))
        )
        return described(
            comparison.run_spec(problem, given, EXPONENTIAL, updates=10), problem, optax.sgd(1.0)
        )

    assert scaled(2.0) == scaled(2.0)
    assert scaled(2.0) != scaled(3.0)

    def known(cluster=EXPONENTIAL, rate=0.1):
        local = dml.local_steps(2, optax.sgd(rate))
        found = comparison.run_spec(problem, dml.Method(dml.asp(), local=local), cluster, updates=10)
        return described(found, problem.with_steps(local, found.step_size), optax.sgd(1.0))

    def law(scale):
        def mine(uniform):
            return 1 + scale * (uniform - 0.5)

        return dml.Cluster.uniform(4, jitter=mine)

    assert known() == known()
    assert known(rate=0.1) != known(rate=0.2)
    assert known(law(0.1)) != known(law(0.2))  # of one name


def test_a_damaged_file_is_told_and_its_run_made_again(tmp_path, made):
    plain = swept(save=tmp_path)
    for path in sorted(tmp_path.iterdir())[:2]:
        content = bytearray(path.read_bytes())
        content[: len(content) // 2] = bytes(len(content) // 2)
        path.write_bytes(bytes(content))
    made.clear()
    with pytest.warns(UserWarning, match=r"\.parquet is damaged \(.*\); its run is repeated") as told:
        again = swept(save=tmp_path)
    assert len(made) == len(told) == 2
    assert plain.equals(again)


@pytest.mark.filterwarnings("ignore:save. .* is damaged")
def test_a_damaged_history_is_never_another_one(tmp_path):
    """Whichever bit flips: numbers, names of columns, the file's own directory."""
    frame = pd.DataFrame({"update": [0, 1], "time": [0.1, np.nan], "loss": [1 / 3, np.inf]})
    journal = Journal(tmp_path, {})
    journal.save({}, frame)
    (path,) = tmp_path.iterdir()
    whole, random, found = path.read_bytes(), np.random.default_rng(0), []
    for place in random.integers(8 * len(whole), size=1000):
        content = bytearray(whole)
        content[place // 8] ^= 1 << place % 8
        path.write_bytes(bytes(content))
        found.append(journal.load({}))
    assert all(each is None or each.equals(frame) for each in found)
    assert sum(each is None for each in found) > 500


def test_the_same_run_twice_at_a_time(tmp_path):
    """Two threads that write one file do not write into one another's."""
    path = tmp_path / "one"
    with files.aside(path) as first:
        first.write_text("first")
        with files.aside(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert [*tmp_path.iterdir()] == [path]
    same = {str(number): dml.bsp() for number in range(4)}
    frame = swept(same, save=tmp_path / "runs")
    assert frame.equals(swept(same))


def test_an_interrupt_leaves_what_is_finished(tmp_path, monkeypatch):
    histories, count = comparison.histories, []

    def interrupted(*given):
        count.append(given)
        if len(count) == 4:
            raise KeyboardInterrupt
        return histories(*given)

    monkeypatch.setattr(comparison, "histories", interrupted)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    methods = {"BSP": dml.bsp(), "SSP": dml.ssp(2)}
    with pytest.warns(UserWarning, match=r"interrupted: the frame has the \d of 8 runs that are finished"):
        part = swept(methods, save=tmp_path)
    finished, asked = part.attrs["finished"]
    assert 2 <= finished < asked == 8
    assert part.groupby(["method", "learning_rate", "seed"]).ngroups == finished
    assert swept(methods, save=tmp_path).equals(swept(methods))


SCRIPT = """
import sys, optax, dmlcore as dml
sys.path.insert(0, sys.argv[2])
import test_journal
test_journal.swept(save=sys.argv[1], updates=400, eval_every=1)
"""


def test_a_killed_sweep_goes_on(tmp_path, made):
    folder = tmp_path / "runs"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder), str(Path(__file__).parent)])
    kill_after(process, folder, 2)
    kept = len([*folder.glob("[!.]*.parquet")])
    options = {"updates": 400, "eval_every": 1}
    again = swept(save=folder, **options)
    assert len(made) == 10 - kept
    assert again.equals(swept(**options))


def test_attributes_and_progress(capsys):
    frame = swept(progress=True)
    assert frame.attrs["methods"] == ["BSP", "SSP", "Adam"]
    assert frame.attrs["seeds"] == [0, 1]
    assert frame.attrs["finished"] == [12, 12]
    assert frame.attrs["cluster"] == EXPONENTIAL.describe()
    assert frame.attrs["versions"]["jax"]
    assert "12/12" in capsys.readouterr().out


def test_wrong_folders_are_named(tmp_path):
    (tmp_path / "file").write_text("something")
    with pytest.raises(ValueError, match=r"save: expected a folder.*, got 3"):
        swept(save=3)
    with pytest.raises(
        ValueError, match=r"save: expected a folder, or a path where nothing exists yet.*, got '.*file'"
    ):
        swept(save=tmp_path / "file")
    with pytest.raises(ValueError, match=r"progress: expected .*, got 'yes'"):
        swept(progress="yes")


def test_a_history_is_read_as_it_was_written(tmp_path):
    frame = pd.DataFrame({"update": [0, 1], "time": [0.1, np.nan], "loss": [1 / 3, np.inf]})
    journal = Journal(tmp_path, {"a": 1})
    journal.save({"b": (1, 2.0)}, frame)
    assert journal.load({"b": [1, 2.0]}).equals(frame)
    assert journal.load({"b": [1, 2.5]}) is None
    assert Journal(tmp_path, {"a": 2}).load({"b": [1, 2.0]}) is None
