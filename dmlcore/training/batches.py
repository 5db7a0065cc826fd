"""The samples of a task: a function of (seed, worker, clock) alone, the same on every engine."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore.problems.problem import Problem
from dmlcore.training.compiling import Compiled, compiled

INIT, BATCHES, PULL_CODES, PUSH_CODES, UPDATES, LOSSES = range(6)  # independent streams of a run's random key


class Source(NamedTuple):
    """The source of the samples of tasks."""

    key: jax.Array  # key of the stream for the samples of gradient tasks, or for the keys of additive updates
    owners: Any = None  # number of workers, if each takes its own samples in turn. None: samples are drawn
    # If workers draw from their own samples: samples sorted by owner, (N,), and the start of each owner's
    # samples, (W + 1,).
    shards: Any = None
    losses: Any = None  # key of the stream of random keys for losses. None: losses take no keys


def run_key(seed: int, stream: int) -> jax.Array:
    """Returns the random key of one stream of a run."""
    return jax.random.fold_in(jax.random.key(seed), stream)


def source_of(problem: Problem, seed: int, num_workers: int) -> Source:
    """Returns the source of the samples of a run's tasks."""
    problem.check_workers(num_workers)
    if problem.additive:
        return Source(run_key(seed, UPDATES), jnp.asarray(num_workers, jnp.int32))
    key, losses = run_key(seed, BATCHES), run_key(seed, LOSSES) if problem.keyed else None
    if problem.owner is None:
        return Source(key, losses=losses)
    ends = np.append(0, np.cumsum(np.bincount(problem.owner)))
    order = np.argsort(problem.owner, kind="stable")
    shards = jnp.asarray(order, jnp.int32), jnp.asarray(ends, jnp.int32)
    return Source(key, shards=shards, losses=losses)


def task_samples(source: Source, worker: jax.Array, clock: jax.Array, width: int, num_samples: Any) -> Any:
    """Returns the sample indices of a task, (width,), and its random keys if it needs some.

    An additive task has one key, (1,); a task whose losses take keys has one per sample, (width,).
    """
    if source.owners is None:
        if source.shards is None:
            indices = task_indices(source.key, worker, clock, width, num_samples)
        else:
            order, ends = source.shards
            own = jnp.minimum(worker, len(ends) - 2)  # padding rows have a worker beyond the last one
            first, last = ends[own], ends[own + 1]
            indices = order[first + task_indices(source.key, worker, clock, width, last - first)]
        keys = None if source.losses is None else sample_keys(source.losses, worker, clock, width)
        return indices if keys is None else (indices, keys)
    indices = owned_indices(source.owners, worker, clock, width, num_samples)
    return indices, task_key(source.key, worker, clock)[None]


def draw(num_samples: Any, width: int, source: Source, worker: jax.Array, clock: jax.Array) -> Any:
    """Returns the samples of many tasks, (tasks, width), from their workers and clocks.

    This is not part of the compiled loop, because drawing for many tasks at once is cheap. The number of
    tasks is always about the same, so that it is compiled once.
    """
    return jax.vmap(lambda w, c: task_samples(source, w, c, width, num_samples))(worker, clock)


QUICKLY = {"xla_backend_optimization_level": 1}  # compiles in two thirds of the time, and draws as fast
draw_one = Compiled(draw, QUICKLY, static_argnames=("width",))


@compiled(xla=QUICKLY, static_argnames=("width",))
def draw_lanes(num_samples, width, source, worker, clock):
    """`draw`, compiled, for S traces at once."""
    return jax.vmap(functools.partial(draw, num_samples, width))(source, worker, clock)


def rows_of(data: Any, indices: Any) -> Any:
    """Returns the rows of the data with these indices."""
    return jax.tree.map(lambda column: column.at[indices].get(mode="promise_in_bounds"), data)


def task_key(key: jax.Array, worker: jax.Array, clock: jax.Array) -> jax.Array:
    """Returns the random key of a task, from the key of a stream."""
    return jax.random.fold_in(jax.random.fold_in(key, worker), clock)


def task_indices(
    key: jax.Array, worker: jax.Array, clock: jax.Array, width: int, num_samples: Any
) -> jax.Array:
    """Draws `width` sample indices with replacement; a task of b <= width samples uses the first b.

    Example:
        >>> key = run_key(0, BATCHES)
        >>> a, b = task_indices(key, 1, 2, 4, 1000), task_indices(key, 1, 2, 8, 1000)
        >>> bool((a == b[:4]).all())
        True
    """
    key = task_key(key, worker, clock)
    return jax.random.randint(key, (width,), 0, num_samples, dtype=jnp.int32)


def sample_keys(key: jax.Array, worker: jax.Array, clock: jax.Array, width: int) -> jax.Array:
    """Returns the random keys of `width` samples; a task of b <= width samples uses the first b.

    Example:
        >>> key = run_key(0, LOSSES)
        >>> a, b = sample_keys(key, 1, 2, 4), sample_keys(key, 1, 2, 8)
        >>> bool((a == b[:4]).all())
        True
    """
    rows = jnp.arange(width, dtype=jnp.uint32)
    return jax.vmap(jax.random.fold_in, (None, 0))(task_key(key, worker, clock), rows)


def owned_indices(
    owners: Any, worker: jax.Array, clock: jax.Array, width: int, num_samples: Any
) -> jax.Array:
    """Returns the sample indices of a task whose worker takes its own samples in turn.

    Of N samples worker w of P owns w, w + P, w + 2P, ... The task at clock c takes those at the positions cB
    to cB + B - 1, modulo their number. N < 2^23.

    Example:
        >>> [owned_indices(3, 1, clock, 2, 10).tolist() for clock in range(3)]
        [[1, 4], [7, 1], [4, 7]]
    """
    worker, owners, num_samples = (jnp.asarray(n, jnp.uint32) for n in (worker, owners, num_samples))
    owned = (num_samples - worker + owners - 1) // owners
    turn = jnp.asarray(clock, jnp.uint32) % owned
    first = jnp.zeros_like(turn)
    for byte in width.to_bytes(4, "big"):  # turn * width may need more than 32 bits
        first = (first * 256 + turn * byte) % owned
    places = (first + jnp.arange(width, dtype=jnp.uint32)) % owned
    return (worker + owners * places).astype(jnp.int32)
