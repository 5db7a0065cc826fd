"""Logs of other systems: each is read as it was meant, with what is assumed or doubted told, or refused."""

import os
import warnings
import zipfile
from pathlib import Path

import logs
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import EPOCH, TASKS, WORKERS, dates, hosts, job

import dmlcore as dml

TOOK = logs.seconds()
PLAIN, IN_STEP = job(), job(synchronous=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("logs")
    logs.write(made)
    return made


def shifted(frame, worker, by):
    """A worker whose clock is ahead."""
    own = frame["worker"] == worker
    return frame.assign(start=frame["start"] + own * by, end=frame["end"] + own * by)


def lasting(frame, row, seconds):
    """A job in which one task takes longer, and its worker's later ones begin later."""
    later = (frame["worker"] == frame["worker"][row]) & (frame.index > row)
    end = frame["end"] + seconds * (later | (frame.index == row))
    return frame.assign(start=frame["start"] + seconds * later, end=end)


def durations(**columns):
    return pd.DataFrame({"worker": PLAIN["worker"], "batch_size": 32} | columns)


class Exchanged:
    """A table of another library, with the dataframe interchange protocol alone."""

    def __init__(self, frame):
        self.frame = frame

    def __dataframe__(self, *given, **options):
        return pa.Table.from_pandas(self.frame).__dataframe__(*given, **options)


SECONDS = PLAIN["end"] - PLAIN["start"]
FORWARD = {"events": ["forward", "backward"]}
# name -> source (a file of the samples, or a table), arguments of `read_tasks`, what is said
READ = {
    "csv": ("plain.csv", {}, []),
    "csv with semicolons and decimal commas": ("german.csv", {}, []),
    "csv with tabs": ("tabs.tsv", {}, []),
    "csv with bars": ("bars.txt", {}, []),
    "aligned columns and a comment": ("spaces.log", {}, []),
    "csv.gz": ("packed.csv.gz", {}, []),
    "csv.bz2": ("packed.csv.bz2", {}, []),
    "csv.xz": ("packed.csv.xz", {}, []),
    "csv.zip": ("packed.csv.zip", {}, []),
    "parquet": ("plain.parquet", {}, []),
    "hosts and ISO stamps": (
        "hosts.csv",
        {},
        ["`host` names the worker: 4 of them, node2 to node16", "ISO stamps, zero is the first"],
    ),
    "dates and timedelta": ("dates.parquet", {}, ["`duration` is the time of computing in lengths of time"]),
    "JSON lines": ("lines.jsonl", {}, []),
    "JSON records": ("records.json", {}, []),
    "JSON columns": ("columns.json", {}, []),
    "a file per worker": ("ranks", {}, ["`file` names the worker: 4 of them, rank0.csv to rank3.csv"]),
    "torch.profiler, a file per rank": (
        "torch",
        {},
        [
            "120 operations are marks on the GPU of others, and are left out",
            "a task is a `ProfilerStep`: 120 of 360",
            "`rank` is the number",
            "us since 1970, zero is the first",
        ],
    ),
    "Ray timeline": (
        "ray.json",
        {},
        ["`pid` and `tid` name the worker: 4 of them, Node 10.0.0.1 / worker:0"],
    ),
    "Chrome trace of operations": (
        "megatron.json",
        FORWARD,
        ["240 of 300 rows are chosen", "`process` names the worker: 4", "240 rows make 120 tasks"],
    ),
    "operations of a pipeline": (
        "operations.parquet",
        FORWARD,
        ["from the begin of each `step`: 15", "operations of one worker and `step` and `mb_id` are one task"],
    ),
    "operations chosen by column": (
        "operations.parquet",
        {"events": {"optype": ["forward", "backward"], "dp_rank": [0, 1, 2, 3]}},
        ["240 rows make 120 tasks"],
    ),
    "operations chosen by a pattern": (
        "operations.parquet",
        {"events": "ward$"},
        ["240 rows make 120 tasks"],
    ),
    "an Arrow table": (pa.Table.from_pandas(PLAIN), {}, []),
    "the interchange protocol": (Exchanged(PLAIN), {}, []),
    "a mapping": (PLAIN.to_dict(orient="list"), {}, []),
    "categories": (hosts(PLAIN).astype({"host": "category"}), {}, ["`host` names the worker"]),
    "any index": (PLAIN.set_index(PLAIN.index + 1000), {}, []),
    "host and gpu": (
        PLAIN.assign(host=[f"n{w // 2}" for w in PLAIN["worker"]], gpu=PLAIN["worker"] % 2).drop(
            columns="worker"
        ),
        {},
        ["`host` and `gpu` name the worker: 4 of them, n0 / 0 to n1 / 1"],
    ),
    "numbers from 1": (
        PLAIN.assign(worker=PLAIN["worker"] + 1),
        {},
        ["`worker` names the worker: 4 of them, 1 to 4"],
    ),
    "process ids": (PLAIN.assign(worker=4711 + 2 * PLAIN["worker"]), {}, ["4 of them, 4711 to 4717"]),
    "numbers as text": (PLAIN.astype({"worker": str}), {}, []),
    "naive dates": (dates(PLAIN).assign(start=lambda f: f["start"].dt.tz_localize(None)), {}, ["ISO stamps"]),
    "zones that differ, told": (
        dates(PLAIN).assign(
            start=lambda f: [
                str(t.tz_convert("Asia/Tokyo" if w else "UTC"))
                for t, w in zip(f["start"], f["worker"], strict=True)
            ],
            end=lambda f: f["end"].astype(str),
        ),
        {},
        ["ISO stamps"],
    ),
    "seconds since 1970": (
        PLAIN.assign(start=EPOCH + PLAIN["start"], end=EPOCH + PLAIN["end"]),
        {},
        ["s since 1970"],
    ),
    "milliseconds since 1970": (
        PLAIN.assign(start=1e3 * (EPOCH + PLAIN["start"]), end=1e3 * (EPOCH + PLAIN["end"])),
        {},
        ["times are ms since 1970, zero is the first"],
    ),
    "nanoseconds since 1970": (
        PLAIN.assign(
            **{name: EPOCH * 10**9 + (1e9 * PLAIN[name]).round().astype("int64") for name in ("start", "end")}
        ),
        {},
        ["ns since 1970"],
    ),
    "a clock since the start of the machine": (
        PLAIN.assign(start=9e5 + PLAIN["start"], end=9e5 + PLAIN["end"]),
        {},
        ["in s, zero is the first"],
    ),
    "duration_ms": (
        durations(duration_ms=1e3 * SECONDS),
        {},
        ["`duration_ms` is the time of computing in ms"],
    ),
    "Duration (us)": (
        durations(**{"Duration (us)": 1e6 * SECONDS}),
        {},
        ["in us: the median task takes 0.1"],
    ),
    "lengths of time as text": (
        durations(elapsed=[str(pd.Timedelta(each, "s")) for each in SECONDS]),
        {},
        ["`elapsed` is the time of computing in lengths of time"],
    ),
    "unit=": (durations(took=1e3 * SECONDS), {"unit": "ms"}, ["in ms"]),
    "columns=": (
        durations(blob=SECONDS, who=PLAIN["worker"]).drop(columns=["worker", "batch_size"]),
        {"columns": {"worker": "who", "seconds": "blob", "batch_size": 32}},
        [],
    ),
    "samples": (PLAIN.rename(columns={"batch_size": "samples"}), {}, ["`samples` is the samples of a task"]),
    "start and duration, which overlap by 5e-17 s": (
        PLAIN[["worker", "start", "batch_size"]].assign(duration=SECONDS),
        {},
        ["`duration` is the time of computing in s"],
    ),
    "the date of a line, at the end of its task": (
        dates(PLAIN, ["end"])[["worker", "end", "batch_size"]]
        .set_axis(["rank", "timestamp", "bs"], axis=1)
        .assign(step_time=SECONDS),
        {},
        ["`timestamp` is when a task ended: 0 tasks of a worker overlap, instead of 61"],
    ),
    "forward and backward": (
        durations(forward_ms=300 * SECONDS, backward_ms=700 * SECONDS),
        {"columns": {"seconds": ["forward_ms", "backward_ms"]}},
        ["`forward_ms` . `backward_ms` is the time of computing in ms"],
    ),
    "an index of workers": (PLAIN.set_index(["worker", "step"]), {}, []),
    "types of Arrow": (dates(PLAIN).convert_dtypes(dtype_backend="pyarrow"), {}, ["ISO stamps"]),
    "columns without names": (
        PLAIN[["worker", "start", "end"]].set_axis([0, 1, 2], axis=1),
        {"columns": {"worker": 0, "start": 1, "end": 2}},
        ["`0` is the number of the worker"],
    ),
    "end and duration": (PLAIN[["worker", "end", "batch_size"]].assign(duration=SECONDS), {}, []),
    "numbers of 32 bits": (
        PLAIN.assign(
            start=(50 + PLAIN["start"]).astype(np.float32), duration=SECONDS.astype(np.float32)
        ).drop(columns="end"),
        {},
        [r"tasks begin up to \S+e-06 s before .* by rounding"],
    ),
    "all workers pause": (
        IN_STEP.assign(**{name: IN_STEP[name] + 60.0 * (IN_STEP["step"] > 9) for name in ("start", "end")}),
        {},
        ["all workers pause together about 1 times, for up to 60"],
    ),
    "csv.zst": ("packed.csv.zst", {}, []),
    "gzip by another name": ("unnamed.csv", {}, []),
    "UTF-16": ("powershell.csv", {}, []),
    "a byte order mark": ("mark.jsonl", {}, []),
    "rows that end with a separator": ("ends.csv", {}, []),
    "spaces in the names of columns": ("spaces.csv", {}, ["`rank` is the number of the worker", "in ms"]),
    "# in names of workers": ("hash.csv", {}, ["4 of them, node#2 to node#16"]),
    "JSON lines of which the last is cut": ("cut.jsonl", {}, ["1 operations or lines have no end"]),
    "objects in JSON lines": (
        "nested.jsonl",
        {"columns": {"seconds": "timing.compute_ms"}},
        ["`timing.compute_ms` is the time of computing in ms"],
    ),
    "a folder for each worker": ("lightning", {}, ["4 of them, version_0/metrics.csv to version_3/metrics"]),
    "asynchronous operations": ("async.json", {}, ["`pid` is the number of the worker"]),
    "a time of something else": (
        durations(time=2 * SECONDS, forward=SECONDS),
        {"columns": {"seconds": "forward"}},
        ["rows of a worker stand in the order"],
    ),
    "records": (PLAIN.to_dict(orient="records"), {}, []),
    "dates of which the day comes first": (
        dates(PLAIN).assign(
            **{name: dates(PLAIN)[name].dt.strftime("%d.%m.%Y %H:%M:%S.%f") for name in ("start", "end")}
        ),
        {},
        [r"zero is the first \(2024-05-01 12:00:00 UTC\)"],
    ),
    "lines of a logger, in whole milliseconds": (
        durations(
            timestamp=dates(PLAIN, ["end"])["end"].dt.strftime("%Y-%m-%d %H:%M:%S,%f").str[:-3],
            step_time=SECONDS,
        ),
        {},
        ["`timestamp` is when a task ended: 0 tasks", r"tasks begin up to 0\.00\d+ s .* by rounding"],
    ),
    "whole seconds of the day beside durations": (
        durations(time=dates(PLAIN, ["end"])["end"].dt.strftime("%H:%M:%S"), duration=SECONDS),
        {},
        ["times are lengths of time", r"tasks begin up to 0\.\d+ s .* by rounding"],
    ),
    "a time of which another column says how long": (
        durations(time=EPOCH + PLAIN["end"], duration=SECONDS),
        {},
        ["`time` is when a task ended", "times are s since 1970"],
    ),
    "an operation without an end": (
        "unfinished.json",
        {},
        ["1 operations or lines have no end and are left out"],
    ),
}


def source_of(given, folder):
    return folder / given if isinstance(given, str) else given


@pytest.fixture(scope="module", autouse=True)
def unfinished(folder):
    """A Chrome trace with pairs, of which the last has no end."""
    rows = []
    for task in PLAIN.itertuples():
        lane = {"name": "compute", "pid": task.worker, "tid": 0}
        rows += [lane | {"ph": "B", "ts": 1e6 * task.start}, lane | {"ph": "E", "ts": 1e6 * task.end}]
    rows.append({"name": "compute", "pid": 0, "tid": 0, "ph": "B", "ts": 1e7})
    (folder / "unfinished.json").write_text(logs.json.dumps({"traceEvents": rows}))


@pytest.mark.parametrize("name", READ)
def test_a_log_is_read_as_it_was_meant(name, folder):
    """The seconds of every worker's tasks come back, nothing is doubted, and a fit takes them."""
    given, options, said = READ[name]
    log = dml.read_tasks(source_of(given, folder), **options)
    assert log.doubted == ()
    assert len(log.names) == WORKERS
    key = ["worker", "compute_start"] if log.timed else ["worker"]
    found = log.tasks.sort_values(key, kind="stable")["seconds"].to_numpy().reshape(WORKERS, TASKS)
    np.testing.assert_allclose(found, TOOK, rtol=1e-4, atol=2e-6)
    for each in said:
        assert any(pd.Series(log.notes).str.contains(each)), (each, log.notes)
    assert all(note in repr(log) for note in log.notes)
    trace = dml.Trace.from_tasks(log, batch_size=32)
    assert trace.num_workers == WORKERS
    if log.timed:
        assert trace.end_time == pytest.approx(log.tasks["compute_end"].max())


# name -> table, arguments, what is doubted
DOUBTED = {
    "the step times of a synchronous job": (
        durations(step_time=np.tile(TOOK.max(axis=0), WORKERS)),
        {},
        "in 100% of 30 rounds the tasks of all 4 workers take the same time, .* waiting .* is probably",
    ),
    "steps that end together": (job(step_time=True), {}, "waiting for the slowest is probably counted"),
    "a time zone": (
        shifted(PLAIN, 1, 3600.0),
        {},
        r"the clock of worker 1 is off by \+3600 s, \+1 hours: .*subtract that",
    ),
    "an offset in a synchronous job": (shifted(IN_STEP, 2, 0.4), {}, r"clock of worker 2 is off by \+0\.4"),
    "a drift": (
        IN_STEP.assign(
            start=IN_STEP["start"] * (1 + 0.01 * (IN_STEP["worker"] == 3)),
            end=IN_STEP["start"] * (1 + 0.01 * (IN_STEP["worker"] == 3)) + SECONDS,
        ),
        {},
        r"the clock of worker 3 drifts by \+1e\+04 millionths",
    ),
    "clocks of their own": (
        PLAIN.assign(start=PLAIN["start"] + 1e4 * PLAIN["worker"], end=PLAIN["end"] + 1e4 * PLAIN["worker"]),
        {},
        "the clocks of 4 of 4 workers disagree",
    ),
    "preemption": (
        PLAIN.assign(
            **{
                name: PLAIN[name] + 20.0 * ((PLAIN["worker"] == 1) & (PLAIN["step"] > 9))
                for name in ("start", "end")
            }
        ),
        {},
        r"worker 1 does nothing for 20 s .* 1 such gaps on 1 of 4 workers look like preemption",
    ),
    "a first task that compiles": (
        durations(seconds=np.where(PLAIN["step"] == 0, 30 * SECONDS, SECONDS)),
        {},
        "the first task of 4 of 4 workers takes .* times their median, as one that compiles",
    ),
    "two tasks at once": (
        PLAIN.assign(worker=PLAIN["worker"] // 2),
        {},
        r"of 120 tasks begin before their worker's task before ends.*two tasks of one worker at once",
    ),
    "rows that stand twice": (pd.concat([PLAIN, PLAIN]), {}, "120 rows equal another one; leave them out"),
    "nanoseconds of a clock of its own": (
        PLAIN.assign(**{name: (1e9 * (2.6e5 + PLAIN[name])).astype("int64") for name in ("start", "end")}),
        {},
        "hours are unusual; say the unit",
    ),
    "microseconds read as seconds": (
        durations(took=1e6 * SECONDS),
        {"columns": {"seconds": "took"}},
        "hours.*unit=",
    ),
    "seconds read as microseconds": (
        durations(took=1e-6 * SECONDS),
        {},
        "the median task takes 1.*e-07 s.*unit=",
    ),
    "whole seconds": (
        durations(seconds=(20 * SECONDS).round()),
        {},
        "times come in steps of 1 s, and the median task takes 2 s",
    ),
    "numbers of 32 bits since 1970": (
        PLAIN.assign(start=9e5 + PLAIN["start"], end=9e5 + PLAIN["end"]).astype({"start": "f", "end": "f"}),
        {},
        r"times come in steps of 0\.062 s",
    ),
    "a worker with another unit": (
        durations(seconds=np.where(PLAIN["worker"] == 0, 1e3 * SECONDS, SECONDS)),
        {},
        "probably have different units",
    ),
    "collective operations": ("horovod.json", {"events": "^ALLREDUCE"}, r"are collective \(ALLREDUCE\)"),
    "a column that is nearly one of ours": (
        PLAIN.assign(weigth=1.0),
        {},
        "'weigth' is not read; try 'weight'",
    ),
}


@pytest.mark.parametrize("name", DOUBTED)
def test_what_is_probably_wrong_is_told(name, folder):
    """With a number, and by a warning where the log is not looked at."""
    given, options, doubt = DOUBTED[name]
    log = dml.read_tasks(source_of(given, folder), **options)
    assert any(pd.Series(log.doubted).str.contains(doubt)), log.doubted
    assert any("Probably wrong: " in line for line in repr(log).splitlines())
    if options or isinstance(given, str) or name in ("two tasks at once", "rows that stand twice"):
        return
    with pytest.warns(UserWarning, match=doubt) as caught:
        dml.Trace.from_tasks(given)
    assert len(caught) == len(log.doubted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dml.Trace.from_tasks(log)


def changed(row, column, value):
    frame = PLAIN.astype({column: object})
    frame.loc[row, column] = value
    return frame


# name -> source, arguments, the message
REFUSED = {
    "no such file": ("none.csv", {}, "source: expected a file that exists, got '.*none.csv'"),
    "another kind of file": (
        "log.xlsx",
        {},
        "source: expected a DataFrame, or the path of a log .*got '.*log.xlsx'",
    ),
    "a folder without logs": ("empty", {}, "expected a folder with logs"),
    "an empty file": ("empty.csv", {}, r"empty.csv', which cannot be read as \.csv"),
    "a file that is no text": ("bad.csv", {}, r"cannot be read as \.csv"),
    "a file that is no Parquet": ("bad.parquet", {}, r"cannot be read as \.parquet"),
    "a file that is cut": ("cut.csv.gz", {}, r"cannot be read as \.csv"),
    "a file that is no JSON": ("bad.json", {}, r"cannot be read as \.json"),
    "no table": (7, {}, "source: expected a DataFrame, or the path of a log .*, got 7"),
    "no rows": (PLAIN[:0], {}, "source: expected at least one row"),
    "columns of different lengths": (
        {"worker": [0], "seconds": [1, 2]},
        {},
        "source: expected columns of equal",
    ),
    "no worker": (
        PLAIN.drop(columns="worker"),
        {},
        r"columns that include worker \(number or name\).*columns=\{'work",
    ),
    "a column alone": (PLAIN["end"], {}, "source: expected a DataFrame, or the path of a log"),
    "text among JSON lines": ("text.jsonl", {}, r"cannot be read as \.jsonl \(line 2: "),
    "bytes that gzip did not write": ("wrong.csv.gz", {}, r"cannot be read as \.csv"),
    "several files in one": ("two.csv.zip", {}, r"\(it has 2 files: unpack them into a folder\)"),
    "begins alone": ("begins.json", {}, "no operation has a begin and an end"),
    "a wrong row of one of several files": ("wrong", {}, "row 7 of rank1.csv, column end: .*, got 'soon'"),
    "a clock beside a stamp": (
        PLAIN[["worker"]].assign(_timestamp=EPOCH + PLAIN["end"], _runtime=PLAIN["end"]),
        {},
        "got '_runtime', which grows from each row of a worker to the next",
    ),
    "no end": (PLAIN.drop(columns="end"), {}, r"columns that include end \(of computing\), or seconds"),
    "one stamp a task": (
        hosts(dates(PLAIN))[["host", "end"]].rename(columns={"end": "time"}),
        {},
        "two times of each task, or its seconds, got 'time', which holds times of day",
    ),
    "a clock taken for a duration": (
        PLAIN[["worker", "end"]].rename(columns={"end": "time"}),
        {},
        "got 'time', which grows from each row of a worker to the next, as a clock does",
    ),
    "an end before its start": (
        changed(41, "end", 0.25),
        {},
        r"source, row 41, worker 1, end: expected a number >= .* \(its start\), got 0\.25",
    ),
    "no number": (
        changed(7, "end", None),
        {},
        "source, row 7, column end: expected a finite number, got (None|nan)",
    ),
    "text among numbers": (
        changed(7, "end", "soon"),
        {},
        "source, row 7, column end: expected .*, got 'soon'",
    ),
    "text among dates": (
        dates(PLAIN).astype({"end": str}).assign(end=lambda f: f["end"].where(f.index != 7, "soon")),
        {},
        "source, row 7, column end: expected an ISO time stamp, got 'soon'",
    ),
    "a date that is missing": (
        dates(PLAIN).assign(end=lambda f: f["end"].where(f.index != 7)),
        {},
        "source, row 7, column end: expected a time, got NaT",
    ),
    "words for times": (
        PLAIN.assign(end="soon"),
        {},
        "row 0, column end: expected a number, a time stamp such as",
    ),
    "a negative duration": (
        durations(seconds=SECONDS.where(SECONDS.index != 9, -1)),
        {},
        "row 9, column seconds: expected a finite number >= 0, got -1.0",
    ),
    "dates and numbers": (
        dates(PLAIN, ["start"]),
        {},
        "expected times of one clock .*, got 'end', whose times are in s",
    ),
    "names among numbers": (
        changed(7, "worker", "rank7"),
        {},
        "row 7, column worker: expected .*, got 'rank7'",
    ),
    "half a worker": (
        changed(7, "worker", 0.5),
        {},
        "row 7, column worker: expected a whole number.*, got 0.5",
    ),
    "a worker that is missing": (
        hosts(PLAIN).assign(host=lambda f: f["host"].where(f.index != 7)),
        {},
        "row 7, column host",
    ),
    "no samples": (
        changed(7, "batch_size", 0),
        {},
        "row 7, column batch_size: expected a whole number from 1",
    ),
    "two columns for a time": (PLAIN.assign(compute_end=1.0), {}, "both 'end' and 'compute_end'"),
    "two columns of a name": (pd.concat([PLAIN, PLAIN[["end"]]], axis=1), {}, r"several named \['end'\]"),
    "several operations": (
        "operations.parquet",
        {},
        r"events: expected the operations that are a task's computing: 'forward' \(120x\), .*, got None",
    ),
    "a Chrome trace of several operations": (
        "megatron.json",
        {},
        "events: expected the operations that are a task's",
    ),
    "no such operation": ("operations.parquet", {"events": "foward"}, "got 'foward'; try 'forward'"),
    "no pattern": (
        "operations.parquet",
        {"events": "(for"},
        "events: expected a name or a regular expression",
    ),
    "no such column to choose by": ("plain.csv", {"events": {"stage": 0}}, "events, column: expected one of"),
    "no column of operations": ("plain.csv", {"events": "forward"}, "no column names the operations"),
    "no such role": (
        "plain.csv",
        {"columns": {"host": "worker"}},
        "columns: expected one of 'worker', .*, got 'host'",
    ),
    "no such column": (
        "plain.csv",
        {"columns": {"worker": "rank"}},
        "columns, worker: expected one of .*, got 'rank'",
    ),
    "no mapping of columns": ("plain.csv", {"columns": "worker"}, "columns: expected role -> column"),
    "no such unit": ("plain.csv", {"unit": "sec"}, "unit: expected one of 'ns', .*, got 'sec'"),
}


@pytest.fixture(scope="module", autouse=True)
def damaged(folder):
    (folder / "empty").mkdir()
    (folder / "empty.csv").write_text("")
    for name in ("bad.csv", "bad.parquet"):
        (folder / name).write_bytes(b"\xff\xfe\x00bad\x81")
    (folder / "cut.csv.gz").write_bytes((folder / "packed.csv.gz").read_bytes()[:200])
    packed = bytearray((folder / "packed.csv.gz").read_bytes())
    packed[20:30] = bytes(10)
    (folder / "wrong.csv.gz").write_bytes(packed)
    with zipfile.ZipFile(folder / "two.csv.zip", "w") as both:
        for name in ("a.csv", "b.csv"):
            both.writestr(name, "worker,seconds\n0,1\n")
    (folder / "wrong").mkdir()
    for worker in range(2):
        own = PLAIN[PLAIN["worker"] == worker].drop(columns="worker")
        own = own.reset_index(drop=True).astype({"end": object})
        own.loc[[7] * worker, "end"] = "soon"
        own.to_csv(folder / "wrong" / f"rank{worker}.csv", index=False)
    (folder / "bad.json").write_text('{"traceEvents": [{"ph": ')


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_right_is_refused(name, folder):
    given, options, message = REFUSED[name]
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        dml.read_tasks(source_of(given, folder), **options)


VALUES = st.one_of(st.none(), st.integers(-2, 10**18), st.floats(), st.text(max_size=8), st.booleans())
NESTED = st.one_of(
    VALUES, st.lists(VALUES, max_size=2), st.dictionaries(st.text(max_size=2), VALUES, max_size=2)
)
EVENT = st.dictionaries(st.sampled_from(["ph", "name", "pid", "tid", "ts", "dur", "args"]), NESTED)
ROW = st.dictionaries(st.sampled_from(["worker", "host", "start", "end", "seconds", "step", "name"]), NESTED)


@settings(max_examples=80)
@given(st.one_of(st.lists(EVENT.map(lambda each: {"ph": "X", **each})), st.lists(ROW), NESTED), st.booleans())
def test_any_json_is_read_or_refused(tmp_path_factory, content, chosen):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(logs.json.dumps(content))
    log = said = None
    try:
        log = dml.read_tasks(path, events="a" if chosen else None)
    except ValueError as error:
        said = str(error)
    assert said.startswith(("source", "events")) if log is None else np.isfinite(log.tasks["seconds"]).all()


def test_a_log_draws_itself(folder):
    log = dml.read_tasks(folder / "hosts.csv")
    ax = log.plot()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [*log.names]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("start (s)", "computing (s)")
    assert dml.read_tasks(log) is log


OPERATIONS = ["forward-compute", "backward-compute"]
STAGES = [("AR", 0)]  # by default the first one of one job; test_real_stragglers reads the other
MORE = ("AR", 1), ("AR", 2), ("AR", 3), ("SE", 0), ("SE", 1)
STAGES += [pytest.param(*each, marks=pytest.mark.full) for each in MORE]


def recorded_job(name, stage):
    """The micro-batches of a stage of a recorded job, read without preparation but for its operations."""
    path = Path(os.environ.get("DMLCORE_DATA", "")) / "straggler_jobs" / f"{name}.parquet"
    if not path.is_file():
        pytest.skip(f"straggler_jobs: DMLCORE_DATA has no {path.name}")
    chosen = {"optype": OPERATIONS, "stage": stage}
    return dml.read_tasks(path, {"batch_size": 1}, events=chosen)


@pytest.mark.parametrize(("name", "stage"), STAGES)
def test_a_fit_predicts_a_recorded_job(name, stage):
    """Round, throughput and straggling within 3%; recorded ones straight from the file, with pandas alone."""
    log = recorded_job(name, stage)
    assert log.doubted == ()
    frame = pd.read_parquet(Path(os.environ["DMLCORE_DATA"]) / "straggler_jobs" / f"{name}.parquet")
    frame = frame[frame["optype"].isin(OPERATIONS) & (frame["stage"] == stage)]
    tasks = frame.astype({"duration": float}).pivot_table(
        "duration", ["step", "mb_id"], "dp_rank", aggfunc="sum"
    )
    assert len(log.tasks) == tasks.size
    cluster = dml.calibrate(log)
    bsp = dml.simulate(dml.bsp(), cluster, updates=4000, batch_size=1, seed=5)
    asp = dml.simulate(dml.asp(), cluster, updates=4000 * len(log.names), batch_size=1, seed=5)
    assert bsp.end_time / 4000 == pytest.approx(tasks.max(axis=1).mean(), rel=0.03)
    assert dml.metrics.updates_per_second(asp) == pytest.approx((1 / tasks.mean()).sum(), rel=0.03)
    assert dml.metrics.straggling(bsp) == pytest.approx(
        tasks.max(axis=1).mean() / tasks.mean().mean(), rel=0.03
    )
    assert "correlate by" in cluster.fitted


def test_a_recorded_timeline_has_the_same_tasks_as_its_table():
    table = recorded_job("AR", 0).tasks
    path = Path(os.environ["DMLCORE_DATA"]) / "straggler_jobs" / "AR-timeline.json.gz"
    log = dml.read_tasks(path, events="^(forward|backward)-compute$")
    assert len(log.names) == 16
    first = [i for i, name in enumerate(log.names) if "PP rank 0," in name]
    own = log.tasks[log.tasks["worker"].isin(first)]
    assert own["seconds"].sum() == pytest.approx(table["seconds"].sum(), rel=1e-6)
    assert len(own) == len(table)


def correlated(rng, shape):
    """All workers' tasks of a round are long together, as sequences of one length."""
    return rng.gamma(4, 0.25, shape[1]) * rng.gamma(50, 0.02, shape)


def mixed(rng, shape):
    """The slowest worker has constant times, the others have not."""
    return np.concatenate([np.full((1, shape[1]), 3.0), rng.gamma(1, 1, shape)[1:]])


def episodes(rng, shape):
    """Long tasks come in episodes of every size."""
    slow = np.repeat(rng.gamma(1, 1, (shape[0], shape[1] // 6)), 6, axis=1)
    return 0.2 + slow * rng.gamma(50, 0.02, shape)


JOBS = {
    "a gamma law": (lambda rng, shape: rng.gamma(4, 0.25, shape), ""),
    "a capped law": (lambda rng, shape: np.minimum(rng.exponential(size=shape), 1.5), ""),
    "a law of each worker": (mixed, "each worker's recorded tasks are drawn"),
    "rounds that are long together": (correlated, "whole rounds are drawn"),
    "episodes": (episodes, ""),  # laws with slow episodes, or runs of recorded tasks
}


@pytest.mark.filterwarnings("ignore:calibrate. the fitted laws miss")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", JOBS)
def test_a_fit_predicts_the_rounds_of_its_log(kind, seed):
    """Mean round, throughput and straggling within 3%; and it says why recorded tasks are drawn."""
    draw, said = JOBS[kind]
    took = draw(np.random.default_rng(seed), (6, 1200))
    log = {"worker": np.repeat(np.arange(6), 1200), "seconds": took.ravel(), "batch_size": 4}
    cluster = dml.calibrate(log)
    assert said in cluster.fitted
    rounds = 40_000 if kind == "episodes" else 10_000  # of episodes a run has fewer than of tasks
    bsp = dml.simulate(dml.bsp(), cluster, updates=rounds, batch_size=4, seed=3)
    asp = dml.simulate(dml.asp(), cluster, updates=40_000, batch_size=4, seed=3)
    mean = took.max(axis=0).mean()
    assert bsp.end_time / rounds == pytest.approx(mean, rel=0.03)
    assert dml.metrics.straggling(bsp) == pytest.approx(mean / took.mean(), rel=0.03)
    assert dml.metrics.updates_per_second(asp) == pytest.approx((1 / took.mean(axis=1)).sum(), rel=0.03)
