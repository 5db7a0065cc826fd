"""The trace: what each worker computed when, on which version, and in which update it was applied."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
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
# Further ones, where the server takes time: how long pull and push have waited in its queues, seconds.
QUEUE_COLUMNS: dict[str, type] = {"pull_queued": np.float64, "push_queued": np.float64}
UPDATE_COLUMNS: dict[str, type] = {"time": np.float64, "num_tasks": np.int32, "samples": np.int64}
METADATA_KEY = b"dmlcore.trace"
MOST = 2**31 - 1  # of a whole number in a trace


@dataclass(frozen=True, eq=False)
class Trace:
    """The record of a run in columns: all that plots, metrics, exports and replay need.

    The constructor checks nothing; `validate` checks a trace.

    Args:
        tasks: one row for each gradient task, in the order in which they arrived, were cancelled or cut,
            with the columns `worker, clock, batch_size, version_read, pull_start, compute_start,
            compute_end, push_end, update, weight`. Times are seconds from the start of the run.
            `pull_start` is NaN where the worker continued on its cached copy, to which it had added its own
            updates. `push_end` is NaN where the push never arrived: the task was cancelled, or in flight when
            the run ended, and its last phase is cut at that time. `update` is -1, and `weight` 0, where the
            task is in no update. Where the cluster's server takes time, `pull_queued` and `push_queued` are
            the seconds for which a pull and a push waited in its queues.
        updates: one row for each server update, with the columns `time, num_tasks, samples`; row u turns
            version u into version u + 1.
        metadata: cluster, policy, seed, versions and the like, as JSON values. Where the policy has timers,
            `wakes` lists those that fired: the time, the number of pushes before it, and the timer's number.
            Timers are numbered in the order in which they were set; number 0 is the timer at the start.

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
        frame: pd.DataFrame | str | os.PathLike[str],
        *,
        batch_size: int | None = None,
        num_workers: int | None = None,
        end_time: float | None = None,
        origin: float | None = None,
        policy: str | None = None,
        seed: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Trace:
        """Returns the trace of a run that another system made, from a table of its tasks.

        Guarantee: the columns of a trace's tasks, with `update_time` and its metadata, give the same trace
        again. What the table does not say is derived: without `update` each push that arrived is an update of
        its own (asynchronous), numbered by `push_end`, in ties by row. An update is made when its last push
        is there, and the update before it is made. A task reads the version of its `pull_start`: as many as
        updates were made until then. Its weight is its share of its update's samples.

        Args:
            frame: a DataFrame, or the path of a CSV or Parquet file, with a row for each task and the columns
                `worker` (whole numbers from 0), `start` and `end` (of computing, seconds; or `compute_start`
                and `compute_end`). Where known: `batch_size`; `clock`, else tasks are numbered by start;
                `pull_start`, else `start`, NaN: a cached copy; `push_end`, else `end`, NaN: it never arrived;
                `update`, -1 or NaN: in none; `update_time`; `version_read`, `weight`, NaN: derived; the
                columns of queues. Others are ignored.
            batch_size: samples of every task, where there is no such column.
            num_workers: W, where some have no task. Default: those in the table, from worker 0 on.
            end_time: when the run ended, on the table's clock. Default: when the last thing happened.
            origin: when the run began, on the table's clock; 0 of the trace. Default: 0; a log that begins
                much later needs it.
            policy: what to call the server's rule. Default: "recorded".
            seed: of the batches and parameters that `replay` draws. Default: 0.
            metadata: more of it, as JSON values, such as the `metadata` of another trace; an argument of the
                same name goes first. Its `end_time` counts from `origin`.

        Returns:
            The trace, validated.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: something is missing (all that is missing is listed); there are no rows; a number is
                NaN, infinite or out of range; tasks of a worker overlap, or end before they start; or an
                invariant of `validate` is broken.

        >>> log = pd.DataFrame({"worker": [0, 1, 0], "start": [0.0, 0.0, 1.0], "end": [1.0, 1.5, 2.0]})
        >>> trace = Trace.from_tasks(log, batch_size=32, policy="their ASP")
        >>> trace, trace.tasks["version_read"].tolist()
        (Trace(their ASP, 2 workers, 3 tasks, 3 updates), [0, 0, 1])
        """
        from dmlcore.trace.importing import trace_of  # which builds on this module

        return trace_of(frame, batch_size, num_workers, end_time, origin, policy, seed, metadata)

    @property
    def num_workers(self) -> int:
        """W, the number of workers of the cluster."""
        return int(self.metadata["num_workers"])

    @property
    def end_time(self) -> float:
        """When the run ended, seconds."""
        return float(self.metadata["end_time"])

    def validate(self) -> Trace:
        """Checks the invariants of a trace and returns it.

        Raises:
            ValueError: naming the worker and clock of the first task that breaks one: times not monotone, a
                task twice, a version read that did not exist yet, a weight that is not finite, counts that
                do not add up, or a cached copy without the update that it must hold.
        """
        for what, wanted in (("tasks", TASK_COLUMNS), ("updates", UPDATE_COLUMNS)):
            if missing := [name for name in wanted if name not in getattr(self, what)]:
                raise ValueError(f"trace.{what}: columns {missing} are missing")
        # Arrays, since many a trace is short, and every operation on a frame takes as long as all of these.
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
        self._require(first, "is there twice")
        self._require(batch_size >= 1, "has no samples")
        self._require(np.isfinite(weight), "has a weight that is not finite")
        for name in QUEUE_COLUMNS.keys() & {*self.tasks}:
            self._require(np.asarray(self.tasks[name]) >= 0, "has waited in a queue for less than no time")
        self._require(update < len(times), f"is in an update beyond the last of {len(times)}")
        self._require((worker >= 0) & (worker < self.num_workers), "is of a worker that is not there")
        self._require((read >= 0) & (~applied | (read <= update)), "reads a version later than its update")
        if len(times) and not (np.isfinite(times).all() and (np.diff(times) >= 0).all()):
            raise ValueError("trace.updates: times are not finite and ascending")
        made = np.append(times, np.nan)[update]
        self._require(~(push > made), "is in an update that was made before it arrived")
        if len(times) and times[-1] > self.end_time:
            raise ValueError("trace.updates: the last is made after the end of the run")
        exists = np.append(0.0, times)[np.clip(read, 0, len(times))] <= np.where(cached, start, pull)
        self._require(exists, "reads a version that did not exist yet")
        count = np.bincount(update[applied], minlength=len(times))
        total = np.bincount(update[applied], batch_size[applied], minlength=len(times))
        if (miscounted := (count != num_tasks) | (total != samples)).any():
            u = int(miscounted.argmax())
            raise ValueError(f"trace.updates: update {u} does not count the tasks that are in it")
        if cached.any():
            previous = _previous(order, ahead)
            bare = cached & ((previous < 0) | (update[previous] < 0))
            self._require(~bare, "goes on with a cached copy that lacks its own worker's last update")
        return self

    def _require(self, holds: Any, complaint: str) -> None:
        wrong = np.flatnonzero(~np.asarray(holds))
        if len(wrong):
            task = self.tasks.iloc[int(wrong[0])]
            raise ValueError(f"trace.tasks: task of worker {task.worker:g}, clock {task.clock:g} {complaint}")

    def until(self, update: int) -> Trace:
        """Returns the trace as if the run had ended with update number `update` - 1, its `update`-th.

        Guarantee: for a policy whose updates hold the push that made them, it is row by row the trace of the
        run that was told to stop there, also where times tie.
        """
        update = checks.integer("update", update, low=0)
        if update >= len(self.updates):
            return self
        tasks = self.tasks
        end = float(self.updates["time"].iloc[update - 1]) if update else 0.0
        # The row of the push that made the last update.
        last = np.flatnonzero(tasks["update"].between(0, update - 1)).max(initial=-1)
        done = (np.arange(len(tasks)) <= last) | (tasks["push_end"] < end)
        # A worker that pulled has read what was there; one that kept its copy had computed the task before.
        began = np.where(
            tasks["pull_start"].isna(),
            (predecessors(tasks) <= last) & (tasks["compute_start"] <= end),
            tasks["version_read"] < update,
        )
        cut = tasks[began & ~done].sort_values(["worker", "clock"])
        cut = cut.assign(push_end=np.nan, **cut[["compute_start", "compute_end"]].clip(upper=end))
        if "push_queued" in cut:
            transfer = (cut["compute_start"] - cut["pull_start"]).fillna(0.0)
            cut = cut.assign(push_queued=0.0, pull_queued=np.minimum(cut["pull_queued"], transfer))
        tasks = pd.concat([tasks[done], cut], ignore_index=True)
        tasks.loc[tasks["update"] >= update, ["update", "weight"]] = -1, 0.0
        metadata = {**self.metadata, "end_time": end}
        if "wakes" in metadata:
            metadata["wakes"] = [wake for wake in metadata["wakes"] if wake[0] <= end]
        return Trace(tasks, self.updates.iloc[:update].copy(), metadata)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes one Parquet file: the tasks with their updates' times as a further column, metadata as JSON.

        The file is written aside and renamed, so it is there whole or not at all.
        """
        times = np.append(self.updates["time"].to_numpy(), np.nan)
        tasks = self.tasks.assign(update_time=times[self.tasks["update"]])
        path = Path(checks.path("path", path))
        sealed.write(path, tasks, METADATA_KEY, json.dumps(self.metadata, sort_keys=True).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Reads a file that `save` wrote and validates it. Nothing is unpickled.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is no Parquet, no trace, damaged, or breaks an invariant.
        """
        path = Path(checks.path("path", path))
        if not path.is_file():
            raise FileNotFoundError(f"path: got {str(path)!r}, allowed is a trace file that exists")
        try:
            frame, written = sealed.read(path, METADATA_KEY)
            metadata = json.loads(written)
            checks.check_num_workers("num_workers", metadata["num_workers"])
            checks.check_seed("seed", metadata["seed"])
            checks.real("end_time", metadata["end_time"], low=0)
            further = [name for name in QUEUE_COLUMNS if name in frame]
            for name in (*TASK_COLUMNS, *further):
                if TASK_COLUMNS.get(name) is np.int32:
                    tables.integers("tasks", frame, name, low=-1, high=MOST)
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
            allowed = "allowed is an undamaged file written by Trace.save"
            raise ValueError(f"path: {str(path)!r} is not a readable trace ({cause}); {allowed}") from error

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def __repr__(self) -> str:
        policy, tasks, updates = self.metadata.get("policy", "?"), len(self.tasks), len(self.updates)
        return f"Trace({policy}, {self.num_workers} workers, {tasks} tasks, {updates} updates)"


check_trace = checks.instance(Trace)


def starts(tasks: pd.DataFrame) -> pd.Series:
    """Returns when each task was let start: its pull, or its computing where it kept the cached copy."""
    return tasks["pull_start"].fillna(tasks["compute_start"])


def cut_computing(trace: Trace) -> pd.Series:
    """Returns whether each task never arrived as it was cut while computed, not while pushed.

    Its computing then ends with the decision to cut it: with an update, a push that makes none, a timer, or
    a fault. Of a push that was cut, a trace tells neither how far it had come nor how long it had waited.
    """
    known, tasks = trace.metadata, trace.tasks
    others = [*known.get("cancels", ()), *(time for time, _, _ in known.get("wakes", ()))]
    others += [float(incident["time"]) for incident in known.get("incidents", ())]
    decided = np.append(trace.updates["time"].to_numpy(), others)
    return tasks["push_end"].isna() & tasks["compute_end"].isin(decided)


def predecessors(tasks: pd.DataFrame) -> np.ndarray:
    """Returns for each task the row of its worker's task one clock before, -1 where there is none."""
    return _previous(*_in_order(np.asarray(tasks["worker"]), np.asarray(tasks["clock"])))


def _in_order(worker: np.ndarray, clock: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows by worker and clock; and how many clocks each but the first is ahead of the row
    before it, -1 where that is of another worker."""
    order = np.lexsort((clock, worker))
    same = worker[order[1:]] == worker[order[:-1]]
    return order, np.where(same, clock[order[1:]] - clock[order[:-1]], -1)


def _previous(order: np.ndarray, ahead: np.ndarray) -> np.ndarray:
    """Returns for each task the row of its worker's task one clock before, -1 where there is none."""
    found = np.full(len(order), -1)
    found[order[1:][ahead == 1]] = order[:-1][ahead == 1]
    return found
