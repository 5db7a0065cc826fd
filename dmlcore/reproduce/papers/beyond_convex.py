"""Convex problems of notebooks/07_beyond.ipynb, their formulas, a search, and DiLoCo's outer optimizer."""

import functools
import itertools
import math
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import optimize

from dmlcore import checks, data
from dmlcore.problems.problem import Batch, Params, Problem, frozen

PENALTY = 0.02  # weight of the penalty in `plane`


@functools.cache
def tridiagonal(dimensions: int = 16, noise: float = 0.2) -> Problem:
    """Returns the test function of Tyurin and Richtarik, with Gaussian noise in each coordinate of gradients.

    f(x) = x'Ax / 2 - b'x with A = tridiag(-1, 2, -1) / 4 and b = (-1, 0, ..., 0) / 4, so that f is 1-smooth.
    The loss of a sample is f(x) + <xi, x> with xi ~ N(0, noise^2 I), so that its gradient is that of f plus
    xi. Parameters start at sqrt(d) (1, 0, ..., 0), whatever the random key.

    Args:
        dimensions: d, >= 2.
        noise: standard deviation of each coordinate; the paper's sigma^2 is d noise^2.

    Returns:
        The problem. Metrics: `loss` is f(x) - min f, `gradient` is |grad f(x)|^2.

    >>> problem = tridiagonal()
    >>> start = problem.evaluate(problem.init(jax.random.key(0)), None)
    >>> round(float(start["loss"]), 3), round(float(start["gradient"]), 3)
    (5.118, 6.062)

    Reference: Tyurin and Richtarik 2023, "Optimal time complexities of parallel stochastic optimization
    methods under a fixed computation model", the section on experiments.
    """
    matrix = (2 * np.eye(dimensions) - np.eye(dimensions, k=1) - np.eye(dimensions, k=-1)) / 4
    linear = -np.eye(dimensions)[0] / 4
    least = -linear @ np.linalg.solve(matrix, linear) / 2
    a, b = frozen(matrix, np.float32), frozen(linear, np.float32)
    start = frozen(math.sqrt(dimensions) * np.eye(dimensions)[0], np.float32)

    def value(x: jax.Array) -> jax.Array:
        return x @ (a @ x) / 2 - b @ x

    def losses(x: Params, batch: Batch, keys: jax.Array) -> jax.Array:
        draw = functools.partial(jax.random.normal, shape=(dimensions,))
        return value(x) + noise * jax.vmap(draw)(keys) @ x

    def evaluate(x: Params, _: Any) -> dict[str, jax.Array]:
        return {"loss": value(x) - least, "gradient": ((a @ x - b) ** 2).sum()}

    rows = frozen(np.zeros((1024, 1)), np.float32)  # a sample consists of its random key only
    return Problem(
        f"tridiagonal({dimensions})", lambda key: jnp.asarray(start), rows, evaluate, rows, losses=losses
    )


def optimal_seconds(taus: Sequence[float] | np.ndarray, gradients: int) -> float:
    """Returns t(R), the optimal time for R gradients at one point up to a constant factor.

    t(R) = min over m of (R + m) / sum_{i <= m} 1 / tau_i, with the workers in ascending order of tau. Before
    t(R) / 2 no policy has R gradients at one point; `rennala(R)` has them after at most 2 t(R).

    Args:
        taus: seconds per gradient of each worker, (W,).
        gradients: R, >= 1.

    Returns:
        Seconds.

    >>> optimal_seconds([1.0, 1.0, 100.0], 10)
    6.0

    Reference: Tyurin and Richtarik 2023, the lower bound for the fixed computation model.
    """
    m = np.arange(1, len(taus) + 1)
    return float(((gradients + m) / np.cumsum(1 / np.sort(np.asarray(taus, float)))).min())


def descend(
    cost: Callable[..., float],
    start: tuple[int, ...],
    tries: int,
    recorded: MutableMapping[str, Any] | None = None,
    name: str = "",
) -> tuple[tuple[int, ...], int]:
    """Searches whole numbers, such as exponents of two: moves to the best neighbour until none is better.

    Args:
        cost: the numbers -> the value to minimise.
        start: the first numbers.
        tries: largest number of evaluations of `cost`, >= 1.
        recorded: name of a search -> what it found; this one is added. Where it is known already, with the
            same `start`, the numbers found then are the answer. Default: none are known.
        name: of this search in `recorded`, which says what `cost` depends on.

    Returns:
        The best numbers, and how many were tried.

    >>> descend(lambda x, y: (x - 2) ** 2 + abs(y), (0, 1), tries=20)[0]
    (2, 0)
    """
    checks.integer("tries", tries, low=1)
    recorded = {} if recorded is None else recorded
    known = recorded.get(name, {})
    if known.get("start") == [*start]:
        return tuple(known["best"]), known["tried"]
    found = {tuple(start): cost(*start)}
    best, moved = tuple(start), None
    while best != moved:
        moved = best
        for place, step in itertools.product(range(len(best)), (1, -1)):
            near = (*best[:place], best[place] + step, *best[place + 1 :])
            if near not in found and len(found) < tries:
                found[near] = cost(*near)
        best = min(found, key=found.__getitem__)
    recorded[name] = {"start": [*start], "best": [*best], "tried": len(found)}
    return best, len(found)


@functools.cache
def plane() -> Problem:
    """Returns a logistic regression with two parameters, for plots: whether a digit is at least 5.

    The features are the first two principal components of scikit-learn's digits, each with variance 1; there
    is no intercept. losses_i = log(1 + exp(-sign_i <w, z_i>)) + |w|^2 / 100, which is strongly convex.
    Parameters start at zero. A row has `features`, `sign`, and the digit as `labels` for `Problem.sharded`.

    Returns:
        The problem. Metrics: `loss`, and the parameters as `first` and `second`.
    """
    digits = data.digits()
    x = np.asarray(digits.train_inputs, float)
    x = x - x.mean(0)
    axes = np.linalg.svd(x, full_matrices=False)[2][:2]
    axes *= np.sign(axes[np.arange(2), np.abs(axes).argmax(1)])[:, None]  # a singular vector has no sign
    components = x @ axes.T
    labels = np.asarray(digits.train_labels)
    rows = {
        "features": frozen(components / components.std(0), np.float32),
        "sign": frozen(np.where(labels >= 5, 1.0, -1.0), np.float32),
        "labels": frozen(labels, np.int32),
    }

    def losses(w: Params, batch: Batch) -> jax.Array:
        return jax.nn.softplus(-batch["sign"] * (batch["features"] @ w)) + PENALTY / 2 * w @ w

    def evaluate(w: Params, batch: Batch) -> dict[str, jax.Array]:
        return {"loss": losses(w, batch).mean(), "first": w[0], "second": w[1]}

    return Problem("plane", lambda key: jnp.zeros(2), rows, evaluate, rows, losses=losses)


def weighted_loss(problem: Problem, shares: Sequence[float]) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the function sum_w share_w f_w of points (..., 2); f_w is the mean loss of worker w's data.

    Args:
        problem: `plane()`, sharded.
        shares: of the workers in the updates, (W,); they are divided by their sum.
    """
    owner = np.asarray(problem.owner)
    weights = (np.asarray(shares, float) / np.sum(shares) / np.bincount(owner))[owner]
    x = problem.data["features"] * problem.data["sign"][:, None].astype(float)

    def loss(points: np.ndarray) -> np.ndarray:
        points = np.asarray(points)
        return np.logaddexp(0, -points @ x.T) @ weights + PENALTY / 2 * (points**2).sum(-1)

    return loss


def weighted_optimum(problem: Problem, shares: Sequence[float]) -> np.ndarray:
    """Returns the minimum of `weighted_loss`, to which training converges if workers have these shares."""
    loss = weighted_loss(problem, shares)
    return optimize.minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-7}).x


def delayed_nesterov(
    learning_rate: float, momentum: float = 0.9, period: int = 4
) -> optax.GradientTransformation:
    """Outer optimizer of asynchronous DiLoCo: it updates the momentum only once in `period` updates.

    Every push g makes a step of rate * g / N, where N is the period. Every N-th push also updates the
    momentum, m <- beta m + (mean of the last N pushes), and makes a step of rate * beta m. So m is the
    momentum of synchronous Nesterov with the mean of N pushes as the gradient, and the momentum does not
    multiply stale pushes one by one.

    Guarantees: `period=1` is `optax.sgd(learning_rate, momentum, nesterov=True)`.

    Args:
        learning_rate: the paper's epsilon.
        momentum: the paper's beta.
        period: N, pushes between two updates of the momentum, >= 1; usually the number of workers.

    Returns:
        The optax optimizer.

    Reference: Liu et al. 2024, "Asynchronous local-SGD training for language modeling", the algorithm of
    delayed Nesterov updates, with c = 0.
    """
    period = checks.integer("period", period, low=1)

    def init(params: Params) -> Any:
        zeros = optax.tree.zeros_like(params)
        return jnp.zeros((), jnp.int32), zeros, zeros

    def update(pushed: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        count, velocity, total = state
        total, due = jax.tree.map(jnp.add, total, pushed), (count + 1) % period == 0
        velocity = jax.tree.map(
            lambda m, sums: jnp.where(due, momentum * m + sums / period, m), velocity, total
        )
        total = jax.tree.map(lambda sums: jnp.where(due, 0, sums), total)
        steps = jax.tree.map(
            lambda g, m: -learning_rate * (g / period + jnp.where(due, momentum * m, 0)), pushed, velocity
        )
        return steps, (count + 1, velocity, total)

    return optax.GradientTransformation(init, update)
