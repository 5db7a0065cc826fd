"""Problems that compare the outputs of a network with data: losses, metrics, and evaluation in pieces."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from dmlcore import checks

from .problem import Batch, Params, Problem

WHOLE_BYTES, PIECE = 2**20, 32
"""Bytes of inputs up to which evaluation takes all at once; else samples of a piece, which a cache holds."""

Judge = Callable[[Any, Batch], jax.Array]  # outputs of a batch of B samples, batch -> a number for each, (B,)


def supervised(
    name: str,
    init: Callable[[jax.Array], Params],
    outputs: Callable[[Params, Batch], Any],
    loss: Callable[[Params, Any, Batch], jax.Array],
    data: Batch,
    test_data: Batch | None = None,
    *,
    metrics: Mapping[str, Judge],
    eval_samples: int | None = None,
    **fields: Any,
) -> Problem:
    """Returns the problem of a network; the metrics use the first `eval_samples` samples of each part.

    Args:
        name, init, data: as for `Problem`.
        outputs: parameters, batch -> what the network makes of it.
        loss: parameters, outputs, batch -> loss of each sample, (B,).
        test_data: samples like those of `data`. None: there are none, and `metrics` judge the training data.
        metrics: name -> what is averaged over samples, beside `loss` and, on test data, `test_loss`.
        eval_samples: of each part. None: all.
        fields: others of `Problem`; `losses` without it are those of `outputs`.
    """

    def means(params: Params, batch: Batch, judges: Mapping[str, Judge]) -> dict[str, jax.Array]:
        def judge(piece: Batch) -> list[jax.Array]:
            found, size = outputs(params, piece), len(jax.tree.leaves(piece)[0])
            numbers = [each(found, piece) for each in judges.values()]
            for name, each in zip(judges, numbers, strict=True):
                if jnp.shape(each) != (size,):
                    expected = f"shape ({size},), a number for each of {size} samples"
                    checks.reject(name, f"shape {jnp.shape(each)}", expected)
            return numbers

        return {
            name: each.mean()
            for name, each in zip(judges, in_pieces(judge, batch, fields.get("coupled", False)), strict=True)
        }

    def evaluate(params: Params, eval_data: Mapping[str, Batch]) -> dict[str, jax.Array]:
        own = partial(loss, params)
        if "test" not in eval_data:
            return means(params, eval_data["train"], {"loss": own, **metrics})
        test = means(params, eval_data["test"], {"test_loss": own, **metrics})
        return means(params, eval_data["train"], {"loss": own}) | test

    def losses(params: Params, batch: Batch) -> jax.Array:
        return loss(params, outputs(params, batch), batch)

    parts = {"train": data} if test_data is None else {"train": data, "test": test_data}
    first = jax.tree.map(lambda rows: rows[:eval_samples], parts)
    whole: dict[str, Any] = {"losses": losses, **fields}
    return Problem(name, init, data, evaluate, first, **whole)


def in_pieces(
    judge: Callable[[Batch], list[jax.Array]], batch: Batch, coupled: bool = False
) -> list[jax.Array]:
    """Applies `judge` to a batch, in pieces if it is large and not coupled; returns (B,) each."""
    leaves = jax.tree.leaves(batch)
    count = len(leaves[0])
    large = max(leaf.nbytes for leaf in leaves) > WHOLE_BYTES and not coupled
    size = min(count, PIECE) if large else count
    whole = count // size * size
    pieces = jax.tree.map(lambda rows: rows[:whole].reshape(-1, size, *rows.shape[1:]), batch)
    found = [each.reshape(-1) for each in jax.lax.map(judge, pieces)]
    if whole == count:
        return found
    rest = judge(jax.tree.map(lambda rows: rows[whole:], batch))
    return [jnp.concatenate(parts) for parts in zip(found, rest, strict=True)]
