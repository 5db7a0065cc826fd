"""Additive updates: which runs support them, and which tasks are skipped."""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from dmlcore import checks
from dmlcore.calls import keywords
from dmlcore.problems.problem import Problem
from dmlcore.trace import Trace
from dmlcore.trace.record import Task

MOST_SAMPLES = 2**23  # largest number of samples whose positions can be computed in 32 bits


class Turn(NamedTuple):
    """An applied task."""

    worker: int
    clock: int
    version: int  # version that it read
    pulled: bool  # True: its worker pulled. False: its worker kept its cached copy
    update: int  # update that it is part of

    @classmethod
    def of(cls, task: Task) -> Self:
        """Returns the turn of a recorded task that is in an update."""
        return cls(task.worker, task.clock, task.version_read, not math.isnan(task.pull_start), task.update)


class Turns:
    """Decides which tasks of an additive problem count, update by update.

    A task has the weight 1, whatever the policy's weight, if its view contains all earlier changes of its
    worker to the same samples; a worker with a cached copy always has them. Otherwise the task is skipped
    (weight 0), because it would repeat or undo a change: for example, it would move a token from a topic that
    the token has already left. This happens if a worker starts its next task while its push still waits, and
    takes the same samples again. Every task has `batch_size` samples.
    """

    def __init__(self, num_samples: int, num_workers: int, batch_size: int):
        self._num_samples, self._num_workers, self._batch_size = num_samples, num_workers, batch_size
        # By worker, for its tasks that counted: the update, and the position of the first sample.
        self._counted: list[list[tuple[int, int]]] = [[] for _ in range(num_workers)]

    def weights(self, turns: Sequence[Turn]) -> list[float]:
        """Returns the weight of each task of the next updates, in any order: 1, or 0 if it is skipped."""
        order = sorted(range(len(turns)), key=lambda i: (turns[i].update, *turns[i][:2]))
        weights = {i: self._weight(*turns[i]) for i in order}
        return [weights[i] for i in range(len(turns))]

    def _weight(self, worker: int, clock: int, version: int, pulled: bool, update: int) -> float:
        owned = -(-(self._num_samples - worker) // self._num_workers)
        first, counted = clock * self._batch_size % owned, self._counted[worker]
        for since, other in reversed(counted) if pulled else ():
            if since < version:
                break
            if min((first - other) % owned, (other - first) % owned) < self._batch_size:
                return 0.0
        counted.append((update, first))
        return 1.0


def whole(trace: Trace, problem: Problem) -> Trace:
    """Returns the trace with the weights of its tasks for an additive problem.

    Raises:
        ValueError: the run does not support additive updates.
    """
    if not problem.additive:
        return trace
    tasks = trace.tasks
    check_additive(problem, trace.metadata, np.unique(tasks["batch_size"]).tolist())
    applied = np.flatnonzero(tasks["update"] >= 0)
    names = ["worker", "clock", "version_read", "pull_start", "update"]
    worker, clock, version, pulled, update = (tasks[name].to_numpy()[applied] for name in names)
    pulled = ~np.isnan(pulled)
    counts = np.ones(len(applied))
    order = np.lexsort((clock, update, worker))
    again = worker[order[1:]] == worker[order[:-1]]
    if (again & pulled[order[1:]] & (update[order[:-1]] >= version[order[1:]])).any():
        # The view of some task lacks an earlier update of its worker, so the samples must be compared.
        turns = Turns(problem.num_samples, trace.num_workers, int(tasks["batch_size"].iloc[0]))
        columns = (column.tolist() for column in (worker, clock, version, pulled, update))
        counts = np.array(turns.weights([*map(Turn, *columns)]))
    weights = np.zeros(len(tasks))
    weights[applied] = counts
    return dataclasses.replace(trace, tasks=tasks.assign(weight=weights))


def void_tasks(trace: Trace, problem: Problem) -> int:
    """Returns the number of skipped tasks in the updates of an additive problem, see `Turns`."""
    tasks = whole(trace, problem).tasks
    return int(((tasks["update"] >= 0) & (tasks["weight"] == 0)).sum())


def check_additive(problem: Problem, metadata: Mapping[str, Any], sizes: Iterable[int]) -> None:
    """Raises ValueError if a run with tasks of such sizes does not support additive updates."""
    given, what = metadata.get, f"for the additive updates of {problem.name}"
    if given("compensation"):
        checks.fail("compensation", given("compensation"), f"0 {what}")
    if given("changes_values"):
        checks.fail("transport", given("transport"), f"one that sends exact values {what}")
    if given("aggregate"):
        checks.fail("aggregate", given("aggregate"), f"mean() {what} (which are added, not voted on)")
    # Weights that a policy derives from a mean, samples or staleness are ignored. A weight that the user has
    # set is an error.
    if keywords(given("policy")).get("weight", 1) not in (None, 1):
        hint = "optax.scale, which scales every task (not for parameters that are whole numbers)"
        checks.fail("policy", given("policy"), f"one with weight=1 or weight=None {what}", hint)
    if given("load", "equal()") != "equal()":
        checks.fail("load", given("load"), f"'equal()' {what}")
    workers, sizes = int(metadata["num_workers"]), set(sizes)
    if sizes - {given("batch_size", *sizes)}:
        checks.fail("policy", given("policy"), f"one that does not change the size of tasks {what}")
    checks.integer("num_samples", problem.num_samples, low=1, high=MOST_SAMPLES - 1, why=what)
    least = problem.num_samples // workers
    if not least:
        expected = f"at most {problem.num_samples} workers, one for each sample, {what}"
        checks.reject("cluster", f"{workers}", expected)
    for size in sizes:
        checks.integer(
            "batch_size", size, low=1, high=least, why=f"samples that each of {workers} workers owns"
        )
