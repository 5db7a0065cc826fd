"""The arithmetic of a run on a real clock, task by task, for workers and the server.

It computes a task's contribution as the compiled loop does, so that a recorded run and its replay have the
same bits. `Observer` is what a policy that watches the training is shown.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dmlcore.methods.aggregate import mean
from dmlcore.problems.problem import Problem
from dmlcore.training.aggregation import Aggregation, counted, of_all, stacked, traced
from dmlcore.training.batches import INIT, run_key, source_of, task_samples
from dmlcore.training.evaluation import device_data, evaluate
from dmlcore.training.local_steps import contribution_of
from dmlcore.training.optimizer import hoist_update
from dmlcore.training.pacing import progress
from dmlcore.training.program import LEAST_SAMPLES, padded, power_of_two, totals
from dmlcore.training.scaling import scale_free
from dmlcore.training.step import add, compensate, inner, served, weigh
from dmlcore.types import Aggregate, Observation

State = tuple[Any, Any, Any]  # parameters, optimizer state, and progress if the optimizer reads it, else ()


def widths(batch_size: int) -> tuple[int, ...]:
    """Returns the widths of tasks if the first task has `batch_size` samples, and later ones up to 4 times.

    >>> widths(10)
    (8, 16, 32, 64)
    """
    most = padded(4 * batch_size)
    return tuple(1 << power for power in range(LEAST_SAMPLES.bit_length() - 1, most.bit_length()))


@functools.partial(jax.jit, static_argnames=("kind", "width"))
def pushed_by_worker(kind, width, params, source, worker, clock, data, batch_size, kept):
    """Returns the push of a task that is padded to `width` samples, and the state that its worker keeps."""
    samples = task_samples(source, worker, clock, width, kind.problem.num_samples)
    return kind.on_worker(params, samples, batch_size, data, kept)


class Stepper:
    """The start of a run for a problem, an optimizer and a seed, and each of its steps.

    Args:
        problem: the problem to train.
        optimizer: optax optimizer of the server.
        seed: of the run.
        device: device of the computation. Default: JAX's default device.
        num_workers: of the cluster; an additive problem divides its samples among them.
        aggregate: how the pushes of one update are combined. Default: None, the weighted sum.
    """

    def __init__(
        self,
        problem: Problem,
        optimizer: optax.GradientTransformation,
        seed: int,
        device: Any = None,
        num_workers: int = 1,
        aggregate: Aggregate | None = None,
    ):
        self.problem, self._seed, self._device = problem, seed, device
        self.kind = contribution_of(problem)
        self._source = self.put(source_of(problem, seed, num_workers))
        self._data = self.put(jax.tree.map(jnp.asarray, problem.data))
        params = problem.init(run_key(seed, INIT))
        self._optimizer = self.kind.optimizer(optimizer, num_workers)
        served = self.kind.served(params)
        self._update, numbers = hoist_update(self._optimizer, served, self._optimizer.init(served))
        self._numbers = self.put(numbers)
        self._scales = self.kind.weighs and scale_free(optimizer, params)
        self._aggregate, self._params = aggregate or mean(), problem.shapes
        self._aggregation, self._own = self._aggregated_in(1)

    def put(self, tree: Any) -> Any:
        """Returns `tree` on this stepper's device."""
        return tree if self._device is None else jax.device_put(tree, self._device)

    def start(self) -> State:
        """Returns what is trained, and the optimizer state, at the start of the run."""
        params = self.kind.served(self.problem.init(run_key(self._seed, INIT)))
        told = progress() if self._update.named else ()
        return self.put((params, self._optimizer.init(params), told))

    def task(self, params: Any, worker: int, clock: int, batch_size: int, kept: Any = ()) -> tuple[Any, Any]:
        """Computes and returns the push of a task, and the new state that its worker keeps, if any."""
        given = params, self._source, worker, clock, self._data, batch_size, kept
        return jax.block_until_ready(pushed_by_worker(self.kind, self.kind.width(batch_size), *given))

    def counted(self, weight: float, gradient: Any) -> Any:
        """Applies `each` of the aggregate to a push; 0 if its weight is 0."""
        gradient = self.put(gradient)
        if self._aggregation is None or self._aggregation.each is None:
            return gradient  # without a call of the device
        return counted(self._aggregation, self._own, weight, gradient)

    def weighed(self, weight: float, gradient: Any) -> Any:
        """Returns `weight * gradient`, after `each` of the aggregate."""
        return weigh(weight, self.counted(weight, gradient))

    def total(self, parts: Sequence[Any]) -> Any:
        """Returns the sum of weighted gradients, added in their order."""
        return functools.reduce(add, parts)

    def update(
        self, pushes: Sequence[tuple[float, Any, Any]], params: Any = None, compensation: float = 0.0
    ) -> Any:
        """Combines the pushes of an update, (weight, gradient, view) in their order, into one gradient.

        The view is None, or the parameters on which the gradient was computed. In that case the gradient is
        compensated, with lambda = `compensation`, for the difference to `params`.
        """

        def corrected(weight: float, gradient: Any, view: Any, over: float = 1.0) -> Any:
            if view is None or not weight:
                return gradient
            return compensate(compensation / over, self.put(gradient), params, view)

        if self._aggregation is None:
            return self.total([corrected(w, self.weighed(w, g), view, over=w) for w, g, view in pushes])
        weights = [weight for weight, _, _ in pushes]
        gathered = [self.counted(push[0], corrected(*push)) for push in pushes]
        if self._aggregation.reduce is None:
            return self.total([*map(weigh, weights, gathered)])
        votes = [push for weight, push in zip(weights, gathered, strict=True) if weight]
        places = power_of_two(len(pushes))
        aggregation, numbers = self._aggregated_in(places)
        kept = stacked(votes or [optax.tree.zeros_like(gathered[0])], places)
        # Added one by one, in the type that the compiled loop uses.
        real = jax.dtypes.canonicalize_dtype(float)
        whole = functools.reduce(np.add, np.asarray(weights, real), np.zeros((), real))
        assert aggregation is not None
        return weigh(whole, of_all(aggregation, numbers, kept, len(votes)))

    def compile(self, most: int) -> None:
        """Compiles the aggregate for updates of up to `most` pushes, unless it is the weighted sum."""
        if self._aggregation is None:
            return
        nothing = optax.tree.zeros_like(self.start()[0])
        for count in (1 << power for power in range((most - 1).bit_length() + 1)):
            jax.block_until_ready(self.update([(1.0, nothing, None)] * count))

    def _aggregated_in(self, places: int) -> tuple[Aggregation | None, Any]:
        """Returns the aggregate for this number of places, and its numbers."""
        rule, numbers = traced(self._aggregate, self._params, places)
        return rule, self.put(numbers)

    def step(self, gradient: Any, state: State, weights: Sequence[float] = (1.0,), made: Any = None) -> State:
        """Returns the state after one step with a gradient in which pushes have these weights.

        `made`: samples and seconds of the server's new version. None: a worker changes its copy.
        """
        whole, told = None, state[2]
        if self._scales:
            (whole,), _ = totals(np.zeros(len(weights), int), np.asarray(weights, float))
            whole = self.put(np.asarray(whole, jax.dtypes.canonicalize_dtype(float)))
        after = served(True, self._update, self._numbers, gradient, state[:2], whole, told)
        return *after, self.put(progress(made)) if made and self._update.named else told


inner_product = jax.jit(inner)


class Observer:
    """Collects updates, and makes observations of them.

    Args:
        stepper: the server's arithmetic.
    """

    def __init__(self, stepper: Stepper):
        self._stepper, self._before = stepper, None
        self._rows: list[tuple[int, int, float, float]] = []

    def compile(self, params: Any) -> None:
        """Compiles everything, so that the first observation takes no longer than the others."""
        self.observation(0, 0.0, params)
        inner_product(params, params)

    def update(self, total: Any, tasks: int, samples: int) -> None:
        """Records an update: the weighted sum of its gradients, and its numbers of tasks and samples."""
        total, _ = self._stepper.problem.apart(total)  # the server sees only the parameters that travel
        product = 0.0 if self._before is None else inner_product(total, self._before)
        self._rows.append((tasks, samples, float(inner_product(total, total)), float(product)))
        self._before = total

    def observation(self, update: int, time: float, params: Any) -> Observation:
        """Returns the observation of all updates since the last call."""
        problem = self._stepper.problem
        model, eval_data = self._stepper.kind.model(params), self._stepper.put(device_data(problem)[1])
        loss = float(evaluate(problem, model, eval_data)["loss"])
        columns = map(list, zip(*self._rows, strict=True)) if self._rows else [[]] * 4
        self._rows = []
        return Observation(update, time, loss, *columns)
