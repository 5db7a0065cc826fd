"""What all classifiers share: cross-entropy per sample, and an evaluation in pieces that fit in memory."""

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from dmlcore.data import Labelled

from .problem import Batch, Params, Problem, frozen

CHUNK = 100
"""Samples that evaluation looks at in one go: it bounds the memory that activations take."""


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
        one = jax.tree.map(lambda rows: rows[:, None], batch)
        losses, right = jax.lax.map(lambda sample: judge(params, sample), one, batch_size=CHUNK)
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


def network(
    build: Callable[[nnx.Rngs], nnx.Module],
) -> tuple[Callable[[jax.Array], Params], Callable[[Params, jax.Array], jax.Array]]:
    """Returns a flax network as pure functions: random key -> parameters; parameters, inputs -> outputs.

    Kernels start uniform with variance 1 / (inputs of a unit), biases at 0: LeCun, Bottou, Orr and Müller,
    Efficient BackProp, 1998, section 4.6.
    """
    graph, state = nnx.split(nnx.eval_shape(lambda: build(nnx.Rngs(0))))
    shapes, tree = jax.tree.flatten(nnx.to_pure_dict(state))
    ends = np.cumsum([leaf.size for leaf in shapes])

    def init(key: jax.Array) -> Params:
        # One draw for all layers: flax's, one for each, take seconds to compile.
        draws = jnp.split(jax.random.uniform(key, (int(ends[-1]),), shapes[0].dtype, -1, 1), ends[:-1])
        leaves = [
            draw.reshape(leaf.shape) * (3 / math.prod(leaf.shape[:-1])) ** 0.5 * (leaf.ndim > 1)
            for draw, leaf in zip(draws, shapes, strict=True)
        ]
        return jax.tree.unflatten(tree, leaves)

    def apply(params: Params, inputs: jax.Array) -> jax.Array:
        return nnx.merge(graph, params)(inputs)

    return init, apply
