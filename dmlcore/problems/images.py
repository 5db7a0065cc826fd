"""Convolutional networks on MNIST and CIFAR-10. Images stay uint8 in memory and are scaled in the loss."""

from typing import Any

import jax
from flax import nnx

from dmlcore import data
from dmlcore.calls import memoised
from dmlcore.checks import at_least

from .classification import classification, network
from .layers import conv, dense, pooled_relu, standardised
from .problem import Problem, floating


class LeNet(nnx.Module):
    """LeNet-5 for 28 x 28 images with rectified units and maximum pooling, (B, 28, 28) -> (B, 10)."""

    def __init__(self, dtype: str, rngs: nnx.Rngs):
        self.dtype = dtype
        self.conv1 = conv(1, 6, "VALID", dtype, rngs)
        self.conv2 = conv(6, 16, "VALID", dtype, rngs)
        self.dense1 = dense(4 * 4 * 16, 120, dtype, rngs)
        self.dense2 = dense(120, 84, dtype, rngs)
        self.out = dense(84, 10, dtype, rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        hidden = standardised(images[..., None], 0.1307, 0.3081, self.dtype)
        hidden = pooled_relu(self.conv2(pooled_relu(self.conv1(hidden))))
        hidden = nnx.relu(self.dense1(hidden.reshape(len(images), -1)))
        return self.out(nnx.relu(self.dense2(hidden)))


class ThreeConvolutions(nnx.Module):
    """Three times convolution and pooling, then one dense layer, (B, 32, 32, 3) -> (B, 10)."""

    def __init__(self, dtype: str, rngs: nnx.Rngs):
        self.dtype = dtype
        self.conv1 = conv(3, 32, "SAME", dtype, rngs)
        self.conv2 = conv(32, 32, "SAME", dtype, rngs)
        self.conv3 = conv(32, 64, "SAME", dtype, rngs)
        self.out = dense(4 * 4 * 64, 10, dtype, rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        hidden = standardised(images, 0.4734, 0.2516, self.dtype)
        for layer in (self.conv1, self.conv2, self.conv3):
            hidden = pooled_relu(layer(hidden))
        return self.out(hidden.reshape(len(images), -1))


@memoised(dtype=floating, eval_samples=at_least(1))
def mnist_lenet(dtype: str = "float32", eval_samples: int = 5000) -> Problem:
    """LeNet on MNIST: 44,426 parameters, 60,000 training images.

    Args:
        dtype: "float32", or "float64" where JAX has 64 bits switched on.
        eval_samples: it is evaluated on the first so many training and test images: in a second on two cores.

    Raises:
        ValueError: an argument outside its range, or a damaged file of the data.
        ConnectionError: the data is neither here nor can it be downloaded.

    >>> mnist_lenet()  # doctest: +SKIP
    Problem(mnist_lenet, 60000 samples)

    Reference: LeCun, Bottou, Bengio and Haffner, Proceedings of the IEEE 86(11), 1998.
    """
    return _network("mnist_lenet", LeNet, data.mnist(), dtype, eval_samples)


@memoised(dtype=floating, eval_samples=at_least(1))
def cifar10_cnn(dtype: str = "float32", eval_samples: int = 1000) -> Problem:
    """Three convolutions and a dense layer on CIFAR-10: 89,578 parameters, 50,000 training images.

    Args and errors are those of `mnist_lenet`.

    >>> cifar10_cnn()  # doctest: +SKIP
    Problem(cifar10_cnn, 50000 samples)

    Reference: the size (about 90K) and shape follow Zhang, Gupta, Lian and Liu, IJCAI 2016.
    """
    return _network("cifar10_cnn", ThreeConvolutions, data.cifar10(), dtype, eval_samples)


def _network(name: str, model: Any, images: data.Labelled, dtype: str, eval_samples: int) -> Problem:
    init, apply = network(lambda rngs: model(dtype, rngs))
    return classification(name, init, apply, images, dtype="uint8", eval_samples=eval_samples)
