"""Lasso by parallel coordinate descent: workers minimise over features of their own."""

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
    """The least of F(beta) = |y - X beta|^2 / (2 n) + lambda |beta|_1, one task a sweep over some features.

    A sample is a feature, so a worker owns features. Its task goes through B of them in turn; for feature j
    it takes the least of F over beta_j in its view, with all else fixed:
    beta_j <- S(beta_j + <x_j, y - w>, n lambda), w = X beta, S(z, a) = sign(z) max(|z| - a, 0). It pushes the
    changes of beta and of w, so that w stays X beta up to rounding, whatever the schedule. Only w travels.

    X is normal, its columns of norm 1; any two of them have the correlation that is asked for. y is
    X beta* + noise, with a tenth of its standard deviation, and beta* has standard normal entries at
    `num_nonzeros` places. It starts from 0, whatever the key.

    Tasks that do not see each other do no harm up to `dml.theory.parallel_coordinates(X)` features at a time;
    far beyond, it diverges.

    Args:
        num_samples: n, >= 2; 500 in the paper.
        num_features: d, >= 1; up to 400,000 in the paper. X takes 4 n d bytes.
        num_nonzeros: of beta*, from 0 to d.
        l1: lambda, as a share of the least for which beta = 0 is optimal, in (0, 1].
        correlation: of any two features, in [0, 1).
        seed: of the generated data, >= 0.
        dtype: "float32", or "float64" where JAX has 64 bits switched on.

    Returns:
        The problem, to be trained with `optax.identity()`, or with `optax.scale` for other steps. Batches are
        columns of X, (B, n); parameters are `beta` (d,) and `w` (n,). Metrics: `loss`, which is F, and
        `nonzeros` of beta. `optimum` is scikit-learn's in float64: 15 s and 4 GB at the paper's size.

    Raises:
        ValueError: an argument outside its range.

    >>> problem = lasso(num_samples=50, num_features=20, num_nonzeros=3)
    >>> problem, problem.additive
    (Problem(lasso, 20 samples), True)

    Reference: Ho et al., NIPS 2013, section 5; the step: Bradley et al. 2011, algorithm 2.
    """
    num_nonzeros = checks.integer("num_nonzeros", num_nonzeros, low=0, high=num_features, why="the features")
    if correlation == 1:
        checks.fail("correlation", correlation, "a number >= 0 and < 1")
    rng = np.random.default_rng(seed)
    kind: Any = dtype
    columns = rng.standard_normal((num_features, num_samples), kind)  # X', a row for each feature
    columns *= np.sqrt(1 - correlation)
    columns += np.sqrt(correlation) * rng.standard_normal(num_samples, kind)
    columns /= np.linalg.norm(columns, axis=1, keepdims=True)
    columns.flags.writeable = False  # no copy: at the paper's size it is most of a gigabyte
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
    """The least F, by another solver."""
    from sklearn.linear_model import Lasso

    x, y = columns.T.astype(float, order="F"), y.astype(float)
    found = Lasso(penalty, fit_intercept=False, tol=1e-8, max_iter=100_000).fit(x, y)
    return float(((y - x @ found.coef_) ** 2).mean() / 2 + penalty * np.abs(found.coef_).sum())
