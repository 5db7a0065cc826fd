"""Codecs keep what they promise: bytes, names, errors, how many bits; compiled too."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from coded import KEY, PLAIN, REMEMBERING, a_tree, close, send
from hypothesis import given, settings
from hypothesis import strategies as st
from packing import pack, unpack

from dmlcore.methods.codecs import (
    CODECS,
    affine,
    bits_for_error,
    bits_that_hide,
    difference,
    error_feedback,
    exact,
    of_width,
    one_bit,
    power_sgd,
    qsgd,
    random_k,
    resolve,
    terngrad,
    top_k,
    transmit,
)


def shapes(tree):
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)


@pytest.mark.parametrize("codec", [affine(3), terngrad(), *REMEMBERING], ids=repr)
@pytest.mark.usefixtures("both_dtypes")
def test_in_compiled_loops_over_workers(codec):
    """`jit` of a loop of `vmap` is the same as message by message, worker by worker."""
    trees = [a_tree(seed) for seed in range(2)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
    keys = jax.random.split(KEY, (3, 2))

    def loop(stacked):
        both = jax.vmap(functools.partial(transmit, codec))
        body = lambda i, carry: both(keys[i], carry[1], stacked)  # noqa: E731
        return jax.lax.fori_loop(0, 3, body, (stacked, jax.vmap(codec.init)(stacked)))

    received, memory = jax.jit(loop)(stacked)
    assert shapes(received) == shapes(stacked)
    for worker, tree in enumerate(trees):
        own = codec.init(tree)
        for i in range(3):
            alone, own = send(codec, keys[i, worker], own, tree)
        close(jax.tree.map(lambda leaf: leaf[worker], (received, memory)), (alone, own))  # noqa: B023


@pytest.mark.parametrize("codec", PLAIN + REMEMBERING, ids=repr)
@pytest.mark.usefixtures("both_dtypes")
def test_bytes_are_as_many_as_charged(codec):
    """Real ones, from which the same message is read, bit by bit."""
    tree = a_tree()
    memory = codec.init(tree)
    message, following = jax.jit(codec.encode)(KEY, memory, tree)
    assert shapes(following) == shapes(memory)
    assert (following == ()) == (codec in PLAIN)
    packed = pack(message)
    assert len(packed) == codec.num_bytes([leaf.shape for leaf in jax.tree.leaves(tree)])
    arrived = unpack(codec, packed, jax.eval_shape(lambda: tree))
    assert jax.tree.structure(arrived) == jax.tree.structure(message)
    assert shapes(arrived) == shapes(message)
    jax.tree.map(np.testing.assert_array_equal, arrived, message)
    assert pack(arrived) == packed


@pytest.mark.parametrize(
    ("codec", "expected"),
    [
        (exact(), 4 * 42),
        (affine(3), (8 + 13) + (8 + 1) + (8 + 3)),  # 33, 1 and 8 values
        (affine(16), 3 * 8 + 2 * 42),
        (qsgd(1), 3 * 4 + 9 + 1 + 2),  # a sign and 1 bit
        (qsgd(3), 3 * 4 + 13 + 1 + 3),
        (qsgd(4), 3 * 4 + 17 + 1 + 4),
        (terngrad(), 3 * 4 + 9 + 1 + 2),
        (one_bit(), 3 * 8 + 5 + 1 + 1),
        (top_k(0.25), 4 * (8 + 1 + 2) + 6 + 0 + 1),  # indices of 6, 0 and 3 bits
        (random_k(0.25), 4 * (8 + 1 + 2) + 3 * 4),
        (difference(error_feedback(one_bit())), 3 * 8 + 5 + 1 + 1),
        (power_sgd(1), 4 * (3 + 11 + 1 + 8)),  # factors of the matrix, vectors as they are
        (power_sgd(3), 4 * (33 + 1 + 8)),  # three columns of both would be 42 values
    ],
    ids=repr,
)
def test_bytes_by_hand(codec, expected):
    assert codec.num_bytes([(3, 11), (), 8]) == codec.num_bytes([[3, 11], 1, (8,)]) == expected


def test_codes_lie_bit_by_bit():
    """Two floats, then 3 bits a value: 000 001 111 100."""
    message, _ = jax.jit(affine(3, stochastic=False).encode)(None, (), jnp.array([0.0, 1.0, 7.0, 4.0]))
    assert pack(message) == np.array([0, 7], "<f4").tobytes() + bytes([0b00000111, 0b11000000])


@pytest.mark.parametrize("codec", PLAIN + REMEMBERING, ids=repr)
def test_names_make_the_same_object(codec):
    """So that a codec from a trace's name is the same static argument."""
    assert resolve(codec.name) is codec
    assert resolve(codec) is codec
    assert repr(codec) == codec.name


def test_equal_arguments_do_not_recompile():
    assert affine(8) is affine(bits=np.int64(8), stochastic=True)
    assert terngrad() is terngrad(2.5) is resolve("terngrad")
    assert qsgd(1) is resolve("qsgd(1)")
    assert terngrad(2) is terngrad(2.0)
    assert error_feedback(affine(4)) is resolve(" error_feedback( codec=affine(4,) ) ")
    compiled = jax.jit(lambda codec, x: transmit(codec, KEY, codec.init(x), x), static_argnums=0)
    for codec in (difference(qsgd(3)), resolve("difference(qsgd(levels=3))")):
        compiled(codec, jnp.ones(3))
    assert compiled._cache_size() == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("huffman()", "codec: expected a call of one of exact, affine.*, got 'huffman"),
        ("affine", "codec: expected a call with the arguments that affine takes.*, got 'affine'"),
        ("affine(8, 9, 10)", "a call with the arguments that affine takes"),
        ("affine(width=8)", "a call with the arguments that affine takes"),
        ("affine(bits=2**3)", "literals or further calls"),
        ("affine(*[8])", "literals or further calls"),
        ("affine(bits=eval('8'))", "a call of one of exact, affine"),
        ("affine(exact())", "bits: expected .*, got exact"),
        ("(lambda: 1)()", "a call of one of exact, affine"),
        ("exact.__class__()", "a call of one of exact, affine"),
        ("affine(8", "a call of one of exact, affine"),
        ("affine(8)\x00", "a call of one of exact, affine"),
        ("error_feedback(" * 5000, "a call of one of exact, affine"),
        ("error_feedback(8)", "codec: expected a codec.*, got 8"),
        (None, "codec: expected .*, got None"),
        (8, "codec: expected .*, got 8"),
    ],
)
def test_what_is_not_a_name(name, message):
    with pytest.raises(ValueError, match=message):
        resolve(name)


@given(
    values=st.integers(0, 10**9),
    seconds=st.floats(0, 1e3),
    bandwidth=st.floats(1, 1e12),
    widths=st.lists(st.sampled_from([32, 16, 8, 4, 2, 1]), min_size=1),
)
@settings(max_examples=100)
def test_bits_that_hide(values, seconds, bandwidth, widths):
    """What is chosen hides and nothing wider does; or else nothing hides."""
    hides = {bits: values * bits / 8 / bandwidth <= seconds for bits in widths}
    chosen = bits_that_hide(values, seconds, bandwidth, widths)
    assert not any(hidden for bits, hidden in hides.items() if bits > chosen)
    assert hides[chosen] or (chosen == min(widths) and not any(hides.values()))


def test_bits_for_error():
    """What is chosen is within the error and nothing narrower is."""
    tree, widths, error = np.linspace(-1, 2, 8, dtype=np.float32).reshape(2, 4) ** 3, (1, 4, 32), {}
    for bits in widths:
        received, _ = send(of_width(bits, stochastic=False), None, (), tree)
        error[bits] = np.linalg.norm(np.subtract(received, tree)) / np.linalg.norm(tree)
    assert error[1] > error[4] > error[32] == 0
    for bits, wider in ((1, 4), (4, 32)):
        assert bits_for_error(tree, error[bits] * 1.001, (32, 1, 4)) == bits
        assert bits_for_error(tree, error[bits] * 0.999, (32, 1, 4)) == wider
    assert bits_for_error(tree, error[4] * 0.9, (1, 4)) == 4  # none keeps to it
    assert bits_for_error(tree * 0, 0, (1, 4)) == 1
    assert bits_for_error(tree * np.float32(np.nan), 0.5, widths) == 32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: affine(0), r"bits: expected a whole number from 1 to 16 \(32 is exact.*, got 0"),
        (lambda: affine(17), "bits: expected .*, got 17"),
        (lambda: affine(True), "bits: expected .*, got True"),
        (lambda: affine(8, stochastic=1), "stochastic: expected True or False.*, got 1"),
        (lambda: qsgd(0), "levels: expected .*, got 0"),
        (lambda: qsgd(2**15), "levels: expected .*, got 32768"),
        (lambda: qsgd(2.5), "levels: expected .*, got 2.5"),
        (lambda: terngrad(0), "clip: expected a number > 0.*, got 0"),
        (lambda: terngrad(float("inf")), "clip: expected a finite number.*, got inf"),
        (lambda: top_k(0), "fraction: expected a number > 0 and <= 1, got 0"),
        (lambda: random_k(1.5), "fraction: expected a number > 0 and <= 1, got 1.5"),
        (lambda: power_sgd(0), "rank: expected a whole number >= 1, got 0"),
        (lambda: random_k(0.5, unbiased=1), "unbiased: expected True or False.*, got 1"),
        (lambda: error_feedback("one_bit()"), r"codec: expected a codec.*, got 'one_bit\(\)'"),
        (lambda: difference(one_bit), "codec: expected .*, got <function one_bit"),
        (
            lambda: difference(random_k(0.5)),
            r"codec: expected one whose error is smaller .* random_k\(0.1, unbiased=False\), got random_k",
        ),
        (lambda: resolve("error_feedback(random_k(0.1))"), "codec: expected one whose error is smaller"),
        (lambda: transmit(affine(8), None, (), jnp.ones(3)), "key: expected a random key.*, got None"),
        (lambda: transmit(random_k(0.5), None, (), jnp.ones(3)), "key: expected a random key.*, got None"),
        (
            lambda: transmit(affine(8), KEY, (), jnp.arange(3)),
            "tree: expected arrays of a floating type, got an array of int32",
        ),
        (
            lambda: transmit(exact(), KEY, (), jnp.arange(3)),
            "tree: expected arrays of a floating type, got an array of int32",
        ),
        (lambda: of_width(20), "bits: expected .*, got 20"),
        (lambda: bits_that_hide(-1, 1, 1), "num_values: expected .*, got -1"),
        (lambda: bits_that_hide(1, -1, 1), "compute_seconds: expected .*, got -1"),
        (lambda: bits_that_hide(1, 1, 0), "bandwidth_bytes_per_second: expected .*, got 0"),
        (lambda: bits_that_hide(1, 1, 1, ()), "widths: expected"),
        (lambda: bits_that_hide(1, 1, 1, (64,)), "bits: expected .*, got 64"),
        (lambda: bits_for_error(jnp.ones(3), -0.1), "epsilon: expected .*, got -0.1"),
        (lambda: bits_for_error(jnp.ones(3), 0.1, (0,)), "bits: expected .*, got 0"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_every_codec_is_tested():
    named = " ".join(codec.name for codec in PLAIN + REMEMBERING)
    assert all(f"{name}(" in named for name in CODECS)
