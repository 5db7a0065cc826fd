"""Lasso by parallel coordinate descent: each worker minimises over its own features."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks
from dmlcore.calls import memoised
from dmlcore.checks import at_least, real

from .problem import Batch, Params, Problem, floating, frozen


@memoised(
    num_samples=at_least(2),
    num_features=at_least(1),
    num_nonzeros=at_least(0),
    l1=partial(real, above=0, high=1),
    correlation=partial(real, low=0, high=1),
    seed=at_least(0),
    dtype=floating,
)
def lasso(
    num_samples: int = 500,
    num_features: int = 1000,
    num_nonzeros: int = 20,
    l1: float = 0.1,
    correlation: float = 0.0,
    seed: int = 0,
    dtype: str = "float32",
) -> Problem:
    """Minimises F(beta) = |y - X beta|^2 / (2 n) + lambda |beta|_1; a task is a sweep over some features.

    A sample of this problem is a feature, so a worker owns features. A task goes through B features in turn.
    For feature j it minimises F over beta_j, with all other values as the task sees them:
    beta_j <- S(beta_j + <x_j, y - w>, n lambda), w = X beta, S(z, a) = sign(z) max(|z| - a, 0). The task
    pushes the changes of beta and of w, so that w equals X beta up to rounding under every schedule. Only w
    is sent over the network.

    X is normal with columns of norm 1; every two columns have the given correlation. y is X beta* + noise;
    the standard deviation of the noise is a tenth of that of X beta*. beta* has standard normal entries at
    `num_nonzeros` places. Parameters start at 0, whatever the random key.

    Tasks that run at the same time do not disturb each other as long as they have at most
    `dml.theory.parallel_coordinates(X)` features in total; far beyond that the training diverges.

    Args:
        num_samples: n, the rows of X, >= 2; 500 in the paper.
        num_features: d, the columns of X, >= 1; up to 400,000 in the paper. X takes 4 n d bytes.
        num_nonzeros: number of non-zero entries of beta*, from 0 to d.
        l1: lambda, as a fraction of the smallest lambda for which beta = 0 is optimal, in (0, 1].
        correlation: of every two features, in [0, 1).
        seed: of the generated data, >= 0.
        dtype: "float32", or "float64" if JAX has 64 bits enabled.

    Returns:
        The problem, to be trained with `optax.identity()`, or with `optax.scale` for other step sizes.
        Batches are columns of X, (B, n); parameters are `beta` (d,) and `w` (n,). Metrics: `loss`, which is
        F, and `nonzeros`, the number of non-zero entries of beta. scikit-learn computes `optimum` in float64,
        in 15 s and with 4 GB at the paper's size.

    Raises:
        ValueError: an argument is out of range.

    >>> problem = lasso(num_samples=50, num_features=20, num_nonzeros=3)
    >>> problem, problem.additive
    (Problem(lasso, 20 samples), True)

    Reference: Ho et al., NIPS 2013, section 5; the step: Bradley et al. 2011, algorithm 2.
    """
    num_nonzeros = checks.integer("num_nonzeros", num_nonzeros, low=0, high=num_features, why="num_features")
    if correlation == 1:
        checks.fail("correlation", correlation, "a number >= 0 and < 1")
    rng = np.random.default_rng(seed)
    kind: Any = dtype
    columns = rng.standard_normal((num_features, num_samples), kind)  # X transposed, a row per feature
    columns *= np.sqrt(1 - correlation)
    columns += np.sqrt(correlation) * rng.standard_normal(num_samples, kind)
    columns /= np.linalg.norm(columns, axis=1, keepdims=True)
    columns.flags.writeable = False  # not a copy: at the paper's size X is most of a gigabyte
    places = rng.choice(num_features, num_nonzeros, replace=False)
    exact = rng.normal(size=num_nonzeros) @ columns[places]
    y = frozen(rng.normal(exact, 0.1 * exact.std() or 1.0), dtype)
    penalty = l1 * float(np.abs(columns @ y).max()) / num_samples  # lambda

    def init(key: jax.Array) -> Params:
        return {"beta": jnp.zeros(num_features, dtype), "w": jnp.zeros(num_samples, dtype)}

    def update(view: Params, batch: Batch, key: jax.Array) -> Params:
        def step(residual: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            x, beta = row
            z = beta + x @ residual
            moved = jnp.sign(z) * jnp.maximum(jnp.abs(z) - num_samples * penalty, 0) - beta
            return residual - moved * x, moved

        _, moved = jax.lax.scan(step, y - view["w"], (batch, view["beta"]))
        return {"beta": moved, "w": moved @ batch}

    def evaluate(params: Params, y: jax.Array) -> dict[str, jax.Array]:
        penalised = penalty * jnp.abs(params["beta"]).sum()
        loss = ((y - params["w"]) ** 2).mean() / 2 + penalised
        return {"loss": loss, "nonzeros": (params["beta"] != 0).sum()}

    optimum = _optimum(columns, y, penalty)
    return Problem("lasso", init, columns, evaluate, y, optimum, update=update, local=("beta",))


def _optimum(columns: np.ndarray, y: np.ndarray, penalty: float) -> float:
    """Returns the minimum of F, as another solver finds it."""
    from sklearn.linear_model import Lasso

    x, y = columns.T.astype(float, order="F"), y.astype(float)
    found = Lasso(penalty, fit_intercept=False, tol=1e-8, max_iter=100_000).fit(x, y)
    return float(((y - x @ found.coef_) ** 2).mean() / 2 + penalty * np.abs(found.coef_).sum())
