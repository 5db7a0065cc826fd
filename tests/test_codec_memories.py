"""What codecs remember: sums are kept, copies catch up, and training arrives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from coded import KEY, a_tree, close, send

from dmlcore.methods.codecs import (
    affine,
    difference,
    error_feedback,
    exact,
    one_bit,
    power_sgd,
    random_k,
    terngrad,
    top_k,
    transmit,
)


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield request.param


@pytest.mark.parametrize(
    "codec",
    [one_bit(), terngrad(), affine(3), top_k(0.1), power_sgd(1), difference(affine(4, stochastic=False))],
    ids=repr,
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


def test_top_k_leads_away_and_its_residual_home():
    """The largest entry of each of three gradients points away from the least of their mean, 0.

    Without error feedback x grows by the factor 1 + 11 / 6 * rate a step (Beznosikov et al. 2020, "On biased
    compression for distributed learning", their example); with it x goes to 0.
    """
    rows = jnp.array([[-3.0, 2.0, 2.0], [2.0, -3.0, 2.0], [2.0, 2.0, -3.0]])
    rate, steps = 0.01, 1000

    @functools.partial(jax.jit, static_argnums=0)
    def train(codec):
        """The distance to 0, relative to the start, of descent on mean_i <row_i, x>^2 + |x|^2 / 4."""

        def step(i, carry):
            x, memory = carry
            gradients = 2 * (rows @ x)[:, None] * rows + x / 2
            received, memory = jax.vmap(functools.partial(transmit, codec, None))(memory, gradients)
            return x - rate * received.mean(axis=0), memory

        carry = jnp.ones(3), jax.vmap(codec.init)(jnp.zeros_like(rows))
        return jnp.linalg.norm(jax.lax.fori_loop(0, steps, step, carry)[0]) / 3**0.5

    assert float(train(top_k(0.3))) == pytest.approx((1 + 11 / 6 * rate) ** steps, rel=1e-3)
    assert train(error_feedback(top_k(0.3))) < 1e-4
    assert float(train(exact())) == pytest.approx((1 - 7 / 6 * rate) ** steps, rel=1e-3)


def test_random_k_hovers_wider_without_its_residual():
    """Two workers with gradients x - b and x + b, of which k / d = q is sent; the least is at 0.

    Unbiased, messages have the variance (1 / q - 1) |b|^2, and E |x|^2 ends at about rate / 4 times that.
    With error feedback a residual is b times the number of messages since its value was sent, whose variance
    is (1 - q) / q^2, and x is off by the mean of both residuals times the rate: E |x|^2 ends at about
    rate^2 (1 - q) / q^2 |b|^2 / 2.
    """
    rate, q, lanes, steps = 0.02, 0.5, 32, 1200
    b = jnp.asarray(np.random.default_rng(5).normal(size=8), jnp.float32)

    @functools.partial(jax.jit, static_argnums=0)
    def train(codec):
        """E |x|^2 / |b|^2, by lanes that differ in their keys and all steps from the 200th."""

        def step(i, carry):
            x, memory, total = carry
            keys = jax.random.split(jax.random.fold_in(KEY, i), (lanes, 2))
            gradients = x[:, None] + jnp.stack([b, -b])
            received, memory = jax.vmap(jax.vmap(functools.partial(transmit, codec)))(keys, memory, gradients)
            x = x - rate * received.mean(axis=1)
            return x, memory, total + (i >= 200) * (x**2).sum() / lanes

        nothing = jnp.zeros((lanes, 2, 8))
        carry = nothing[:, 0], jax.vmap(jax.vmap(codec.init))(nothing), 0.0
        return jax.lax.fori_loop(0, steps, step, carry)[2] / (steps - 200) / (b**2).sum()

    assert float(train(random_k(q))) == pytest.approx(rate * (1 / q - 1) / 4, rel=0.1)
    fed = error_feedback(random_k(q, unbiased=False))
    assert float(train(fed)) == pytest.approx(rate**2 * (1 - q) / q**2 / 2, rel=0.1)


def by_the_paper(matrices, right):
    """What arrives of each, and the residual after it, by algorithms 1 and 2 of PowerSGD with one worker."""
    error = np.zeros_like(matrices[0])
    for matrix in matrices:
        delta = matrix + error
        left = delta @ right
        for column in range(left.shape[1]):  # Gram-Schmidt
            for former in range(column):
                left[:, column] -= left[:, column] @ left[:, former] * left[:, former]
            left[:, column] /= np.linalg.norm(left[:, column])
        right = delta.T @ left
        error = delta - left @ right.T
        yield left @ right.T, error


@pytest.mark.parametrize("rank", [1, 3])
def test_power_sgd_is_that_of_the_paper(rank):
    codec, draw = error_feedback(power_sgd(rank)), np.random.default_rng(3)
    matrices = [draw.normal(size=(9, 7)) for _ in range(6)]
    with jax.enable_x64(True):
        memory = codec.init(jnp.zeros((9, 7)))
        expected = by_the_paper(matrices, np.asarray(memory[1], float))
        for matrix, (arrives, error) in zip(matrices, expected, strict=True):
            received, memory = send(codec, None, memory, jnp.asarray(matrix))
            np.testing.assert_allclose(received, arrives, atol=1e-5)  # messages have 32 bits
            np.testing.assert_allclose(memory[0], error, atol=1e-5)


def test_power_sgd_approaches_the_best_approximation():
    """By the ratio of singular values a message (subspace iteration); and nothing can be nearer."""
    draw = np.random.default_rng(4)
    left, right = (np.linalg.qr(draw.normal(size=(size, 5)))[0] for size in (12, 8))
    values = np.array([8.0, 4.0, 1.0, 0.5, 0.2])
    sent, codec = jnp.asarray(left * values @ right.T, jnp.float32), power_sgd(2)
    memory = codec.init(sent)
    for _ in range(8):
        received, memory = send(codec, None, memory, sent)
        lost = np.linalg.norm(received - sent)
        # P holds the columns of what arrives: what is lost has nothing of them.
        assert lost**2 + np.linalg.norm(received) ** 2 == pytest.approx(np.sum(values**2), rel=1e-5)
        assert lost >= np.linalg.norm(values[2:]) * (1 - 1e-5)
    assert lost == pytest.approx(np.linalg.norm(values[2:]), rel=1e-5)
    np.testing.assert_allclose(received, left[:, :2] * values[:2] @ right[:, :2].T, atol=1e-3)


def test_power_sgd_after_a_tensor_of_zeros():
    """The columns found before are not lost though nothing was sent; all arrives of a rank up to r."""
    codec, nothing = power_sgd(2), jnp.zeros((6, 5))
    received, memory = send(codec, None, codec.init(nothing), nothing)
    np.testing.assert_array_equal(received, nothing)
    sent = nothing.at[4, 1].set(2.0).at[5, 3].set(-1e37)
    for scale in (1, 1e-30):
        received, memory = send(codec, None, memory, sent * scale)
        np.testing.assert_allclose(received, sent * scale, rtol=1e-5, atol=scale * 1e32)
    received, _ = send(codec, None, memory, sent.at[0, 0].set(jnp.inf))
    assert not np.isfinite(received[0, 0])


def test_power_sgd_sends_what_is_orthogonal_to_its_factor():
    """Where P holds nothing of a matrix, Q is 0 and begins anew: the residual does not grow for ever."""
    fed, nothing = error_feedback(power_sgd(1)), jnp.zeros((6, 5))
    _, memory = send(fed, None, fed.init(nothing), nothing.at[0, 2].set(1.0))
    for _ in range(3):
        received, memory = send(fed, None, memory, nothing.at[3, 4].set(1.0))
    assert float(received[3, 4]) == pytest.approx(1, rel=1e-4)
    assert float(jnp.abs(memory[0]).max()) < 1e-3
