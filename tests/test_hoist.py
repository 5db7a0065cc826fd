"""Optimizers as programs: equal where only numbers differ, and never equal where something else does."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dmlcore.training.optimizer import hoist

PARAMS = {"w": jnp.ones((3, 2)), "b": jnp.ones(2)}
GRADIENT = jax.tree.map(lambda leaf: 0.3 * leaf, PARAMS)

NUMBERS = {
    "sgd": optax.sgd,
    "momentum": lambda x: optax.sgd(x, momentum=0.9 * x),
    "nesterov": lambda x: optax.sgd(x, momentum=0.5, nesterov=True),
    "adam": optax.adam,
    "clipped adamw": lambda x: optax.chain(optax.clip_by_global_norm(x), optax.adamw(x)),
    "rmsprop": optax.rmsprop,
    "decay": lambda x: optax.sgd(optax.exponential_decay(x, 10, 0.5)),
    "steps": lambda x: optax.sgd(optax.piecewise_constant_schedule(x, {3: 0.1})),
    "injected": lambda x: optax.inject_hyperparams(optax.sgd)(learning_rate=x),
}


def program(optimizer):
    return hoist(optimizer.update, GRADIENT, optimizer.init(PARAMS), PARAMS)


def tabulated(scale):
    """A schedule from a table that a nested jitted function holds."""
    table = np.linspace(0, scale, 16, dtype=np.float32)
    return optax.scale_by_learning_rate(jax.jit(lambda count: jnp.asarray(table)[jnp.minimum(count + 3, 15)]))


@pytest.mark.parametrize("name", NUMBERS)
def test_other_numbers_same_program(name):
    one, two = (NUMBERS[name](x) for x in (0.1, 0.2))
    (first, _), (second, _) = program(one), program(two)
    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize("make", [*NUMBERS.values(), tabulated], ids=[*NUMBERS, "tabulated"])
def test_a_program_computes_what_the_optimizer_does(make):
    """With the constants of the second optimizer and the program of the first, where these are equal."""
    one, two = make(0.1), make(0.2)
    (first, _), (second, constants) = program(one), program(two)
    state = two.init(PARAMS)
    run = jax.jit(lambda program, constants, *args: program(constants, *args), static_argnums=0)
    run(first, program(one)[1], GRADIENT, one.init(PARAMS), PARAMS)  # fills the cache, if they are equal
    found = run(second, constants, GRADIENT, state, PARAMS)
    expected = two.update(GRADIENT, state, PARAMS)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_different_programs_differ():
    programs = [program(optimizer)[0] for optimizer in (optax.sgd(0.1), optax.adam(0.1), optax.sgd(0.1, 0.9))]
    programs += [program(tabulated(0.1))[0], program(tabulated(0.5))[0]]
    assert len(set(programs)) == len(programs)
