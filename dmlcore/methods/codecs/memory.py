"""Codecs that wrap another codec and keep a memory of its rounding errors."""

from typing import Any

import jax
import jax.numpy as jnp

from dmlcore import checks
from dmlcore.calls import memoised
from dmlcore.methods.codecs.message import decode_like
from dmlcore.types import Codec


def _codec(name: str, codec: Any) -> Codec:
    return codec if isinstance(codec, Codec) else checks.fail(name, codec, "a codec, such as affine(8)")


@memoised(codec=_codec)
def error_feedback(codec: Codec) -> Codec:
    """Error feedback: adds the rounding error of each message to the next message.

    The message is Q(x + residual), and the residual becomes x + residual - Q(x + residual).

    Guarantees: the sum of all received messages plus the last residual is the sum of all x, up to
    floating-point rounding.

    Args:
        codec: Q. The norm of its error must be smaller than the norm of its input, or the residual grows.

    Returns:
        The codec; its messages have as many bytes as those of Q. Its memory is the sender's residual, 0 at
        first, and the memory of Q.

    Raises:
        ValueError: `codec` is not a codec.

    >>> from dmlcore.methods.codecs import one_bit, transmit
    >>> codec, gradient = error_feedback(one_bit()), jnp.array([1.0, 3.0])
    >>> first, memory = transmit(codec, None, codec.init(gradient), gradient)
    >>> second, memory = transmit(codec, None, memory, jnp.zeros(2))
    >>> first, second
    (Array([2., 2.], dtype=float32), Array([-1.,  1.], dtype=float32))

    Reference: Seide et al. 2014, section 3; Karimireddy et al. 2019, "Error feedback fixes SignSGD and other
    gradient compression schemes", algorithm 2.
    """

    def init(tree: Any) -> Any:
        return jax.tree.map(jnp.zeros_like, tree), codec.init(tree)

    def encode(key: Any, memory: Any, tree: Any) -> tuple[Any, Any]:
        residual, inner = memory
        total = jax.tree.map(jnp.add, tree, residual)
        message, following = codec.encode(key, inner, total)
        received = decode_like(total, codec, message, inner)
        return message, (jax.tree.map(jnp.subtract, total, received), following)

    name = f"error_feedback({codec.name})"
    return Codec(
        name, codec.num_bytes, init, encode, lambda message, memory: codec.decode(message, memory[1])
    )


@memoised(codec=_codec)
def difference(codec: Codec) -> Codec:
    """Sends the difference between x and the receiver's copy of it: copy += Q(x - copy).

    Guarantees: a rounding error stays in the next difference, so the copy of a constant x approaches x. With
    nearest rounding of `affine`, each message divides the range of the difference by 2^bits - 1.

    Args:
        codec: Q. The norm of its error must be smaller than the norm of its input, or the copy diverges.

    Returns:
        The codec; its messages have as many bytes as those of Q. Its memory is the copy, at first the tree
        given to `init`, and the memory of Q.

    Raises:
        ValueError: `codec` is not a codec.

    >>> from dmlcore.methods.codecs import affine, transmit
    >>> codec = difference(affine(1, stochastic=False))
    >>> memory = codec.init(jnp.zeros(3))
    >>> transmit(codec, None, memory, jnp.array([0.0, 1.0, 4.0]))[0]
    Array([0., 0., 4.], dtype=float32)

    Reference: Mishchenko et al. 2019, "Distributed learning with compressed gradient differences",
    algorithm 1 with alpha = 1.
    """

    def init(tree: Any) -> Any:
        return jax.tree.map(jnp.asarray, tree), codec.init(tree)

    def encode(key: Any, memory: Any, tree: Any) -> tuple[Any, Any]:
        copy, inner = memory
        message, following = codec.encode(key, inner, jax.tree.map(jnp.subtract, tree, copy))
        return message, (decode(message, memory), following)

    def decode(message: Any, memory: Any) -> Any:
        copy, inner = memory
        return jax.tree.map(jnp.add, copy, decode_like(copy, codec, message, inner))

    return Codec(f"difference({codec.name})", codec.num_bytes, init, encode, decode)
