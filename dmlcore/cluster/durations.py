"""Measured durations of tasks, which a cluster uses unchanged instead of random times."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dmlcore import checks, tables

COLUMNS = {"worker": "number, from 0", "samples": "of the task", "seconds": "that it was computed"}
BEYOND = ("cycle", "resample", "error")
MOST = 2**31 - 1


@dataclass(frozen=True)
class Durations:
    """The measured tasks of `Cluster.from_durations`; each worker's tasks are in the order of its clocks.

    Args:
        seconds: compute times of each worker's tasks in seconds, W tuples.
        samples: batch sizes of each worker's tasks in samples, W tuples.
        beyond: the times of tasks after a worker's last row, one of `BEYOND`.
    """

    seconds: tuple[tuple[float, ...], ...]
    samples: tuple[tuple[int, ...], ...]
    beyond: str

    @classmethod
    def checked(cls, frame: pd.DataFrame | str | os.PathLike[str], beyond: str) -> Durations:
        """Returns the durations that the arguments of `Cluster.from_durations` describe."""
        checks.choice("beyond", beyond, dict.fromkeys(BEYOND))
        table = tables.read("frame", frame)
        tables.require("frame", table, COLUMNS)
        worker = tables.integers("frame", table, "worker", low=0, high=MOST)
        samples = tables.integers("frame", table, "samples", low=1, high=MOST)
        seconds = tables.numbers("frame", table, "seconds", low=0)
        counts = np.bincount(worker) if worker.max() < len(worker) else np.zeros(1)
        if not counts.all():
            absent = int(np.setdiff1d(np.arange(len(worker) + 1), worker)[0])
            expected = f"at least one row for each worker from 0 to {worker.max()}"
            hint = "" if absent else "numbering workers from 0"
            checks.reject(f"frame, worker {absent}", "none", expected, hint)
        order = np.argsort(worker, kind="stable")
        parts = np.flatnonzero(np.diff(worker[order])) + 1
        times_of, samples_of = (np.split(values[order], parts) for values in (seconds, samples))
        for number, times in enumerate(times_of):
            if not times.any():
                checks.reject(
                    f"frame, worker {number}", "only tasks of 0 seconds", "at least one task that takes time"
                )
            with np.errstate(over="ignore"):
                speed = samples_of[number].sum() / times.sum()
            if not 0 < speed < np.inf:
                checks.fail(
                    f"frame, worker {number}, seconds",
                    times.tolist()[:3],
                    "times with a finite speed > 0",
                )
        rows, sizes = (tuple(tuple(each.tolist()) for each in own) for own in (times_of, samples_of))
        return cls(rows, sizes, beyond)

    @property
    def speeds(self) -> list[float]:
        """Mean speed of each worker over all its rows, samples/s."""
        return [sum(b) / sum(s) for s, b in zip(self.seconds, self.samples, strict=True)]

    def resized(self, like: list[int]) -> Durations:
        """Returns the durations of a cluster whose worker i copies worker `like[i]` of this one.

        Where m workers copy one worker with n rows, the j-th of them starts at row floor(j n / m) and
        continues with the first rows after the last.
        """
        of, copies, first = Counter(like), Counter[int](), []
        for worker in like:
            first.append(copies[worker] * len(self.seconds[worker]) // of[worker])
            copies[worker] += 1

        def each(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(values[w][row:] + values[w][:row] for w, row in zip(like, first, strict=True))

        return Durations(each(self.seconds), each(self.samples), self.beyond)

    def past(self, worker: int, clock: int) -> ValueError:
        """Returns the error of a task after a worker's last row, for `beyond="error"`."""
        count = len(self.seconds[worker])
        name = f"durations of worker {worker}, clock {clock}"
        hint = 'a longer record, a shorter run, or beyond="cycle" or beyond="resample"'
        return ValueError(checks.message(name, str(count), f"at least {clock + 1} measured tasks", hint))

    @functools.cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all rows."""
        return hashlib.sha256(json.dumps([self.seconds, self.samples]).encode()).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Returns the durations as plain JSON values: the number of tasks per worker, and the fingerprint."""
        tasks = [len(each) for each in self.seconds]
        return {"tasks": tasks, "beyond": self.beyond, "sha256": self.fingerprint}

    def __str__(self) -> str:
        count = sum(map(len, self.seconds))
        return f"{count} measured task{'s' * (count > 1)}, beyond: {self.beyond}"
