"""Tasks of several local optimizer steps, and the choice of the kind of contribution for a problem."""

import functools
from collections.abc import Iterable
from typing import Any
from weakref import ref

import jax
import jax.numpy as jnp
import optax

from dmlcore.problems.problem import Inner, Problem
from dmlcore.training.compiling import isolated
from dmlcore.training.contribution import AdditiveUpdate, Contribution, CoupledGradient, Gradient
from dmlcore.training.identity import of_optimizer
from dmlcore.training.program import Rows


class LocalTraining(Gradient):
    """Local optimizer steps on mini-batches; the push is the pulled minus the reached parameters.

    With `keep_state`, each worker keeps the state of its local optimizer; of two further states one is for
    padding tasks, and one is that of a worker at the start.
    """

    fuses, loops = False, True

    @property
    def inner(self) -> Inner:
        """The local steps of the problem."""
        assert self.problem.inner is not None
        return self.problem.inner

    @property
    def num_gradients(self) -> int:
        return self.widths[-1] // self.inner.batch_size

    @property
    def keeps(self) -> bool:
        return bool(self.inner.keep_state)

    def fingerprint(self) -> str:
        return of_optimizer(self.inner.optimizer, self.problem.shapes, "local, optimizer")

    def width(self, batch_size: int) -> int:
        size = self.inner.batch_size
        return int(size << (-(-batch_size // size) - 1).bit_length())

    def begin(self, params: Any, optimizer: Any, num_states: int) -> tuple[Any, Any]:
        return params, self.states(params, num_states) if self.keeps else ()

    def states(self, params: Any, *number: int) -> Any:
        """Returns an initial state of the local optimizer, or `number` of them stacked."""
        state = self.inner.optimizer.init(params)
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*number, *jnp.shape(leaf))), state)

    def of(self, view: Any, local: Any, row: Rows, data: Any) -> tuple[Any, Any]:
        worker, batch, batch_size = row.worker[0], self._batch(row.samples, data), row.batch_size[0]
        kept = jax.tree.map(lambda leaf: leaf[row.memory], local) if self.keeps else None
        pushed, kept = self._at_width(functools.partial(self._task, view, kept), batch, batch_size)
        return pushed, (worker, kept) if self.keeps else ()

    def applied(self, local: Any, samples: Any, change: Any) -> Any:
        if not self.keeps:
            return local
        worker, kept = change
        return jax.tree.map(lambda leaves, leaf: leaves.at[worker].set(leaf), local, kept)

    def on_worker(self, params: Any, samples: Any, batch_size: Any, data: Any, kept: Any) -> Any:
        batch = self._batch(samples, data)
        pushed, after = self._task(params, kept if self.keeps else None, batch, batch_size)
        return pushed, after if self.keeps else ()

    def kept_by_worker(self, params: Any) -> Any:
        return self.states(params) if self.keeps else ()

    def _task(self, pulled: Any, state: Any, batch: tuple[Any, ...], batch_size: Any) -> tuple[Any, Any]:
        """Returns `_steps`, isolated: in every engine and in replay the same computation."""
        return isolated(batch_size > 0, self._steps, pulled, state, batch, batch_size)

    def _steps(self, pulled: Any, state: Any, batch: tuple[Any, ...], batch_size: Any) -> tuple[Any, Any]:
        """Returns the pulled minus the reached parameters of a task, and the local optimizer's new state."""
        inner = self.inner
        size = inner.batch_size

        def one(number: Any, carried: tuple[Any, Any]) -> tuple[Any, Any]:
            params, state = carried
            first = number * size
            own = jax.tree.map(lambda column: jax.lax.dynamic_slice_in_dim(column, first, size), batch)
            gradient = self._mean(params, own, jnp.minimum(batch_size - first, size))
            updates, state = inner.optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state

        count = -(-batch_size // size)
        begun = pulled, self.states(pulled) if state is None else state
        begun = jax.tree.map(jnp.asarray, begun)  # a loop carries arrays of fixed types
        reached, state = jax.lax.fori_loop(0, count, one, begun)
        return jax.tree.map(jnp.subtract, pulled, reached), state


def contribution_of(problem: Problem, widths: Iterable[int] = ()) -> Contribution:
    """Returns the contribution of a problem's tasks, padded to one of `widths` samples."""
    kind: type[Contribution] = CoupledGradient if problem.coupled else Gradient
    if problem.inner is not None:
        kind = LocalTraining
    if problem.additive:
        kind = AdditiveUpdate
    return kind(ref(problem), tuple(widths))
