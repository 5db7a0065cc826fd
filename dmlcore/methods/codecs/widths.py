"""The number of bits per value: the two rules of flexible quantization."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dmlcore import checks
from dmlcore.methods.codecs.affine import affine, exact
from dmlcore.methods.codecs.message import norm, transmit
from dmlcore.types import Codec

WIDTHS = (32, 16, 8, 4)


def of_width(bits: int, *, stochastic: bool = True) -> Codec:
    """Returns the codec with the given number of bits per value.

    Args:
        bits: per value, 32 or 1 to 16.
        stochastic: as for `affine`; with 32 bits it has no effect.

    Returns:
        `exact()` for 32 bits, otherwise `affine(bits, stochastic=stochastic)`.

    Raises:
        ValueError: `bits` is neither 32 nor from 1 to 16.

    >>> of_width(32), of_width(8)
    (exact(), affine(bits=8))
    """
    return (
        exact() if checks.integer("bits", bits, low=1, high=32) == 32 else affine(bits, stochastic=stochastic)
    )


def bits_that_hide(
    num_values: int, compute_seconds: float, bandwidth_bytes_per_second: float, widths: Sequence[int] = WIDTHS
) -> int:
    """Returns the most bits per value with which a transfer takes no longer than the computation.

    Args:
        num_values: the paper's M, the number of values in the transfer.
        compute_seconds: how long a worker computes during the transfer, in seconds.
        bandwidth_bytes_per_second: bandwidth of the worker's link in bytes/s.
        widths: the bits per value to choose from, the paper's k.

    Returns:
        The largest k of `widths` with num_values k / 8 / bandwidth <= compute_seconds, or the smallest of
        `widths` if there is none.

    Raises:
        ValueError: a number is out of range.

    >>> [bits_that_hide(1_000_000, seconds, 1e7) for seconds in (0.5, 0.4, 0.1, 0.01)]
    [32, 32, 8, 4]

    Reference: Xian et al. 2024 (H-PS), its flexible quantization, as reconstructed.
    """
    num_values = checks.integer("num_values", num_values, low=0)
    compute_seconds = checks.real("compute_seconds", compute_seconds, low=0)
    bandwidth = checks.real("bandwidth_bytes_per_second", bandwidth_bytes_per_second, above=0)
    widths = check_widths(widths)
    return max((k for k in widths if num_values * k / 8 / bandwidth <= compute_seconds), default=min(widths))


def bits_for_error(tree: Any, epsilon: float, widths: Sequence[int] = WIDTHS) -> int:
    """Returns the fewest bits per value with which the rounding error of a tree stays within a bound.

    Args:
        tree: the x to be sent, a pytree of floating-point arrays of any shapes.
        epsilon: the largest relative error, >= 0.
        widths: the bits per value to choose from, the paper's k.

    Returns:
        The smallest k of `widths` with ||Q(x) - x|| <= epsilon ||x||, or the largest of `widths` if there is
        none. Norms are over all arrays of the tree, and Q is `of_width(k)` with nearest rounding.

    Raises:
        ValueError: a number is out of range.

    >>> x = jnp.linspace(-1, 1, 1000)
    >>> [bits_for_error(x, epsilon) for epsilon in (0.1, 0.01, 1e-4, 1e-9)]
    [4, 8, 16, 32]

    Reference: Xian et al. 2024 (H-PS), its flexible quantization, as reconstructed.
    """
    epsilon = checks.real("epsilon", epsilon, low=0)
    widths = sorted(check_widths(widths))
    within = (k for k in widths if _error(of_width(k, stochastic=False), tree) <= epsilon)
    return next(within, widths[-1])


@functools.partial(jax.jit, static_argnums=0)
def _error(codec: Codec, tree: Any) -> Any:
    """Returns ||Q(x) - x|| / ||x||, and 0 if Q(x) equals x."""
    received, _ = transmit(codec, None, (), tree)
    lost, sent = _norm(jax.tree.map(jnp.subtract, received, tree)), _norm(tree)
    return jnp.where(lost == 0, 0, lost / sent)


def _norm(tree: Any) -> Any:
    return norm(jnp.stack([norm(leaf) for leaf in jax.tree.leaves(tree)]))


def check_widths(widths: Sequence[int]) -> list[int]:
    """Returns the widths as a list; raises ValueError if there are none, or `of_width` rejects one."""
    widths = checks.listed("widths", widths)
    for bits in widths:
        of_width(bits)
    return [int(bits) for bits in widths] or checks.fail("widths", widths, "at least one number of bits")
