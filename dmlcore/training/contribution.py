"""What a task contributes to an update: the gradient of its samples, or an update that is added as it is.

A contribution is chosen once, by `contribution_of`; a new kind of task is a class like these two. Axes: K
tasks of a row, B samples of a task.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from dmlcore.problems.problem import Problem
from dmlcore.training.additive import Local, added, factor, moved, update_of
from dmlcore.training.batches import rows_of
from dmlcore.training.program import padded


@dataclass(frozen=True)
class Contribution(abc.ABC):
    """A kind of task, hashable: compiled functions take it as a static argument.

    Args:
        problem: what is trained.
        widths: numbers of samples that tasks are filled up to, ascending.
        full: all tasks have as many samples as they are filled up to, so that none need be told apart.
        fuses: whether the tasks of a row, which read one version, can be computed as one.
        weighs: whether a task counts with its weight; an additive update counts as it is, or not at all.
    """

    problem: Problem
    widths: tuple[int, ...]
    full: bool = dataclasses.field(default=False, kw_only=True)
    fuses: ClassVar[bool]
    weighs: ClassVar[bool]

    @abc.abstractmethod
    def width(self, batch_size: int) -> int:
        """Returns to how many samples a task of `batch_size` samples is filled up."""

    @abc.abstractmethod
    def begin(self, params: Any, optimizer: Any) -> tuple[Any, Any]:
        """Returns what of the parameters travels, and the state that stays with the workers."""

    @abc.abstractmethod
    def whole(self, params: Any, local: Any) -> Any:
        """Returns all parameters: the inverse of `begin`."""

    @abc.abstractmethod
    def of(
        self, view: Any, local: Any, samples: Any, batch_size: Any, weight: Any, data: Any
    ) -> tuple[Any, Any]:
        """Returns what the tasks of a row push, and what they change of the local state.

        One task's push is not weighed yet. Several tasks push the weighted sum of what each would push.

        Args:
            view: the parameters that all tasks of the row have read.
            local: state that stays with the workers.
            samples: of the tasks, from `batches.draw`, (K B,).
            batch_size: of each task, (K,); the samples beyond it do not count.
            weight: of each task in its update, (K,).
            data: the problem's training data on the device.
        """

    @abc.abstractmethod
    def applied(self, local: Any, samples: Any, change: Any) -> Any:
        """Returns the local state after a row's change of it."""

    @abc.abstractmethod
    def on_worker(self, params: Any, samples: Any, batch_size: Any, data: Any) -> Any:
        """Returns what a worker on a real clock pushes, which holds all parameters and no other state."""


class Gradient(Contribution):
    """The gradient of the mean loss of a task's samples."""

    fuses = weighs = True

    def width(self, batch_size: int) -> int:
        return padded(batch_size)

    def begin(self, params: Any, optimizer: Any) -> tuple[Any, Any]:
        return params, ()

    def whole(self, params: Any, local: Any) -> Any:
        return params

    def of(
        self, view: Any, local: Any, samples: Any, batch_size: Any, weight: Any, data: Any
    ) -> tuple[Any, Any]:
        batch = rows_of(data, samples)
        if len(weight) > 1:
            counted = jnp.arange(self.widths[-1]) < batch_size[:, None]
            shares = jnp.where(counted, (weight / batch_size.astype(weight.dtype))[:, None], 0).ravel()
            return self._weighted(view, batch, shares), ()

        def filled_up(width: int) -> Any:
            size = width if self.full else batch_size[0]
            return lambda: self._mean(view, jax.tree.map(lambda c: c[:width], batch), size)

        if len(self.widths) == 1:
            return filled_up(self.widths[0])(), ()
        index = jnp.searchsorted(jnp.array(self.widths), batch_size[0])
        return jax.lax.switch(index, [filled_up(width) for width in self.widths]), ()

    def applied(self, local: Any, samples: Any, change: Any) -> Any:
        return local

    def on_worker(self, params: Any, samples: Any, batch_size: Any, data: Any) -> Any:
        return self._mean(params, rows_of(data, samples), batch_size)

    def _mean(self, params: Any, batch: Any, batch_size: Any) -> Any:
        """The gradient of the mean loss of the first `batch_size` samples of a batch.

        Every engine and the replay compute a task's gradient by this function, on a batch that is filled up
        to `padded(batch_size)` samples: sums of equal length are taken in the same order.
        """
        width = jax.tree.leaves(batch)[0].shape[0]
        real = jax.dtypes.canonicalize_dtype(float)
        shares = jnp.where(jnp.arange(width) < batch_size, 1 / jnp.asarray(batch_size, real), 0)
        return self._weighted(params, batch, shares)

    def _weighted(self, params: Any, batch: Any, shares: Any) -> Any:
        return jax.grad(lambda p: jnp.dot(shares, self.problem.losses(p, batch)))(params)


class AdditiveUpdate(Contribution):
    """What the problem's `update` says, added as it is; local parameters stay with the owners of samples.

    There is one version of the local parameters: a task that counts has seen what its worker did to them.
    """

    fuses = weighs = False

    def width(self, batch_size: int) -> int:
        return batch_size

    def begin(self, params: Any, optimizer: Any) -> tuple[Any, Any]:
        shared, rows = self.problem.apart(params)
        return shared, Local(rows, jnp.asarray(factor(self.problem, optimizer)))

    def whole(self, params: Any, local: Any) -> Any:
        return self.problem.together(params, local.rows)

    def of(
        self, view: Any, local: Any, samples: Any, batch_size: Any, weight: Any, data: Any
    ) -> tuple[Any, Any]:
        return update_of(self.problem, view, local.rows, samples, data, weight[0])

    def applied(self, local: Any, samples: Any, change: Any) -> Any:
        return moved(local, samples[0], change)

    def on_worker(self, params: Any, samples: Any, batch_size: Any, data: Any) -> Any:
        shared, rows = self.problem.apart(params)
        change, own = update_of(self.problem, shared, rows, samples, data)
        return self.problem.together(change, added(jax.tree.map(jnp.zeros_like, rows), samples[0], own))


def contribution_of(problem: Problem, widths: Iterable[int] = (), full: bool = False) -> Contribution:
    """Returns what tasks of a problem contribute, filled up to one of `widths` samples."""
    return (AdditiveUpdate if problem.additive else Gradient)(problem, tuple(widths), full=full)
