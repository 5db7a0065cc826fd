"""Layers with a convolution and a pooling that are fast inside a compiled loop, also on a CPU.

Inside `lax.scan`, XLA runs `lax.conv_general_dilated` with slow generic code on CPUs: a gradient of
`cifar10_cnn` at batch 32 took 1,000 ms inside a scan, 30 ms outside, and 45 ms inside as one matrix product.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx


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
