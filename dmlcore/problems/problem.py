"""What is trained: a model, its per-sample loss, the data, and how a state of the parameters is judged."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks, notebook

Params = Any
Batch = Any

FLOATING = ("float32", "float64")


@dataclass(frozen=True, eq=False)
class Problem:
    """A training problem as pure functions on explicit data.

    A gradient task on a batch of B samples computes the gradient of `mean(losses(params, batch))`. Problems
    compare and hash by identity, so that a compiled function can take one as a static argument; the factories
    return the same object for the same arguments.

    Args:
        name: what plots and traces call it.
        init: random key -> parameters, any pytree of floating arrays.
        losses: parameters, batch of B samples -> loss of each sample, shape (B,).
        data: training samples, a pytree of NumPy or JAX arrays that share the leading axis N; a batch is
            rows of it.
        evaluate: parameters, eval_data -> metrics as scalars; `loss` is the training objective.
        eval_data: what `evaluate` looks at, any pytree of arrays.
        optimum: the least attainable `loss`, where it is known.

    >>> from dmlcore.problems import linear_regression
    >>> problem = linear_regression(num_samples=20, num_features=3)
    >>> problem
    Problem(linear_regression, 20 samples)
    >>> params = problem.init(jax.random.key(0))
    >>> batch = jax.tree.map(lambda rows: rows[:4], problem.data)
    >>> problem.losses(params, batch).shape
    (4,)
    """

    name: str
    init: Callable[[jax.Array], Params]
    losses: Callable[[Params, Batch], jax.Array]
    data: Batch
    evaluate: Callable[[Params, Any], Mapping[str, jax.Array]]
    eval_data: Any
    optimum: float | None = None

    @property
    def num_samples(self) -> int:
        """N, the number of training samples."""
        return jax.tree.leaves(self.data)[0].shape[0]

    @property
    def parameter_bytes(self) -> int:
        """How many bytes the parameters are."""
        real = str(jax.dtypes.canonicalize_dtype(float))  # types of parameters may follow from it
        if real not in self._bytes:
            shapes = jax.eval_shape(self.init, jax.random.key(0))
            self._bytes[real] = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
        return self._bytes[real]

    @functools.cached_property
    def tensor_sizes(self) -> tuple[int, ...]:
        """How many numbers each tensor of the parameters has."""
        return tuple(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(self.init, jax.random.key(0))))

    @functools.cached_property
    def _bytes(self) -> dict[str, int]:
        return {}

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def __repr__(self) -> str:
        return f"Problem({self.name}, {self.num_samples} samples)"


def floating(dtype: Any) -> str:
    """Returns the name of `dtype` if it is one that problems come in and JAX can hold now.

    float64 is for tests of exactness; JAX holds it only where 64 bits are switched on.

    >>> floating("float32")
    'float32'
    >>> floating("float16")
    Traceback (most recent call last):
    ValueError: dtype: got 'float16', allowed is one of 'float32', 'float64'
    """
    name = checks.choice("dtype", dtype, dict(zip(FLOATING, FLOATING, strict=True)))
    if jnp.zeros(0, jax.dtypes.canonicalize_dtype(name)).dtype != name:
        checks.fail("dtype", dtype, "'float32', or 'float64' inside `with jax.enable_x64(True)`")
    return name


def frozen(array: Any, dtype: Any) -> np.ndarray:
    """Returns a copy of `array` that cannot be written to: memoised problems are shared."""
    copy = np.array(array, dtype)
    copy.flags.writeable = False
    return copy
