"""Training along a timeline while it is made, for policies that watch how it goes.

Axes: R rows, K tasks of a row, B samples of a task.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dmlcore.problems.problem import Problem
from dmlcore.training.batches import INIT, run_key, source_of
from dmlcore.training.compiled import device_data, evaluate, pad
from dmlcore.training.hoist import Program, hoist
from dmlcore.training.loop import (
    Carry,
    GradientShape,
    Rows,
    Shape,
    by_row,
    contribution,
    draw_one,
    initial,
    load,
    take_in,
)
from dmlcore.training.schedule import NONE, compensations, padded, power_of_two, row_shape
from dmlcore.training.steps import add, compensate
from dmlcore.training.turns import Turn, Turns
from dmlcore.types import Observation, Progress

LEAST_ROWS = 32  # of a call: fewer are filled up, so that there are few shapes


class Seen(NamedTuple):
    """What is gathered on the way.

    Args:
        gathered: weighted sum g of the gradients of the update in hand.
        before: that of the update before, g'.
        table: of each row's update so far: |g|^2 and g . g'; (R, 2).
    """

    gathered: Any
    before: Any
    table: Any


def inner(one: Any, two: Any) -> Any:
    """Returns the inner product of two pytrees."""
    return sum(jnp.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (one, two)), strict=True))


@functools.partial(
    jax.jit, static_argnames=("problem", "program", "shape"), donate_argnames=("carry", "seen")
)
def advance_watched(
    problem: Problem,
    program: Program,
    shape: Shape,
    carry: Carry,
    seen: Seen,
    rows: Rows,
    count: Any,
    samples: Any,
    data: Any,
    constants: Any,
) -> tuple[Carry, Seen]:
    """`loop.advance`, and what there is to see of the gradients.

    Args:
        problem, program, shape, carry, rows, count, samples, data, constants: as for `loop.advance`.
        seen: what was gathered before.

    Returns:
        The state after, and what was seen.
    """
    samples = by_row(samples, len(rows.read))

    def work_off(i: Any, state: tuple[Carry, Seen]) -> tuple[Carry, Seen]:
        carry, (gathered, before, table) = state
        held = load(shape, carry, rows.read[i])
        own = jax.tree.map(lambda drawn: drawn[i], samples)
        batch_size, weight = rows.batch_size[i], rows.weight[i]
        gradient = contribution(problem, shape.gradient, held[0], own, batch_size, weight, data)
        if shape.compensates:
            gradient = compensate(rows.compensation[i], gradient, carry.params, held[0])
        total = add(gathered, gradient)
        table = table.at[i].set(jnp.stack([inner(total, total), inner(total, before)]))
        last = rows.last[i]
        gathered = jax.tree.map(lambda g: jnp.where(last, 0, g), total)
        before = jax.tree.map(functools.partial(jnp.where, last), total, before)
        compensated = shape._replace(compensates=False)
        carry = take_in(program, constants, compensated, carry, held, gradient, rows, i)
        return carry, Seen(gathered, before, table)

    return jax.lax.fori_loop(0, count, work_off, (carry, seen))


class Slots:
    """Which slot holds which version, allocated as rows come.

    Args:
        count: of slots; version 0 is in the first.
    """

    def __init__(self, count: int):
        self.held = {0: 0}
        self._free = [*range(count - 1, 0, -1)]
        self.count = count

    def allot(self, versions: list[int], ends: list[int], live: set[int]) -> tuple[list[int], list[int]]:
        """Returns for each row the slot that it reads, and the one that its update is written to, or NONE.

        Args:
            versions: that the rows read.
            ends: update that the row ends, or NONE.
            live: versions that are read after these rows.
        """
        readers = Counter(versions)
        reads, writes = [], []
        for version in [v for v in self.held if v not in live and not readers[v]]:
            self._free.append(self.held.pop(version))
        for version, end in zip(versions, ends, strict=True):
            reads.append(self.held[version])
            readers[version] -= 1
            if not readers[version] and version not in live:
                self._free.append(self.held.pop(version))
            made = end + 1
            if end == NONE or not (readers[made] or made in live):
                writes.append(NONE)
                continue
            if not self._free:
                self._free = [*range(2 * self.count - 1, self.count - 1, -1)]
                self.count *= 2
            self.held[made] = self._free.pop()
            writes.append(self.held[made])
        return reads, writes


class TrainingWatch:
    """Trains a problem along a timeline, up to where it has come, and returns what a server would have seen.

    It is a `dmlcore.types.Watch`. Losses are the problem's own, of all its data; looking takes no virtual
    time.

    Args:
        problem: what is trained.
        optimizer: optax optimizer.
        seed: of the run.
        num_workers: of the cluster.
        lock_step: every task reads the newest version.
        compensation: lambda of the policy's delay compensation.

    Raises:
        ValueError: when called, where a worker has gone on with a kept copy.
    """

    def __init__(
        self,
        problem: Problem,
        optimizer: optax.GradientTransformation,
        seed: int,
        num_workers: int,
        lock_step: bool,
        compensation: float = 0.0,
    ):
        self._problem, self._optimizer, self._seed = problem, optimizer, seed
        self._num_workers, self._lock_step = num_workers, lock_step and not problem.additive
        self._compensation = 0.0 if lock_step else compensation
        self._source = source_of(problem, seed, num_workers)
        self._data, self._eval_data = device_data(problem)
        self._life = 0
        self._start()

    def _start(self) -> None:
        params = self._problem.init(run_key(self._seed, INIT))
        state = self._optimizer.init(params)
        self._program, self._constants = hoist(self._optimizer.update, params, state, params)
        self._landed = 0
        self._widths: set[int] = set()  # of tasks, so far
        self._turns: Turns | None = None
        self._slots = Slots(power_of_two(self._num_workers + 1))
        self._carry = initial(self._shape(1), self._slots.count + 1, params, state)
        gathered, before = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
        self._seen = Seen(gathered, before, None)

    def _shape(self, *widths: int) -> Shape:
        gradient = GradientShape(widths, weighs=True)
        stale = not self._lock_step
        return Shape(gradient, self._lock_step, stale, keeps_copies=False, compensates=self._compensation > 0)

    def __call__(self, progress: Progress) -> Observation:
        """Returns what there is to see since the last call."""
        if progress.life != self._life:
            self._life = progress.life
            self._start()
        landed = progress.landed[self._landed :]
        self._landed = len(progress.landed)
        found: dict[str, Any] = {}
        if landed:
            found = self._train(landed, progress)
        loss = evaluate(self._problem, self._carry.params, self._eval_data)["loss"]
        return Observation(progress.num_updates, progress.time, float(loss), **found)

    def _train(self, landed: Any, progress: Progress) -> dict[str, Any]:
        tasks = np.array([(u, *progress.record[row][2:6], weight) for row, u, weight in landed], float)
        if any(np.isnan(progress.record[row][6]) for row, _, _ in landed):
            raise ValueError(
                "policy: got one that watches its training and keeps copies, allowed is one or the other"
            )
        tasks = tasks[np.lexsort((tasks[:, 2], tasks[:, 1], tasks[:, 0]))]
        update, worker, clock, batch_size, version = tasks[:, :5].astype(np.int64).T
        updates, first, counts = np.unique(update, return_index=True, return_counts=True)
        row = np.repeat(np.arange(len(updates)), counts) if self._lock_step else np.arange(len(update))
        place = np.arange(len(update)) - np.repeat(first, counts) if self._lock_step else np.zeros_like(row)
        num_rows = int(row[-1]) + 1
        size = power_of_two(max(num_rows, LEAST_ROWS))
        most = max(self._num_workers, int(place.max()) + 1)
        width, samples = row_shape(int(place.max()) + 1, int(batch_size.max()), most, sys.maxsize)
        if not self._lock_step:
            self._widths |= {padded(size) for size in np.unique(batch_size).tolist()}
        widths = [samples] if self._lock_step else sorted(self._widths)
        if self._problem.additive:
            widths = [samples := int(batch_size[0])]  # of every task
            self._turns = self._turns or Turns(self._problem.num_samples, self._num_workers, samples)
            columns = (column.tolist() for column in (worker, clock, version, np.ones(len(tasks)), update))
            tasks[:, 5] = self._turns.weights([*map(Turn, *columns)])

        def table(values: Any, fill: float, dtype: Any) -> np.ndarray:
            filled = np.full((size, width), fill, dtype)
            filled[row, place] = values
            return filled

        last = np.ones(num_rows, bool) if self._lock_step else np.append(update[1:] != update[:-1], True)
        read, write = np.zeros(num_rows, np.int64), np.full(num_rows, NONE)
        strengths = np.zeros(num_rows)
        if not self._lock_step:
            strengths = compensations(self._compensation, tasks[:, 5], version != update)
            ends = np.where(last, update, NONE).tolist()
            read, write = map(np.array, self._slots.allot(version.tolist(), ends, set(progress.live)))
            self._grow()
        spill = self._slots.count
        real = jax.dtypes.canonicalize_dtype(np.float64)
        rows = Rows(
            table(batch_size, 1, np.int32),
            table(tasks[:, 5], 0, real),
            pad(strengths, size, real),
            pad(read, size, np.int32),
            pad(np.where(write == NONE, spill, write), size, np.int32),
            np.full(size, spill, np.int32),
            pad(last, size, np.bool_),
        )
        drawn = draw_one(
            self._problem.num_samples,
            widths[-1],
            self._source,
            table(worker, 0, np.int32).ravel(),
            table(clock, 0, np.int32).ravel(),
        )
        self._carry, self._seen = advance_watched(
            self._problem,
            self._program,
            self._shape(*widths),
            self._carry,
            self._seen._replace(table=jnp.zeros((size, 2))),
            rows,
            num_rows,
            drawn,
            self._data,
            self._constants,
        )
        seen = np.asarray(self._seen.table)[:num_rows][last]
        square, product = seen.T.astype(float)
        new = updates >= progress.looked  # after a crash it has trained again what was seen before
        return {
            "tasks": counts[new].tolist(),
            "samples": np.add.reduceat(batch_size, first)[new].tolist(),
            "squared_norms": square[new].tolist(),
            "products": product[new].tolist(),
        }

    def _grow(self) -> None:
        """Makes room for the slots that were allotted, and the one that takes what nobody reads."""

        def more(slots: Any) -> Any:
            missing = self._slots.count + 1 - len(slots)
            return slots if missing <= 0 else jnp.concatenate([slots, jnp.repeat(slots[:1], missing, 0)])

        self._carry = self._carry._replace(slots=jax.tree.map(more, self._carry.slots))
