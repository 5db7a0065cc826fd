"""Jitter: what the time of a task or a transfer is multiplied with, task by task."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dmlcore import checks
from dmlcore.calls import made, named

Quantile = Callable[[np.ndarray], np.ndarray]


class SizedJitter(NamedTuple):
    """Jitter that depends on how many samples a task has.

    >>> from scipy import stats
    >>> each_sample_its_own = SizedJitter("erlang", lambda b: stats.gamma(b, scale=1 / b).ppf)
    >>> [round(float(each_sample_its_own.quantile(b)(0.9)), 2) for b in (1, 10, 100)]
    [2.3, 1.42, 1.13]
    """

    name: str  # what clusters and traces call it
    quantile: Callable[[int], Quantile]  # samples of a task -> quantile function of multipliers with mean 1


class Law(NamedTuple):
    """A law with mean 1 that is known by name: `scipy.stats` has the same, and takes long to import.

    Args:
        name: the call that makes it.
        quantile: uniforms, and its arguments -> multipliers.
        arguments: of the law.
    """

    name: str
    quantile: Callable[..., np.ndarray]
    arguments: tuple[float, ...] = ()

    def ppf(self, uniform: np.ndarray) -> np.ndarray:
        """Returns quantiles, as a distribution of `scipy.stats` does."""
        return np.asarray(self.quantile(uniform, *self.arguments))


@named()
def exponential() -> Law:
    """The exponential law, density exp(-x): a tenth of the tasks take more than 2.3 times the mean."""
    return Law("", _exponential)


@named(bare=True, shape=functools.partial(checks.real, low=1e-3, high=1e6))
def gamma(shape: float) -> Law:
    """The gamma law of this shape k, variance 1 / k: the sum of k exponential stages where k is whole."""
    return Law("", _gamma, (shape,))


@named(bare=True, sigma=functools.partial(checks.real, above=0, high=5))
def lognormal(sigma: float) -> Law:
    """The law of exp(sigma z - sigma^2 / 2), z standard normal: the product of many small causes."""
    return Law("", _lognormal, (sigma,))


@named(bare=True, alpha=functools.partial(checks.real, above=1, high=1e6))
def pareto(alpha: float) -> Law:
    """The Pareto law, P(more than x) = (x_m / x)^alpha: up to alpha = 2 its variance is infinite."""
    return Law("", _pareto, (alpha,))


def _exponential(uniform: np.ndarray) -> np.ndarray:
    return -np.log1p(-uniform)


def _gamma(uniform: np.ndarray, shape: float) -> np.ndarray:
    from scipy.special import gammaincinv

    return np.asarray(gammaincinv(shape, uniform) / shape)


def _lognormal(uniform: np.ndarray, sigma: float) -> np.ndarray:
    from scipy.special import ndtri

    return np.asarray(np.exp(sigma * ndtri(uniform) - sigma**2 / 2))


def _pareto(uniform: np.ndarray, alpha: float) -> np.ndarray:
    return (alpha - 1) / alpha * (1 - uniform) ** (-1 / alpha)


LAWS: dict[str, Callable[..., Law]] = {
    make.__name__: make for make in (exponential, gamma, lognormal, pareto)
}


def resolve_jitter(name: str, jitter: Any) -> Any:
    """Returns a jitter, checked: None, a law by name, a distribution >= 0 with mean 1, or a callable.

    >>> resolve_jitter("jitter", "gamma(4)").name
    'gamma(4.0)'
    """
    if isinstance(jitter, str):
        return made(name, jitter, LAWS)
    _check_jitter(name, jitter)
    return jitter


def _check_jitter(name: str, jitter: Any) -> None:
    """Raises ValueError unless `jitter` is None, a non-negative distribution with mean 1, or a callable."""
    if (
        jitter is None
        or isinstance(jitter, Law | SizedJitter)
        or (callable(jitter) and not hasattr(jitter, "ppf"))
    ):
        return
    if callable(jitter) or not hasattr(jitter, "ppf"):  # a distribution that may be called is not frozen
        allowed = (
            "a law by name, such as 'exponential' or 'gamma(4)', a frozen scipy.stats distribution, such as "
            "stats.expon(), a quantile function, or None"
        )
        checks.fail(name, jitter, allowed)
    if jitter.support()[0] < 0:
        checks.fail(name, show_jitter(jitter), "a distribution of numbers >= 0")
    mean = float(jitter.mean())
    if not math.isclose(mean, 1.0, rel_tol=1e-6):
        checks.fail(name, f"{show_jitter(jitter)} with mean {mean:g}", "a distribution with mean 1")


def show_jitter(jitter: Any) -> str | None:
    """Returns how a distribution was made, such as `gamma(4, scale=0.25)`."""
    if jitter is None:
        return None
    if isinstance(jitter, SizedJitter | Law):
        return jitter.name
    if not hasattr(jitter, "dist"):
        return getattr(jitter, "__name__", type(jitter).__name__)
    arguments = [f"{v:g}" for v in jitter.args] + [f"{k}={v:g}" for k, v in jitter.kwds.items()]
    return f"{jitter.dist.name}({', '.join(arguments)})"


def quantile_function(jitter: Any) -> Quantile | None:
    """Returns the map from uniforms to multipliers, or None for no jitter."""
    return getattr(jitter, "ppf", jitter)
