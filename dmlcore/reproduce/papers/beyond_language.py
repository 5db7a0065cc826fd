"""The transformer and the outer optimizer of notebooks/07_beyond.ipynb, small enough for a laptop."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from dmlcore import checks
from dmlcore.problems.networks import Network, starting
from dmlcore.problems.problem import Batch, Params, Problem, frozen
from dmlcore.problems.transformer import Transformer

LETTERS = 27  # the alphabet and the space


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


def generated_text(length: int, seed: int = 0, words: int = 60) -> np.ndarray:
    """Returns text of a Markov chain over random words, as numbers: 0 is the space, 1 to 26 are letters.

    A word has 2 to 5 random letters. The next word is drawn from a row of Dirichlet(0.05), so that a word has
    few successors. A longer text begins with the characters of a shorter one.

    >>> "".join(" abcdefghijklmnopqrstuvwxyz"[i] for i in generated_text(30)[:12]).count(" ") > 0
    True
    """
    rng = np.random.default_rng(seed)
    made = [rng.integers(1, LETTERS, rng.integers(2, 6)).tolist() for _ in range(words)]
    following = rng.dirichlet(np.full(words, 0.05), size=words)
    text: list[int] = []
    word = 0
    while len(text) < length:
        text += [*made[word], 0]
        word = int(rng.choice(words, p=following[word]))
    return np.array(text[:length], np.int32)


def network(build: Callable[[nnx.Rngs], nnx.Module]) -> Network:
    """Returns a flax network as pure functions."""
    graph, state = nnx.split(nnx.eval_shape(lambda: build(nnx.Rngs(0))))
    shapes = jax.tree.map(lambda leaf: leaf.shape, nnx.to_pure_dict(state))
    return starting(shapes, "float32"), lambda params, inputs: nnx.merge(graph, params)(inputs)


@functools.cache
def language(letters: int = 20_000, context: int = 32, width: int = 32, layers: int = 1) -> Problem:
    """Returns a small transformer on `generated_text`: it predicts a letter from up to `context` letters.

    A sample is a window of context + 1 letters, and its loss is the mean cross-entropy of its `context`
    predictions in nats per letter. Metric: `loss` on 250 windows of text that follows the training text.
    """
    text = generated_text(letters + 10_000)

    def windows(part: np.ndarray, step: int) -> np.ndarray:
        return frozen(np.lib.stride_tricks.sliding_window_view(part, context + 1)[::step], np.int32)

    init, scores = network(lambda rngs: Transformer(LETTERS, context, width, layers, rngs))

    def losses(params: Params, batch: Batch) -> jax.Array:
        guesses = scores(params, batch[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(guesses, batch[:, 1:]).mean(1)

    return Problem(
        name=f"language({context}, {width}, {layers})",
        init=init,
        data=windows(text[:letters], 4),
        evaluate=lambda params, batch: {"loss": losses(params, batch).mean()},
        eval_data=windows(text[letters:], 40)[:250],
        losses=losses,
    )
