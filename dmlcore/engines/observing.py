"""Observations of the training on a real clock, for policies that watch it."""

from __future__ import annotations

from typing import Any

import jax

from dmlcore.training.evaluation import device_data, evaluate
from dmlcore.training.step import inner
from dmlcore.training.stepper import Stepper
from dmlcore.types import Observation

inner_product = jax.jit(inner)


class Observer:
    """Collects updates, and makes observations of them.

    Args:
        stepper: the server's arithmetic.
    """

    def __init__(self, stepper: Stepper):
        self._stepper, self._before = stepper, None
        self._rows: list[tuple[float, ...]] = []

    def compile(self, params: Any) -> None:
        """Compiles everything, so that the first observation takes no longer than the others."""
        self.observation(0, 0.0, params)
        inner_product(params, params)

    def update(self, total: Any, tasks: int, samples: int) -> None:
        """Records an update: the weighted sum of its gradients, and its numbers of tasks and samples."""
        total, _ = self._stepper.problem.apart(total)  # the server sees only the parameters that travel
        product = 0.0 if self._before is None else inner_product(total, self._before)
        row = (tasks, samples, inner_product(total, total), product)
        self._rows.append(tuple(float(number) for number in row))
        self._before = total

    def observation(self, update: int, time: float, params: Any) -> Observation:
        """Returns the observation of all updates since the last call."""
        problem = self._stepper.problem
        loss = float(evaluate(problem, params, self._stepper.put(device_data(problem)[1]))["loss"])
        tasks, samples, *norms = map(list, zip(*self._rows, strict=True)) if self._rows else [[]] * 4
        self._rows = []
        return Observation(update, time, loss, [*map(int, tasks)], [*map(int, samples)], *norms)
