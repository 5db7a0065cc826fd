"""Messages as bytes: what `num_bytes` counts, made."""

from __future__ import annotations

import io
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks
from dmlcore.methods.codecs.message import Coded
from dmlcore.types import Codec

FLOAT = np.dtype("<f4")


def pack(message: Any) -> bytes:
    """Returns a message as it travels: tensor by tensor the header, then the codes without gaps.

    Guarantees: as many bytes as the codec's `num_bytes` says, each tensor padded to whole ones; `unpack`
    gives the message back, bit by bit. Floats are little-endian; of a code the highest bit comes first.

    Args:
        message: from a codec's `encode`, of one sender: not of several, as under `vmap`.

    Returns:
        The bytes.

    Example:
        >>> from dmlcore.methods.codecs import affine
        >>> message, _ = affine(4, stochastic=False).encode(None, (), np.float32([0, 1, 2, 15]))
        >>> pack(message).hex(" ")
        '00 00 00 00 00 00 70 41 01 2f'
    """
    return b"".join(_pack(part) for part in jax.tree.leaves(message, is_leaf=_is_coded))


def unpack(codec: Codec, packed: bytes, like: Any) -> Any:
    """Returns the message that was packed.

    Args:
        codec: whose message it is.
        packed: from `pack`.
        like: a tree with the shapes and types of what was sent, which both ends know; values are not read.

    Returns:
        The message, for the codec's `decode`.

    Raises:
        ValueError: the bytes are not as many as such a message has.

    Example:
        >>> from dmlcore.methods.codecs import affine
        >>> codec, tree = affine(4, stochastic=False), np.float32([0, 1, 15])
        >>> message, _ = codec.encode(None, (), tree)
        >>> codec.decode(unpack(codec, pack(message), tree), ())
        Array([ 0.,  1., 15.], dtype=float32)
    """
    expected = codec.num_bytes([np.size(leaf) for leaf in jax.tree.leaves(like)])
    if len(packed) != expected:
        checks.fail("packed, number of bytes", len(packed), f"{expected}, for {codec.name} and these shapes")
    encode = lambda tree: codec.encode(jax.random.key(0), codec.init(tree), tree)[0]  # noqa: E731
    parts, structure = jax.tree.flatten(jax.eval_shape(encode, like), is_leaf=_is_coded)
    stream = io.BytesIO(packed)
    return jax.tree.unflatten(structure, [_unpack(stream, part) for part in parts])


def _is_coded(node: Any) -> bool:
    return isinstance(node, Coded)


def _pack(part: Any) -> bytes:
    if not _is_coded(part):
        return np.asarray(part, FLOAT).tobytes()
    codes = np.asarray(part.codes).reshape(-1, 1)
    bits = codes >> np.arange(part.bits - 1, -1, -1) & 1
    return _pack(part.header) + np.packbits(bits.astype(np.uint8)).tobytes()


def _unpack(stream: io.BytesIO, part: Any) -> Any:
    """Reads what has the shape of `part`."""
    if not _is_coded(part):
        values = np.frombuffer(stream.read(FLOAT.itemsize * part.size), FLOAT)
        return jnp.asarray(values.reshape(part.shape))
    header = _unpack(stream, part.header)
    size = part.codes.size
    packed = np.frombuffer(stream.read(-(-size * part.bits // 8)), np.uint8)
    bits = np.unpackbits(packed, count=size * part.bits).reshape(size, part.bits)
    codes = bits @ (1 << np.arange(part.bits - 1, -1, -1))
    return Coded(header, jnp.asarray(codes.reshape(part.codes.shape), part.codes.dtype), part.bits)
