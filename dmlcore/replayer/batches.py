"""Which samples a task uses: a function of (seed, worker, clock) alone, the same on every engine."""

from __future__ import annotations

import jax
import jax.numpy as jnp

INIT, BATCHES, PULL_CODES, PUSH_CODES = range(4)  # streams of a run's key


def run_key(seed: int, stream: int) -> jax.Array:
    """Returns the random key of one stream of a run."""
    return jax.random.fold_in(jax.random.key(seed), stream)


def task_indices(
    key: jax.Array, worker: jax.Array, clock: jax.Array, width: int, num_samples: int
) -> jax.Array:
    """Returns `width` sample numbers, with replacement; a task of b <= width samples uses the first b.

    Args:
        key: `run_key(seed, BATCHES)`.
        worker: of the task, scalar.
        clock: of the task, scalar.
        width: static number of indices; a larger one keeps the shorter's as its beginning.
        num_samples: N, in the training data.

    Example:
        >>> key = run_key(0, BATCHES)
        >>> a, b = task_indices(key, 1, 2, 4, 1000), task_indices(key, 1, 2, 8, 1000)
        >>> bool((a == b[:4]).all())
        True
    """
    key = jax.random.fold_in(jax.random.fold_in(key, worker), clock)
    return jax.random.randint(key, (width,), 0, num_samples, dtype=jnp.int32)
