"""Functions that all codecs share: the message of a tensor, rounding, and the transfer of a tree."""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dmlcore import checks
from dmlcore.types import Codec


@functools.partial(jax.tree_util.register_dataclass, data_fields=["header", "codes"], meta_fields=["bits"])
@dataclass(frozen=True)
class Coded:
    """An encoded tensor: the message that a codec sends for one tensor.

    Args:
        header: 32-bit floats that the decoder needs, such as a norm; their number depends on the codec.
        codes: whole numbers < 2^bits, in the shape of the tensor.
        bits: bits per code, at most 16.

    >>> Coded(header=jnp.array([0.5]), codes=jnp.array([0, 1, 3]), bits=2).codes.shape
    (3,)
    """

    header: Any
    codes: Any
    bits: int


def transmit(codec: Codec, key: Any, memory: Any, tree: Any) -> tuple[Any, Any]:
    """Encodes a tree and decodes it again: what a receiver gets if the sender sends `tree`.

    JAX can trace it: under `jit` (`codec` is static), under `vmap` and in loops. The result has the shapes
    and types of `tree`; infinities and NaN do not become finite.

    Args:
        codec: rounds the arrays.
        key: random key of this message. None: only for a codec without random numbers.
        memory: from `codec.init(tree)`, or from the previous message.
        tree: pytree of float32 or float64 arrays of any shapes. Their magnitudes, and their norms if the
            codec sends norms, are at most 1e37, because headers and their reciprocals are 32-bit floats.
            Subnormal numbers (below 1.2e-38) may be read as 0.

    Returns:
        The received tree, and the next memory.

    Raises:
        ValueError: an array does not consist of floats, or a codec that needs random numbers has no key.

    >>> from dmlcore.methods.codecs import one_bit
    >>> received, _ = transmit(one_bit(), None, (), jnp.array([1.0, 3.0, -5.0]))
    >>> received
    Array([ 2.,  2., -5.], dtype=float32)
    """
    message, following = codec.encode(key, memory, tree)
    return decode_like(tree, codec, message, memory), following


def decode_like(tree: Any, codec: Codec, message: Any, memory: Any) -> Any:
    """Decodes a message, with the types of `tree`."""
    decoded = codec.decode(message, memory)
    return jax.tree.map(lambda value, like: value.astype(jnp.result_type(like)), decoded, tree)


def by_tensor(
    name: str,
    bits: int,  # per value; a tensor is padded to whole bytes
    header: int,  # number of 32-bit floats per tensor
    encode: Callable[[Any, Any], tuple[Any, Any]],  # tensor, uniforms in [0, 1) or None -> header, codes
    decode: Callable[[Any, Any], Any],  # header, codes -> tensor, in the widest floats enabled in JAX
    stochastic: bool,  # whether `encode` receives uniforms of the tensor's shape
) -> Codec:
    """Returns a codec without memory that rounds each tensor separately."""
    kind = jnp.uint8 if bits <= 8 else jnp.uint16

    def encode_tree(key: Any, memory: Any, tree: Any) -> tuple[Any, Any]:
        leaves, structure = jax.tree.flatten(tree)
        tensors = [floats(leaf) for leaf in leaves]
        uniforms = draw(key, tensors) if stochastic else [None] * len(tensors)
        parts = map(encode, tensors, uniforms)
        coded = [
            Coded(jnp.stack(head).astype(jnp.float32), codes.astype(kind), bits) for head, codes in parts
        ]
        return jax.tree.unflatten(structure, coded), memory

    def decode_tree(message: Any, memory: Any) -> Any:
        real = jax.dtypes.canonicalize_dtype(float)
        read = lambda coded: decode(coded.header.astype(real), coded.codes.astype(real))  # noqa: E731
        return jax.tree.map(read, message, is_leaf=lambda node: isinstance(node, Coded))

    def num_bytes(sizes: Sequence[int]) -> int:
        return sum(4 * header + -(-size * bits // 8) for size in sizes)

    return Codec(name, num_bytes, lambda tree: (), encode_tree, decode_tree)


def floats(leaf: Any) -> jax.Array:
    """Returns a leaf as an array; raises ValueError unless it consists of float32 or float64."""
    array = jnp.asarray(leaf)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        checks.reject("tree", f"an array of {array.dtype}", "arrays of a floating type")
    return array


def round_up(value: Any) -> Any:
    """Returns the smallest 32-bit float >= `value`, which fits in a header, in the type of `value`."""
    if value.dtype == jnp.float32:
        return value
    short = value.astype(jnp.float32)
    up = jnp.nextafter(short, jnp.float32(jnp.inf))
    return jnp.where(short.astype(value.dtype) < value, up, short).astype(value.dtype)


def draw(key: Any, tensors: list[Any]) -> list[Any]:
    """Returns uniforms in [0, 1) for each tensor, split from one draw because each draw compiles slowly."""
    if key is None:
        checks.fail("key", key, "a random key (the codec draws)")
    ends = list(itertools.accumulate((tensor.size for tensor in tensors), initial=0))
    uniform = jax.random.uniform(key, ends[-1:], jnp.result_type(jnp.float32, *tensors))
    parts = zip(tensors, itertools.pairwise(ends), strict=True)
    return [uniform[start:end].reshape(tensor.shape) for tensor, (start, end) in parts]


def round_at_random(uniform: Any, value: Any) -> Any:
    """Returns floor(value) + Bernoulli(value - floor(value)), whose mean is `value`."""
    down = jnp.floor(value)
    return down + (uniform < value - down)


def share(part: Any, whole: Any) -> Any:
    """Returns part / whole, or `part` where `whole` is 0.

    Compilers may multiply by the reciprocal instead, and the reciprocal of a 32-bit float beyond 8e37 is 0.
    """
    return part / jnp.where(whole > 0, whole, 1)


def norm(tensor: Any) -> Any:
    """Returns ||tensor||_2 without overflow or underflow of a square."""
    largest = jnp.abs(tensor).max()
    scaled = share(tensor, largest)
    return largest * jnp.sqrt(jnp.sum(scaled * scaled))
