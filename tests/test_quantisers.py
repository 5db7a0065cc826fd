"""What rounding and sparsification do to values: means, bounds, variances."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from coded import KEY, PLAIN, REMEMBERING, send
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dmlcore.methods.codecs import (
    affine,
    exact,
    one_bit,
    qsgd,
    random_k,
    terngrad,
    top_k,
    transmit,
)


def exponents_apart(size, largest):
    """32-bit floats of any magnitude up to `largest`, none subnormal, and arrays of a single value."""
    largest = float(np.float32(largest))
    element = st.floats(-largest, largest, width=32, allow_nan=False, allow_subnormal=False)
    apart = hnp.arrays(np.float32, size, elements=element)
    return apart | element.map(lambda value: np.full(size, value, np.float32))


def arrays(largest):
    return st.sampled_from([(), (2, 4)]).flatmap(lambda size: exponents_apart(size, largest))


ARRAYS = arrays(1e37)  # the largest magnitude that may be sent
TINY = 1e-36  # some ten times the least normal number: what is smaller may vanish


def draws(codec, tensor, num_draws):
    keys = jax.random.split(jax.random.key(7), num_draws)
    return np.asarray(jax.jit(jax.vmap(lambda key: transmit(codec, key, (), tensor)[0]))(keys), float)


@pytest.mark.parametrize(
    ("codec", "precision"),
    [
        (affine(1), 32),
        (affine(4), 64),
        pytest.param(affine(16), 32, marks=pytest.mark.full),
        pytest.param(qsgd(1), 64, marks=pytest.mark.full),
        (qsgd(9), 32),
        (terngrad(clip=None), 64),
        (terngrad(), 32),
        (random_k(0.25), 32),
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
@settings(max_examples=80)
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


@given(sent=ARRAYS, codec=st.sampled_from([exact(), top_k(1), random_k(1)]))
@settings(max_examples=80)
def test_exact_and_all_keep_every_bit(sent, codec):
    received = np.asarray(send(codec, KEY, (), sent)[0])
    np.testing.assert_array_equal(received.view(np.uint32), sent.view(np.uint32))


@given(sent=arrays(1e37 / 3), codec=st.sampled_from([qsgd(6), terngrad(), one_bit()]))  # norms up to 1e37
@settings(max_examples=80)
def test_magnitudes_and_signs(sent, codec):
    """Nothing arrives larger than the norm, nor with the other sign; zeros arrive as zeros."""
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


@given(sent=ARRAYS, fraction=st.sampled_from([0.2, 0.5, 1.0]))
@settings(max_examples=80)
def test_top_k_loses_the_smallest(sent, fraction):
    """What it loses is at most 1 - k / d of the squares (definition 2.1); what it sends arrives unchanged."""
    received, count = (
        np.asarray(send(top_k(fraction), None, (), sent)[0]),
        max(1, round(fraction * sent.size)),
    )
    assert ((received == sent) | (received == 0)).all()
    lost, squares = ((sent.astype(float) - received) ** 2).sum(), np.sort(sent.astype(float) ** 2, axis=None)
    assert lost == pytest.approx(squares[: sent.size - count].sum(), rel=1e-12)
    assert lost <= (1 - count / sent.size) * squares.sum() * (1 + 1e-12)


def test_an_index_of_17_bits():
    sent = jnp.zeros(70_000).at[-1].set(2.0)
    np.testing.assert_array_equal(send(top_k(1e-5), None, (), sent)[0], sent)
    assert top_k(1e-5).num_bytes([70_000]) == 4 + 3


def test_random_k_loses_its_share():
    """1 - k / d of the squares on average; times d / k where the receiver multiplies by that."""
    sent = np.random.default_rng(4).normal(size=64)
    for codec, expected in ((random_k(0.25, unbiased=False), 0.75), (random_k(0.25), 3.0)):
        received = draws(codec, jnp.asarray(sent), 3000)
        assert ((received != 0).sum(axis=1) == 16).all()
        lost = ((received - sent) ** 2).sum(axis=1) / (sent**2).sum()
        assert abs(lost.mean() - expected) < 4.5 * lost.std() / np.sqrt(3000)


def test_ternary_values():
    """-S, 0 and S, where S is the clipped tensor's largest magnitude."""
    sent = np.append(np.random.default_rng(3).normal(size=99), 50.0)
    scale = 2.5 * np.sqrt(np.mean(sent**2))
    received = draws(terngrad(), jnp.asarray(sent), 50)
    np.testing.assert_allclose(np.unique(received), [-scale, 0, scale], rtol=1e-6)


@given(sent=hnp.arrays(np.float32, (2, 4), elements=st.floats(-1e3, 1e3, width=32, allow_subnormal=False)))
@settings(max_examples=60)
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
