"""Matrix factorization: vectors of users and items, with inner products that approximate the ratings."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from dmlcore import checks
from dmlcore.calls import memoised
from dmlcore.checks import at_least, one_of, real
from dmlcore.data import Ratings, movielens_small

from .problem import Batch, Params, Problem, floating, frozen


@memoised(
    num_users=at_least(1),
    num_items=at_least(1),
    rank=at_least(1),
    noise=partial(real, low=0, high=1e6),
    density=partial(real, above=0, high=1),
    l2=partial(real, low=0, high=1e6),
    seed=at_least(0),
    source=one_of("generated", "movielens"),
    dtype=floating,
)
def matrix_factorization(
    num_users: int = 200,
    num_items: int = 300,
    rank: int = 5,
    noise: float = 0.1,
    density: float = 0.2,
    l2: float = 0.0,
    seed: int = 0,
    source: str = "generated",
    dtype: str = "float32",
) -> Problem:
    """Low-rank factorization of observed ratings D_ij by squared loss.

    losses_(ij) = (<L_i, R_j> - D_ij)^2 + l2 (||L_i||^2 + ||R_j||^2), where a sample is one observed rating
    D_ij. A random tenth of the ratings is held out for the test. Parameters start uniform on [-a, a), with
    a^2 = 0.3 sd / sqrt(rank), so that the standard deviation of the predictions is a tenth of that of the
    ratings, sd. The paper has a = 1.

    Generated ratings are <L*_i, R*_j> / sqrt(rank) + noise z_ij with standard normal L*, R* and z, so that
    their variance is 1 + noise^2. The mean of the training ratings is subtracted from MovieLens ratings (610
    users, 9,724 items, 100,836 ratings).

    Args:
        num_users: number of users, >= 1; only for generated ratings.
        num_items: number of items, >= 1; only for generated ratings.
        rank: the paper's K, the length of the vectors and the true rank of generated ratings, >= 1.
        noise: standard deviation of the noise, >= 0; only for generated ratings.
        density: fraction of the entries that are observed, in (0, 1]; only for generated ratings.
        l2: the paper's lambda, weight of the penalty, >= 0.
        seed: of the generated ratings and of the split, >= 0.
        source: "generated" or "movielens".
        dtype: "float32", or "float64" if JAX has 64 bits enabled.

    Returns:
        The problem. Batches are dicts of `user`, `item` and `rating`, each (B,); parameters are `L`
        (num_users, rank) and `R` (num_items, rank). Metrics: `loss` on the training ratings (for l2 = 0 their
        mean squared error) and `test_rmse`, the root mean squared error on the held-out ratings.

    Raises:
        ValueError: an argument is out of range, or `source` does not use it.
        ConnectionError: the MovieLens data are missing and the download fails.

    >>> matrix_factorization()
    Problem(matrix_factorization, 10800 samples)

    Reference: Ho et al., NIPS 2013, section 5.
    """
    if source == "movielens":
        fixed = {"num_users": num_users, "num_items": num_items, "noise": noise, "density": density}
        for name, value in fixed.items():
            if value != inspect.signature(matrix_factorization).parameters[name].default:
                checks.fail(name, value, "its default (source='movielens' fixes it)")
    elif round(num_users * num_items * density) < 10:
        checks.fail("density", density, f"enough for 10 of {num_users * num_items} ratings")
    rng = np.random.default_rng(seed)
    if source == "movielens":
        ratings = movielens_small()
        num_users, num_items = (int(index.max()) + 1 for index in ratings[:2])
    else:
        ratings = _generate(rng, num_users, num_items, rank, noise, density)
    order = rng.permutation(len(ratings.rating))
    split = round(0.1 * len(order))
    centre = ratings.rating[order[split:]].mean() if source == "movielens" else 0.0

    def part(rows: np.ndarray) -> Batch:
        return {
            "user": frozen(ratings.user[rows], np.int32),
            "item": frozen(ratings.item[rows], np.int32),
            "rating": frozen(ratings.rating[rows] - centre, dtype),
        }

    train, test = part(order[split:]), part(order[:split])
    bound = float(np.sqrt(3 * 0.1 * train["rating"].std() / np.sqrt(rank)))

    def init(key: jax.Array) -> Params:
        left, right = jax.random.split(key)
        return {
            "L": jax.random.uniform(left, (num_users, rank), dtype, -bound, bound),
            "R": jax.random.uniform(right, (num_items, rank), dtype, -bound, bound),
        }

    def errors(params: Params, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """Returns the squared errors and the penalties of the batch, (B,) each."""
        users, items = params["L"][batch["user"]], params["R"][batch["item"]]
        return ((users * items).sum(-1) - batch["rating"]) ** 2, (users**2 + items**2).sum(-1)

    def losses(params: Params, batch: Batch) -> jax.Array:
        squared, penalty = errors(params, batch)
        return squared + l2 * penalty

    def evaluate(params: Params, eval_data: dict[str, Batch]) -> dict[str, jax.Array]:
        test_rmse = jnp.sqrt(errors(params, eval_data["test"])[0].mean())
        return {"loss": losses(params, eval_data["train"]).mean(), "test_rmse": test_rmse}

    both = {"train": train, "test": test}
    return Problem("matrix_factorization", init, train, evaluate, both, losses=losses)


def _generate(
    rng: np.random.Generator, num_users: int, num_items: int, rank: int, noise: float, density: float
) -> Ratings:
    """Returns ratings of low rank with noise, at random entries."""
    users, items = rng.normal(size=(num_users, rank)), rng.normal(size=(num_items, rank))
    count = round(num_users * num_items * density)
    user, item = np.divmod(rng.choice(num_users * num_items, count, replace=False), num_items)
    exact = (users[user] * items[item]).sum(-1) / np.sqrt(rank)
    return Ratings(user, item, rng.normal(exact, noise))
