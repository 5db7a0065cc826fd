"""Values on an even grid from the least to the largest of their tensor, and values as they are."""

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
    """Values travel as 32-bit floats: 4 bytes each.

    Guarantees: float32 arrives as it was sent, to the last bit; float64 is rounded to 32 bits.

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
    """Each tensor on 2^bits even steps: q = round((x - min) / (max - min) (2^bits - 1)).

    Guarantees: stochastic rounding is unbiased and off by less than a step, (max - min) / (2^bits - 1);
    nearest rounding is off by half a step at most. Constant tensors arrive as they are. In float64, min and
    max are those rounded outwards to 32 bits.

    Args:
        bits: k of a value, 1 to 16. For 32 take `exact`.
        stochastic: True rounds up or down at random, so that the mean is x; False to the nearest.

    Returns:
        The codec: `bits` of a value, two floats (min, max) a tensor.

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
