"""The trace: the times of every task, the version it read, and the update in which it was applied."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dmlcore import checks, notebook, sealed, tables

TASK_COLUMNS: dict[str, type] = {
    **dict.fromkeys(("worker", "clock", "batch_size", "version_read"), np.int32),
    **dict.fromkeys(("pull_start", "compute_start", "compute_end", "push_end"), np.float64),
    "update": np.int32,
    "weight": np.float64,
}
# Further columns if the server takes time: how long pull and push waited in its queues, seconds.
QUEUE_COLUMNS: dict[str, type] = {"pull_queued": np.float64, "push_queued": np.float64}
UPDATE_COLUMNS: dict[str, type] = {"time": np.float64, "num_tasks": np.int32, "samples": np.int64}
METADATA_KEY = b"dmlcore.trace"


@dataclass(frozen=True, eq=False)
class Trace:
    """The record of a run in columns, for plots, metrics, exports and replay.

    The constructor checks nothing; `validate` checks a trace.

    Args:
        tasks: T rows, one per task, in the order in which tasks arrived, were cancelled or were cut by the
            end of the run. The columns are `worker`, `clock`, `batch_size` (samples), `version_read`,
            `pull_start`, `compute_start`, `compute_end`, `push_end` (times in seconds from the start of the
            run), `update` and `weight`. `pull_start` is NaN if the worker kept its cached copy, to which it
            had added its own updates. `push_end` is NaN if the push never arrived, because the task was
            cancelled or was in flight at the end of the run; its last phase then ends at that time. `update`
            is -1 and `weight` is 0 if the task is in no update. If the cluster's server takes time,
            `pull_queued` and `push_queued` are the seconds that pull and push waited in its queues.
        updates: U rows, one per server update, with the columns `time` (seconds from the start of the run),
            `num_tasks` and `samples`. Row u turns version u into version u + 1.
        metadata: cluster, policy, seed, versions of packages and so on, as JSON values. For a policy with
            timers, `wakes` lists the timers that fired: the time in seconds, the number of pushes before it,
            and the timer's number. Timers are numbered in the order in which they were set; number 0 is the
            timer at the start.

    >>> import dmlcore as dml
    >>> trace = dml.simulate(dml.asp(), dml.Cluster.from_speeds([32, 16]), updates=3)
    >>> trace
    Trace(asp(), 2 workers, 4 tasks, 3 updates)
    >>> trace.tasks[["worker", "clock", "version_read", "update"]].values.tolist()
    [[0, 0, 0, 0], [1, 0, 0, 1], [0, 1, 1, 2], [1, 1, 2, -1]]
    """

    tasks: pd.DataFrame
    updates: pd.DataFrame
    metadata: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_tasks(
        cls,
        frame: Any,
        *,
        batch_size: int | None = None,
        num_workers: int | None = None,
        end_time: float | None = None,
        origin: float | None = None,
        policy: str | None = None,
        seed: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Trace:
        """Returns the trace of a run on another system, from a table of its tasks.

        Guarantee: the columns of a trace's tasks, with `update_time` and the trace's metadata, give the same
        trace again. Missing columns are derived. Without `update`, each push that arrived is an update of its
        own (asynchronous), numbered by `push_end`, with ties in the order of rows. An update is made when its
        last push has arrived and the update before it has been made. A task reads the version at its
        `pull_start`: the number of updates made until then. Its weight is its share of its update's samples.

        Args:
            frame: a log that `read_tasks` reads, or its result. Its optional columns: `batch_size` in
                samples; `clock` (without it, tasks are numbered by start); `pull_start` (without it, `start`;
                NaN: a cached copy); `push_end` (without it, `end`; NaN: the push never arrived); `update` (-1
                or NaN: in no update); `update_time`; `version_read` and `weight` (NaN: derived);
                `pull_queued` and `push_queued` in seconds. Other columns are ignored. If it has only seconds
                of computing, a worker's tasks follow one another without gaps.
            batch_size: samples of every task. None: the log says it.
            num_workers: W, needed if some workers have no task; `worker` is then the number of the worker,
                from 0. Default: the workers in the log, numbered in their order.
            end_time: when the run ended, in seconds on the log's clock. Default: the last time in the log.
            origin: when the run began, in seconds on the log's clock; it becomes time 0 of the trace.
                Default: 0; for dates, and times that begin much later than the log is long, the first time.
            policy: the name of the server's rule. Default: "recorded".
            seed: seed of the batches and parameters that `replay` draws. Default: 0.
            metadata: further metadata as JSON values, such as the `metadata` of another trace. Default: none.
                An argument overrides the entry of the same name. Its `end_time` is in seconds from `origin`.

        Returns:
            The trace, validated.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: the log cannot be read; columns or metadata are missing (the message lists all of
                them); a number is NaN, infinite or out of range; tasks of a worker overlap by more than
                rounding, or end before they start; or an invariant of `validate` is broken.

        >>> log = pd.DataFrame({"worker": [0, 1, 0], "start": [0.0, 0.0, 1.0], "end": [1.0, 1.5, 2.0]})
        >>> trace = Trace.from_tasks(log, batch_size=32, policy="their ASP")
        >>> trace, trace.tasks["version_read"].tolist()
        (Trace(their ASP, 2 workers, 3 tasks, 3 updates), [0, 0, 1])
        """
        from dmlcore.trace.importing import trace_of  # it imports this module

        return trace_of(frame, batch_size, num_workers, end_time, origin, policy, seed, metadata)

    @property
    def num_workers(self) -> int:
        """W, the number of workers of the cluster."""
        return int(self.metadata["num_workers"])

    @property
    def end_time(self) -> float:
        """When the run ended, in seconds from its start."""
        return float(self.metadata["end_time"])

    def validate(self) -> Trace:
        """Checks the invariants of the trace.

        Returns:
            The same trace.

        Raises:
            ValueError: an invariant is broken: times are not monotone, a task occurs twice, a task read a
                version that did not exist yet, a weight is not finite, counts do not add up, or a cached copy
                lacks the update that it must contain. The message names worker and clock of the first such
                task.

        >>> import dmlcore as dml
        >>> trace = dml.simulate(dml.asp(), dml.Cluster.uniform(2), updates=3)
        >>> trace.validate() is trace
        True
        """
        for what, wanted in (("tasks", TASK_COLUMNS), ("updates", UPDATE_COLUMNS)):
            if missing := [name for name in wanted if name not in getattr(self, what)]:
                raise ValueError(f"trace.{what} lacks the columns {missing}")
        # Arrays: for short traces one operation on a frame takes as long as all of these on arrays.
        columns: list[np.ndarray] = [np.asarray(self.tasks[name]) for name in TASK_COLUMNS]
        worker, clock, batch_size, read, pull, start, end, push, update, weight = columns
        times, num_tasks, samples = (np.asarray(self.updates[name]) for name in UPDATE_COLUMNS)
        applied, cached = update >= 0, np.isnan(pull)
        self._require(np.isfinite(start) & np.isfinite(end), "has a compute time that is not finite")
        self._require(~(pull > start), "starts to compute before its pull starts")
        self._require(end >= start, "ends before it starts")
        self._require(~(push < end), "arrives before it is computed")
        self._require(np.isfinite(push) | ~applied, "is applied but never arrived")
        order, ahead = _in_order(worker, clock)
        first = np.ones(len(order), bool)
        first[order[1:][ahead == 0]] = False
        self._require(first, "occurs twice")
        self._require(batch_size >= 1, "has no samples")
        self._require(np.isfinite(weight), "has a weight that is not finite")
        for name in QUEUE_COLUMNS.keys() & {*self.tasks}:
            self._require(np.asarray(self.tasks[name]) >= 0, "waited in a queue for less than 0 seconds")
        self._require(update < len(times), f"is in an update beyond the last of {len(times)}")
        self._require((worker >= 0) & (worker < self.num_workers), "has a worker beyond those of the cluster")
        self._require((read >= 0) & (~applied | (read <= update)), "reads a version later than its update")
        if len(times) and not (np.isfinite(times).all() and (np.diff(times) >= 0).all()):
            raise ValueError("trace.updates has times that are not finite and ascending")
        made = np.append(times, np.nan)[update]
        self._require(~(push > made), "is in an update that was made before it arrived")
        if len(times) and times[-1] > self.end_time:
            raise ValueError("trace.updates has an update after the end of the run")
        exists = np.append(0.0, times)[np.clip(read, 0, len(times))] <= np.where(cached, start, pull)
        self._require(exists, "reads a version that did not exist yet")
        count = np.bincount(update[applied], minlength=len(times))
        total = np.bincount(update[applied], batch_size[applied], minlength=len(times))
        if (miscounted := (count != num_tasks) | (total != samples)).any():
            u = int(miscounted.argmax())
            raise ValueError(f"trace.updates: update {u} does not match its tasks or samples in trace.tasks")
        if cached.any():
            previous = _previous(order, ahead)
            bare = cached & ((previous < 0) | (update[previous] < 0))
            self._require(~bare, "uses a cached copy that lacks its own worker's last update")
        return self

    def _require(self, holds: Any, complaint: str) -> None:
        wrong = np.flatnonzero(~np.asarray(holds))
        if len(wrong):
            task = self.tasks.iloc[int(wrong[0])]
            raise ValueError(f"trace.tasks: task of worker {task.worker:g}, clock {task.clock:g} {complaint}")

    def until(self, update: int) -> Trace:
        """Returns the trace of the run's first `update` updates, as if the run had stopped there.

        Guarantee: for a policy whose updates contain the push that completes them, the result is row by row
        the trace of a run with `updates=update`, also if times tie.

        Args:
            update: number of updates, >= 0. If the run has no more than that, the whole trace is returned.

        Returns:
            A trace with at most `update` updates.

        Raises:
            ValueError: `update` is not a whole number >= 0.

        >>> import dmlcore as dml
        >>> dml.simulate(dml.asp(), dml.Cluster.from_speeds([32, 16]), updates=9).until(3)
        Trace(asp(), 2 workers, 4 tasks, 3 updates)
        """
        update = checks.integer("update", update, low=0)
        if update >= len(self.updates):
            return self
        tasks = self.tasks
        end = float(self.updates["time"].iloc[update - 1]) if update else 0.0
        # The row of the push that made the last update.
        last = np.flatnonzero(tasks["update"].between(0, update - 1)).max(initial=-1)
        done = (np.arange(len(tasks)) <= last) | (tasks["push_end"] < end)
        # A worker that pulled has read an existing version; one that kept its copy had computed the task
        # before.
        began = np.where(
            tasks["pull_start"].isna(),
            (predecessors(tasks) <= last) & (tasks["compute_start"] <= end),
            tasks["version_read"] < update,
        )
        cut = tasks[began & ~done].sort_values(["worker", "clock"])
        times = ["compute_start", "compute_end"]
        cut[times] = cut[times].clip(upper=end)
        cut["push_end"] = np.nan
        if "push_queued" in cut:
            transfer = (cut["compute_start"] - cut["pull_start"]).fillna(0.0)
            cut = cut.assign(push_queued=0.0, pull_queued=np.minimum(cut["pull_queued"], transfer))
        tasks = pd.concat([tasks[done], cut], ignore_index=True)
        tasks.loc[tasks["update"] >= update, ["update", "weight"]] = -1, 0.0
        metadata: dict[str, Any] = {**self.metadata, "end_time": end}
        if "wakes" in metadata:
            metadata["wakes"] = [wake for wake in metadata["wakes"] if wake[0] <= end]
        return Trace(tasks, self.updates.iloc[:update].copy(), metadata)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the trace to a Parquet file, which `load` reads.

        The file holds the tasks, with the times of their updates as a further column, and the metadata as
        JSON. It is written under another name and then renamed, so it is never incomplete.

        Args:
            path: the file; an existing one is replaced, and a missing folder is created.

        Raises:
            ValueError: `path` is not a path.

        >>> import tempfile
        >>> import dmlcore as dml
        >>> trace = dml.simulate(dml.asp(), dml.Cluster.uniform(2), updates=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     trace.save(f"{folder}/run.parquet")
        ...     Trace.load(f"{folder}/run.parquet")
        Trace(asp(), 2 workers, 4 tasks, 3 updates)
        """
        times = np.append(self.updates["time"].to_numpy(), np.nan)
        tasks = self.tasks.assign(update_time=times[self.tasks["update"]])
        path = Path(checks.path("path", path))
        sealed.write(path, tasks, METADATA_KEY, json.dumps(self.metadata, sort_keys=True).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Reads a file that `save` wrote. Nothing is unpickled.

        Args:
            path: the file.

        Returns:
            The trace, validated.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError: the file is not Parquet, is not a trace, is damaged, or breaks an invariant.
        """
        path = checks.existing_file("path", checks.path("path", path), "a trace file that exists")
        try:
            frame, written = sealed.read(path, METADATA_KEY)
            metadata = json.loads(written)
            checks.check_num_workers("num_workers", metadata["num_workers"])
            checks.check_seed("seed", metadata["seed"])
            checks.real("end_time", metadata["end_time"], low=0)
            further = [name for name in QUEUE_COLUMNS if name in frame]
            for name in (*TASK_COLUMNS, *further):
                if TASK_COLUMNS.get(name) is np.int32:
                    tables.integers("tasks", frame, name, low=-1, high=checks.MAX_COUNT)
                else:
                    tables.numbers("tasks", frame, name, nan=True)
            tasks = frame[[*TASK_COLUMNS, *further]].astype(TASK_COLUMNS)
            applied = frame[frame["update"] >= 0].groupby("update")
            counts = {"num_tasks": ("worker", "size"), "samples": ("batch_size", "sum")}
            updates = applied.agg(time=("update_time", "first"), **counts)
            return cls(tasks, updates.astype(UPDATE_COLUMNS).reset_index(drop=True), metadata).validate()
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            cause = kind + " ".join(str(error).split())
            found = f"{str(path)!r}, which cannot be read as a trace ({cause})"
            expected = "an undamaged file written by Trace.save"
            raise ValueError(checks.message("path", found, expected)) from error

    _repr_html_ = notebook.html

    def __repr__(self) -> str:
        policy, tasks, updates = self.metadata.get("policy", "?"), len(self.tasks), len(self.updates)
        return f"Trace({policy}, {self.num_workers} workers, {tasks} tasks, {updates} updates)"


check_trace = partial(checks.check_kind, kind=Trace)


def starts(tasks: pd.DataFrame) -> pd.Series:
    """Returns the start of each task in seconds: of its pull, or of computing if it kept the cached copy."""
    return tasks["pull_start"].fillna(tasks["compute_start"])


def cut_computing(trace: Trace) -> pd.Series:
    """Returns whether each task was cut while it was being computed, and not while it was being pushed.

    The end of its computing is then the time of the decision that cut it: an update, a push without an
    update, a timer or a fault. For a push that was cut, a trace does not contain its progress or its waiting
    time.
    """
    known, tasks = trace.metadata, trace.tasks
    others = [*known.get("cancels", ()), *(time for time, _, _ in known.get("wakes", ()))]
    others += [float(incident["time"]) for incident in known.get("incidents", ())]
    decided = np.append(trace.updates["time"].to_numpy(), others)
    return tasks["push_end"].isna() & tasks["compute_end"].isin(decided)


def predecessors(tasks: pd.DataFrame) -> np.ndarray:
    """Returns for each task the row of its worker's task one clock before, or -1; shape (T,)."""
    return _previous(*_in_order(np.asarray(tasks["worker"]), np.asarray(tasks["clock"])))


def _in_order(worker: np.ndarray, clock: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows sorted by worker and clock, and the difference in clock between consecutive rows.

    The difference is -1 if the two rows belong to different workers. Shapes (T,) and (T - 1,).
    """
    order = np.lexsort((clock, worker))
    same = worker[order[1:]] == worker[order[:-1]]
    return order, np.where(same, clock[order[1:]] - clock[order[:-1]], -1)


def _previous(order: np.ndarray, ahead: np.ndarray) -> np.ndarray:
    """Returns for each task the row of its worker's task one clock before, or -1; shape (T,)."""
    found = np.full(len(order), -1)
    found[order[1:][ahead == 1]] = order[:-1][ahead == 1]
    return found
