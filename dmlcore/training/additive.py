"""One additive update: of what all workers see, and of the rows that are local to its samples."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks
from dmlcore.problems.problem import Problem
from dmlcore.training.batches import rows_of


class Local(NamedTuple):
    """Local parameters of all samples, in a loop.

    Args:
        rows: by name; a sample's is its owner's.
        factor: what the optimizer multiplies changes by.
    """

    rows: Any
    factor: Any


def factor(problem: Problem, optimizer: Any) -> float:
    """Returns what an optimizer multiplies updates by: 1 for `optax.identity()`, c for `optax.scale(c)`.

    Args:
        problem: an additive one.
        optimizer: optax optimizer.

    Raises:
        ValueError: it does something else to updates, or would make halves of whole numbers.
    """
    # Small, large and beside parameters that have nothing to do with them: what clips or decays is found out.
    probe, params = jnp.array([-3e6, 0.0, 1e-4, 1.0]), jnp.array([3.0, 7.0, 0.0, -2.0])
    state = optimizer.init(params)
    scaled = np.asarray(optimizer.update(probe, state, params)[0])
    by = float(scaled[-1])
    whole = not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(problem.shapes))
    linear = by > 0 and np.allclose(scaled, by * np.asarray(probe), rtol=1e-5, atol=0)
    if jax.tree.leaves(state) or not linear or (whole and by != 1):
        scale = "" if whole else ", or optax.scale of a positive number"
        what = f"optax.identity(){scale}, since tasks of {problem.name} are updates themselves"
        checks.fail("optimizer", "one that does more to updates than to add them", what)
    return by


def added(columns: Any, indices: Any, rows: Any) -> Any:
    """Returns columns with something added to their rows at different indices."""

    def add(column: Any, change: Any) -> Any:
        return column.at[indices].add(change, mode="promise_in_bounds", unique_indices=True)

    return jax.tree.map(add, columns, rows)


def moved(local: Local, indices: Any, rows: Any) -> Local:
    """Returns the local parameters after a task's change of its rows."""

    def step(change: Any) -> Any:
        if not jnp.issubdtype(change.dtype, jnp.floating):
            return change  # whole numbers are added as they are
        return (local.factor * change).astype(change.dtype)

    return local._replace(rows=added(local.rows, indices, jax.tree.map(step, rows)))


def update_of(
    problem: Problem, shared: Any, local: Any, samples: Any, data: Any, weight: Any = 1
) -> tuple[Any, Any]:
    """Returns what a task adds to the shared parameters, and to its rows of the local ones.

    Args:
        problem: an additive one.
        shared: what the task sees of the parameters that travel.
        local: the local ones, all rows.
        samples: of the task, and its random key, from `task_samples`.
        data: the problem's training data on the device.
        weight: 1, or 0 where the task is void: then both are 0.
    """
    indices, keys = samples
    # Not within the branch: what it would index there, it would copy.
    view, batch = problem.together(shared, rows_of(local, indices)), rows_of(data, indices)
    # A branch, so that nothing is fused into the sum after it: a worker's update has been rounded.
    update = jax.lax.cond(
        weight == 1,
        lambda: problem.update(view, batch, keys[0]),
        lambda: jax.tree.map(jnp.zeros_like, view),
    )
    return problem.apart(update)
