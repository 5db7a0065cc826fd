"""Tasks of several local optimizer steps, and the choice of the kind of contribution for a problem."""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple
from weakref import ref

import jax
import jax.numpy as jnp
import optax

from dmlcore.problems.problem import Inner, Problem
from dmlcore.training import pacing
from dmlcore.training.compiling import isolated
from dmlcore.training.contribution import AdditiveUpdate, Contribution, CoupledGradient, Gradient
from dmlcore.training.fragments import Streamed, chosen, merged, of_fragments, within
from dmlcore.training.identity import of_optimizer
from dmlcore.training.program import Rows


class Controlled(NamedTuple):
    """Parameters, and the mean of what workers remember; in a push, what a worker's has become less by."""

    params: Any
    control: Any


class LocalTraining(Gradient):
    """Local optimizer steps on mini-batches; the push is the pulled minus the reached parameters.

    Each worker may keep the state of its local optimizer, its control variate or the sum of its pushes, and
    its own parameters; of two further ones one is for padding tasks, and one is that of a worker at the
    start.
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
        return self.inner.keep_state or self.inner.controlled or self.inner.delay > 0

    def fingerprint(self) -> str:
        return of_optimizer(self.inner.optimizer, self.problem.shapes, "local, optimizer")

    def width(self, batch_size: int) -> int:
        size = self.inner.batch_size
        return int(size << (-(-batch_size // size) - 1).bit_length())

    def begin(self, params: Any, optimizer: Any, num_states: int) -> tuple[Any, Any]:
        served = self.served(params)
        kept = self.kept_by_worker(served)
        return served, jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_states, *jnp.shape(leaf))), kept)

    def served(self, params: Any) -> Any:
        return Controlled(params, zeros(params)) if self.inner.controlled else params

    def model(self, served: Any) -> Any:
        return served.params if self.inner.controlled else served

    def optimizer(self, optimizer: Any, num_workers: int) -> Any:
        if self.inner.fragments > 1:
            return of_fragments(optimizer, self.inner.fragments)
        if self.inner.controlled:
            return with_control(optimizer, num_workers, self.inner.dynamic)
        return optimizer

    def of(self, view: Any, local: Any, row: Rows, data: Any) -> tuple[Any, Any]:
        worker, batch, batch_size = row.worker[0], self._batch(row.samples, data), row.batch_size[0]
        kept = jax.tree.map(lambda leaf: leaf[row.memory], local)
        pushed, kept = self._at_width(functools.partial(self._task, view, kept), batch, batch_size)
        return pushed, (worker, kept) if self.keeps else ()

    def applied(self, local: Any, samples: Any, change: Any) -> Any:
        if not self.keeps:
            return local
        worker, kept = change
        return jax.tree.map(lambda leaves, leaf: leaves.at[worker].set(leaf), local, kept)

    def on_worker(self, params: Any, samples: Any, batch_size: Any, data: Any, kept: Any) -> Any:
        return self._task(params, kept, self._batch(samples, data), batch_size)

    def kept_by_worker(self, params: Any) -> Any:
        if not self.keeps:
            return ()
        inner = self.inner
        state = inner.optimizer.init(self.model(params)) if inner.keep_state else ()
        streamed = Streamed(params, jnp.zeros((), jnp.int32)) if inner.delay else ()
        return state, params.control if inner.controlled else (), streamed

    def _task(self, pulled: Any, kept: Any, batch: tuple[Any, ...], batch_size: Any) -> tuple[Any, Any]:
        """Returns `_steps`, isolated: in every engine and in replay the same computation."""
        return isolated(batch_size > 0, self._steps, pulled, kept, batch, batch_size)

    def _steps(self, pulled: Any, kept: Any, batch: tuple[Any, ...], batch_size: Any) -> tuple[Any, Any]:
        """Returns the push of a task, and what its worker keeps."""
        inner, start = self.inner, self.model(pulled)
        size, controls = inner.batch_size, inner.control_variates
        empty: Any = ()
        state, own, streamed = kept or (empty, empty, empty)
        begins = merged(inner, pulled, streamed) if inner.delay else start
        correction = jax.tree.map(jnp.subtract, pulled.control, own) if controls else ()
        centre = jax.tree.map(jnp.add, start, own) if inner.dynamic else start

        def one(number: Any, carried: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            params, state, total = carried
            first = number * size
            samples = jax.tree.map(lambda column: jax.lax.dynamic_slice_in_dim(column, first, size), batch)
            gradient = self._mean(params, samples, jnp.minimum(batch_size - first, size))
            if controls:
                total = jax.tree.map(jnp.add, total, gradient)
                gradient = jax.tree.map(jnp.add, gradient, correction)
            if inner.prox:
                gradient = jax.tree.map(lambda g, w, c: g + inner.prox * (w - c), gradient, params, centre)
            updates, state = inner.optimizer.update(gradient, state, params)
            return optax.apply_updates(params, updates), state, total

        count = -(-batch_size // size)
        begun = begins, state if inner.keep_state else inner.optimizer.init(start), zeros(own)
        begun = jax.tree.map(jnp.asarray, begun)  # a loop carries arrays of fixed types
        reached, state, total = jax.lax.fori_loop(0, count, one, begun)
        pushed = jax.tree.map(jnp.subtract, start, reached)
        if controls:
            total = jax.tree.map(lambda each: each / jnp.asarray(count, each.dtype), total)
            pushed = Controlled(pushed, jax.tree.map(jnp.subtract, own, total))
        if inner.dynamic:
            total = jax.tree.map(jnp.add, own, pushed)
            pushed = Controlled(pushed, jax.tree.map(jnp.negative, pushed))
        if inner.delay:
            pushed = chosen(within(pushed, streamed.clock, inner.fragments), pushed, zeros(pushed))
            streamed = Streamed(reached, streamed.clock + 1)
        return pushed, (state if inner.keep_state else (), total, streamed) if self.keeps else ()


def zeros(tree: Any) -> Any:
    """Returns zeros like a tree of arrays."""
    return jax.tree.map(jnp.zeros_like, tree)


def with_control(optimizer: Any, num_workers: int, dynamic: bool) -> optax.GradientTransformation:
    """Returns an optimizer that also adds a push's change to the mean of what all workers remember.

    `dynamic`: the optimizer is given the push plus that mean.
    """
    plainly = pacing.told_all(optimizer.update)

    def update(pushed: Any, state: Any, served: Any, **told: Any) -> tuple[Any, Any]:
        change = jax.tree.map(lambda less: less * (-1.0 / num_workers), pushed.control)
        gradient = pushed.params
        if dynamic:
            gradient = jax.tree.map(lambda g, mean, more: g + (mean + more), gradient, served.control, change)
        updates, state = plainly(gradient, state, served.params, **told)
        return Controlled(updates, change), state

    return optax.GradientTransformationExtraArgs(lambda served: optimizer.init(served.params), update)


def contribution_of(problem: Problem, widths: Iterable[int] = ()) -> Contribution:
    """Returns the contribution of a problem's tasks, padded to one of `widths` samples."""
    kind: type[Contribution] = CoupledGradient if problem.coupled else Gradient
    if problem.inner is not None:
        kind = LocalTraining
    if problem.additive:
        kind = AdditiveUpdate
    return kind(ref(problem), tuple(widths))
