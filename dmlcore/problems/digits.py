"""Two classifiers of scikit-learn's digits: a small network and a convex model. Both work offline."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import data
from dmlcore.calls import memoised
from dmlcore.checks import at_least, real

from .classification import classification
from .problem import Params, Problem, floating

PIXELS, CLASSES = 64, 10


@memoised(hidden=at_least(1), dtype=floating)
def digits_mlp(hidden: int = 32, dtype: str = "float32") -> Problem:
    """A network 64-hidden-10 on handwritten digits: the small and fast default, which needs no download.

    Args:
        hidden: number of units in the hidden layer, >= 1.
        dtype: "float32", or "float64" if JAX has 64 bits enabled.

    Returns:
        The problem; 75 `hidden` + 10 parameters (2,410 for 32 units), 1,437 training samples. Batches are
        dicts of `inputs` (B, 64) and `labels` (B,). Metrics: `loss`, `test_loss` and `accuracy`.

    Raises:
        ValueError: an argument is out of range.

    >>> digits_mlp()
    Problem(digits_mlp, 1437 samples)
    """
    from .networks import MLP, network  # imported here because flax takes half a second to import

    init, apply = network(lambda rngs: MLP(PIXELS, hidden, CLASSES, dtype, rngs))
    return classification("digits_mlp", init, apply, data.digits(), dtype=dtype)


@memoised(l2=partial(real, low=0, high=1e6), dtype=floating)
def logistic_regression(l2: float = 1e-3, dtype: str = "float32") -> Problem:
    """Softmax regression on handwritten digits: convex, with a known optimum.

    losses_i = cross-entropy_i + l2/2 (||weights||^2 + ||bias||^2), which is l2-strongly convex. Parameters
    start at zero, whatever the random key.

    Args:
        l2: weight of the penalty, >= 0.
        dtype: "float32", or "float64" if JAX has 64 bits enabled.

    Returns:
        The problem, 650 parameters. Batches are dicts of `inputs` (B, 64) and `labels` (B,). Metrics: `loss`,
        `test_loss` and `accuracy`. scikit-learn computes `optimum` in float64; for l2 = 0 it is None, because
        no parameters attain the infimum.

    Raises:
        ValueError: an argument is out of range.

    >>> round(logistic_regression().optimum, 4)
    0.2578
    """
    digits = data.digits()

    def init(key: jax.Array) -> Params:
        return {"weights": jnp.zeros((PIXELS, CLASSES), dtype), "bias": jnp.zeros(CLASSES, dtype)}

    def logits(params: Params, inputs: jax.Array) -> jax.Array:
        return inputs @ params["weights"] + params["bias"]

    def penalty(params: Params) -> jax.Array:
        return l2 / 2 * sum((leaf**2).sum() for leaf in jax.tree.leaves(params))

    best = _least_loss(digits, l2) if l2 > 0 else None
    name = "logistic_regression"
    return classification(name, init, logits, digits, dtype=dtype, penalty=penalty, optimum=best)


def _least_loss(digits: data.Labelled, l2: float) -> float:
    """Returns the minimum over all parameters of the mean cross-entropy plus the penalty."""
    # Imported here because scikit-learn takes seconds to import.
    from scipy.special import logsumexp
    from sklearn.linear_model import LogisticRegression

    # A column of ones instead of an intercept, so that the bias is penalised too.
    inputs = np.hstack([digits.train_inputs, np.ones((len(digits.train_inputs), 1))])
    model = LogisticRegression(
        C=1 / (l2 * len(inputs)), fit_intercept=False, solver="newton-cg", tol=1e-10, max_iter=1000
    ).fit(inputs, digits.train_labels)
    scores = inputs @ model.coef_.T
    losses = logsumexp(scores, axis=1) - scores[np.arange(len(scores)), digits.train_labels]
    return float(losses.mean() + l2 / 2 * (model.coef_**2).sum())
