"""Quantisers for gradients: QSGD, TernGrad and 1-bit SGD."""

import functools
from typing import Any

import jax.numpy as jnp

from dmlcore import checks
from dmlcore.calls import memoised
from dmlcore.methods.codecs.message import by_tensor, norm, round_at_random, round_up, share
from dmlcore.types import Codec


@memoised(levels=functools.partial(checks.integer, low=1, high=2**15 - 1, why="a sign and 15 bits"))
def qsgd(levels: int) -> Codec:
    """QSGD: rounds each value at random to one of `levels` fractions of its tensor's norm.

    With a = s |v_i| / ||v||_2 the level l of the value v_i is floor(a) + Bernoulli(a - floor(a)), and the
    receiver decodes ||v||_2 sign(v_i) l / s.

    Guarantees: unbiased; E ||Q(v) - v||^2 <= min(n / s^2, sqrt(n) / s) ||v||^2 for a tensor of n values.

    Args:
        levels: the paper's s, the number of levels without 0, 1 to 32767.

    Returns:
        The codec: a sign and ceil(log2(s + 1)) bits per value, one 32-bit float (the norm) per tensor. The
        paper's Elias codes have a length that depends on the values, and are shorter if most levels are 0.

    Raises:
        ValueError: `levels` is out of range.

    >>> qsgd(7), qsgd(7).num_bytes([100])
    (qsgd(levels=7), 54)

    Reference: Alistarh et al. 2017, "QSGD: communication-efficient SGD via gradient quantization and
    encoding", section 3.1 and lemma 3.1.
    """
    sign = 2 ** levels.bit_length()  # the highest bit of a code

    def encode(tensor: Any, uniform: Any) -> tuple[Any, Any]:
        length = round_up(norm(tensor))
        level = round_at_random(uniform, levels * share(jnp.abs(tensor), length))
        level = jnp.clip(level, 0, levels)
        return (length,), level + sign * (tensor < 0)

    def decode(header: Any, codes: Any) -> Any:
        negative = codes >= sign
        level = codes - sign * negative
        return header[0] * jnp.where(negative, -level, level) / levels

    return by_tensor(f"qsgd(levels={levels})", 1 + levels.bit_length(), 1, encode, decode, stochastic=True)


def _clip(name: str, clip: Any) -> float | None:
    number = None if clip is None else checks.real(name, clip, above=0)
    if number == float("inf"):
        checks.fail(name, clip, "a finite number > 0, or None for no clipping")
    return number


@memoised(clip=_clip)
def terngrad(clip: float | None = 2.5) -> Codec:
    """TernGrad: rounds each value at random to -S, 0 or S.

    Values are clipped to +-clip sigma. S is the largest magnitude after clipping, and the receiver decodes
    S sign(g) Bernoulli(|g| / S) for a clipped value g.

    Guarantees: unbiased for the clipped tensor, and so for every tensor if `clip` is None.

    Args:
        clip: the clipping bound in units of sigma, > 0. None: no clipping. Sigma is the root mean square of
            the tensor. The paper uses the standard deviation, which would clip a constant tensor, or a single
            value, to 0.

    Returns:
        The codec: 2 bits per value (the most compact code would take log2(3) = 1.58), one 32-bit float (S)
        per tensor.

    Raises:
        ValueError: `clip` is out of range.

    >>> terngrad(), terngrad().num_bytes([100])
    (terngrad(clip=2.5), 29)

    Reference: Wen et al. 2017, "TernGrad: ternary gradients to reduce communication in distributed deep
    learning", section 3 (ternarizing layer by layer, gradient clipping).
    """

    def encode(tensor: Any, uniform: Any) -> tuple[Any, Any]:
        if clip is not None:
            sigma = norm(tensor) / tensor.size**0.5
            tensor = jnp.clip(tensor, -clip * sigma, clip * sigma)
        scale = round_up(jnp.abs(tensor).max())
        there = round_at_random(uniform, share(jnp.abs(tensor), scale))
        return (scale,), jnp.where(tensor < 0, 2 * there, there)

    def decode(header: Any, codes: Any) -> Any:
        return header[0] * jnp.where(codes == 2, -1, codes)

    return by_tensor(f"terngrad(clip={clip})", 2, 1, encode, decode, stochastic=True)


@functools.cache
def one_bit() -> Codec:
    """1-bit SGD: replaces the values >= 0 of a tensor by their mean, and the values < 0 by theirs.

    Guarantees: the sum of the tensor stays the same; nothing is random. The codec is biased: use it in
    `error_feedback`.

    Returns:
        The codec: 1 bit per value, two 32-bit floats (the means) per tensor; the paper sends two per column.

    >>> one_bit().num_bytes([100, 20])
    32

    Reference: Seide et al. 2014, "1-bit stochastic gradient descent and its application to data-parallel
    distributed training of speech DNNs", section 3.
    """

    def encode(tensor: Any, uniform: Any) -> tuple[Any, Any]:
        up = tensor >= 0
        # Divides first, because the sum may overflow.
        mean = lambda side: jnp.sum(jnp.where(side, tensor, 0) / jnp.maximum(side.sum(), 1))  # noqa: E731
        return (mean(~up), mean(up)), up

    def decode(header: Any, codes: Any) -> Any:
        return jnp.where(codes == 1, header[1], header[0])

    return by_tensor("one_bit()", 1, 2, encode, decode, stochastic=False)
