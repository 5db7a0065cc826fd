"""Codecs that round to an even grid from the smallest to the largest value of a tensor, or not at all."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from dmlcore import checks
from dmlcore.calls import memoised
from dmlcore.methods.codecs.message import by_tensor, floats, round_at_random, round_up, share
from dmlcore.types import Codec


@functools.cache
def exact() -> Codec:
    """Sends values as 32-bit floats: 4 bytes each.

    Guarantees: float32 arrives unchanged, to the last bit; float64 is rounded to 32 bits.

    Returns:
        The codec: 32 bits per value, no header.

    >>> exact().num_bytes([100, 20])
    480
    """
    shorten = lambda leaf: floats(leaf).astype(jnp.float32)  # noqa: E731
    return Codec(
        "exact()",
        lambda sizes: 4 * sum(sizes),
        lambda tree: (),
        lambda key, memory, tree: (jax.tree.map(shorten, tree), memory),
        lambda message, memory: message,
    )


@memoised(
    bits=functools.partial(checks.integer, low=1, high=16, why="32 is exact()"), stochastic=checks.boolean
)
def affine(bits: int, *, stochastic: bool = True) -> Codec:
    """Rounds each tensor to 2^bits even levels: q = round((x - min) / (max - min) (2^bits - 1)).

    Guarantees: stochastic rounding is unbiased, and its error is less than one step,
    (max - min) / (2^bits - 1); the error of nearest rounding is at most half a step. Constant tensors arrive
    unchanged. For float64 tensors, min and max are rounded outwards to 32 bits.

    Args:
        bits: the paper's k, bits per value, 1 to 16. For 32 bits use `exact`.
        stochastic: True: rounds up or down at random, so that the mean is x. False: rounds to the nearest.

    Returns:
        The codec: `bits` bits per value, two 32-bit floats (min, max) per tensor.

    Raises:
        ValueError: an argument is out of range.

    >>> affine(8), affine(8).num_bytes([100, 20])
    (affine(bits=8), 136)

    Reference: Xian et al. 2024 (H-PS), its flexible quantization, as reconstructed.
    """
    top = 2**bits - 1

    def encode(tensor: Any, uniform: Any) -> tuple[Any, Any]:
        low, high = -round_up(-tensor.min()), round_up(tensor.max())
        level = share(tensor - low, high - low) * top
        level = round_at_random(uniform, level) if stochastic else jnp.round(level)
        return (low, high), jnp.clip(level, 0, top)

    def decode(header: Any, codes: Any) -> Any:
        up = codes / top
        return header[0] * (1 - up) + header[1] * up

    name = f"affine(bits={bits}{'' if stochastic else ', stochastic=False'})"
    return by_tensor(name, bits, 2, encode, decode, stochastic)
