"""Codecs: how gradients and parameters are rounded for a transfer, and how many bytes the transfer takes."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dmlcore import calls, checks
from dmlcore.calls import named
from dmlcore.types import Codec, Shape

__all__ = ["CODECS", "Coded", "affine", "bits_for_error", "bits_that_hide", "difference", "error_feedback"]
__all__ += ["exact", "of_width", "one_bit", "power_sgd", "qsgd", "random_k", "resolve", "terngrad", "top_k"]
__all__ += ["transmit"]


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["header", "codes"], meta_fields=["bits", "shape"]
)
@dataclass(frozen=True)
class Coded:
    """An encoded tensor: the message that a codec sends for one tensor.

    Args:
        header: 32-bit floats, such as a norm or the values that are sent; their number depends on the codec.
        codes: whole numbers < 2^bits: one for each value in the shape of the tensor, or indices, or a seed.
        bits: bits per code, at most 32.
        shape: of the tensor; it is no part of the message, because the receiver knows it.

    >>> Coded(header=jnp.array([0.5]), codes=jnp.array([0, 1, 3]), bits=2, shape=(3,)).codes.shape
    (3,)
    """

    header: Any
    codes: Any
    bits: int
    shape: tuple[int, ...]


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
    num_bytes: Callable[[int], int],  # number of values in a tensor -> bytes
    encode: Callable[[Any, Any], Any],  # tensor, its random numbers or None -> `Coded` or an array
    decode: Callable[[Any], Any],  # -> tensor, in any type of floats
    draw: Callable[[Any, list[Any]], Any] | None = None,  # key, tensors -> random numbers for each
) -> Codec:
    """Returns a codec without memory that encodes each tensor separately."""

    def encode_tree(key: Any, memory: Any, tree: Any) -> tuple[Any, Any]:
        leaves, structure = jax.tree.flatten(tree)
        tensors = [floats(leaf) for leaf in leaves]
        if draw and key is None:
            checks.fail("key", key, "a random key (the codec draws)")
        drawn = draw(key, tensors) if draw else [None] * len(tensors)
        return jax.tree.unflatten(structure, map(encode, tensors, drawn)), memory

    def decode_tree(message: Any, memory: Any) -> Any:
        return jax.tree.map(decode, message, is_leaf=lambda node: isinstance(node, Coded))

    count = lambda shapes: sum(num_bytes(math.prod(_sides(shape))) for shape in shapes)  # noqa: E731
    return Codec("", count, lambda tree: (), encode_tree, decode_tree)


def rounding(
    bits: int,  # per value; a tensor is padded to whole bytes
    header: int,  # number of 32-bit floats per tensor
    encode: Callable[[Any, Any], tuple[Any, Any]],  # tensor, uniforms in [0, 1) or None -> header, codes
    decode: Callable[[Any, Any], Any],  # header, codes -> tensor, in the widest floats enabled in JAX
    stochastic: bool,  # whether `encode` receives uniforms of the tensor's shape
) -> Codec:
    """Returns a codec without memory that sends a code of so many bits for each value of a tensor."""
    kind = jnp.uint8 if bits <= 8 else jnp.uint16

    def encode_tensor(tensor: Any, uniform: Any) -> Coded:
        head, codes = encode(tensor, uniform)
        return Coded(jnp.stack(head).astype(jnp.float32), codes.astype(kind), bits, tensor.shape)

    def decode_tensor(coded: Coded) -> Any:
        real = jax.dtypes.canonicalize_dtype(float)
        return decode(coded.header.astype(real), coded.codes.astype(real))

    num_bytes = lambda size: 4 * header + -(-size * bits // 8)  # noqa: E731
    return by_tensor(num_bytes, encode_tensor, decode_tensor, uniforms if stochastic else None)


def _sides(shape: Shape) -> Sequence[int]:
    return shape if isinstance(shape, list | tuple) else [shape]


def _matrix(shape: Shape) -> tuple[int, int]:
    """Returns the shape of a tensor as a matrix: its last axis is that of columns, all others are of rows."""
    *leading, columns = _sides(shape) or [1]
    return math.prod(leading), columns


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


def uniforms(key: Any, tensors: list[Any]) -> list[Any]:
    """Returns uniforms in [0, 1) for each tensor, split from one draw because each draw compiles slowly."""
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


@named(same=True)
def exact() -> Codec:
    """Sends values as 32-bit floats: 4 bytes each.

    Guarantees: float32 arrives unchanged, to the last bit; float64 is rounded to 32 bits.

    Returns:
        The codec: 32 bits per value, no header.

    >>> exact().num_bytes([100, 20])
    480
    """
    return by_tensor(
        lambda size: 4 * size, lambda tensor, nothing: tensor.astype(jnp.float32), lambda sent: sent
    )


@named(
    same=True,
    bits=functools.partial(checks.integer, low=1, high=16, why="32 is exact()"),
    stochastic=checks.boolean,
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

    return rounding(bits, 2, encode, decode, stochastic)


@named(same=True, levels=functools.partial(checks.integer, low=1, high=2**15 - 1, why="a sign and 15 bits"))
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

    return rounding(1 + levels.bit_length(), 1, encode, decode, stochastic=True)


def _clip(name: str, clip: Any) -> float | None:
    number = None if clip is None else checks.real(name, clip, above=0)
    if number == math.inf:
        checks.fail(name, clip, "a finite number > 0, or None for no clipping")
    return number


@named(same=True, every=True, clip=_clip)
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

    return rounding(2, 1, encode, decode, stochastic=True)


@named(same=True)
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

    return rounding(1, 2, encode, decode, stochastic=False)


_fraction = functools.partial(checks.real, above=0, high=1)


@named(same=True, fraction=_fraction)
def top_k(fraction: float) -> Codec:
    """Top-k sparsification: sends the k values of each tensor with the largest magnitudes; the others are 0.

    Guarantees: ||x - Q(x)||^2 <= (1 - k / d) ||x||^2 for a tensor of d values, of which those sent arrive as
    by `exact`; of equal magnitudes the first are sent; nothing is random. The codec is biased: use it in
    `error_feedback`.

    Args:
        fraction: k / d, > 0 and at most 1; k is rounded to the nearest whole number, and is at least 1.

    Returns:
        The codec: a 32-bit float and an index of ceil(log2(d)) bits for each of k values per tensor. Beyond
        half of the values it is usually `exact` that sends fewer bytes.

    Raises:
        ValueError: `fraction` is out of range.

    >>> from dmlcore.methods.codecs import top_k, transmit
    >>> transmit(top_k(0.5), None, (), jnp.array([1.0, -3.0, 2.0, 0.5]))[0]
    Array([ 0., -3.,  2.,  0.], dtype=float32)
    >>> top_k(0.01).num_bytes([1000])  # ten values, ten indices of ten bits
    53

    Reference: Stich et al. 2018, "Sparsified SGD with memory", definitions 2.1 and 2.2; a fraction of
    each tensor as in Lin et al. 2018, "Deep gradient compression".
    """

    def encode(tensor: Any, nothing: Any) -> Coded:
        flat = tensor.reshape(-1)
        _, chosen = jax.lax.top_k(jnp.abs(flat), _count(fraction, flat.size))
        values, chosen = flat[chosen].astype(jnp.float32), chosen.astype(jnp.uint32)
        return Coded(values, chosen, (flat.size - 1).bit_length(), tensor.shape)

    def num_bytes(size: int) -> int:
        count = _count(fraction, size)
        return 4 * count + -(-count * (size - 1).bit_length() // 8)

    decode = lambda coded: _spread(coded.header, coded.codes, coded.shape)  # noqa: E731
    return by_tensor(num_bytes, encode, decode)


@named(same=True, fraction=_fraction, unbiased=checks.boolean)
def random_k(fraction: float, *, unbiased: bool = True) -> Codec:
    """Random-k sparsification: sends k values of each tensor, chosen at random; the others are 0.

    Guarantees: with `unbiased`, E Q(x) = x and E ||x - Q(x)||^2 = (d / k - 1) ||x||^2 for a tensor of d
    values; without, E ||x - Q(x)||^2 = (1 - k / d) ||x||^2, and those sent arrive as by `exact`. If a value
    of a tensor is not finite, NaN is sent.

    Args:
        fraction: k / d, > 0 and at most 1; k is rounded to the nearest whole number, and is at least 1.
        unbiased: True: the receiver multiplies by d / k. False: it does not, which `error_feedback` and
            `difference` need unless more than half of the values are sent.

    Returns:
        The codec: a 32-bit float for each of k values, and the seed of their indices, 4 bytes, per tensor.

    Raises:
        ValueError: an argument is out of range.

    >>> random_k(0.01), random_k(0.01).num_bytes([1000])
    (random_k(fraction=0.01), 44)

    Reference: Stich et al. 2018, "Sparsified SGD with memory", definitions 2.1 and 2.2, without the
    factor; with it, Konečný et al. 2016, "Federated learning: strategies for improving communication
    efficiency", section 3 (subsampling).
    """

    def seeds(key: Any, tensors: list[Any]) -> Any:
        return jax.random.bits(key, (len(tensors), 1), jnp.uint32)

    def indices(seed: Any, size: int) -> Any:
        bits = jax.random.bits(jax.random.key(seed[0]), (size,), jnp.uint32)
        # The k least. Floats are denser there: ties change the chance of an index by a share of about 2^-24.
        return jax.lax.top_k(-bits.astype(jnp.float32), _count(fraction, size))[1]

    def encode(tensor: Any, seed: Any) -> Coded:
        values = tensor.reshape(-1)[indices(seed, tensor.size)]
        values = jnp.where(jnp.isfinite(tensor).all(), values, jnp.nan)
        return Coded(values.astype(jnp.float32), seed, 32, tensor.shape)

    def decode(coded: Coded) -> Any:
        size = math.prod(coded.shape)
        scale = size / coded.header.size if unbiased else 1
        return _spread(scale * coded.header, indices(coded.codes, size), coded.shape)

    codec = by_tensor(lambda size: 4 * _count(fraction, size) + 4, encode, decode, seeds)
    return codec._replace(contracts=fraction > 0.5 or not unbiased)


def _count(fraction: float, size: int) -> int:
    """Returns the number of values to be sent, k."""
    return min(size, max(1, round(fraction * size)))


def _spread(values: Any, indices: Any, shape: tuple[int, ...]) -> Any:
    """Returns a tensor of zeros except for `values` at different indices of the flat tensor."""
    flat = jnp.zeros(math.prod(shape), values.dtype)
    return flat.at[indices].set(values, unique_indices=True).reshape(shape)


@named(same=True, rank=functools.partial(checks.integer, low=1))
def power_sgd(rank: int) -> Codec:
    """PowerSGD: sends two thin factors of each matrix, from one step of subspace iteration.

    P = orthonormalised M Q, with the Q of the message before; then Q = M^T P, and the receiver decodes P Q^T.
    A tensor is the matrix M whose columns are along its last axis: one of shape (3, 3, 16, 32) has 144 rows.
    It arrives as by `exact` if its factors would have as many values as it or more, as those of vectors do.

    Guarantees, up to the rounding of 32-bit floats: P Q^T = P P^T M, so ||M - P Q^T||^2 = ||M||^2 - ||Q||^2;
    if M stays the same, P Q^T approaches its best approximation of that rank. Nothing but the first Q is
    random, and that is the same in all runs. The codec is biased: use it in `error_feedback`, as the paper
    does.

    Args:
        rank: the paper's r, the number of columns of P and Q, >= 1.

    Returns:
        The codec: 32-bit floats, r (n + m) for a matrix of n rows and m columns. Its memory is Q, with
        its columns scaled to length 1. A column that is 0 begins anew, or stays if all of M is 0.

    Raises:
        ValueError: `rank` is out of range.

    >>> power_sgd(2), power_sgd(2).num_bytes([(64, 32), 32, (32, 10), 10])
    (power_sgd(rank=2), 1272)

    Reference: Vogels et al. 2019, "PowerSGD: practical low-rank gradient compression for distributed
    optimization", algorithm 1. There all workers average their P before they compute Q; here each message is
    of one worker, as with one worker there, and the server adds matrices whose columns differ.
    """

    def width(shape: Shape) -> int:
        """Returns the number of columns of P and Q; 0: the tensor is sent whole."""
        rows, columns = _matrix(shape)
        return rank if rank * (rows + columns) < rows * columns else 0

    def num_bytes(shape: Shape) -> int:
        rows, columns = _matrix(shape)
        return 4 * (width(shape) * (rows + columns) or rows * columns)

    def first(leaf: Any) -> Any:
        shape = jnp.shape(leaf)
        return jax.random.normal(jax.random.key(0), (_matrix(shape)[1], width(shape)), jnp.float32)

    def encode_tensor(leaf: Any, right: Any) -> tuple[Any, Any]:
        tensor = floats(leaf)
        if not right.size:
            return tensor.astype(jnp.float32), right
        real = jnp.promote_types(tensor.dtype, jnp.float32)
        matrix = tensor.reshape(_matrix(tensor.shape)).astype(real)
        largest = jnp.abs(matrix).max()
        matrix = share(matrix, largest)  # so that no square of a length overflows
        left, _ = jnp.linalg.qr(matrix @ right.astype(real))
        found = matrix.T @ left
        lengths = jnp.linalg.norm(found, axis=0)
        # Rows of M that are orthogonal to Q would never be sent: P is then any column, and Q may be 0.
        kept = jnp.where(lengths > 0, share(found, lengths), jnp.where(largest > 0, first(leaf), right))
        header = jnp.concatenate([left.ravel(), (largest * found).ravel()]).astype(jnp.float32)
        return Coded(header, jnp.zeros(0, jnp.uint8), 0, tensor.shape), kept.astype(jnp.float32)

    def encode(key: Any, memory: Any, tree: Any) -> tuple[Any, Any]:
        leaves, structure = jax.tree.flatten(tree)
        pairs = map(encode_tensor, leaves, structure.flatten_up_to(memory))
        message, following = zip(*pairs, strict=True)
        return jax.tree.unflatten(structure, message), jax.tree.unflatten(structure, following)

    def decode_tensor(sent: Any) -> Any:
        if not isinstance(sent, Coded):
            return sent
        rows, columns = _matrix(sent.shape)
        header = sent.header.astype(jax.dtypes.canonicalize_dtype(float))
        left, right = jnp.split(header, [header.size * rows // (rows + columns)])
        return (left.reshape(rows, -1) @ right.reshape(columns, -1).T).reshape(sent.shape)

    def decode(message: Any, memory: Any) -> Any:
        return jax.tree.map(decode_tensor, message, is_leaf=lambda node: isinstance(node, Coded))

    init = functools.partial(jax.tree.map, first)
    return Codec("", lambda shapes: sum(map(num_bytes, shapes)), init, encode, decode)


def _codec(name: str, codec: Any) -> Codec:
    if not isinstance(codec, Codec):
        checks.fail(name, codec, "a codec, such as affine(8)")
    if not codec.contracts:
        expected = "one whose error is smaller than what it is given, such as random_k(0.1, unbiased=False)"
        checks.fail(name, codec, expected)
    return codec


@named(same=True, bare=True, codec=_codec)
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
        ValueError: `codec` is not a codec, or one whose error is too large, such as `random_k(0.1)`.

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

    return Codec("", codec.num_bytes, init, encode, lambda message, memory: codec.decode(message, memory[1]))


@named(same=True, bare=True, codec=_codec)
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
        ValueError: `codec` is not a codec, or one whose error is too large, such as `random_k(0.1)`.

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

    return Codec("", codec.num_bytes, init, encode, decode)


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
    bits = checks.integer("bits", bits, low=1, high=32)
    return exact() if bits == 32 else affine(bits, stochastic=stochastic)


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


# Every codec in this table can be given by name, and runs through the tests of all codecs.
_FACTORIES = exact, affine, qsgd, terngrad, one_bit, top_k, random_k, power_sgd, error_feedback, difference
CODECS: dict[str, Callable[..., Codec]] = {codec.__name__: codec for codec in _FACTORIES}


def resolve(codec: Codec | str) -> Codec:
    """Returns a codec from an object or its name.

    Guarantees: `resolve(codec.name) is codec` for the codecs of this package. A name is parsed and never
    executed: it may contain only registered codecs and literals.

    Args:
        codec: a codec, or a call such as `"error_feedback(affine(bits=4))"`, or the bare name.

    Returns:
        The codec.

    Raises:
        ValueError: the string is not such a call, or an argument in it is wrong.

    >>> resolve("error_feedback(affine(4))")
    error_feedback(affine(bits=4))
    >>> resolve("affine(bits=40)")
    Traceback (most recent call last):
    ValueError: bits: expected a whole number from 1 to 16 (32 is exact()), got 40
    """
    return codec if isinstance(codec, Codec) else calls.made("codec", codec, CODECS)
