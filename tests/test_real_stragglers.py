"""Settings in which claims of `papers/real_stragglers.py` come out the other way, and what measures them."""

import functools
import math
import re
import types
from pathlib import Path

import numpy as np
import optax
import pandas as pd
import papermill
import pytest
from engine_runs import plane
from opposing import Opposition
from pydantic import ValidationError
from real_data import needs
from scipy import stats

import dmlcore as dml
from dmlcore import data
from dmlcore.reading.pipeline import Pipeline
from dmlcore.reproduce import command
from dmlcore.reproduce.kernel import LocalKernel
from dmlcore.reproduce.papers import real_stragglers as paper
from dmlcore.reproduce.papers import real_stragglers_measures as measures

opposes = Opposition()
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / paper.PAPER.notebook
RATE, SIZE = 0.4, 16
SLOW = dml.Cluster.from_speeds([1000, 1000, 1000, 300])  # one worker is always slow
EVEN = dml.Cluster.uniform(4)  # no worker waits
RANDOM = dml.Cluster.uniform(4, jitter=stats.expon())  # any worker may be slow
DEAR = dml.Cluster.uniform(4, bandwidth=1e5)  # a transfer takes six times as long as computing
METHODS = {
    "BSP": (dml.bsp(), RATE),
    "balanced BSP": (dml.Method(dml.bsp(), load="equal_finish_time"), RATE),
    "SSP": (dml.ssp(3), RATE),
    "ASP": (dml.asp(), RATE / 4),
    "ASP, full rate": (dml.asp(), RATE),
    "ASP, half rate": (dml.asp(), RATE / 8),
    "local SGD": (dml.Method(dml.bsp(), local=dml.local_steps(4, optax.sgd(RATE))), 1.0),
}


@functools.cache
def needed(name, cluster):
    """Seconds and samples that a method needs to a target, (2,) each, on two seeds."""
    method, rate = METHODS[name]
    options = {"seeds": [100, 101], "seconds": 60.0, "until": {"loss": 0.9}, "eval_every": 8, "resolve": True}
    runs = dml.compare({name: method}, plane(), cluster, optax.sgd(rate), batch_size=SIZE, **options)
    return [
        dml.metrics.time_to(runs, "loss", 0.9, column=column).to_numpy()
        for column in ("time", "assigned_samples")
    ]


def ratio(name, other, cluster, column=0):
    return needed(name, cluster)[column] / needed(other, cluster)[column]


def log(seconds, size=4):
    """A log of tasks from seconds (workers, rounds)."""
    workers, rounds = seconds.shape
    frame = {"worker": np.repeat(np.arange(workers), rounds), "seconds": seconds.ravel(), "batch_size": size}
    return dml.read_tasks(pd.DataFrame(frame))


@needs("straggler_jobs")
@opposes.judged(paper, "R1")
def test_another_job_has_another_slowdown():
    """The last stage of SE, made 20% slower."""
    frame = data.straggler_jobs()["SE"]
    slower = frame.assign(duration=frame["duration"] * np.where(frame["stage"] == 1, 1.2, 1.0))
    whys = [measures.of_pipeline(Pipeline(each)) for each in (frame, slower)]
    return {"R1": tuple([why[paper.SLOWDOWN] - measures.PUBLISHED["SE"][paper.SLOWDOWN]] for why in whys)}


@opposes.judged(paper, "R2", "R3")
def test_rounds_are_repeated_unless_workers_are_slow_together():
    rng = np.random.default_rng(0)
    alone = rng.gamma(4, 0.25, (6, 600))
    together = rng.gamma(4, 0.25, 600) * np.ones((6, 1))
    drawn = [
        [
            measures.simulated_round(measures.drawing(each), each, 600, seed) / measures.recorded_round(each)
            for seed in range(3)
        ]
        for each in (log(alone), log(together))
    ]
    replayed = measures.replayed_round(log(alone)) / measures.recorded_round(log(alone))
    return {"R2": ([replayed], [drawn[1][0]]), "R3": (drawn[0], drawn[1])}


@opposes.judged(paper, "R4", "R5", "R8")
def test_a_slow_worker_is_repaired_by_loads_and_not_by_a_window():
    return {
        "R4": (ratio("BSP", "ASP", SLOW), ratio("BSP", "ASP", DEAR)),
        "R5": (ratio("BSP", "balanced BSP", SLOW), ratio("BSP", "balanced BSP", RANDOM)),
        "R8": (ratio("BSP", "SSP", SLOW), ratio("BSP", "SSP", RANDOM)),
    }


@opposes.judged(paper, "R6", "R7")
def test_random_stragglers_are_repaired_by_a_window_and_not_by_loads():
    return {
        "R6": (ratio("BSP", "balanced BSP", EVEN), ratio("BSP", "balanced BSP", SLOW)),
        "R7": (ratio("BSP", "SSP", RANDOM), ratio("BSP", "SSP", SLOW)),
    }


@opposes.judged(paper, "R9", "R12")
def test_a_method_that_needs_fewer_samples_gains_more_than_waiting():
    """A step at full rate with each push needs fewer samples than one with all pushes of a round."""
    gain = measures.gain_of_not_waiting(SLOW, plane(), SIZE)
    return {
        "R9": (ratio("ASP, half rate", "BSP", SLOW, 1), ratio("ASP, full rate", "BSP", SLOW, 1)),
        "R12": (ratio("BSP", "balanced BSP", SLOW) / gain, ratio("BSP", "ASP, full rate", SLOW) / gain),
    }


@opposes.judged(paper, "R10", "R11")
def test_advice_from_another_cluster_misleads():
    """Of BSP and local SGD, and of BSP and ASP, what is fastest on one cluster is far behind on the other."""

    def misled(names, there, here):
        fastest = [min(names, key=lambda name: needed(name, each)[0].mean()) for each in (there, here)]
        return ratio(*fastest, here)

    return {
        "R10": (misled(("BSP", "ASP"), SLOW, SLOW), misled(("BSP", "balanced BSP"), EVEN, SLOW)),
        "R11": (misled(("BSP", "local SGD"), DEAR, DEAR), misled(("BSP", "local SGD"), EVEN, DEAR)),
    }


def test_every_claim_says_what_would_show_the_opposite():
    opposes.check(paper)


def test_tasks_in_a_row_take_the_sum():
    found = measures.in_a_row(log(np.array([[1.0, 2.0, 4.0], [1.0, 1.0, 1.0]])), 2)
    assert [own.tolist() for own in measures.by_worker(found)] == [[3.0, 6.0, 5.0], [2.0, 2.0, 2.0]]
    assert found.batch_size == 8


def test_never_to_wait_gains_what_the_slow_worker_costs():
    """Three workers of speed 1 and one of 0.3 compute 3.3 tasks in a time in which rounds of BSP have 1.2."""
    assert measures.gain_of_not_waiting(SLOW, plane(), SIZE) == pytest.approx(3.3 / 1.2, rel=0.02)


def test_the_method_of_a_search_is_that_with_the_least_median():
    best = {"BSP": [{}, 0.1, "3.0", "0.2"], "ASP": [{}, 0.1, "2.0", "0.2"]}
    answers = [types.SimpleNamespace(settings=lambda: {"key": {"best": best}})]
    assert measures.searched(answers) == "ASP"
    assert measures.searched(answers, ["BSP"]) == "BSP"


def test_any_log_becomes_a_job(tmp_path):
    """Operations of a pipeline are analysed; of all other logs there are the tasks alone."""

    def job(name, **options):
        return measures.of_log(paper.RealStragglersParameters(job=str(tmp_path / name), output="", **options))

    data.straggler_steps()["SE"].to_parquet(tmp_path / "operations.parquet")
    whole = job("operations.parquet")
    assert (whole.lanes, whole.tasks.batch_size, len(whole.tasks.names)) == (2, 8, 32)
    tasks = log(np.ones((2, 30))).tasks.drop(columns="batch_size")
    tasks.to_csv(tmp_path / "tasks.csv")
    plain = job("tasks.csv")
    assert (plain.pipeline, plain.tasks.batch_size, len(plain.tasks.names)) == (None, 32, 2)
    tasks[["worker", "seconds"]].rename(columns={"worker": "who", "seconds": "took"}).to_csv(
        tmp_path / "odd.csv"
    )
    odd = job("odd.csv", columns="worker=who,seconds=took", batch_size=4)
    assert (odd.tasks.batch_size, len(odd.tasks.names)) == (4, 2)
    with pytest.raises(ValueError, match=re.escape("try columns=worker=...")):
        job("odd.csv")


def test_another_job_has_its_own_links_and_judges_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").touch()
    given = paper.RealStragglersParameters(job="log.csv", model_bytes="1GB", link="25Gb/s", output="")
    assert given.job == str((tmp_path / "log.csv").resolve())
    assert given.subject.startswith("log_csv-")
    assert measures.rates_of(given) == (25,)
    assert measures.rates_of(paper.RealStragglersParameters(job="log.csv", output="")) == (math.inf,)
    own = paper.PAPER.of(given)
    assert (own.claims, own.found("R1").data, "no claim" in own.in_short().data) == ((), "", True)
    assert paper.PAPER.of(paper.RealStragglersParameters(output="")) is paper.PAPER


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model_bytes": "1GB"}, "no value without a job"),
        ({"job": __file__, "model_bytes": "1GB"}, "a rate for model_bytes"),
        ({"job": __file__, "link": "1Gb/s"}, "no value without model_bytes"),
        ({"job": __file__, "model_bytes": "1Gx", "link": "1Gb/s"}, "a size with its unit, such as 5.2GB"),
        ({"job": __file__, "model_bytes": "1GB", "link": "25"}, "a rate with its unit, such as 25Gb/s"),
        ({"job": __file__, "columns": "host"}, "ROLE=COLUMN"),
        ({"job": "no such file"}, "a file or folder that exists"),
    ],
)
def test_values_for_another_job_are_checked(given, told):
    with pytest.raises(ValidationError, match=told):
        paper.RealStragglersParameters(output="", **given)


def test_whole_rounds_are_drawn_if_workers_are_slow_together():
    rng = np.random.default_rng(0)
    together = log(rng.choice([1.0, 4.0], 200, p=[0.8, 0.2]) * rng.uniform(0.95, 1.05, (8, 200)))
    assert measures.slow_together(together)
    assert not measures.slow_together(log(rng.gamma(4, 0.25, (6, 600))))
    assert not measures.slow_together(log(np.array([[1.0, 3.0], [3.0, 1.0]] * 50).T))  # in turn
    short = [measures.slow_together(log(rng.gamma(4, 0.25, (8, rounds)))) for rounds in (2, 8, 20, 40) * 10]
    assert sum(short) <= 2  # of 40 that are not slow together
    found = measures.simulated_round(measures.resampled(together), together, 400)
    assert found == pytest.approx(measures.recorded_round(together), rel=0.15)  # chance of 400 rounds
    shares = measures.causes(measures.Job(together)).iloc[1:]
    assert all(-0.05 <= share <= 1 for share in shares)


def test_causes_of_a_log_without_a_pipeline():
    """All is lost by one worker that takes 3 s for 1 s; or by tasks that take 1 s and 3 s in turn."""
    slow = measures.causes(measures.Job(log(np.array([[1.0, 1.0], [1.0, 1.0], [3.0, 3.0]]))))
    assert slow[paper.SLOWDOWN] == pytest.approx(3 / (5 / 3))
    assert slow[measures.SLOW_WORKER] == pytest.approx((3 - 5 / 3) / (3 - 5 / 3))
    assert slow[measures.UNEVEN_TASKS] == pytest.approx(0)
    uneven = measures.causes(measures.Job(log(np.array([[1.0, 3.0], [3.0, 1.0]]))))
    assert (uneven[paper.SLOWDOWN], uneven[measures.UNEVEN_TASKS]) == pytest.approx((1.5, 1))


@pytest.mark.full  # its notebook runs below, too
def test_the_command_answers_for_another_job(tmp_path, monkeypatch, capsys):
    """It is printed and kept apart; a run is neither published nor skipped, and paths are the caller's."""
    for name in ("dmlcore", "notebooks", "figures"):
        (tmp_path / name).symlink_to(NOTEBOOK.parents[1] / name)
    monkeypatch.chdir(tmp_path)
    call = ["real_stragglers", "--seeds", "1", "-p", "job=steps.csv"]
    for workers in (3, 4):
        tasks = log(np.random.default_rng(0).gamma(9, 1 / 9, (workers, 40))).tasks
        tasks.drop(columns="batch_size").to_csv("steps.csv")
        assert command.main(call, root=tmp_path) == 0
        said = capsys.readouterr().out
        assert "skipped" not in said
        assert "steps: the mean round computes for" in said
        assert "reproduced" not in said
        assert "report:" not in said
    [kept] = (tmp_path / "runs" / "own").iterdir()
    assert (kept / NOTEBOOK.name).is_file()
    assert not (kept / "figures" / "claims.json").exists()
    assert command.main([*call, "--publish"], root=tmp_path) == 2
    assert "runs that judge the claims" in capsys.readouterr().err


@pytest.mark.full  # the test above reads the same kinds of files
def test_the_notebook_takes_the_log_of_another_job(tmp_path):
    rng = np.random.default_rng(0)
    tasks = log(rng.gamma(9, 1 / 9, (3, 40)) * [[1], [1], [2]]).tasks
    tasks.drop(columns="batch_size").to_csv(tmp_path / "tasks.csv")
    given = {
        "job": str(tmp_path / "tasks.csv"),
        "batch_size": 16,
        "seeds": 1,
        "output": str(tmp_path / "out"),
    }
    papermill.execute_notebook(
        NOTEBOOK,
        tmp_path / NOTEBOOK.name,
        given,
        progress_bar=False,
        kernel_manager_class=LocalKernel,
        cwd=NOTEBOOK.parent,
    )
    table = pd.read_csv(tmp_path / "out" / "methods.csv").set_index("method")
    assert ({*table.index}, {*table["job"]}) == ({"BSP", "balanced BSP", "backup workers", "ASP"}, {"tasks"})
    assert (table["reached"] == 1).sum() > 1
    made = {path.name for path in (tmp_path / "out").iterdir()}
    assert {*paper.PAPER.figures, "methods.png"} <= made
    assert "claims.json" not in made
    assert "BSP" in (tmp_path / "out" / "answer.txt").read_text()
