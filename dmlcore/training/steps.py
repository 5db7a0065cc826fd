"""The arithmetic of a run, step by step: what real workers and a real server compute.

The formulas are those of the compiled loop, so that a recorded run and its replay agree: a task's gradient is
that of `sum_b losses_b / B`, and an update is one optimizer step on `sum weight * gradient`. The update of an
additive task stands where else its gradient does.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from dmlcore.problems.problem import Problem
from dmlcore.training.additive import rows_of, whole_update
from dmlcore.training.batches import INIT, Source, run_key, source_of, task_samples
from dmlcore.training.hoist import Program, fingerprint, hoist
from dmlcore.training.schedule import LEAST_SAMPLES, padded

State = tuple[Any, Any]  # parameters, optimizer state


def widths(batch_size: int) -> tuple[int, ...]:
    """Returns the widths that tasks may come to have whose first has so many samples: up to four times that.

    >>> widths(10)
    (8, 16, 32, 64)
    """
    most = padded(4 * batch_size)
    return tuple(1 << power for power in range(LEAST_SAMPLES.bit_length() - 1, most.bit_length()))


@functools.partial(jax.jit, static_argnames=("problem", "width"))
def task_gradient(
    problem: Problem,
    width: int,
    params: Any,
    source: Source,
    worker: Any,
    clock: Any,
    data: Any,
    batch_size: Any,
) -> Any:
    """Returns the gradient of the mean loss of the first `batch_size` of a task's `width` samples.

    Of an additive problem: its update.
    """
    samples = task_samples(source, worker, clock, width, problem.num_samples)
    if problem.additive:
        return whole_update(problem, params, samples, data)
    return mean_gradient(problem, params, rows_of(data, samples), batch_size)


def mean_gradient(problem: Problem, params: Any, batch: Any, batch_size: Any) -> Any:
    """Returns the gradient of the mean loss of the first `batch_size` samples of a batch.

    Every engine and the replay compute a task's gradient by this function, on a batch that is filled up to
    `padded(batch_size)` samples: sums of equal length are taken in the same order.
    """
    width = jax.tree.leaves(batch)[0].shape[0]
    real = jax.dtypes.canonicalize_dtype(float)
    weights = jnp.where(jnp.arange(width) < batch_size, 1 / jnp.asarray(batch_size, real), 0)
    return jax.grad(lambda p: jnp.dot(weights, problem.losses(p, batch)))(params)


@jax.jit
def weigh(weight: Any, gradient: Any) -> Any:
    """Returns `weight * gradient`."""
    return jax.tree.map(lambda g: jnp.asarray(weight, g.dtype) * g, gradient)


@jax.jit
def add(total: Any, gradient: Any) -> Any:
    """Returns the sum of two gradients."""
    return jax.tree.map(jnp.add, total, gradient)


@jax.jit
def compensate(strength: Any, gradient: Any, params: Any, view: Any) -> Any:
    """Returns a weighed gradient, corrected for how far the parameters have moved since it was taken.

    With g = p / weight it is weight * (g + lambda g * g * (params - view)).

    Args:
        strength: lambda / weight.
        gradient: p, weighed.
        params: what the server has now.
        view: what the gradient was taken on.

    Reference: Zheng et al. 2017, "Asynchronous stochastic gradient descent with delay compensation", eq. 10.
    """
    correct = lambda p, now, then: p + jnp.asarray(strength, p.dtype) * p * p * (now - then)  # noqa: E731
    return jax.tree.map(correct, gradient, params, view)


@functools.partial(jax.jit, static_argnames=("program",))
def optimizer_step(program: Program, constants: Any, gradient: Any, state: State) -> State:
    """Returns parameters and optimizer state after one step."""
    params, optimizer_state = state
    updates, optimizer_state = program(constants, gradient, optimizer_state, params)
    return optax.apply_updates(params, updates), optimizer_state


class Stepper:
    """A problem, an optimizer and a seed: where a run starts, and each of its steps.

    Args:
        problem: what is trained.
        optimizer: optax optimizer.
        seed: of the run.
        device: where to compute. Default: JAX's.
        num_workers: of the run, among whom samples are shared out where the problem is additive.
    """

    def __init__(
        self,
        problem: Problem,
        optimizer: optax.GradientTransformation,
        seed: int,
        device: Any = None,
        num_workers: int = 1,
    ):
        self.problem, self._seed, self._device = problem, seed, device
        self._optimizer = optimizer
        self._source = self.put(source_of(problem, seed, num_workers))
        self._data = self.put(jax.tree.map(jnp.asarray, problem.data))
        params, state = self.start()
        self._program, constants = hoist(optimizer.update, params, state, params)
        self._constants = self.put(constants)

    def fingerprint(self) -> str:
        """Returns a hash of the optimizer's program and numbers."""
        return fingerprint(self._program, self._constants)

    def put(self, tree: Any) -> Any:
        """Returns `tree` on this stepper's device."""
        return tree if self._device is None else jax.device_put(tree, self._device)

    def start(self) -> State:
        """Returns parameters and optimizer state that the run starts from."""
        params = self.problem.init(run_key(self._seed, INIT))
        return self.put((params, self._optimizer.init(params)))

    def gradient(self, params: Any, worker: int, clock: int, batch_size: int) -> Any:
        """Returns the gradient of a task, or its additive update, computed."""
        width = batch_size if self.problem.additive else padded(batch_size)
        found = task_gradient(
            self.problem, width, params, self._source, worker, clock, self._data, batch_size
        )
        return jax.block_until_ready(found)

    def weighed(self, weight: float, gradient: Any) -> Any:
        """Returns `weight * gradient`."""
        return weigh(weight, self.put(gradient))

    def total(self, parts: Sequence[Any]) -> Any:
        """Returns the sum of weighed gradients, added up in their order."""
        return functools.reduce(add, parts)

    def step(self, gradient: Any, state: State) -> State:
        """Returns the state after one step."""
        return optimizer_step(self._program, self._constants, gradient, state)
