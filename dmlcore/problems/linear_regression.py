"""Linear regression on the generated data of Kas Hanna et al."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore.calls import memoised
from dmlcore.checks import at_least, boolean, real

from .problem import Batch, Params, Problem, floating, frozen


@memoised(
    num_samples=at_least(2),
    num_features=at_least(1),
    noise=partial(real, low=0, high=1e6),
    standardize=boolean,
    seed=at_least(0),
    dtype=floating,
)
def linear_regression(
    num_samples: int = 2000,
    num_features: int = 100,
    noise: float = 1.0,
    standardize: bool = False,
    seed: int = 0,
    dtype: str = "float32",
) -> Problem:
    """Least squares on generated data: losses_i = (<x_i, w> - y_i)^2 / 2.

    x is uniform on {1, ..., 10}^d, the true w is uniform on {1, ..., 100}^d, and y ~ N(<x, w>, noise^2). The
    factor 1/2 is intended: the published step size 5e-4 converges only with it, because the curvatures, the
    eigenvalues of x'x / N, go up to about 3,030 for d = 100. The smallest one is about 5, so the problem is
    badly conditioned unless it is standardised. Parameters start at zero, whatever the random key.

    Args:
        num_samples: N, the paper's m, >= 2.
        num_features: d, >= 1.
        noise: standard deviation of y given x, >= 0.
        standardize: True: scales every feature to mean 0 and variance 1 and centres y, which amounts to a
            regression with an intercept.
        seed: of the generated data, >= 0.
        dtype: "float32", or "float64" if JAX has 64 bits enabled.

    Returns:
        The problem; `optimum` is exact, computed by least squares in float64. Batches are dicts of `x` (B, d)
        and `y` (B,), parameters a dict of `weights` (d,). Metric: `loss` on all samples.

    Raises:
        ValueError: an argument is out of range.

    >>> round(linear_regression().optimum, 3)
    0.481

    Reference: Kas Hanna, Bitar, Parag, Dasari and El Rouayheb, ICASSP 2020, section 5.
    """
    rng = np.random.default_rng(seed)
    x = rng.integers(1, 10, (num_samples, num_features), endpoint=True).astype(float)
    y = rng.normal(x @ rng.integers(1, 100, num_features, endpoint=True), noise)
    if standardize:
        # A feature that is the same in all samples becomes 0.
        x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)
        y = y - y.mean()
    data = {"x": frozen(x, dtype), "y": frozen(y, dtype)}

    def init(key: jax.Array) -> Params:
        return {"weights": jnp.zeros(num_features, dtype)}

    def losses(params: Params, batch: Batch) -> jax.Array:
        return (batch["x"] @ params["weights"] - batch["y"]) ** 2 / 2

    def evaluate(params: Params, eval_data: Batch) -> dict[str, jax.Array]:
        return {"loss": losses(params, eval_data).mean()}

    # Computes the optimum from the data as rounded to `dtype`, because these define the problem.
    x, y = (data[name].astype(float) for name in "xy")
    residuals = x @ np.linalg.lstsq(x, y)[0] - y
    optimum = float((residuals**2).mean() / 2)
    return Problem("linear_regression", init, data, evaluate, data, optimum, losses=losses)
