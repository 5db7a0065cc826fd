"""Traces of other systems: what a table of tasks says is kept, what it does not say is derived."""

import json

import matplotlib.pyplot as plt
import numpy as np
import optax
import pandas as pd
import pytest
from clusters import CLUSTERS, EXPONENTIAL, MIXED
from engine_runs import same_bits, same_timeline
from hypothesis import given, settings
from hypothesis import strategies as st
from watched import simulate

import dmlcore as dml
from dmlcore.cluster.faults import random_faults
from dmlcore.methods.policies import ALL_POLICIES
from dmlcore.trace import Trace, metrics

SHORT = {"compute_start": "start", "compute_end": "end"}
LOG = pd.DataFrame(
    {"worker": [0, 1, 0, 1, 0], "start": [0.0, 0.5, 1.0, 2.0, 2.5], "end": [1.0, 2.0, 2.5, 2.25, 4.0]}
)


def table_of(trace):
    """All that a trace says, in one table."""
    times = np.append(trace.updates["time"].to_numpy(), np.nan)
    return trace.tasks.rename(columns=SHORT).assign(update_time=times[trace.tasks["update"]])


@pytest.mark.filterwarnings("ignore:.*(look like preemption|drifts by)")  # so do faults in a short log
@settings(max_examples=60)
@given(
    st.sampled_from(sorted(ALL_POLICIES)),
    st.sampled_from(sorted(CLUSTERS)),
    st.sampled_from(["plain()", "pipelined()"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_a_simulated_trace_comes_back(policy, cluster, transport, faults, seed):
    rule, where = ALL_POLICIES[policy](), CLUSTERS[cluster]
    transport = "plain()" if rule.keep_copy or rule.on_begin else transport
    if faults:
        where = where.with_faults(*random_faults(4, 1.0, seed=seed), patience=0.1, checkpoint_every=5)
    trace = simulate(rule, where, updates=40, seed=seed, transport=transport)
    again = Trace.from_tasks(table_of(trace), metadata=trace.metadata)
    assert same_timeline(again, trace)
    assert again.metadata == trace.metadata


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("policy", [dml.asp(), dml.k_async(3), dml.k_batch_async(2)], ids=str)
def test_what_is_not_told_is_derived(policy, seed):
    """Where a trace follows the rules by which the rest is derived, a part of it gives the whole."""
    trace = dml.simulate(policy, MIXED, updates=60, seed=seed)
    known = ["worker", "start", "end", "pull_start", "push_end"]
    known += [] if policy.name.startswith("asp") else ["update"]
    again = Trace.from_tasks(table_of(trace)[known], batch_size=32)
    assert same_timeline(again, trace)
    assert (again.num_workers, again.end_time) == (4, trace.end_time)
    mixed = table_of(trace)[known].sample(frac=1, random_state=seed)  # in whatever order the log has them
    arrived = Trace.from_tasks(mixed, batch_size=32).tasks
    whole = trace.tasks[trace.tasks["push_end"].notna()]
    assert arrived[arrived["push_end"].notna()].reset_index(drop=True).equals(whole.reset_index(drop=True))


def test_the_least_table_by_hand():
    """Tasks end at 1, 2, 2.25, 2.5 and 4: five updates; each task reads those made by its start."""
    trace = Trace.from_tasks(LOG, batch_size=8)
    assert trace.tasks["worker"].tolist() == [0, 1, 1, 0, 0]
    assert trace.tasks["clock"].tolist() == [0, 0, 1, 1, 2]
    assert trace.tasks["update"].tolist() == [0, 1, 2, 3, 4]
    assert trace.tasks["version_read"].tolist() == [0, 0, 2, 1, 4]
    assert trace.tasks["weight"].tolist() == [1.0] * 5
    assert trace.updates["time"].tolist() == [1.0, 2.0, 2.25, 2.5, 4.0]
    assert metrics.staleness(trace).tolist() == [0, 1, 0, 2, 0]
    assert trace.metadata | {"versions": None} == {
        "engine": "recorded",
        "policy": "recorded",
        "max_lead": None,
        "num_workers": 2,
        "end_time": 4.0,
        "batch_size": 8,
        "seed": 0,
        "versions": None,
        "transfers": "not recorded",
    }


def test_rounds_by_hand():
    """Updates that are told: made with their last push, and weighed by samples."""
    told = LOG.assign(update=[0, 0, 1, 1, np.nan], batch_size=[8, 24, 16, 16, 8])
    trace = Trace.from_tasks(told, num_workers=3, end_time=5.0, policy="theirs", seed=7)
    assert trace.updates["time"].tolist() == [2.0, 2.5]
    assert trace.updates["samples"].tolist() == [32, 32]
    by_row = trace.tasks.sort_values(["compute_start", "worker"])
    assert by_row["weight"].tolist() == [0.25, 0.75, 0.5, 0.5, 0.0]
    assert by_row["version_read"].tolist() == [0, 0, 0, 1, 2]
    assert (trace.num_workers, trace.end_time, trace.metadata["batch_size"]) == (3, 5.0, None)
    assert (trace.metadata["policy"], trace.metadata["seed"]) == ("theirs", 7)


def test_the_origin_is_when_the_run_began():
    log = LOG.assign(start=LOG["start"] + 1e6, end=LOG["end"] + 1e6)
    moved = Trace.from_tasks(log, batch_size=8, origin=1e6, end_time=1e6 + 6)
    assert same_timeline(moved, Trace.from_tasks(LOG, batch_size=8))
    assert moved.end_time == 6.0


def test_files(tmp_path):
    """CSV and Parquet; a saved trace is such a table, too."""
    wanted = Trace.from_tasks(LOG, batch_size=8)
    LOG.to_csv(tmp_path / "log.csv", index=False)
    LOG.to_parquet(tmp_path / "log.parquet")
    for name in ("log.csv", "log.parquet"):
        assert same_timeline(Trace.from_tasks(tmp_path / name, batch_size=8), wanted)
    wanted.save(tmp_path / "saved.parquet")
    assert same_timeline(Trace.load(tmp_path / "saved.parquet"), wanted)
    assert Trace.load(tmp_path / "saved.parquet").metadata == wanted.metadata
    assert same_timeline(Trace.from_tasks(tmp_path / "saved.parquet"), wanted)


@pytest.fixture(scope="module")
def theirs():
    """The log of a system that only notes when its workers computed: no links, so nothing else is lost."""
    own = dml.simulate(dml.asp(), EXPONENTIAL, updates=400, seed=1)
    log = own.tasks[own.tasks["push_end"].notna()].rename(columns=SHORT)
    return own, Trace.from_tasks(log[["worker", "start", "end", "batch_size"]])


def test_metrics_work_on_it(theirs):
    own, trace = theirs
    assert metrics.staleness(trace).equals(metrics.staleness(own))
    assert metrics.updates_per_second(trace) == metrics.updates_per_second(own)
    assert same_timeline(trace.until(300), own.until(300))  # the log lacks what was under way at its end
    assert metrics.clock_gap(trace.until(300)) == metrics.clock_gap(own.until(300))
    breakdown = metrics.time_breakdown(trace)
    assert breakdown[list(metrics.PHASES)].sum(axis=1).to_numpy() == pytest.approx(trace.end_time)
    assert breakdown["compute_share"].min() > 0.9
    accounts = metrics.accounts(trace)
    assert accounts["samples"].iloc[-1] == 32 * 400
    for name in ("fetches", "clocks_per_second", "makespan", "clock_staleness", "out_of_turn", "phases"):
        getattr(metrics, name)(trace)


def test_replay_trains_on_it(theirs):
    own, trace = theirs
    problem, sgd = dml.problems.digits_mlp(), optax.sgd(0.1)
    run, again = (dml.replay(each.until(120), problem, sgd, eval_every=120) for each in (trace, own))
    assert np.isfinite(run.history["loss"]).all()
    assert run.history["loss"].iloc[-1] < 0.9 * run.history["loss"].iloc[0]
    assert not same_bits(run.params, again.params)  # its seed is 0, not that of the run
    seeded = Trace(trace.tasks, trace.updates, trace.metadata | {"seed": 1})
    assert same_bits(dml.replay(seeded.until(120), problem, sgd, eval_every=120).params, again.params)


def test_calibration_and_measured_durations_work_on_it(theirs):
    own, trace = theirs
    fitted = dml.calibrate(trace)
    assert fitted.server is None, "it has no transfers"
    assert fitted.num_workers == 4
    assert np.array(fitted.samples_per_second) == pytest.approx(1000, rel=0.25)
    whole = trace.tasks.sort_values(["worker", "clock"])
    rows = whole.rename(columns={"batch_size": "samples"}).assign(
        seconds=whole["compute_end"] - whole["compute_start"]
    )
    again = dml.simulate(dml.asp(), dml.Cluster.from_durations(rows), updates=390)
    np.testing.assert_allclose(again.updates["time"], own.updates["time"][:390], rtol=1e-12)


def test_plots_and_exports_work_on_it(theirs):
    _, trace = theirs
    axes = dml.plot.timeline(trace)
    assert len(axes.collections) + len(axes.patches)
    plt.close("all")
    exported = json.loads(json.dumps(dml.perfetto.to_perfetto(trace), allow_nan=False))
    assert sum(event["name"] == "compute" for event in exported["traceEvents"]) == 400
    assert "recorded" in trace._repr_html_()


def replaced(row, column, value):
    return LOG.astype({column: object}).assign(
        **{column: [*LOG[column][:row], value, *LOG[column][row + 1 :]]}
    )


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (
            replaced(1, "end", 0.25),
            r"frame, row 1, worker 1, end: expected a number >= 0\.5 \(its start\), got 0\.25",
        ),
        (replaced(2, "end", np.nan), "frame, row 2, column end: expected a finite number.*, got nan"),
        (replaced(2, "end", np.inf), "frame, row 2, column end: expected .*, got inf"),
        (replaced(3, "start", -np.inf), "frame, row 3, column start: expected .*, got -inf"),
        (
            replaced(0, "start", -1.0),
            r"frame, row 0, worker 0, start: expected a number >= 0 \(the origin\), got -1\.0",
        ),
        (replaced(3, "start", "2 s"), "frame, row 3, column start: expected .*, got '2 s'"),
        (
            replaced(2, "start", 0.75),
            r"frame, worker 0: expected tasks.*, got rows 0 and 2, which overlap by 0\.25 s",
        ),
        (
            replaced(4, "worker", 1.5),
            r"frame, row 4, column worker: expected a whole number from 0.*, got 1\.5",
        ),
        (replaced(4, "worker", "rank0"), "frame, row 4, column worker: expected .*, got 'rank0'"),
        (LOG[:0], "frame: expected at least one row.*, got a table without rows"),
        (
            LOG.assign(compute_end=1.0),
            r"frame, columns: expected one of the two.*, got both 'end' and 'compute_end'",
        ),
        (
            LOG.assign(push_end=LOG["end"] - 0.5),
            r"frame, row 0, worker 0, push_end: expected a number >= 1.*, got 0\.5",
        ),
        (
            LOG.assign(pull_start=LOG["end"]),
            r"frame, row 0, worker 0, start: expected a number >= 1 \(its pull_start\), got 0\.0",
        ),
        (
            LOG.assign(push_end=np.nan, update=0),
            r"frame, row 0, column update: expected -1 or NaN \(push_end is NaN.*, got 0",
        ),
        (
            LOG.assign(update=[0, 1, 3, 4, 5]),
            "frame, update 2: expected a task in each.*, got none",
        ),
        (LOG.assign(update=0.5), r"frame, row 0, column update: expected .*, got 0\.5"),
        (
            LOG.assign(update=0, update_time=[4, 4, 4, 4, 5]),
            r"frame, update 0, update_time: expected .*, got \[4\.0, 5\.0\]",
        ),
        (LOG.assign(update_time=0.0), "is in an update that was made before it arrived"),
        (LOG.assign(version_read=4), "reads a version later than its update"),
        (
            LOG.assign(clock=[1, 0, 0, 1, 2]),
            "frame, row 2, worker 0, clock: expected a number > 1 .the clock of its previous task., got 0",
        ),
        (LOG.assign(batch_size=0), "frame, row 0, column batch_size: expected .*, got 0"),
        (
            LOG.assign(weight=np.inf),
            "frame, row 0, column weight: expected a finite number, or NaN.*, got inf",
        ),
    ],
)
def test_wrong_tables_are_named(frame, message):
    with pytest.raises(ValueError, match=message):
        Trace.from_tasks(frame, **({} if "batch_size" in frame else {"batch_size": 8}))


def test_a_column_that_is_nearly_one_of_ours_is_told():
    with pytest.warns(UserWarning, match="column 'weigth' is not read; try 'weight'"):
        Trace.from_tasks(LOG.assign(weigth=2.0, host="a"), batch_size=8)


def test_all_that_is_missing_is_one_error():
    with pytest.raises(ValueError, match=r"frame: expected .*, got columns") as error:
        Trace.from_tasks(pd.DataFrame({"who": [0], "end": [1.0], "push_queued": [0.0]}))
    assert str(error.value) == (
        "frame: expected columns that include worker (number or name), start (of computing), or seconds (of "
        "computing) and batch_size (samples of a task: a column, or for all read_tasks(..., {'batch_size': "
        "32})) and metadata['service_seconds'] and both columns of pull_queued, push_queued (all three or "
        "none), got columns ['who', 'end', 'push_queued']; try columns={'worker': ..., 'start': ...}"
    )


QUEUED = LOG.assign(batch_size=8, push_end=LOG["end"] + 0.5, pull_queued=0.0, push_queued=0.25)
TOOK = {"push": 0.1, "update": 0.0, "pull": 0.0, "link_in": 0.0, "link_out": 0.0}


def test_queues_are_taken_over():
    trace = Trace.from_tasks(QUEUED, metadata={"service_seconds": TOOK})
    assert trace.tasks["push_queued"].tolist() == [0.25] * 5
    assert metrics.accounts(trace)["mean_queue"].iloc[-1] > 0


@pytest.mark.parametrize(
    ("frame", "took", "message"),
    [
        (
            QUEUED.assign(push_queued=0.6),
            TOOK,
            r"push_queued: expected a number <= 0\.5 \(from its end to .*, got 0\.6",
        ),
        (
            QUEUED.assign(pull_queued=0.1),
            TOOK,
            r"pull_queued: expected a number <= 0 \(from its start to .*, got 0\.1",
        ),
        (
            QUEUED,
            {"push": 0.1},
            r"metadata\['service_seconds'\]: expected the mean seconds of each.*, got \{'push': 0\.1\}",
        ),
        (QUEUED, TOOK | {"pull": -1}, r"metadata\['service_seconds'\], pull: expected .*, got -1"),
    ],
)
def test_queues_that_cannot_be(frame, took, message):
    with pytest.raises(ValueError, match=message):
        Trace.from_tasks(frame, metadata={"service_seconds": took})


def test_a_log_that_was_read_lacks_what_a_table_lacks():
    log = dml.read_tasks(QUEUED)
    with pytest.raises(ValueError, match=r"frame: expected metadata\['service_seconds'\] and both columns"):
        Trace.from_tasks(log)
    assert same_timeline(
        Trace.from_tasks(log, metadata={"service_seconds": TOOK}),
        Trace.from_tasks(QUEUED, metadata={"service_seconds": TOOK}),
    )
    with pytest.raises(ValueError, match=r"frame: expected batch_size \(samples of a task"):
        Trace.from_tasks(dml.read_tasks(LOG))


def test_a_log_that_begins_late_begins_at_its_first_time():
    """Else a run of seconds would last since 1970."""
    late = LOG.assign(start=LOG["start"] + 1.7e9, end=LOG["end"] + 1.7e9)
    assert same_timeline(Trace.from_tasks(late, batch_size=8), Trace.from_tasks(LOG, batch_size=8))
    assert Trace.from_tasks(late, batch_size=8, origin=0.0).end_time > 1e9, "told, it is taken"


def test_workers_that_are_counted_from_1():
    """They are numbered from 0, unless it is told how many there are."""
    from_one = LOG.assign(worker=LOG["worker"] + 1)
    assert same_timeline(Trace.from_tasks(from_one, batch_size=8), Trace.from_tasks(LOG, batch_size=8))
    trace = Trace.from_tasks(from_one, batch_size=8, num_workers=3)
    assert (trace.num_workers, trace.tasks["worker"].min()) == (3, 1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_size": 0}, "batch_size: expected a whole number from 1.*, got 0"),
        ({"num_workers": 1}, r"num_workers: expected a whole number >= 2 \(those in the frame\).*, got 1"),
        ({"end_time": 3.5}, r"end_time: expected a number >= 4.*, got 3\.5"),
        ({"origin": np.nan}, "origin: expected .*, got nan"),
        ({"seed": -1}, "seed: expected .*, got -1"),
        (
            {"policy": dml.asp()},
            "policy: expected a str, got asp",
        ),
        ({"metadata": {"x": object()}}, "metadata: expected"),
        ({"metadata": {"num_workers": "2"}}, "num_workers: expected .*, got '2'"),
        (
            {"metadata": {"compensation": "a bit"}},
            r"metadata\['compensation'\]: expected a number.*, got 'a bit'",
        ),
    ],
)
def test_wrong_arguments_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        Trace.from_tasks(LOG, **({"batch_size": 8} | wrong))
