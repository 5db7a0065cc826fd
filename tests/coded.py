"""Codecs for tests: all kinds, those that remember, and what to send."""

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore.methods.codecs import (
    affine,
    difference,
    error_feedback,
    exact,
    one_bit,
    power_sgd,
    qsgd,
    random_k,
    terngrad,
    top_k,
    transmit,
)

PLAIN = (
    exact(),
    affine(3),
    affine(8, stochastic=False),
    qsgd(6),
    terngrad(),
    one_bit(),
    top_k(0.25),
    random_k(0.25),
)
REMEMBERING = (
    error_feedback(one_bit()),
    difference(affine(4, stochastic=False)),
    error_feedback(difference(qsgd(300))),
    error_feedback(top_k(0.1)),
    difference(random_k(0.5, unbiased=False)),
    error_feedback(power_sgd(1)),
)
KEY = jax.random.key(0)
send = jax.jit(transmit, static_argnums=0)


def a_tree(seed=0):
    """Of both types, where JAX has them."""
    rng = np.random.default_rng(seed)
    return {
        "matrix": jnp.asarray(rng.normal(size=(3, 11)), "float32"),
        "scalar": jnp.asarray(rng.normal(), float),
    }


def close(actual, expected, scale=1.0):
    """Up to rounding in the type of each array."""

    def compare(a, b):
        tolerance = scale * 100 * np.finfo(b.dtype).eps
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)

    jax.tree.map(compare, actual, expected)
