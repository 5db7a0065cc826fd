"""The networks of the problems, as pure functions: of a random key, and of parameters and inputs.

They do without flax, which takes half a second to import. Convolution and pooling are fast inside a compiled
loop, also on a CPU: inside `lax.scan`, XLA runs `lax.conv_general_dilated` with slow generic code there. A
gradient of `cifar10_cnn` at batch 32 took 1,000 ms inside a scan, 30 ms outside, and 45 ms inside as one
matrix product.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .problem import Params

Network = tuple[Callable[[jax.Array], Params], Callable[[Params, jax.Array], jax.Array]]
"""Random key -> parameters; parameters, inputs (B, ...) -> outputs (B, outputs)."""


def starting(shapes: Any, dtype: Any) -> Callable[[jax.Array], Params]:
    """Returns a function of a random key that makes parameters of these shapes, tuples in a tree.

    Kernels start uniform with variance 1 / (inputs of a unit), biases at 0, after LeCun, Bottou, Orr and
    Müller, Efficient BackProp, 1998, section 4.6.
    """
    leaves, tree = jax.tree.flatten(shapes, is_leaf=lambda shape: isinstance(shape, tuple))
    ends = np.cumsum([math.prod(shape) for shape in leaves])

    @jax.jit
    def init(key: jax.Array) -> Params:
        # One draw for all layers, because one draw per layer takes seconds to compile.
        draws = jnp.split(jax.random.uniform(key, (int(ends[-1]),), dtype, -1, 1), ends[:-1])
        scaled = [
            draw.reshape(shape) * (3 / math.prod(shape[:-1])) ** 0.5 * (len(shape) > 1)
            for draw, shape in zip(draws, leaves, strict=True)
        ]
        return jax.tree.unflatten(tree, scaled)

    return init


def layers(**kernels: tuple[int, ...]) -> dict[str, Any]:
    """Returns the shapes of layers with kernels of these shapes, (inputs of a unit, units), and biases."""
    return {name: {"kernel": shape, "bias": shape[-1:]} for name, shape in kernels.items()}


def dense(params: Params, inputs: jax.Array) -> jax.Array:
    """Applies a fully connected layer, (B, inputs) -> (B, units)."""
    return inputs @ params["kernel"] + params["bias"][None]


def conv(params: Params, images: jax.Array) -> jax.Array:
    """Convolves as one matrix product, (B, H, W, channels) -> (B, H - k + 1, W - k + 1, features).

    The kernel is (k, k, channels, features).
    """
    size, _, _, features = params["kernel"].shape
    height, width = (length - size + 1 for length in images.shape[1:3])
    shifts = [(row, column) for row in range(size) for column in range(size)]
    patches = [images[:, row : row + height, column : column + width] for row, column in shifts]
    kernel = params["kernel"].reshape(-1, features)
    return jnp.concatenate(patches, axis=-1) @ kernel + params["bias"][None, None, None]


def pooled_relu(images: jax.Array) -> jax.Array:
    """Returns relu of the maximum of each 2 x 2 square, (B, H, W, C) -> (B, H/2, W/2, C), for even H, W."""
    batch, height, width, channels = images.shape
    return jax.nn.relu(images.reshape(batch, height // 2, 2, width // 2, 2, channels).max((2, 4)))


def standardised(images: jax.Array, mean: float, deviation: float, dtype: str) -> jax.Array:
    """Returns uint8 images as floating-point numbers, (images / 255 - mean) / deviation."""
    scale = 1 / (255 * deviation)
    return images.astype(jnp.dtype(dtype)) * scale - mean / deviation


def mlp(inputs: int, hidden: int, outputs: int, dtype: str) -> Network:
    """Returns a network with one hidden layer of rectified units, (B, inputs) -> (B, outputs)."""

    def apply(params: Params, inputs: jax.Array) -> jax.Array:
        return dense(params["out"], jax.nn.relu(dense(params["hidden"], inputs)))

    return starting(layers(hidden=(inputs, hidden), out=(hidden, outputs)), dtype), apply


def lenet(dtype: str, colour: bool = False) -> Network:
    """Returns LeNet-5 with rectified units and max pooling, (B, 28, 28) or (B, 32, 32, 3) -> (B, 10)."""
    standard = (0.4734, 0.2516) if colour else (0.1307, 0.3081)  # mean and deviation of the data

    def apply(params: Params, images: jax.Array) -> jax.Array:
        hidden = standardised(images if colour else images[..., None], *standard, dtype)
        hidden = pooled_relu(conv(params["conv2"], pooled_relu(conv(params["conv1"], hidden))))
        hidden = jax.nn.relu(dense(params["dense1"], hidden.reshape(len(images), -1)))
        return dense(params["out"], jax.nn.relu(dense(params["dense2"], hidden)))

    flat = (5 * 5 if colour else 4 * 4) * 16
    kernels = layers(
        conv1=(5, 5, 3 if colour else 1, 6),
        conv2=(5, 5, 6, 16),
        dense1=(flat, 120),
        dense2=(120, 84),
        out=(84, 10),
    )
    return starting(kernels, dtype), apply


def three_convolutions(dtype: str) -> Network:
    """Returns three layers of convolution and pooling, then one dense layer, (B, 32, 32, 3) -> (B, 10)."""

    def apply(params: Params, images: jax.Array) -> jax.Array:
        hidden = standardised(images, 0.4734, 0.2516, dtype)
        for layer in ("conv1", "conv2", "conv3"):  # as large as before, with two rows of zeros around
            hidden = jnp.pad(hidden, ((0, 0), (2, 2), (2, 2), (0, 0)))
            hidden = pooled_relu(conv(params[layer], hidden))
        return dense(params["out"], hidden.reshape(len(images), -1))

    kernels = layers(conv1=(5, 5, 3, 32), conv2=(5, 5, 32, 32), conv3=(5, 5, 32, 64), out=(4 * 4 * 64, 10))
    return starting(kernels, dtype), apply
