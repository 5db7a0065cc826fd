"""The outer optimizer of asynchronous DiLoCo in notebooks/07_beyond.ipynb."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from dmlcore import checks
from dmlcore.problems.problem import Params


def delayed_nesterov(
    learning_rate: float, momentum: float = 0.9, period: int = 4
) -> optax.GradientTransformation:
    """Outer optimizer of asynchronous DiLoCo: it updates the momentum only once in `period` updates.

    Every push g makes a step of rate * g / N, where N is the period. Every N-th push also updates the
    momentum, m <- beta m + (mean of the last N pushes), and makes a step of rate * beta m. So m is the
    momentum of synchronous Nesterov with the mean of N pushes as the gradient, and the momentum does not
    multiply stale pushes one by one.

    Guarantees: `period=1` is `optax.sgd(learning_rate, momentum, nesterov=True)`.

    Args:
        learning_rate: the paper's epsilon.
        momentum: the paper's beta.
        period: N, pushes between two updates of the momentum, >= 1; usually the number of workers.

    Returns:
        The optax optimizer.

    Reference: Liu et al. 2024, "Asynchronous local-SGD training for language modeling", the algorithm of
    delayed Nesterov updates, with c = 0.
    """
    period = checks.integer("period", period, low=1)

    def init(params: Params) -> Any:
        zeros = optax.tree.zeros_like(params)
        return jnp.zeros((), jnp.int32), zeros, zeros

    def update(pushed: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count, velocity, total = state
        total, due = jax.tree.map(jnp.add, total, pushed), (count + 1) % period == 0
        velocity = jax.tree.map(
            lambda m, sums: jnp.where(due, momentum * m + sums / period, m), velocity, total
        )
        total = jax.tree.map(lambda sums: jnp.where(due, 0, sums), total)
        steps = jax.tree.map(
            lambda g, m: -learning_rate * (g / period + jnp.where(due, momentum * m, 0)), pushed, velocity
        )
        return steps, (count + 1, velocity, total)

    return optax.GradientTransformation(init, update)
