"""Contributions: what a task computes for an update, the gradient of its samples or an additive update.

`local_steps.contribution_of` chooses the kind. A new kind is a class like these in a module of its own, like
`local_steps.LocalTraining`. It must push a tree like the parameters, which links and slots can hold.
Axes: K tasks of a row, B samples of a task.
"""

import abc
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from weakref import ref

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks
from dmlcore.problems.problem import Problem
from dmlcore.training import coding, pacing
from dmlcore.training.batches import rows_of
from dmlcore.training.compiling import isolated
from dmlcore.training.optimizer import hoist_update
from dmlcore.training.program import Rows, padded


@dataclass(frozen=True)
class Contribution(abc.ABC):
    """A kind of task; compiled functions take it as a static argument.

    JAX never releases static arguments, so this object has only a weak reference to the problem and its data.
    The driver holds the problem.
    """

    of_problem: ref[Problem]
    widths: tuple[int, ...]  # numbers of samples to which tasks are padded, ascending
    fuses: ClassVar[bool]  # whether the tasks of a row, which read one version, can be computed as one
    fills: ClassVar[bool] = False  # whether a task may be padded to more samples than it has
    loops: ClassVar[bool] = False  # whether padding costs no time, because a task is a loop over its samples
    weighs: ClassVar[bool]  # whether a push is multiplied by its weight; False: it counts fully or not at all

    @property
    def problem(self) -> Problem:
        """The problem."""
        problem = self.of_problem()
        assert problem is not None, "a contribution is used only while its problem is alive"
        return problem

    def width(self, batch_size: int) -> int:
        """Returns the number of samples to which a task of `batch_size` samples is padded."""
        return batch_size

    @property
    def num_gradients(self) -> int:
        """About how many gradients a task computes at most, which is its cost."""
        return 1

    @property
    def keeps(self) -> bool:
        """Whether a worker's push depends on its earlier tasks."""
        return False

    def begin(self, params: Any, optimizer: Any, num_states: int) -> tuple[Any, Any]:
        """Returns what is sent, and the state that stays with `num_states` workers."""
        served = self.served(params)
        return served, coding.for_each(num_states, self.kept_by_worker(served))

    def whole(self, params: Any, local: Any) -> Any:
        """Returns all parameters: the inverse of `begin`."""
        return self.model(params)

    def served(self, params: Any) -> Any:
        """Returns what a server on a real clock trains, which holds all parameters."""
        return params

    def model(self, served: Any) -> Any:
        """Returns the parameters: the inverse of `served`."""
        return served

    def optimizer(self, optimizer: Any, num_workers: int) -> Any:
        """Returns the optimizer of what is sent, from that of the parameters."""
        return optimizer

    @abc.abstractmethod
    def of(self, view: Any, local: Any, row: Rows, data: Any) -> tuple[Any, Any]:
        """Returns the push of a row's tasks, and the change of the local state.

        The push of a single task is not weighted yet. The push of several tasks is the weighted sum of their
        pushes. All have read `view`. Samples of the row beyond a task's batch size do not count.
        """

    def applied(self, local: Any, samples: Any, change: Any) -> Any:
        """Returns the local state after a row's change of it."""
        return coding.put(local, *change) if change else local

    @abc.abstractmethod
    def on_worker(self, params: Any, samples: Any, batch_size: Any, data: Any, kept: Any) -> Any:
        """Returns the push of a worker on a real clock, which has all parameters, and the state it keeps."""

    def fingerprint(self) -> str:
        """Returns a hash of everything that tasks depend on besides the problem."""
        return ""

    def kept_by_worker(self, params: Any) -> Any:
        """Returns the initial state that a worker on a real clock keeps from task to task."""
        return ()


class Gradient(Contribution):
    """The gradient of the mean loss of a task's samples."""

    fuses = fills = weighs = True

    def width(self, batch_size: int) -> int:
        return padded(batch_size)

    def of(self, view: Any, local: Any, row: Rows, data: Any) -> tuple[Any, Any]:
        batch, batch_size, weight = self._batch(row.samples, data), row.batch_size, row.weight
        if len(weight) > 1:
            return isolated(batch_size[0] > 0, self._of_several, view, batch, batch_size, weight), ()
        task = functools.partial(self._isolated, view, coding.of(local, row.memory))
        pushed, kept = self._at_width(task, batch, batch_size[0])
        return pushed, (row.worker[0], kept) if self.keeps else ()

    def _at_width(self, task: Callable[[Any, Any], Any], batch: Any, batch_size: Any) -> Any:
        """Returns `task(batch, batch_size)`, with the batch as wide as the task's worker has it."""

        def cut(width: int) -> Any:
            return task(jax.tree.map(lambda column: column[:width], batch), batch_size)

        index = jnp.searchsorted(jnp.array(self.widths), batch_size)
        return jax.lax.switch(index, [functools.partial(cut, width) for width in self.widths])

    def on_worker(self, params: Any, samples: Any, batch_size: Any, data: Any, kept: Any) -> Any:
        return self._isolated(params, kept, self._batch(samples, data), batch_size)

    def _isolated(self, view: Any, kept: Any, batch: tuple[Any, ...], batch_size: Any) -> tuple[Any, Any]:
        """Returns `_task`, isolated: in every engine and in replay the same computation."""
        return isolated(batch_size > 0, self._task, view, kept, batch, batch_size)

    def _task(self, pulled: Any, kept: Any, batch: tuple[Any, ...], batch_size: Any) -> tuple[Any, Any]:
        """Returns the push of a task, and what its worker keeps, of which it was given what it has kept."""
        return self._mean(pulled, batch, batch_size), kept

    def _of_several(self, params: Any, batch: tuple[Any, ...], batch_size: Any, weight: Any) -> Any:
        """Returns the weighted sum of the gradients of several tasks."""
        counted = jnp.arange(self.widths[-1]) < batch_size[:, None]
        shares = jnp.where(counted, (weight / batch_size.astype(weight.dtype))[:, None], 0).ravel()
        return self._weighted(params, batch, shares)

    def _batch(self, samples: Any, data: Any) -> tuple[Any, ...]:
        """Returns the arguments of `losses` after the parameters: the rows, and random keys if any."""
        indices, *keys = samples if self.problem.keyed else (samples,)
        return rows_of(data, indices), *keys

    def _mean(self, params: Any, batch: tuple[Any, ...], batch_size: Any) -> Any:
        """Returns the gradient of the mean loss of the first `batch_size` samples of a batch.

        The batch is padded to `padded(batch_size)` samples: sums of equal length have the same order of
        additions, and so the same bits.
        """
        width = jax.tree.leaves(batch)[0].shape[0]
        real = jax.dtypes.canonicalize_dtype(float)
        shares = jnp.where(jnp.arange(width) < batch_size, 1 / jnp.asarray(batch_size, real), 0)
        return self._weighted(params, batch, shares)

    def _weighted(self, params: Any, batch: tuple[Any, ...], shares: Any) -> Any:
        problem = self.problem
        with checks.noting(f"losses of problem {problem.name!r}, on a batch of {len(shares)} samples"):
            return jax.grad(lambda p: jnp.dot(shares, problem.losses(p, *batch)))(params)


class CoupledGradient(Gradient):
    """The gradient if losses depend on the whole batch: computed on exactly the samples of a task."""

    fuses = fills = False
    width = Contribution.width


class Local(NamedTuple):
    """The local parameters of all samples, in a loop."""

    rows: Any  # by name, (N, ...); the row of a sample belongs to its owner
    factor: Any  # factor by which the optimizer multiplies changes


class AdditiveUpdate(Contribution):
    """The additive update that the problem's `update` returns; local parameters stay with their owners.

    The local parameters have only one version: a task that is applied has seen all earlier changes of its
    worker.
    """

    fuses = weighs = False

    def begin(self, params: Any, optimizer: Any, num_states: int) -> tuple[Any, Any]:
        shared, rows = self.problem.apart(params)
        return shared, Local(rows, jnp.asarray(factor(self.problem, optimizer)))

    def whole(self, params: Any, local: Any) -> Any:
        return self.problem.together(params, local.rows)

    def of(self, view: Any, local: Any, row: Rows, data: Any) -> tuple[Any, Any]:
        return self._update(row.weight[0] == 1, view, local.rows, row.samples, data)

    def applied(self, local: Any, samples: Any, change: Any) -> Any:
        def scaled(rows: Any) -> Any:  # whole numbers are not scaled
            real = jnp.issubdtype(rows.dtype, jnp.floating)
            return (local.factor * rows).astype(rows.dtype) if real else rows

        return local._replace(rows=self._added(local.rows, samples[0], jax.tree.map(scaled, change)))

    def on_worker(self, params: Any, samples: Any, batch_size: Any, data: Any, kept: Any) -> Any:
        shared, rows = self.problem.apart(params)
        change, own = self._update(batch_size > 0, shared, rows, samples, data)
        moved = self._added(jax.tree.map(jnp.zeros_like, rows), samples[0], own)
        return self.problem.together(change, moved), kept

    def _update(self, runs: Any, shared: Any, local: Any, samples: Any, data: Any) -> tuple[Any, Any]:
        """Returns the changes of the shared parameters and of the task's local rows; 0 if it is skipped."""
        indices, keys = samples
        view, batch = self.problem.together(shared, rows_of(local, indices)), rows_of(data, indices)
        with checks.noting(f"update of problem {self.problem.name!r}, on a batch of {len(indices)} samples"):
            update = isolated(runs, self.problem.update, view, batch, keys[0])
        return self.problem.apart(update)

    @staticmethod
    def _added(columns: Any, indices: Any, rows: Any) -> Any:
        """Returns columns with `rows` added at these indices, which are all different."""

        def add(column: Any, change: Any) -> Any:
            return column.at[indices].add(change, mode="promise_in_bounds", unique_indices=True)

        return jax.tree.map(add, columns, rows)


def factor(problem: Problem, optimizer: Any) -> float:
    """Returns the factor of an optimizer on updates: 1 for `optax.identity()`, c for `optax.scale(c)`.

    Raises:
        ValueError: the optimizer does not only scale updates, or would scale whole numbers.
    """
    # Small and large updates next to unrelated parameters, so that clipping or weight decay is detected.
    probe, params = jnp.array([-3e6, 0.0, 1e-4, 1.0]), jnp.array([3.0, 7.0, 0.0, -2.0])
    state = optimizer.init(params)
    scaled = np.asarray(pacing.updated(optimizer.update, probe, state, params)[0])
    by = float(scaled[-1])
    whole = not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(problem.shapes))
    linear = by > 0 and np.allclose(scaled, by * np.asarray(probe), rtol=1e-5, atol=0)
    varies = jax.tree.leaves(state) or hoist_update(optimizer, params, state)[0].named
    if varies or not linear or (whole and by != 1):
        scale = "" if whole else ", or optax.scale of a positive number"
        expected = f"optax.identity(){scale} (tasks of {problem.name} are themselves updates)"
        checks.reject("optimizer", "one that does more than add updates", expected)
    return by
