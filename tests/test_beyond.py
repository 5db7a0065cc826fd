"""What notebooks/07_beyond.ipynb is built on: closed forms, the outer optimizer, the search, the problems."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dmlcore as dml
from dmlcore.reproduce.papers.beyond_convex import (
    delayed_nesterov,
    descend,
    optimal_seconds,
    plane,
    tridiagonal,
    weighted_loss,
    weighted_optimum,
)


def test_the_noise_and_the_optimum_of_the_tridiagonal_function():
    problem = tridiagonal(5, noise=0.3)
    x = jnp.asarray([1.0, -2.0, 0.5, 0.0, 3.0])
    keys = jax.random.split(jax.random.key(0), 20_000)

    def loss(x, key):
        return problem.losses(x, problem.data[:1], key[None])[0]

    gradients = jax.vmap(jax.grad(loss), (None, 0))(x, keys)
    # tridiag(-1, 2, -1) / 4 times x, plus (1, 0, ...) / 4
    wanted = np.array([2 + 2 + 1, -1 - 4 - 0.5, 2 + 1, -0.5 - 3, 6]) / 4
    np.testing.assert_allclose(gradients.mean(0), wanted, atol=0.01)
    np.testing.assert_allclose(gradients.std(0), 0.3, rtol=0.03)
    best = jnp.asarray(1 - np.arange(1, 6) / 6, jnp.float32) * -1
    at_best = problem.evaluate(best, None)
    assert float(at_best["loss"]) == pytest.approx(0, abs=1e-6)
    assert float(at_best["gradient"]) == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("r", [1, 5, 40])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_optimal_seconds_is_within_twice_what_is_possible(power, r):
    """The least T in which workers can finish r gradients: sum of floor(T / tau) >= r."""
    taus = np.arange(1.0, 101) ** power
    ends = np.sort(np.concatenate([np.arange(1, r + 1) * tau for tau in taus]))
    assert 0.5 <= ends[r - 1] / optimal_seconds(taus[::-1], r) <= 2


@pytest.mark.parametrize("tries", [1, 3, 8, 100])
def test_the_search_keeps_its_budget_and_returns_the_best_that_it_tried(tries):
    asked, recorded = {}, {}

    def cost(x, y):
        assert (x, y) not in asked
        asked[x, y] = (x - 3) ** 2 + (y + 1) ** 2
        return asked[x, y]

    best, tried = descend(cost, (0, 1), tries, recorded, "this")
    assert len(asked) == tried <= tries
    assert asked[best] == min(asked.values())
    assert best == (3, -1) or tries < 100
    asked.clear()
    assert descend(cost, (0, 1), tries, recorded, "this") == (best, tried)
    assert not asked


@pytest.mark.parametrize(("name", "start"), [("another", 2), ("this", 3)], ids=["name", "start"])
def test_the_answer_to_another_question_is_not_taken(name, start):
    recorded = {}
    assert descend(lambda x: (x - 4) ** 2, (2,), 9, recorded, "this") == ((4,), 5)
    assert descend(lambda x: (x - 1) ** 2, (start,), 9, recorded, name)[0] == (1,)


def tree(seed):
    a, b = jax.random.split(jax.random.key(seed))
    return {"a": jax.random.normal(a, (3,)), "b": jax.random.normal(b, ())}


def steps_of(optimizer, pushes):
    params, found = tree(0), []
    state = optimizer.init(params)
    for pushed in pushes:
        updates, state = optimizer.update(pushed, state, params)
        params = optax.apply_updates(params, updates)
        found.append(params)
    return found


@pytest.mark.parametrize("period", [1, 2, 4])
def test_delayed_nesterov_is_nesterov_on_the_mean_of_a_period(period):
    pushes = [tree(1 + number) for number in range(12)]
    delayed = steps_of(delayed_nesterov(0.3, 0.9, period), pushes)[period - 1 :: period]
    parts = [pushes[first : first + period] for first in range(0, 12, period)]
    means = [jax.tree.map(lambda *each: sum(each) / period, *part) for part in parts]
    plain = steps_of(optax.sgd(0.3, momentum=0.9, nesterov=True), means)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), delayed, plain)


def test_optima_by_shares():
    problem = plane().sharded(dml.shards.by_label(4, 3))
    shares = [1, 2, 3, 4]
    best, loss = weighted_optimum(problem, shares), weighted_loss(problem, shares)
    around = best + 1e-2 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    assert (loss(around) > loss(best)).all()
    own = [weighted_loss(problem, np.eye(4)[worker])(best) for worker in range(4)]
    assert loss(best) == pytest.approx(np.dot(shares, own) / 10)
    rows = {name: column[problem.owner == 2] for name, column in problem.data.items()}
    at = jnp.asarray(best, jnp.float32)
    assert own[2] == pytest.approx(float(problem.losses(at, rows).mean()), rel=1e-5)
