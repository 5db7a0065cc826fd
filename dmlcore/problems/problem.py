"""What is trained: a model, its per-sample loss, the data, and how a state of the parameters is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

Params = Any
Batch = Any


@dataclass(frozen=True, eq=False)
class Problem:
    """A training problem as pure functions on explicit data.

    A gradient task on a batch of b samples computes the gradient of `mean(losses(params, batch))`.

    Args:
        name: what plots and traces call it.
        init: random key -> parameters, any pytree of floating arrays.
        losses: parameters, batch of B samples -> loss of each sample, shape (B,).
        data: training samples, a pytree of arrays that share the leading axis N; a batch is rows of it.
        evaluate: parameters, eval_data -> metrics as scalars; `loss` is the training objective.
        eval_data: what `evaluate` looks at, any pytree of arrays.
        optimum: the least attainable `loss`, where it is known.
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

    def __repr__(self) -> str:
        return f"Problem({self.name}, {self.num_samples} samples)"
