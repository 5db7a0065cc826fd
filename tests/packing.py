"""Messages as bytes: what `num_bytes` counts, made. No engine sends them: links only charge their time."""

import dataclasses
import io

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore.methods.codecs import Coded

FLOAT = np.dtype("<f4")


def pack(message):
    """Returns a message of one sender as it travels: for each tensor its header, then codes without gaps.

    Each tensor is padded to whole bytes. Floats are little-endian; of a code the highest bit comes first.

    >>> from dmlcore.methods.codecs import affine
    >>> message, _ = affine(4, stochastic=False).encode(None, (), np.float32([0, 1, 2, 15]))
    >>> pack(message).hex(" ")
    '00 00 00 00 00 00 70 41 01 2f'
    """
    return b"".join(_pack(part) for part in jax.tree.leaves(message, is_leaf=_is_coded))


def unpack(codec, packed, like):
    """Returns the message that was packed, of what has the shapes and types of `like`."""
    assert len(packed) == codec.num_bytes([np.shape(leaf) for leaf in jax.tree.leaves(like)])
    encode = lambda tree: codec.encode(jax.random.key(0), codec.init(tree), tree)[0]  # noqa: E731
    parts, structure = jax.tree.flatten(jax.eval_shape(encode, like), is_leaf=_is_coded)
    stream = io.BytesIO(packed)
    return jax.tree.unflatten(structure, [_unpack(stream, part) for part in parts])


def _is_coded(node):
    return isinstance(node, Coded)


def _pack(part):
    if not _is_coded(part):
        return np.asarray(part, FLOAT).tobytes()
    codes = np.asarray(part.codes).reshape(-1, 1)
    bits = codes >> np.arange(part.bits - 1, -1, -1) & 1
    return _pack(part.header) + np.packbits(bits.astype(np.uint8)).tobytes()


def _unpack(stream, part):
    """Reads what has the shape of `part`."""
    if not _is_coded(part):
        values = np.frombuffer(stream.read(FLOAT.itemsize * part.size), FLOAT)
        return jnp.asarray(values.reshape(part.shape))
    header = _unpack(stream, part.header)
    size = part.codes.size
    packed = np.frombuffer(stream.read(-(-size * part.bits // 8)), np.uint8)
    bits = np.unpackbits(packed, count=size * part.bits).reshape(size, part.bits)
    codes = bits @ (1 << np.arange(part.bits - 1, -1, -1))
    codes = jnp.asarray(codes.reshape(part.codes.shape), part.codes.dtype)
    return dataclasses.replace(part, header=header, codes=codes)
