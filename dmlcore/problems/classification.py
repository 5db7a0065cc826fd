"""What all classifiers share: cross-entropy per sample, and an evaluation in pieces that fit in memory."""

from collections.abc import Callable, Mapping

import jax
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
    """A classifier trained on cross-entropy: losses_i = logsumexp(z_i) - z_i[label_i] + penalty, z = logits.

    `logits` maps parameters and inputs (B, ...) to scores (B, classes); inputs are kept as `dtype`. Batches
    are dicts of `inputs` and `labels` (B,). Metrics, on the first `eval_samples` of each part: `loss` on
    training samples, `test_loss`, and `accuracy`, the share of test samples that is classified right.
    """
    train = {"inputs": frozen(data.train_inputs, dtype), "labels": frozen(data.train_labels, np.int32)}
    test = {"inputs": frozen(data.test_inputs, dtype), "labels": frozen(data.test_labels, np.int32)}

    def judge(params: Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
        scores = logits(params, batch["inputs"])
        losses = optax.softmax_cross_entropy_with_integer_labels(scores, batch["labels"])
        return losses + penalty(params), scores.argmax(-1) == batch["labels"]

    def judge_in_chunks(params: Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
        one, inputs = jax.tree.map(lambda rows: rows[:, None], batch), batch["inputs"]
        size = max(LEAST_CHUNK, CHUNK_BYTES * len(inputs) // max(inputs.nbytes, 1))
        losses, right = jax.lax.map(
            lambda sample: judge(params, sample), one, batch_size=min(size, len(inputs))
        )
        return losses.mean(), right.mean()

    def evaluate(params: Params, eval_data: Mapping[str, Batch]) -> dict[str, jax.Array]:
        loss, _ = judge_in_chunks(params, eval_data["train"])
        test_loss, accuracy = judge_in_chunks(params, eval_data["test"])
        return {"loss": loss, "test_loss": test_loss, "accuracy": accuracy}

    return Problem(
        name=name,
        init=init,
        losses=lambda params, batch: judge(params, batch)[0],
        data=train,
        evaluate=evaluate,
        eval_data=jax.tree.map(lambda rows: rows[:eval_samples], {"train": train, "test": test}),
        optimum=optimum,
    )
