"""Jitter: what the time of a task or a transfer is multiplied with, task by task."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dmlcore import checks

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


def check_jitter(name: str, jitter: Any) -> None:
    """Raises ValueError unless `jitter` is None, a non-negative distribution with mean 1, or a callable."""
    if jitter is None or isinstance(jitter, SizedJitter) or (callable(jitter) and not hasattr(jitter, "ppf")):
        return
    if callable(jitter) or not hasattr(jitter, "ppf"):  # a distribution that may be called is not frozen
        allowed = "a frozen scipy.stats distribution, such as stats.expon(), a quantile function, or None"
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
    if isinstance(jitter, SizedJitter):
        return jitter.name
    if not hasattr(jitter, "dist"):
        return getattr(jitter, "__name__", type(jitter).__name__)
    arguments = [f"{v:g}" for v in jitter.args] + [f"{k}={v:g}" for k, v in jitter.kwds.items()]
    return f"{jitter.dist.name}({', '.join(arguments)})"


def quantile_function(jitter: Any) -> Quantile | None:
    """Returns the map from uniforms to multipliers, or None for no jitter."""
    return getattr(jitter, "ppf", jitter)
