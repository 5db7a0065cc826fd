"""Samples of logs as other systems write them, all of one job: `python tests/logs.py FOLDER` writes them."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

WORKERS, TASKS = 4, 30
MEANS = np.array([0.1, 0.1, 0.1, 0.2])  # seconds of a task of each worker
EPOCH = 1_714_564_800  # 2024-05-01 12:00 UTC


def seconds() -> np.ndarray:
    """The seconds of each worker's tasks, shape (W, T)."""
    return MEANS[:, None] * np.random.default_rng(0).gamma(9, 1 / 9, (WORKERS, TASKS))


def job(synchronous: bool = False, step_time: bool = False) -> pd.DataFrame:
    """A row per task, with its times from the start of the job.

    Args:
        synchronous: whether a task begins when all of the round before have ended.
        step_time: whether a task ends with its round, so that waiting counts as computing.
    """
    own = seconds()
    end = np.cumsum(own.max(axis=0) if step_time else own, axis=1 - step_time)
    end = np.broadcast_to(end, own.shape) + 1e-4 * np.arange(WORKERS)[:, None] * step_time
    start = np.concatenate([np.zeros((WORKERS, 1)), end[:, :-1]], axis=1)
    if synchronous:
        start = np.broadcast_to(np.cumsum(own.max(axis=0)) - own.max(axis=0), own.shape)
        end = start + own
    worker, step = np.divmod(np.arange(own.size), TASKS)
    columns = {"worker": worker, "step": step, "start": start.ravel(), "end": end.ravel(), "batch_size": 32}
    return pd.DataFrame(columns)


def hosts(frame: pd.DataFrame) -> pd.DataFrame:
    """The job with names of workers: node2, node4, node8, node16."""
    return frame.assign(host=("node" + (2 ** (frame["worker"] + 1)).astype(str))).drop(columns="worker")


def dates(frame: pd.DataFrame, columns=("start", "end")) -> pd.DataFrame:
    """The job with times of day."""
    told = {name: pd.to_datetime(1e9 * (EPOCH + frame[name].round(6)), utc=True) for name in columns}
    return frame.assign(**told)


def operations() -> pd.DataFrame:
    """Forward and backward of two micro-batches a step, which interleave, and a collective operation."""
    rows = []
    for worker, own in enumerate(seconds()):
        for step, pair in enumerate(own.reshape(-1, 2)):
            clock = 0.0
            for kind, share in (("forward", 1 / 3), ("backward", 2 / 3)):
                for part, took in enumerate(pair):
                    rows.append((worker, step, part, kind, clock, share * took))
                    clock += share * took
            rows.append((worker, step, 0, "all-reduce", clock, 0.05))
    return pd.DataFrame(rows, columns=["dp_rank", "step", "mb_id", "optype", "start_ts", "duration"])


def torch_profiler(rank: int) -> dict:
    """What torch.profiler exports on one rank: steps, and nested operations."""
    rows, first = [], EPOCH * 1e6
    own = job()[lambda frame: frame["worker"] == rank]
    for task in own.itertuples():
        about = {"pid": 100 + rank, "tid": 100 + rank, "ts": first + 1e6 * task.start, "ph": "X"}
        took = 1e6 * (task.end - task.start)
        rows.append(about | {"cat": "user_annotation", "name": f"ProfilerStep#{task.step}", "dur": took})
        on_gpu = {"cat": "gpu_user_annotation", "pid": 0, "tid": 7, "ts": about["ts"] + 50}
        rows.append(rows[-1] | on_gpu)
        rows.append(about | {"cat": "cpu_op", "name": "aten::linear", "dur": took / 3})
        rows.append(about | {"cat": "cpu_op", "name": "nccl:all_reduce", "dur": 10})
    about = {"name": "process_name", "ph": "M", "pid": 100 + rank, "tid": 0, "args": {"name": "python"}}
    known = {"backend": "nccl", "rank": rank, "world_size": WORKERS}
    return {"schemaVersion": 1, "distributedInfo": known, "traceEvents": [about, *rows]}


def complete(name: str, pid: object, tid: object, start: float, took: float, **about: object) -> dict:
    """A complete event of a Chrome trace, with its arguments."""
    return {
        "name": name,
        "ph": "X",
        "pid": pid,
        "tid": tid,
        "ts": 1e6 * start,
        "dur": 1e6 * took,
        "args": about,
    }


def ray_timeline() -> list:
    """What `ray timeline` writes: a row per task, `pid` is the node and `tid` the worker process."""
    rows = []
    for row, task in enumerate(job().itertuples()):
        lane = f"Node 10.0.0.{task.worker // 2 + 1}", f"worker:{task.worker:04x}"
        event = complete("step", *lane, EPOCH + task.start, task.end - task.start, task_id=f"{row:08x}")
        rows.append({"cat": "task::step", **event})
    return rows


def horovod_timeline() -> str:
    """What Horovod writes on rank 0: begins and ends of collective operations, in a list without end."""
    rows = [{"name": "process_name", "ph": "M", "pid": 0, "args": {"name": "grad.weight"}}]
    for task in job(synchronous=True)[lambda frame: frame["worker"] == 0].itertuples():
        for kind, begin, end in (("NEGOTIATE_ALLREDUCE", 0.0, 0.01), ("ALLREDUCE", 0.01, 0.03)):
            rows.append({"name": kind, "ph": "B", "pid": 0, "ts": 1e6 * (task.end + begin)})
            rows.append({"ph": "E", "pid": 0, "ts": 1e6 * (task.end + end)})
    return "[\n" + "".join(f"{json.dumps(row)},\n" for row in rows)


def megatron_timeline() -> list:
    """A Chrome trace with named processes, and steps and micro-batches among the arguments."""
    lanes = range(WORKERS)
    rows = [{"name": "process_name", "ph": "M", "pid": w, "args": {"name": f"DP rank {w}"}} for w in lanes]
    for row in operations().itertuples():
        start, about = row.start_ts + 10 * row.step, {"step": row.step, "mb_id": row.mb_id}
        rows.append(complete(row.optype, row.dp_rank, 0, start, row.duration, **about))
    return rows


def asynchronous() -> list:
    """A Chrome trace of begins and ends that have ids, on one thread of each process."""
    rows = []
    for row, task in enumerate(job().itertuples()):
        about = {"name": "compute", "cat": "step", "id": row, "pid": task.worker, "tid": 0}
        rows += [about | {"ph": "b", "ts": 1e6 * task.start}, about | {"ph": "e", "ts": 1e6 * task.end}]
    return rows


def other_writers(folder: Path, plain: pd.DataFrame) -> None:
    """Files as other programs write them: encodings, names, cuts, and separators at the end."""
    text = plain.to_csv(index=False)
    with pa.CompressedOutputStream(str(folder / "packed.csv.zst"), "zstd") as file:
        file.write(text.encode())
    (folder / "unnamed.csv").write_bytes(gzip.compress(text.encode()))
    (folder / "powershell.csv").write_text(text, encoding="utf-16")
    lines = plain.to_json(orient="records", lines=True, double_precision=15)
    (folder / "mark.jsonl").write_text(lines, encoding="utf-8-sig")
    (folder / "cut.jsonl").write_text(lines + '{"worker": 0, "sta')
    (folder / "text.jsonl").write_text(lines.replace("\n", "\nepoch 1\n", 1))
    (folder / "ends.csv").write_text(text.replace("\n", ",\n").replace("batch_size,", "batch_size"))
    names = {"worker": "rank", "start": "start time (ms)", "end": "end time (ms)", "batch_size": "batch size"}
    spaced = plain.assign(start=1e3 * plain["start"], end=1e3 * plain["end"]).rename(columns=names)
    spaced.drop(columns="step").to_csv(folder / "spaces.csv", index=False)
    hashed = hosts(plain)
    hashed.assign(host=hashed["host"].str.replace("node", "node#")).to_csv(folder / "hash.csv", index=False)
    rows = [{"rank": t.worker, "timing": {"compute_ms": 1e3 * (t.end - t.start)}} for t in plain.itertuples()]
    (folder / "nested.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "async.json").write_text(json.dumps(asynchronous()))
    (folder / "begins.json").write_text(json.dumps([row for row in asynchronous() if row["ph"] == "b"]))
    for worker, own in plain.groupby("worker"):
        inside = folder / "lightning" / f"version_{worker}"
        inside.mkdir(exist_ok=True, parents=True)
        own.drop(columns="worker").to_csv(inside / "metrics.csv", index=False)


def write(folder: Path) -> None:
    """Writes the samples."""
    folder.mkdir(exist_ok=True, parents=True)
    plain, named = job(), hosts(job())
    plain.to_csv(folder / "plain.csv", index=False)
    plain.to_csv(folder / "german.csv", index=False, sep=";", decimal=",")
    plain.to_csv(folder / "tabs.tsv", index=False, sep="\t")
    plain.to_csv(folder / "bars.txt", index=False, sep="|")
    text = plain.round(6).to_string(index=False)
    (folder / "spaces.log").write_text("# written by trainer 1.3\n" + text + "\n")
    for compression in ("gz", "bz2", "xz", "zip"):
        plain.to_csv(folder / f"packed.csv.{compression}", index=False)
    plain.to_parquet(folder / "plain.parquet")
    dates(named).to_csv(folder / "hosts.csv", index=False)
    took = pd.to_timedelta(plain["end"] - plain["start"], unit="s")
    dates(named).assign(duration=took).drop(columns="end").to_parquet(folder / "dates.parquet")
    plain.to_json(folder / "lines.jsonl", orient="records", lines=True, double_precision=15)
    plain.to_json(folder / "records.json", orient="records", double_precision=15)
    (folder / "columns.json").write_text(json.dumps(plain.to_dict(orient="list")))
    (folder / "ranks").mkdir(exist_ok=True)
    (folder / "torch").mkdir(exist_ok=True)
    for worker, rows in plain.groupby("worker"):
        rows.drop(columns="worker").to_csv(folder / "ranks" / f"rank{worker}.csv", index=False)
        with gzip.open(folder / "torch" / f"rank{worker}.pt.trace.json.gz", "wt") as file:
            json.dump(torch_profiler(worker), file)
    (folder / "ray.json").write_text(json.dumps(ray_timeline()))
    (folder / "horovod.json").write_text(horovod_timeline())
    (folder / "megatron.json").write_text(json.dumps(megatron_timeline()))
    operations().to_parquet(folder / "operations.parquet")
    other_writers(folder, plain)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
