"""The networks of the problems, as flax modules, and `network`, which makes pure functions of a module.

Convolution and pooling are fast inside a compiled loop, also on a CPU: inside `lax.scan`, XLA runs
`lax.conv_general_dilated` with slow generic code there. A gradient of `cifar10_cnn` at batch 32 took 1,000 ms
inside a scan, 30 ms outside, and 45 ms inside as one matrix product.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from .problem import Params


def conv_as_matmul(
    images: jax.Array, kernel: jax.Array, strides: Any, padding: str, **layout: Any
) -> jax.Array:
    """Convolution as one matrix product, in place of `lax.conv_general_dilated` in `nnx.Conv`.

    Images (B, H, W, channels) and a kernel (k, k, channels, features), k odd, give (B, H', W', features),
    where H' = H for the padding "SAME" and H - k + 1 for "VALID"; W' likewise. Strides are 1.
    """
    size, _, _, features = kernel.shape
    if padding == "SAME":
        images = jnp.pad(images, ((0, 0), *[(size // 2, size // 2)] * 2, (0, 0)))
    height, width = (length - size + 1 for length in images.shape[1:3])
    shifts = [(row, column) for row in range(size) for column in range(size)]
    patches = [images[:, row : row + height, column : column + width] for row, column in shifts]
    return jnp.concatenate(patches, axis=-1) @ kernel.reshape(-1, features)


def conv(channels: int, features: int, padding: str, dtype: str, rngs: nnx.Rngs) -> nnx.Conv:
    """Returns a layer of 5 x 5 convolutions, (B, H, W, channels) -> (B, H', W', features)."""
    types: Any = {"dtype": jnp.dtype(dtype), "param_dtype": jnp.dtype(dtype)}
    call = conv_as_matmul
    return nnx.Conv(
        channels, features, (5, 5), padding=padding, conv_general_dilated=call, rngs=rngs, **types
    )


def dense(inputs: int, features: int, dtype: str, rngs: nnx.Rngs) -> nnx.Linear:
    """Returns a fully connected layer, (B, inputs) -> (B, features)."""
    return nnx.Linear(inputs, features, dtype=jnp.dtype(dtype), param_dtype=jnp.dtype(dtype), rngs=rngs)


def pooled_relu(images: jax.Array) -> jax.Array:
    """Returns relu of the maximum of each 2 x 2 square, (B, H, W, C) -> (B, H/2, W/2, C), for even H, W."""
    batch, height, width, channels = images.shape
    return nnx.relu(images.reshape(batch, height // 2, 2, width // 2, 2, channels).max((2, 4)))


def standardised(images: jax.Array, mean: float, deviation: float, dtype: str) -> jax.Array:
    """Returns uint8 images as floating-point numbers, (images / 255 - mean) / deviation."""
    scale = 1 / (255 * deviation)
    return images.astype(jnp.dtype(dtype)) * scale - mean / deviation


class MLP(nnx.Module):
    """A network with one hidden layer of rectified units, (B, inputs) -> (B, outputs)."""

    def __init__(self, inputs: int, hidden: int, outputs: int, dtype: str, rngs: nnx.Rngs):
        self.hidden = dense(inputs, hidden, dtype, rngs)
        self.out = dense(hidden, outputs, dtype, rngs)

    def __call__(self, inputs: jax.Array) -> jax.Array:
        return self.out(nnx.relu(self.hidden(inputs)))


class LeNet(nnx.Module):
    """LeNet-5 with rectified units and max pooling, (B, 28, 28) or (B, 32, 32, 3) -> (B, 10)."""

    def __init__(self, dtype: str, rngs: nnx.Rngs, *, colour: bool = False):
        self.dtype = dtype
        self.standard = (0.4734, 0.2516) if colour else (0.1307, 0.3081)  # mean and deviation of the data
        self.conv1 = conv(3 if colour else 1, 6, "VALID", dtype, rngs)
        self.conv2 = conv(6, 16, "VALID", dtype, rngs)
        self.dense1 = dense((5 * 5 if colour else 4 * 4) * 16, 120, dtype, rngs)
        self.dense2 = dense(120, 84, dtype, rngs)
        self.out = dense(84, 10, dtype, rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        images = images if images.ndim == 4 else images[..., None]
        hidden = standardised(images, *self.standard, self.dtype)
        hidden = pooled_relu(self.conv2(pooled_relu(self.conv1(hidden))))
        hidden = nnx.relu(self.dense1(hidden.reshape(len(images), -1)))
        return self.out(nnx.relu(self.dense2(hidden)))


class ThreeConvolutions(nnx.Module):
    """Three layers of convolution and pooling, then one dense layer, (B, 32, 32, 3) -> (B, 10)."""

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


def network(
    build: Callable[[nnx.Rngs], nnx.Module],
) -> tuple[Callable[[jax.Array], Params], Callable[[Params, jax.Array], jax.Array]]:
    """Returns a flax network as pure functions: random key -> parameters; parameters, inputs -> outputs.

    Kernels start uniform with variance 1 / (inputs of a unit), biases at 0, after LeCun, Bottou, Orr and
    Müller, Efficient BackProp, 1998, section 4.6.
    """
    graph, state = nnx.split(nnx.eval_shape(lambda: build(nnx.Rngs(0))))
    shapes, tree = jax.tree.flatten(nnx.to_pure_dict(state))
    ends = np.cumsum([leaf.size for leaf in shapes])

    def init(key: jax.Array) -> Params:
        # One draw for all layers, because the draws of flax, one per layer, take seconds to compile.
        draws = jnp.split(jax.random.uniform(key, (int(ends[-1]),), shapes[0].dtype, -1, 1), ends[:-1])
        leaves = [
            draw.reshape(leaf.shape) * (3 / math.prod(leaf.shape[:-1])) ** 0.5 * (leaf.ndim > 1)
            for draw, leaf in zip(draws, shapes, strict=True)
        ]
        return jax.tree.unflatten(tree, leaves)

    def apply(params: Params, inputs: jax.Array) -> jax.Array:
        return nnx.merge(graph, params)(inputs)

    return init, apply
