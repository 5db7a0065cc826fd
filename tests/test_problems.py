"""Conformance of every problem in the table, then what is particular to each."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from real_data import needs
from scipy.optimize import minimize

from dmlcore import data
from dmlcore.problems import (
    PROBLEMS,
    digits_mlp,
    linear_regression,
    logistic_regression,
    matrix_factorization,
)
from dmlcore.problems.networks import conv, pooled_relu

DATA = {"mnist_lenet": "mnist", "cifar10_cnn": "cifar10", "cifar10_lenet": "cifar10"}
ADDITIVE = ("lasso", "lda")
LEARNING_RATE = {
    "digits_mlp": 0.2,
    "logistic_regression": 0.2,
    "linear_regression": 1e-4,
    "mnist_lenet": 0.05,
    "cifar10_cnn": 0.02,
    "cifar10_lenet": 0.05,
    "matrix_factorization": 2.0,
    "language_model": 0.5,
}
PARAMETERS = {
    "digits_mlp": 2410,
    "logistic_regression": 650,
    "linear_regression": 100,
    "mnist_lenet": 44426,
    "cifar10_cnn": 89578,
    "cifar10_lenet": 62006,
    "matrix_factorization": 2500,
    "language_model": 18384,
}
KEY = jax.random.key(0)


@pytest.fixture(
    params=[
        pytest.param(name, marks=needs(DATA[name]) if name in DATA else ())
        for name in PROBLEMS
        if name not in ADDITIVE
    ]
)
def name(request):
    return request.param


@pytest.fixture
def quick_name(name):
    """Without the networks that take long to compile and share their code with `mnist_lenet`."""
    if name.startswith("cifar10"):
        pytest.skip("mnist_lenet covers it")
    return name


def rows(problem, index):
    return jax.tree.map(lambda leaf: leaf[index], problem.data)


def first(count, tree):
    return jax.tree.map(lambda leaf: leaf[:count], tree)


def mean_loss(problem):
    return lambda params, batch: problem.losses(params, batch).mean()


# Every problem whose tasks are gradients


def test_same_arguments_give_the_same_object(name):
    assert PROBLEMS[name]() is PROBLEMS[name](dtype="float32")
    assert PROBLEMS[name]().name == name


def test_init_is_a_function_of_the_key(name):
    problem = PROBLEMS[name]()
    init = jax.jit(problem.init)
    params = init(KEY)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == PARAMETERS[name]
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    jax.tree.map(np.testing.assert_array_equal, params, init(jax.random.key(0)))
    seeds = jax.jit(jax.vmap(problem.init))(jnp.stack([jax.random.key(1), KEY]))
    jax.tree.map(lambda many, one: np.testing.assert_allclose(many[1], one, rtol=1e-6), seeds, params)


def test_losses_and_gradients(name):
    problem = PROBLEMS[name]()
    params, batch = problem.init(KEY), rows(problem, slice(5))
    losses, gradient = jax.jit(lambda p: (problem.losses(p, batch), jax.grad(mean_loss(problem))(p, batch)))(
        params
    )
    assert losses.shape == (5,)
    assert all(np.isfinite(leaf).all() and np.any(leaf) for leaf in jax.tree.leaves(gradient))


def test_data_shares_an_axis_and_is_read_only(name):
    problem = PROBLEMS[name]()
    leaves = jax.tree.leaves(problem.data)
    assert {len(leaf) for leaf in leaves} == {problem.num_samples}
    assert not any(leaf.flags.writeable for leaf in leaves)


def test_sgd_lowers_the_loss(name):
    problem = PROBLEMS[name]()
    steps = {"cifar10_cnn": 20, "matrix_factorization": 1000}.get(name, 200)
    index = jax.random.randint(KEY, (steps, 32), 0, problem.num_samples)
    samples = jax.tree.map(jnp.asarray, problem.data)
    optimizer = optax.sgd(LEARNING_RATE[name])

    @jax.jit
    def train(params, samples):
        def step(carry, chosen):
            params, state = carry
            batch = jax.tree.map(lambda leaf: leaf[chosen], samples)
            updates, state = optimizer.update(jax.grad(mean_loss(problem))(params, batch), state)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, optimizer.init(params)), index)[0][0]

    evaluate = jax.jit(problem.evaluate)
    eval_data = first(400, problem.eval_data) if name in DATA else problem.eval_data
    params = jax.jit(problem.init)(KEY)
    before = evaluate(params, eval_data)
    after = evaluate(train(params, samples), eval_data)
    assert all(value.shape == () and np.isfinite(value) for value in after.values())
    assert after["loss"] < 0.95 * before["loss"]
    assert "accuracy" not in after or after["accuracy"] > (0.15 if name.startswith("cifar10") else 0.85)
    assert problem.optimum is None or after["loss"] > problem.optimum


@pytest.mark.parametrize("name", ADDITIVE)
def test_additive_updates_are_like_the_parameters(name):
    problem = PROBLEMS[name]()
    assert problem is PROBLEMS[name]()
    assert problem.additive
    shared, local = problem.apart(problem.init(KEY))
    view = problem.together(shared, {name: column[:5] for name, column in local.items()})
    update, again = (jax.jit(problem.update)(view, rows(problem, slice(5)), KEY) for _ in range(2))
    assert jax.tree.map(jnp.shape, update) == jax.tree.map(jnp.shape, view)
    assert jax.tree.map(jnp.result_type, update) == jax.tree.map(jnp.result_type, view)
    assert any(np.any(leaf) for leaf in jax.tree.leaves(update))
    jax.tree.map(np.testing.assert_array_equal, update, again)


def test_evaluated_loss_is_the_mean_of_losses(quick_name):
    if quick_name == "language_model":
        pytest.skip("its loss is an expectation on held-out text, see test_modules.py")
    problem = PROBLEMS[quick_name]()
    params, batch, eval_data = problem.init(KEY), problem.data, problem.eval_data
    if quick_name in DATA:
        # 150 is one whole chunk of the evaluation and a part of the next.
        batch, eval_data = rows(problem, slice(150)), first(150, eval_data)
    expected = jax.jit(mean_loss(problem))(params, batch)
    found = jax.jit(problem.evaluate)(params, eval_data)["loss"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_gradient_is_the_slope_in_float64(quick_name):
    with jax.enable_x64(True):
        problem = PROBLEMS[quick_name](dtype="float64")
        batch = rows(problem, slice(3))
        # Away from zero, where some problems start and slopes are special.
        params = jax.tree.map(
            lambda leaf: np.asarray(leaf) + 0.01 * np.cos(np.arange(leaf.size)).reshape(leaf.shape),
            jax.jit(problem.init)(KEY),
        )
        loss, gradient = jax.jit(jax.value_and_grad(mean_loss(problem)))(params, batch)
        assert {leaf.dtype for leaf in jax.tree.leaves((loss, gradient))} == {jnp.dtype("float64")}
        gradient = jax.tree.map(np.asarray, gradient)
        norm = np.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(gradient)))
        compiled = jax.jit(mean_loss(problem))
        ahead, behind = (
            compiled(jax.tree.map(lambda p, g, h=h: p + h * g / norm, params, gradient), batch)
            for h in (1e-6, -1e-6)
        )
        np.testing.assert_allclose((ahead - behind) / 2e-6, norm, rtol=1e-5)


def test_refuses_a_wrong_dtype(name):
    with pytest.raises(ValueError, match=r"dtype: expected one of 'float32', 'float64'.*, got 'float16'"):
        PROBLEMS[name](dtype="float16")
    with pytest.raises(ValueError, match=r"dtype: expected 'float32' .*, got 'float64'; try .*enable_x64"):
        PROBLEMS[name](dtype="float64")


# Arguments


@pytest.mark.parametrize(
    ("factory", "argument", "value"),
    [
        (digits_mlp, "hidden", 0),
        (digits_mlp, "hidden", 3.5),
        (logistic_regression, "l2", -1),
        (linear_regression, "num_samples", 1),
        (linear_regression, "num_features", 0),
        (linear_regression, "noise", float("nan")),
        (linear_regression, "standardize", "yes"),
        (linear_regression, "seed", -1),
        (matrix_factorization, "num_users", 0),
        (matrix_factorization, "num_items", True),
        (matrix_factorization, "rank", 0),
        (matrix_factorization, "noise", -0.1),
        (matrix_factorization, "density", 0),
        (matrix_factorization, "density", 1e-5),
        (matrix_factorization, "density", 1.1),
        (matrix_factorization, "l2", "much"),
        (matrix_factorization, "seed", 0.5),
        (matrix_factorization, "source", "netflix"),
    ],
)
def test_wrong_arguments_are_named(factory, argument, value):
    with pytest.raises(ValueError, match=rf"^{argument}: expected .*, got "):
        factory(**{argument: value})


def test_equal_arguments_of_other_types_are_the_same_problem():
    assert digits_mlp(np.int64(8)) is digits_mlp(hidden=8)
    assert logistic_regression(1) is logistic_regression(l2=1.0)
    assert digits_mlp(8) is not digits_mlp(9)


def test_movielens_fixes_the_size():
    with pytest.raises(ValueError, match=r"num_users: expected its default .source='movielens'.*, got 7"):
        matrix_factorization(num_users=7, source="movielens")


# Optima


@pytest.mark.parametrize("standardize", [False, True])
def test_linear_regression_optimum_is_least_squares(standardize):
    with jax.enable_x64(True):
        problem = linear_regression(300, 20, standardize=standardize, dtype="float64")
        x, y = problem.data["x"], problem.data["y"]
        weights = np.linalg.lstsq(x, y)[0]
        found = problem.evaluate({"weights": jnp.asarray(weights)}, problem.eval_data)["loss"]
        np.testing.assert_allclose(found, problem.optimum, rtol=1e-12)
        slope = jax.grad(mean_loss(problem))({"weights": jnp.asarray(weights)}, problem.data)["weights"]
        np.testing.assert_allclose(slope, 0, atol=1e-8)
    if standardize:
        np.testing.assert_allclose(x.std(0), 1)
        np.testing.assert_allclose([*x.mean(0), y.mean()], 0, atol=1e-9)


def test_linear_regression_has_the_papers_curvature():
    x = linear_regression().data["x"].astype(float)
    assert set(np.unique(x)) == set(range(1, 11))
    curvature = np.linalg.eigvalsh(x.T @ x / len(x))
    assert 2900 < curvature[-1] < 3150
    assert 4 < curvature[0] < 6


def test_logistic_regression_optimum():
    with jax.enable_x64(True):
        problem = logistic_regression(l2=0.1, dtype="float64")
        flat, unflatten = jax.flatten_util.ravel_pytree(problem.init(KEY))
        loss = jax.jit(jax.value_and_grad(lambda w: mean_loss(problem)(unflatten(w), problem.data)))
        found = minimize(lambda w: tuple(map(np.asarray, loss(w))), flat, jac=True, tol=1e-9)
        np.testing.assert_allclose(found.fun, problem.optimum, rtol=1e-8)
    assert logistic_regression(l2=0).optimum is None


# Particulars


def test_conv_is_a_convolution():
    images = jax.random.normal(KEY, (2, 8, 6, 3))
    kernel, bias = jax.random.normal(jax.random.key(1), (5, 5, 3, 4)), jnp.arange(4.0)
    expected = jax.lax.conv_general_dilated(
        images, kernel, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    found = conv({"kernel": kernel, "bias": bias}, images)
    np.testing.assert_allclose(found, expected + bias, rtol=1e-4, atol=1e-4)


def test_pooled_relu():
    image = jnp.array([[1.0, 5, -1, -2], [3, 4, -3, -4]])[None, :, :, None]
    assert pooled_relu(image).ravel().tolist() == [5, 0]


def test_matrix_factorization_samples():
    problem = matrix_factorization(30, 20, rank=2, density=0.5)
    held_out = problem.eval_data["test"]
    assert (problem.num_samples, len(held_out["rating"])) == (270, 30)
    entries = np.concatenate([part["user"] * 20 + part["item"] for part in (problem.data, held_out)])
    assert len(np.unique(entries)) == 300


def test_matrix_factorization_penalty_is_on_the_rows_of_the_sample():
    plain, penalised = (matrix_factorization(30, 20, rank=2, l2=l2) for l2 in (0.0, 0.5))
    params, batch = plain.init(KEY), rows(plain, slice(1))
    squares = [(params[side][batch[index][0]] ** 2).sum() for side, index in (("L", "user"), ("R", "item"))]
    difference = penalised.losses(params, batch) - plain.losses(params, batch)
    np.testing.assert_allclose(difference, [0.5 * sum(squares)], rtol=1e-5)


@needs("movielens_small")
def test_matrix_factorization_of_movielens():
    problem = matrix_factorization(source="movielens")
    assert problem.num_samples == 90752
    assert len(data.movielens_small().rating) == 100836
    assert abs(problem.data["rating"].mean()) < 1e-5
    assert {side: leaf.shape for side, leaf in problem.init(KEY).items()} == {"L": (610, 5), "R": (9724, 5)}


@pytest.mark.parametrize("told", [4, 100, 9640, 10_000, 1_000_001, "5.2GB"])
def test_told_bytes_are_those_of_shapes(told):
    """As many numbers, to one; both sides of a matrix grow, so that a low rank gains what it would there."""
    own = digits_mlp(32)
    problem = own.with_parameter_bytes(told)
    assert problem.num_parameters == -(-problem.parameter_bytes // 4)
    assert all(side > 0 for shape in problem.tensor_shapes for side in shape[1:])
    factor = problem.num_parameters / own.num_parameters
    if factor > 1:
        sides = np.array([shape for shape in problem.tensor_shapes if len(shape) == 2])
        np.testing.assert_allclose(sides, np.array([[64, 32], [32, 10]]) * factor**0.5, rtol=0.06)
