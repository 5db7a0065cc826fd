"""Measured durations of tasks, which a cluster uses unchanged instead of random times."""

import dataclasses
import functools
import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from dmlcore import checks
from dmlcore.reading.log import BATCH_SIZE, read, warned

BEYOND = ("cycle", "resample", "error", "bootstrap", "rounds")


@dataclass(frozen=True)
class Durations:
    """The measured tasks of `Cluster.from_durations`; each worker's tasks are in the order of its clocks.

    Args:
        seconds: compute times of each worker's tasks in seconds, W tuples.
        samples: batch sizes of each worker's tasks in samples, W tuples.
        beyond: the times of tasks after a worker's last row, or how all rows are drawn, one of `BEYOND`.
        run: with "bootstrap" and "rounds", how many rows that follow one another are drawn together.
    """

    seconds: tuple[tuple[float, ...], ...]
    samples: tuple[tuple[int, ...], ...]
    beyond: str
    run: int = 1

    @classmethod
    def checked(cls, source: Any, beyond: str) -> Self:
        """Returns the durations that the arguments of `Cluster.from_durations` describe."""
        checks.choice("beyond", beyond, dict.fromkeys(BEYOND))
        log = read("frame", source, lacking=lambda columns: [BATCH_SIZE] * ("batch_size" not in columns))
        made = cls.of(log.tasks, beyond)
        warned(log, source)
        return made

    @classmethod
    def of(cls, tasks: pd.DataFrame, beyond: str, run: int = 1) -> Self:
        """Returns the durations of a log's tasks, in the order of rows or, if it has times, of starts.

        Args:
            tasks: the columns `worker`, `batch_size` and `seconds`, and maybe `compute_start`.
            beyond: one of `BEYOND`.
            run: rows that are drawn in a run.
        """
        keys = [tasks[name] for name in ("compute_start", "worker") if name in tasks]
        order = np.lexsort(keys)
        worker = tasks["worker"].to_numpy()[order]
        parts = np.flatnonzero(np.diff(worker)) + 1
        rows, sizes = (
            tuple(tuple(own.tolist()) for own in np.split(tasks[name].to_numpy()[order], parts))
            for name in ("seconds", "batch_size")
        )
        for number, (times, samples) in enumerate(zip(rows, sizes, strict=True)):
            if not any(times):
                expected = "at least one task that takes time"
                checks.reject(f"frame, worker {number}", "only tasks of 0 seconds", expected)
            if not (sum(times) < np.inf and 0 < sum(samples) / sum(times) < np.inf):
                where = f"frame, worker {number}, seconds"
                checks.fail(where, [*times[:3]], "times with a finite speed > 0")
        return cls(rows, sizes, beyond, run)

    @property
    def speeds(self) -> list[float]:
        """Mean speed of each worker over all its rows, samples/s."""
        return [sum(b) / sum(s) for s, b in zip(self.seconds, self.samples, strict=True)]

    def resized(self, like: list[int]) -> Self:
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

        return dataclasses.replace(self, seconds=each(self.seconds), samples=each(self.samples))

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
        run = {"run": self.run} if self.run > 1 else {}
        return {"tasks": tasks, "beyond": self.beyond, **run, "sha256": self.fingerprint}

    def __str__(self) -> str:
        count = sum(map(len, self.seconds))
        drawn = {"bootstrap": "drawn by worker", "rounds": "drawn by round"}.get(self.beyond)
        runs = f", {self.run} in a row" if self.run > 1 else ""
        return f"{count} measured task{'s' * (count > 1)}, {drawn or f'beyond: {self.beyond}'}{runs}"
