"""The driver of segments: it trains along a timeline while it is made, for policies that watch training."""

import functools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dmlcore.engines.spec import RunSpec
from dmlcore.problems.problem import Problem
from dmlcore.trace.record import Task
from dmlcore.training.aggregation import nothing_gathered, traced
from dmlcore.training.batches import draw_one
from dmlcore.training.coding import coding_by
from dmlcore.training.driver import fuses, spill
from dmlcore.training.evaluation import device_data, evaluate
from dmlcore.training.local_steps import contribution_of
from dmlcore.training.loop import advance_one
from dmlcore.training.program import NONE, Losses, Slots, Tasks, cut, lay_out, power_of_two, row_shape
from dmlcore.training.step import Inputs, begin
from dmlcore.training.turns import Turn, Turns
from dmlcore.types import Observation, Progress

LEAST_ROWS = 32  # smallest number of rows in a call; fewer rows are padded, so that there are few shapes


class TrainingWatch:
    """Trains a problem along an unfinished timeline, and returns what a server would have observed.

    It is a `dmlcore.types.Watch`. Losses are the problem's losses of all its data; an observation takes no
    virtual time. The rows between two observations are a segment, which is appended to the earlier ones.

    Args:
        problem: the problem to train.
        optimizer: optax optimizer.
        spec: the rest of the run's description.
    """

    def __init__(self, problem: Problem, optimizer: optax.GradientTransformation, spec: RunSpec):
        self._problem, self._kind = problem, contribution_of(problem)
        self._aggregate, self._num_workers = spec.aggregate, spec.cluster.num_workers
        coding, keeps_copies = coding_by(spec.transport), spec.policy.keep_copy is not None
        lock_step = spec.policy.max_lead == 0 and not spec.transport.pipelined  # all tasks read the newest
        self._fuse = lock_step and not keeps_copies and fuses(self._kind, coding, self._aggregate)
        self._copies = self._num_workers if keeps_copies else 0  # the first slots, for cached copies
        self._compensation = 0.0 if lock_step else spec.compensation
        self._data, self._eval_data = device_data(problem)
        self._begin = functools.partial(
            begin,
            self._kind,
            optimizer,
            spec.seed,
            self._num_workers,
            filler=self._num_workers,
            aggregate=self._aggregate,
            places=self._num_workers,
            reads_newest=self._fuse,
            accumulates=not self._fuse,
            keeps_copies=keeps_copies,
            compensates=self._compensation > 0,
            weighs=not self._fuse and self._kind.weighs,
            scales=self._kind.weighs,
            watches=True,
            coding=coding,
        )
        self._life = 0
        self._start()

    def _start(self) -> None:
        self._trained = 0  # updates trained so far
        self._first = 0  # first row of the record whose task may be in a later update
        self._widths: set[int] = set()  # widths of tasks so far
        self._losses = Losses()
        self._versions = np.zeros((1, 2))  # samples and seconds of each version
        self._turns: Turns | None = None
        self._slots = Slots()
        self._spill = spill(0, self._num_workers)
        self._plan, numbers, self._source, self._state = self._begin(num_slots=self._spill + 1)
        self._inputs = Inputs(self._data, numbers)

    def __call__(self, progress: Progress) -> Observation:
        """Returns the observation since the last call."""
        if progress.life != self._life:
            self._life = progress.life
            self._start()
        landed = progress.record.applied(since=self._trained, first=self._first)
        self._trained, self._first = progress.num_updates, progress.oldest
        found = self._train(landed, progress) if landed else {}
        params = self._kind.whole(self._state.params, self._state.local)
        loss = evaluate(self._problem, params, self._eval_data)["loss"]
        return Observation(progress.num_updates, progress.time, float(loss), **found)

    def _train(self, landed: list[Task], progress: Progress) -> dict[str, Any]:
        columns = [(t.update, t.worker, t.clock, t.batch_size, t.version_read) for t in landed]
        update, worker, clock, batch_size, version = np.array(columns, np.int64).T
        weight, copies = np.array([task.weight for task in landed], float), np.full(len(landed), NONE)
        updates, first, counts = np.unique(update, return_index=True, return_counts=True)
        if not self._kind.weighs:  # an additive problem, where all tasks have one size
            problem, size = self._problem, int(batch_size[0])
            self._turns = self._turns or Turns(problem.num_samples, self._num_workers, size)
            weight = np.array(self._turns.weights([*map(Turn.of, landed)]))
        most = int(counts.max()) if self._fuse else 1
        limit = max(self._num_workers, most) if self._fuse else 1
        width, samples = row_shape(most, int(batch_size.max()), limit, sys.maxsize)
        self._widths |= {self._kind.width(size) for size in np.unique(batch_size).tolist()}
        kind = contribution_of(self._problem, [samples] if self._fuse else sorted(self._widths))

        released = np.array([task.pull_start for task in landed])
        released = np.where(np.isnan(released), [task.compute_start for task in landed], released)
        anew = self._losses.before(worker, released, progress.incidents)
        tasks = Tasks(update, worker, clock, batch_size, version, weight, copies, anew)
        slots = None if self._fuse else self._slots
        plain = self._aggregate.plain
        made = np.cumsum(np.add.reduceat(batch_size, first)) + self._versions[-1, 0]
        times = progress.times[updates[0] : updates[-1] + 1]
        self._versions = np.concatenate([self._versions, np.stack([made, times], axis=1)])
        how = width, self._compensation, slots, self._versions, progress.live
        rows = lay_out(tasks, self._fuse, *how, weighed=plain)
        if self._copies:
            kept = np.isnan([task.pull_start for task in landed])
            read, write = np.where(kept, worker, rows.read + self._copies), rows.write + self._copies
            rows = rows._replace(read=read, write=np.where(rows.write == NONE, NONE, write), keep=worker)
        num_rows = len(rows.last)
        self._grow(int(counts.max()))
        size = power_of_two(max(num_rows, LEAST_ROWS))
        shape = size, width, self._spill, self._num_workers, self._plan.paced
        given = cut(rows, slice(num_rows), *shape)
        who = given.worker.ravel(), given.clock.ravel()
        drawn = draw_one(kind.problem.num_samples, kind.widths[-1], self._source, *who)
        plan, given = self._plan._replace(contribution=kind), given._replace(samples=drawn)
        self._state, info = advance_one(plan, self._inputs, self._state, given, np.int32(num_rows))
        new = updates >= progress.looked  # after a crash it has repeated updates that were observed before
        square, product = (np.asarray(column)[:num_rows][rows.last].astype(float)[new] for column in info)
        return {
            "tasks": counts[new].tolist(),
            "samples": np.add.reduceat(batch_size, first)[new].tolist(),
            "squared_norms": square.tolist(),
            "products": product.tolist(),
        }

    def _grow(self, most: int) -> None:
        """Enlarges the arrays for the assigned slots and the spill slot, and for `most` pushes of an update.

        Between updates no pushes are stored.
        """
        self._spill = max(self._spill, spill(self._copies + self._slots.count, self._num_workers))

        def more(slots: Any) -> Any:
            missing = self._spill + 1 - len(slots)
            return slots if missing <= 0 else jnp.concatenate([slots, jnp.repeat(slots[:1], missing, 0)])

        self._state = self._state._replace(slots=jax.tree.map(more, self._state.slots))
        rule, params = self._plan.aggregation, self._state.params
        if rule is not None and 0 < rule.places < most:
            rule, numbers = traced(self._aggregate, params, power_of_two(most))
            assert rule is not None
            self._plan = self._plan._replace(aggregation=rule)
            self._inputs = self._inputs._replace(numbers=self._inputs.numbers._replace(aggregate=numbers))
            self._state = self._state._replace(gathered=nothing_gathered(rule, params))
