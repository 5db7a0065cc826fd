"""Jitter: random multipliers of the times of tasks and transfers."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy

from dmlcore import checks
from dmlcore.calls import made, named

Quantile = Callable[[np.ndarray], np.ndarray]


class SizedJitter(NamedTuple):
    """Jitter whose distribution depends on the number of samples of a task.

    Args:
        name: the name that clusters and traces show.
        quantile: function of the samples of a task; returns the quantile function of multipliers with mean 1.

    >>> from scipy import stats
    >>> each_sample_its_own = SizedJitter("erlang", lambda b: stats.gamma(b, scale=1 / b).ppf)
    >>> [round(float(each_sample_its_own.quantile(b)(0.9)), 2) for b in (1, 10, 100)]
    [2.3, 1.42, 1.13]
    """

    name: str
    quantile: Callable[[int], Quantile]


QUANTILES: dict[str, Callable[..., Any]] = {  # of a `Law`: uniforms and its arguments -> multipliers
    "exponential": lambda uniform: -np.log1p(-uniform),
    "gamma": lambda uniform, shape: scipy.special.gammaincinv(shape, uniform) / shape,
    "lognormal": lambda uniform, sigma: np.exp(sigma * scipy.special.ndtri(uniform) - sigma**2 / 2),
    "pareto": lambda uniform, alpha: (alpha - 1) / alpha * (1 - uniform) ** (-1 / alpha),
}


class Law(NamedTuple):
    """A distribution with mean 1 that is known by name.

    `scipy.stats` has the same distributions, but takes long to import.

    Args:
        name: the call that makes it.
        kind: its entry in `QUANTILES`.
        arguments: parameters of the distribution.
    """

    name: str
    kind: str
    arguments: tuple[float, ...] = ()

    def ppf(self, uniform: np.ndarray) -> np.ndarray:
        """Returns the quantiles at `uniform`, like the method of a `scipy.stats` distribution."""
        return np.asarray(QUANTILES[self.kind](uniform, *self.arguments))


@named()
def exponential() -> Law:
    """The exponential distribution, density exp(-x): 10% of the tasks take more than 2.3 times the mean."""
    return Law("", "exponential")


@named(bare=True, shape=functools.partial(checks.real, low=1e-3, high=1e6))
def gamma(shape: float) -> Law:
    """The gamma distribution of shape k, variance 1 / k; for a whole k, the sum of k exponential stages."""
    return Law("", "gamma", (shape,))


@named(bare=True, sigma=functools.partial(checks.real, above=0, high=5))
def lognormal(sigma: float) -> Law:
    """The distribution of exp(sigma z - sigma^2 / 2), z standard normal: a product of many small causes."""
    return Law("", "lognormal", (sigma,))


@named(bare=True, alpha=functools.partial(checks.real, above=1, high=1e6))
def pareto(alpha: float) -> Law:
    """The Pareto distribution, P(X > x) = (x_m / x)^alpha; its variance is infinite for alpha <= 2."""
    return Law("", "pareto", (alpha,))


LAWS: dict[str, Callable[..., Law]] = {
    make.__name__: make for make in (exponential, gamma, lognormal, pareto)
}


def resolve_jitter(name: str, jitter: Any) -> Any:
    """Returns a jitter, checked: None, the name of a distribution, a distribution, or a quantile function.

    A distribution must be >= 0 and have mean 1.

    >>> resolve_jitter("jitter", "gamma(4)").name
    'gamma(4.0)'
    """
    if isinstance(jitter, str):
        return made(name, jitter, LAWS)
    law = hasattr(jitter, "ppf")
    if jitter is None or isinstance(jitter, Law | SizedJitter) or (callable(jitter) and not law):
        return jitter
    if callable(jitter) or not law:  # a distribution that may be called is not frozen
        expected = (
            "a law by name, such as 'exponential' or 'gamma(4)', a frozen scipy.stats distribution, such as "
            "stats.expon(), a quantile function, or None"
        )
        checks.fail(name, jitter, expected)
    if jitter.support()[0] < 0:
        checks.reject(name, str(show_jitter(jitter)), "a distribution of numbers >= 0")
    mean = float(jitter.mean())
    if not math.isclose(mean, 1.0, rel_tol=1e-6):
        checks.reject(name, f"{show_jitter(jitter)} with mean {mean:g}", "a distribution with mean 1")
    return jitter


def show_jitter(jitter: Any) -> str | None:
    """Returns the call that makes a distribution, such as `gamma(4, scale=0.25)`."""
    if jitter is None:
        return None
    if isinstance(jitter, SizedJitter | Law):
        return jitter.name
    if not hasattr(jitter, "dist"):
        return getattr(jitter, "__name__", type(jitter).__name__)
    arguments = [f"{v:g}" for v in jitter.args] + [f"{k}={v:g}" for k, v in jitter.kwds.items()]
    return f"{jitter.dist.name}({', '.join(arguments)})"


def quantile_function(jitter: Any) -> Quantile | None:
    """Returns the function from uniforms to multipliers, or None for no jitter."""
    return getattr(jitter, "ppf", jitter)
