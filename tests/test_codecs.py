"""Codecs keep what they promise: means, bounds, bytes, memories, names; in both precisions, and compiled."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dmlcore.codecs import (
    CODECS,
    affine,
    bits_for_error,
    bits_that_hide,
    difference,
    error_feedback,
    exact,
    of_width,
    one_bit,
    pack,
    qsgd,
    resolve,
    terngrad,
    transmit,
    unpack,
)

PLAIN = (
    exact(),
    affine(3),
    affine(8, stochastic=False),
    qsgd(6),
    terngrad(),
    one_bit(),
)
REMEMBERING = (
    error_feedback(one_bit()),
    difference(affine(4, stochastic=False)),
    error_feedback(difference(qsgd(300))),
)
KEY = jax.random.key(0)
send = jax.jit(transmit, static_argnums=0)


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield request.param


@pytest.fixture
def both_dtypes():
    with jax.enable_x64(True):
        yield


def a_tree(seed=0):
    """Of both types, where JAX has them."""
    rng = np.random.default_rng(seed)
    return {
        "matrix": jnp.asarray(rng.normal(size=(3, 11)), "float32"),
        "scalar": jnp.asarray(rng.normal(), float),
    }


def sizes(tree):
    return [leaf.size for leaf in jax.tree.leaves(tree)]


def shapes(tree):
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)


def close(actual, expected, scale=1.0):
    """Up to rounding in the type of each array."""

    def compare(a, b):
        tolerance = scale * 100 * np.finfo(b.dtype).eps
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)

    jax.tree.map(compare, actual, expected)


def exponents_apart(size):
    """32-bit floats of any magnitude that may be sent, and arrays of a single value."""
    largest = float(np.float32(1e37))
    element = st.floats(-largest, largest, width=32, allow_nan=False, allow_subnormal=False)
    apart = hnp.arrays(np.float32, size, elements=element)
    return apart | element.map(lambda value: np.full(size, value, np.float32))


ARRAYS = st.sampled_from([(), (2, 4)]).flatmap(exponents_apart)
TINY = 1e-36  # some ten times the least normal number: what is smaller may vanish


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
    assert len(packed) == codec.num_bytes(sizes(tree))
    arrived = unpack(codec, packed, jax.eval_shape(lambda: tree))
    assert jax.tree.structure(arrived) == jax.tree.structure(message)
    assert shapes(arrived) == shapes(message)
    jax.tree.map(np.testing.assert_array_equal, arrived, message)
    assert pack(arrived) == packed
    for wrong in (packed[:-1], packed + b"0"):
        with pytest.raises(ValueError, match=r"packed, number of bytes: got"):
            unpack(codec, wrong, tree)


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
        (difference(error_feedback(one_bit())), 3 * 8 + 5 + 1 + 1),
    ],
    ids=repr,
)
def test_bytes_by_hand(codec, expected):
    assert codec.num_bytes([33, 1, 8]) == expected


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
        ("huffman()", "codec: got 'huffman.*allowed is a call of exact, affine"),
        ("affine", "codec: got 'affine', allowed is a call with the arguments of affine"),
        ("affine(8, 9, 10)", "a call with the arguments of affine"),
        ("affine(width=8)", "a call with the arguments of affine"),
        ("affine(bits=2**3)", "literals, or such calls"),
        ("affine(*[8])", "literals, or such calls"),
        ("affine(bits=eval('8'))", "a call of exact, affine"),
        ("affine(exact())", "bits: got exact"),
        ("(lambda: 1)()", "a call of exact, affine"),
        ("exact.__class__()", "a call of exact, affine"),
        ("affine(8", "a call of exact, affine"),
        ("affine(8)\x00", "a call of exact, affine"),
        ("error_feedback(" * 5000, "a call of exact, affine"),
        ("error_feedback(8)", "codec: got 8, allowed is a codec"),
        (None, "codec: got None"),
        (8, "codec: got 8"),
    ],
)
def test_what_is_not_a_name(name, message):
    with pytest.raises(ValueError, match=message):
        resolve(name)


def draws(codec, tensor, num_draws):
    keys = jax.random.split(jax.random.key(7), num_draws)
    return np.asarray(jax.jit(jax.vmap(lambda key: transmit(codec, key, (), tensor)[0]))(keys), float)


@pytest.mark.parametrize(
    ("codec", "precision"),
    [
        (affine(1), 32),
        (affine(4), 64),
        (affine(16), 32),
        (qsgd(1), 64),
        (qsgd(9), 32),
        (terngrad(clip=None), 64),
        (terngrad(), 32),
    ],
    ids=str,
)
def test_unbiased(codec, precision):
    """The mean of 8,000 messages within 4.5 standard errors of what was sent, or of what clipping leaves."""
    rng = np.random.default_rng(1)
    sent = rng.choice([-1, 1], (4, 6)) * rng.uniform(0.2, 2, (4, 6))
    sent[1, 2] = 6  # to be clipped
    with jax.enable_x64(precision == 64):
        received = draws(codec, jnp.asarray(sent, f"float{precision}"), 8000)
    if codec is terngrad():
        edge = 2.5 * np.sqrt(np.mean(sent**2))
        assert np.abs(sent).max() > edge
        sent = np.clip(sent, -edge, edge)
    error = 4.5 * received.std(axis=0) / np.sqrt(8000) + 3e-7 * np.abs(sent).max()
    assert (np.abs(received.mean(axis=0) - sent) <= error).all()
    # The least and the largest may be sure, the others are drawn.
    assert (received.std(axis=0) > 0).sum() >= sent.size - 2


def test_tensors_and_keys_draw_differently():
    same = jnp.linspace(0, 1, 50)
    tree = [same, same]
    first, again, other = (send(affine(1), key, (), tree)[0] for key in (KEY, KEY, jax.random.key(1)))
    assert (first[0] != first[1]).any()
    assert (first[0] != other[0]).any()
    jax.tree.map(np.testing.assert_array_equal, first, again)


NEAREST = [affine(bits, stochastic=False) for bits in (1, 4, 16)]


@given(sent=ARRAYS, codec=st.sampled_from([*NEAREST, affine(4)]))
@settings(max_examples=80, deadline=None)
def test_affine_is_off_by_half_a_step(sent, codec):
    """Nearest: half a step; at random: one. Constants arrive as they are."""
    received = np.asarray(send(codec, KEY, (), sent)[0], float)
    bits = int(re.search(r"bits=(\d+)", codec.name)[1])
    span = float(sent.max()) - float(sent.min())
    step = span / (2**bits - 1)
    rounding = 2.0**-21 * np.abs(sent, dtype=float).max() + TINY
    assert np.abs(received - sent).max() <= step * (0.5 if codec in NEAREST else 1) + rounding
    if span == 0 and abs(float(sent.flat[0])) >= TINY:
        assert (received == sent).all()


def test_affine_bound_is_tight():
    """Halfway between two steps it is half a step."""
    received, _ = send(affine(2, stochastic=False), None, (), jnp.array([0.0, 0.5, 1.4, 3.0]))
    np.testing.assert_array_equal(received, [0, 0, 1, 3])


@given(sent=ARRAYS)
@settings(max_examples=60, deadline=None)
def test_exact_keeps_every_bit(sent):
    received = np.asarray(send(exact(), None, (), sent)[0])
    np.testing.assert_array_equal(received.view(np.uint32), sent.view(np.uint32))


@given(sent=ARRAYS, codec=st.sampled_from([qsgd(6), terngrad(), one_bit()]))
@settings(max_examples=80, deadline=None)
def test_magnitudes_and_signs(sent, codec):
    """Nothing arrives larger than the norm, nor with the other sign; zeros arrive as zeros."""
    sent = sent / np.float32(3)  # the norm is a 32-bit float, too
    received = np.asarray(send(codec, KEY, (), sent)[0], float)
    norm = np.linalg.norm(sent.astype(float))
    assert np.isfinite(received).all()
    assert np.abs(received).max() <= norm * (1 + 1e-6) + TINY
    assert (received * np.sign(sent) >= 0).all()
    if codec is not one_bit():
        assert (received[sent == 0] == 0).all()


def test_qsgd_variance():
    """That of Bernoulli draws, below min(n / s^2, sqrt(n) / s) ||v||^2 (lemma 3.1)."""
    sent = np.random.default_rng(2).normal(size=64)
    norm = np.linalg.norm(sent)
    for levels in (1, 20):
        lost = draws(qsgd(levels), jnp.asarray(sent), 3000) - sent
        squares = (lost**2).sum(axis=1)
        chance = levels * np.abs(sent) / norm % 1
        expected = (chance * (1 - chance)).sum() * (norm / levels) ** 2
        assert abs(squares.mean() - expected) < 4.5 * squares.std() / np.sqrt(3000)
        assert expected <= min(64 / levels**2, 8 / levels) * norm**2


def test_ternary_values():
    """-S, 0 and S, where S is the clipped tensor's largest magnitude."""
    sent = np.append(np.random.default_rng(3).normal(size=99), 50.0)
    scale = 2.5 * np.sqrt(np.mean(sent**2))
    received = draws(terngrad(), jnp.asarray(sent), 50)
    np.testing.assert_allclose(np.unique(received), [-scale, 0, scale], rtol=1e-6)


@given(sent=hnp.arrays(np.float32, (2, 4), elements=st.floats(-1e3, 1e3, width=32, allow_subnormal=False)))
@settings(max_examples=60, deadline=None)
def test_one_bit_sends_two_means(sent):
    up = sent >= 0
    expected = np.zeros(sent.shape)
    for side in (up, ~up):
        if side.any():
            expected[side] = sent[side].astype(float).mean()
    received = np.asarray(send(one_bit(), None, (), sent)[0], float)
    np.testing.assert_allclose(received, expected, rtol=1e-5, atol=1e-30)
    np.testing.assert_allclose(received.sum(), sent.astype(float).sum(), rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("codec", PLAIN + REMEMBERING, ids=repr)
def test_what_is_not_finite_stays_so(codec):
    """A run that has diverged does not look as if it had not."""
    for wrong in (np.nan, np.inf, -np.inf):
        tree = np.array([[1.0, wrong, -2.0, 0.5], [3.0, 0.0, -0.5, 1.0]], np.float32)
        received, _ = send(codec, KEY, codec.init(np.zeros_like(tree)), tree)
        assert not np.isfinite(received).all()


@pytest.mark.parametrize(
    "codec", [one_bit(), terngrad(), affine(3), difference(affine(4, stochastic=False))], ids=repr
)
@pytest.mark.usefixtures("both_dtypes")
def test_error_feedback_telescopes(codec):
    """All that was received and the last residual are all that was sent."""
    fed = error_feedback(codec)
    memory = fed.init(a_tree())
    sent = received = jax.tree.map(jnp.zeros_like, a_tree())
    add = functools.partial(jax.tree.map, jnp.add)
    for i in range(6):
        tree = a_tree(seed=i)
        arrived, memory = send(fed, jax.random.key(i), memory, tree)
        sent, received = add(sent, tree), add(received, arrived)
    close(add(received, memory[0]), sent, scale=10)


@pytest.mark.parametrize("bits", [2, 8])
def test_the_copy_converges(bits, dtype):
    """Each message divides the range of the difference by 2^bits - 1, until floats are no finer."""
    codec, goal = difference(affine(bits, stochastic=False)), a_tree()["matrix"].astype(dtype)
    memory = codec.init(jnp.zeros_like(goal))
    step = float(goal.max() - goal.min())
    for _ in range(8):
        received, memory = send(codec, None, memory, goal)
        np.testing.assert_array_equal(received, memory[0])  # sender and receiver hold the same
        step /= 2**bits - 1
        assert np.abs(received - goal).max() <= step / 2 + 10 * np.finfo(dtype).eps


def test_plain_rounding_swallows_small_updates():
    """Parameters that move by a 50th of a step at each message."""
    start, drift = jnp.array([0.0, 0.5, 1.0]), jnp.array([0.0, 0.02 / 15, 0.0])
    nearest = affine(4, stochastic=False)
    received = {}
    for codec in (nearest, difference(nearest), error_feedback(nearest)):
        memory, received[codec] = codec.init(start), []
        for i in range(20):
            arrived, memory = send(codec, None, memory, start + i * drift)
            received[codec].append(float(arrived[1]))
    truth = 0.5 + np.arange(20) * 0.02 / 15
    plain, followed, fed = received.values()
    assert len(set(plain)) == 1
    np.testing.assert_allclose(followed, truth, atol=0.02 / 15)
    assert abs(np.mean(fed) - truth.mean()) < 0.5 / 15 / 20 + 1e-6 < abs(np.mean(plain) - truth.mean())


def regression():
    """Least squares of skewed features and noise, whose gradients at the optimum are skewed, too."""
    rng = np.random.default_rng(0)
    x = rng.exponential(size=(400, 20))
    y = x @ rng.normal(size=20) + rng.exponential(size=400)
    best = np.linalg.lstsq(x, y, rcond=None)[0]
    return jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), jnp.asarray(best, jnp.float32)


def excess(w, x, best):
    """Loss above the least."""
    return float(jnp.mean((x @ (w - best)) ** 2) / 2)


def test_difference_coding_on_the_way_down():
    """Gradients on rounded parameters: rounded as they are, training hovers; their differences arrive."""
    x, y, best = regression()

    def train(codec):
        def step(i, carry):
            w, memory = carry
            view, memory = transmit(codec, None, memory, w)
            return w - 0.03 * x.T @ (x @ view - y) / len(y), memory

        start = jnp.zeros(20)
        run = jax.jit(lambda: jax.lax.fori_loop(0, 1500, step, (start, codec.init(start)))[0])
        return excess(run(), x, best)

    nearest = affine(4, stochastic=False)
    assert train(exact()) < 1e-6
    assert train(nearest) > 1e-3
    assert train(difference(nearest)) < 1e-6


def test_error_feedback_on_the_way_up():
    """Means of signs are biased where noise is skewed: alone they lead elsewhere, with the residual home."""
    noise = jnp.array([[3.0, 1.0], [-3.0, 1.0], [0.0, -2.0]])  # mean 0; that of its 1-bit codes (-1/3, 1/3)
    coded = [send(one_bit(), None, (), row)[0] for row in noise]
    np.testing.assert_allclose(np.mean(coded, axis=0), [-1 / 3, 1 / 3], rtol=1e-6)

    @functools.partial(jax.jit, static_argnums=0)
    def train(codec, steps):
        """SGD on the mean over i of |w + noise_i|^2 / 2, whose least is at 0."""

        def step(i, carry):
            w, memory = carry
            row = noise[jax.random.randint(jax.random.fold_in(KEY, i), (), 0, 3)]
            received, memory = transmit(codec, None, memory, w + row)
            return w - received / (i + 10), memory

        start = jnp.array([1.0, -1.0])
        return jnp.linalg.norm(jax.lax.fori_loop(0, steps, step, (start, codec.init(start)))[0])

    for steps in (3_000, 30_000):
        assert train(one_bit(), steps) > 0.3
        tolerance = 5 * np.sqrt(8 / steps)  # |w|^2 is 8 / steps, the noise's variance over them
        assert train(exact(), steps) < tolerance
        assert train(error_feedback(one_bit()), steps) < tolerance


@given(
    values=st.integers(0, 10**9),
    seconds=st.floats(0, 1e3),
    bandwidth=st.floats(1, 1e12),
    widths=st.lists(st.sampled_from([32, 16, 8, 4, 2, 1]), min_size=1),
)
@settings(max_examples=100, deadline=None)
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
        (lambda: affine(0), r"bits: got 0, allowed is a whole number from 1 to 16 \(32 is exact"),
        (lambda: affine(17), "bits: got 17"),
        (lambda: affine(True), "bits: got True"),
        (lambda: affine(8, stochastic=1), "stochastic: got 1, allowed is True or False"),
        (lambda: qsgd(0), "levels: got 0"),
        (lambda: qsgd(2**15), "levels: got 32768"),
        (lambda: qsgd(2.5), "levels: got 2.5"),
        (lambda: terngrad(0), "clip: got 0, allowed is a number > 0"),
        (lambda: terngrad(float("inf")), "clip: got inf, allowed is a finite number"),
        (lambda: error_feedback("one_bit()"), r"codec: got 'one_bit\(\)', allowed is a codec"),
        (lambda: difference(one_bit), "codec: got <functools"),
        (lambda: transmit(affine(8), None, (), jnp.ones(3)), "key: got None, allowed is a random key"),
        (lambda: transmit(affine(8), KEY, (), jnp.arange(3)), "got 'int32', allowed is a floating type"),
        (lambda: transmit(exact(), KEY, (), jnp.arange(3)), "got 'int32', allowed is a floating type"),
        (lambda: of_width(20), "bits: got 20"),
        (lambda: bits_that_hide(-1, 1, 1), "num_values: got -1"),
        (lambda: bits_that_hide(1, -1, 1), "compute_seconds: got -1"),
        (lambda: bits_that_hide(1, 1, 0), "bandwidth_bytes_per_second: got 0"),
        (lambda: bits_that_hide(1, 1, 1, ()), "widths: got"),
        (lambda: bits_that_hide(1, 1, 1, (64,)), "bits: got 64"),
        (lambda: bits_for_error(jnp.ones(3), -0.1), "epsilon: got -0.1"),
        (lambda: bits_for_error(jnp.ones(3), 0.1, (0,)), "bits: got 0"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_every_codec_is_tested():
    named = " ".join(codec.name for codec in PLAIN + REMEMBERING)
    assert all(f"{name}(" in named for name in CODECS)
