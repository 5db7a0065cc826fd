"""The part that all classifiers share: cross-entropy per sample, and an evaluation in pieces."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dmlcore.data import Labelled

from .problem import Batch, Params, Problem, frozen

CHUNK_BYTES, LEAST_CHUNK = 2**20, 100
"""Bytes of inputs that evaluation looks at in one go, and samples at least."""


def classification(
    name: str,
    init: Callable[[jax.Array], Params],
    logits: Callable[[Params, jax.Array], jax.Array],
    data: Labelled,
    *,
    dtype: np.typing.DTypeLike,
    eval_samples: int | None = None,
    penalty: Callable[[Params], jax.Array | float] = lambda params: 0.0,
    optimum: float | None = None,
) -> Problem:
    """Returns a classifier trained on cross-entropy: losses_i = logsumexp(z_i) - z_i[label_i] + penalty.

    `logits` maps parameters and inputs (B, ...) to scores z of shape (B, classes). Inputs are stored as
    `dtype`. Batches are dicts of `inputs` (B, ...) and `labels` (B,). The metrics use the first
    `eval_samples` samples of each part: `loss` on training samples, `test_loss`, and `accuracy`, the fraction
    of test samples that are classified correctly.
    """
    train = {"inputs": frozen(data.train_inputs, dtype), "labels": frozen(data.train_labels, np.int32)}
    test = {"inputs": frozen(data.test_inputs, dtype), "labels": frozen(data.test_labels, np.int32)}

    def losses(params: Params, batch: Batch, scores: jax.Array) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(scores, batch["labels"]) + penalty(params)

    def right(params: Params, batch: Batch, scores: jax.Array) -> jax.Array:
        return scores.argmax(-1) == batch["labels"]

    def means(params: Params, batch: Batch, *judges: Callable[..., jax.Array]) -> list[jax.Array]:
        def judge(piece: Batch) -> list[jax.Array]:
            scores = logits(params, piece["inputs"])
            return [each(params, piece, scores) for each in judges]

        return [found.mean() for found in in_pieces(judge, batch)]

    def evaluate(params: Params, eval_data: Mapping[str, Batch]) -> dict[str, jax.Array]:
        (loss,) = means(params, eval_data["train"], losses)
        test_loss, accuracy = means(params, eval_data["test"], losses, right)
        return {"loss": loss, "test_loss": test_loss, "accuracy": accuracy}

    return Problem(
        name=name,
        init=init,
        losses=lambda params, batch: losses(params, batch, logits(params, batch["inputs"])),
        data=train,
        evaluate=evaluate,
        eval_data=jax.tree.map(lambda rows: rows[:eval_samples], {"train": train, "test": test}),
        optimum=optimum,
    )


def in_pieces(judge: Callable[[Batch], list[jax.Array]], batch: Batch) -> list[jax.Array]:
    """Applies `judge` to a batch in pieces that fit in memory; returns its results per sample, (B,) each."""
    inputs = batch["inputs"]
    size = min(len(inputs), max(LEAST_CHUNK, CHUNK_BYTES * len(inputs) // max(inputs.nbytes, 1)))
    whole = len(inputs) // size * size
    pieces = jax.tree.map(lambda rows: rows[:whole].reshape(-1, size, *rows.shape[1:]), batch)
    found = [each.reshape(-1) for each in jax.lax.map(judge, pieces)]
    if whole == len(inputs):
        return found
    rest = judge(jax.tree.map(lambda rows: rows[whole:], batch))
    return [jnp.concatenate(parts) for parts in zip(found, rest, strict=True)]
