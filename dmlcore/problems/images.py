"""Convolutional networks on MNIST and CIFAR-10. Images stay uint8 in memory; the network scales them."""

from functools import partial
from typing import Any

from dmlcore import data
from dmlcore.calls import memoised
from dmlcore.checks import at_least

from .classification import classification
from .problem import Problem, floating


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
    from .networks import LeNet

    return _network("mnist_lenet", LeNet, data.mnist(), dtype, eval_samples)


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
    from .networks import ThreeConvolutions

    return _network("cifar10_cnn", ThreeConvolutions, data.cifar10(), dtype, eval_samples)


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
    from .networks import LeNet

    return _network("cifar10_lenet", partial(LeNet, colour=True), data.cifar10(), dtype, eval_samples)


def _network(name: str, model: Any, images: data.Labelled, dtype: str, eval_samples: int) -> Problem:
    from .networks import network  # imported here because flax takes half a second to import

    init, apply = network(lambda rngs: model(dtype, rngs))
    return classification(name, init, apply, images, dtype="uint8", eval_samples=eval_samples)
