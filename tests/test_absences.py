"""Availability from a file: who is there when, as recorded or drawn from the record."""

import numpy as np
import optax
import pandas as pd
import pytest
from engine_runs import plane, same_bits

import dmlcore as dml

STAYS = pd.DataFrame(
    [(0, 0, 1), (0, 0.5, 2), (0, 3, None), (1, 1, 4), (2, 0, None), (3, 2, 3), (3, 3, 5)],
    columns=["worker", "from", "until"],
)
CLUSTER = dml.Cluster.uniform(4, samples_per_second=1000, latency=0.001)
THERE = {0: [(0, 2), (3, np.inf)], 1: [(1, 4)], 2: [(0, np.inf)], 3: [(2, 5)]}


def within(task, stays):
    return any(begin <= task.pull_start and task.push_end <= end for begin, end in stays)


@pytest.mark.parametrize("policy", [dml.bsp(), dml.asp(), dml.sampled(2, dml.deadline(0.1))], ids=str)
def test_pushes_are_of_those_that_are_there(policy, tmp_path):
    path = tmp_path / "stays.csv"
    STAYS.sample(frac=1, random_state=0).to_csv(path, index=False)
    cluster = CLUSTER.with_faults(*dml.faults.absences(path, 4))
    tasks = dml.simulate(policy, cluster, seconds=6.0).tasks.dropna(subset="push_end")
    assert all(within(task, THERE[task.worker]) for task in tasks.itertuples())
    busy = {worker: {int(time) for time in own["pull_start"]} for worker, own in tasks.groupby("worker")}
    assert busy == {0: {0, 1, 3, 4, 5}, 1: {1, 2, 3}, 2: {*range(6)}, 3: {2, 3, 4}}
    # A worker that comes back pulls the newest version.
    made = dml.simulate(policy, cluster, seconds=6.0).updates["time"].to_numpy()
    first = tasks[(tasks["worker"] == 0) & (tasks["pull_start"] >= 3)].iloc[0]
    assert first["version_read"] == (made <= first["pull_start"]).sum()


def test_memory_is_kept_unless_told_otherwise():
    """A worker that was away goes on with the state of its local optimizer, and replay repeats it."""
    local = dml.local_steps(2, optax.sgd(0.1, momentum=0.9), keep_state=True)
    ends = []
    for keeps in (True, False):
        cluster = CLUSTER.with_faults(*dml.faults.absences(STAYS, 4, keeps_memory=keeps))
        run = dml.train(
            plane(), cluster, dml.bsp(), optax.sgd(1.0), seconds=6.0, local=local, eval_every=1000
        )
        assert any("forgets" in each for each in run.trace.metadata["incidents"]) != keeps
        again = dml.replay(run.trace, plane(), optax.sgd(1.0), local=local, eval_every=1000, fuse=False)
        assert same_bits(again.params, run.params)
        ends.append(float(run.history["loss"].iloc[-1]))
    assert ends[0] != ends[1]


def test_resampled():
    """Each worker is away as one of the record, and each of the record is drawn as often."""
    own = {worker: [] for worker in range(4)}
    for each in dml.faults.absences(STAYS, 4):
        own[each.worker].append((each.time, each.seconds))
    many = dml.faults.absences(STAYS, 2000, seed=1)
    found = {worker: [] for worker in range(2000)}
    for each in many:
        found[each.worker].append((each.time, each.seconds))
    counts = np.array([sum(away == other for other in found.values()) for away in own.values()])
    assert counts.sum() == 2000
    assert np.abs(counts - 500).max() < 4 * np.sqrt(2000 * 0.25 * 0.75)
    assert many == dml.faults.absences(STAYS, 2000, seed=1)
    assert many != dml.faults.absences(STAYS, 2000, seed=2)


def test_a_stay_may_last_for_good():
    one, two = ({"worker": [0], "from": [3], "until": [end]} for end in (None, np.inf))
    assert dml.faults.absences(one, 2) == dml.faults.absences(two, 2)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (STAYS.drop(columns="until"), "source: expected columns that include until .*, got"),
        (STAYS.rename(columns=str.title), "try renaming 'Worker', 'From', 'Until'$"),
        (STAYS.assign(worker=[0, 1, 2, 3, 4, 5, 6]), "source, row 4, column worker: .* 0 to 3, got 4"),
        (STAYS.assign(until=-1), "source, row 0, column until: expected a finite number >= 0, .* got -1"),
        ({"worker": [0], "from": [3], "until": [2]}, "source, row 0: expected from <= until, got a stay"),
    ],
)
def test_wrong_tables(source, message):
    with pytest.raises(ValueError, match=message):
        dml.faults.absences(source, 4)


@pytest.mark.parametrize("engine", ["simulate", "threads"])
@pytest.mark.parametrize("policy", [dml.bsp(), dml.ssp(1), dml.sampled(2, dml.deadline(0.1))], ids=str)
def test_who_is_away_at_the_start_is_sent_nothing(policy, engine):
    """Nor does anyone wait for a copy that is sent to it; its first task begins when it comes."""
    stays = {"worker": [1, 2], "from": [0, 0.3], "until": [None, None]}
    alone = dml.Cluster.uniform(4, samples_per_second=1000).with_server(seconds_per_pull=0.02)
    cluster = alone.with_faults(*dml.faults.absences(stays, 4))
    run = dml.train(plane(), cluster, policy, optax.sgd(0.1), seconds=0.8, engine=engine)
    first = run.trace.tasks.groupby("worker").first()
    assert [*first.index] == [1, 2]
    assert first["pull_start"][1] == 0
    assert first["pull_start"][2] >= 0.3
    if engine == "simulate":
        assert first["compute_start"][1] == 0.02


def test_nobody_is_there_at_the_start():
    late = dml.faults.absences({"worker": [0], "from": [1], "until": [None]}, 4)
    tasks = dml.simulate(dml.asp(), CLUSTER.with_faults(*late), seconds=1.1).tasks
    assert {*tasks["worker"]} == {0}
    assert [*tasks["clock"]] == [*range(len(tasks))]
    assert tasks["pull_start"].min() == 1


@pytest.mark.parametrize("rows", ["0,1,2,\n1,0,3,", '"0","1","2",\n"1","0","3",'])
def test_rows_that_end_with_a_separator(rows, tmp_path):
    """Also where the first column would do as row numbers."""
    (tmp_path / "stays.csv").write_text(f"worker,from,until\n{rows}\n")
    found = [
        (each.worker, each.time, each.seconds) for each in dml.faults.absences(tmp_path / "stays.csv", 2)
    ]
    assert found == [(0, 0, 1), (0, 2, np.inf), (1, 3, np.inf)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("worker,from,until\n0,1,2,9\n1,0,3,9", "rows have more fields than the first line has names"),
        ("worker,from,until\n0,1,2,9\n1,0,3", "rows have more fields than the first line has names"),
        ("worker,from,until\n0,1,2\n1,0,3,9", "Expected 3 fields in line 3, saw 4"),
        ('worker,"from",from,until\n0,1,1,2', r"several columns named \['from'\]"),
    ],
)
def test_files_that_are_no_table(text, message, tmp_path):
    (tmp_path / "stays.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"source: expected a table, got .* cannot be read .*{message}"):
        dml.faults.absences(tmp_path / "stays.csv", 2)
