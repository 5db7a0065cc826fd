"""Classifiers: a small network and a convex model of digits, and networks of MNIST and CIFAR-10.

They share cross-entropy per sample. The digits, scikit-learn's, work offline.
Images stay uint8 in memory; the network scales them.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dmlcore import data
from dmlcore.calls import memoised
from dmlcore.checks import at_least, real
from dmlcore.data import Labelled

from . import networks
from .problem import Batch, Params, Problem, floating, frozen
from .supervised import supervised


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

    def loss(params: Params, scores: jax.Array, batch: Batch) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(scores, batch["labels"]) + penalty(params)

    return supervised(
        name,
        init,
        lambda params, batch: logits(params, batch["inputs"]),
        loss,
        train,
        test,
        metrics={"accuracy": lambda scores, batch: scores.argmax(-1) == batch["labels"]},
        eval_samples=eval_samples,
        optimum=optimum,
    )


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
    network = networks.mlp(PIXELS, hidden, CLASSES, dtype)
    return classification("digits_mlp", *network, data.digits(), dtype=dtype)


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

    def penalty(params: Params) -> jax.Array | float:
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


@memoised(dtype=floating, eval_samples=at_least(1))
def mnist_lenet(dtype: str = "float32", eval_samples: int = 5000) -> Problem:
    """LeNet on MNIST: 44,426 parameters, 60,000 training images.

    Args:
        dtype: "float32", or "float64" if JAX has 64 bits enabled.
        eval_samples: the evaluation uses this number of training images and of test images, the first ones.
            With the default it takes about a second on two cores.

    Returns:
        The problem. Batches are dicts of `inputs` (B, 28, 28), uint8, and `labels` (B,). Metrics: `loss`,
        `test_loss` and `accuracy`.

    Raises:
        ValueError: an argument is out of range, or a file of the data is damaged.
        ConnectionError: the data are missing and the download fails.

    >>> mnist_lenet()  # doctest: +SKIP
    Problem(mnist_lenet, 60000 samples)

    Reference: LeCun, Bottou, Bengio and Haffner, Proceedings of the IEEE 86(11), 1998.
    """
    network = networks.lenet(dtype)
    return classification("mnist_lenet", *network, data.mnist(), dtype="uint8", eval_samples=eval_samples)


@memoised(dtype=floating, eval_samples=at_least(1))
def cifar10_cnn(dtype: str = "float32", eval_samples: int = 1000) -> Problem:
    """Three convolutions and a dense layer on CIFAR-10: 89,578 parameters, 50,000 training images.

    Args:
        dtype, eval_samples: as for `mnist_lenet`.

    Returns:
        The problem. Batches are dicts of `inputs` (B, 32, 32, 3), uint8, and `labels` (B,). Metrics: `loss`,
        `test_loss` and `accuracy`.

    Raises:
        ValueError: an argument is out of range, or a file of the data is damaged.
        ConnectionError: the data are missing and the download fails.

    >>> cifar10_cnn()  # doctest: +SKIP
    Problem(cifar10_cnn, 50000 samples)

    Reference: the number of parameters (about 90K) and the layers follow Zhang, Gupta, Lian and Liu, IJCAI
    2016.
    """
    network = networks.three_convolutions(dtype)
    return classification("cifar10_cnn", *network, data.cifar10(), dtype="uint8", eval_samples=eval_samples)


@memoised(dtype=floating, eval_samples=at_least(1))
def cifar10_lenet(dtype: str = "float32", eval_samples: int = 5000) -> Problem:
    """LeNet on CIFAR-10: 62,006 parameters, 50,000 training images, eight times as fast as `cifar10_cnn`.

    Args:
        dtype, eval_samples: as for `mnist_lenet`.

    Returns:
        The problem. Batches are dicts of `inputs` (B, 32, 32, 3), uint8, and `labels` (B,). Metrics: `loss`,
        `test_loss` and `accuracy`.

    Raises:
        ValueError: an argument is out of range, or a file of the data is damaged.
        ConnectionError: the data are missing and the download fails.

    >>> cifar10_lenet()  # doctest: +SKIP
    Problem(cifar10_lenet, 50000 samples)

    Reference: that of `mnist_lenet`, for images of 32 x 32 pixels in three colours.
    """
    network = networks.lenet(dtype, colour=True)
    return classification("cifar10_lenet", *network, data.cifar10(), dtype="uint8", eval_samples=eval_samples)
