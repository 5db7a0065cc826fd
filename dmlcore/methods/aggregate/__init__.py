"""Aggregates: how the server combines the pushes of one update into one gradient.

The docstring of `Aggregate` says how the weights of a policy enter. Factories other than
`mean` import JAX when they are called.
"""

import functools
import math
from collections.abc import Callable

from dmlcore import calls, checks
from dmlcore.calls import named
from dmlcore.types import Aggregate

__all__ = ["AGGREGATES", "Aggregate", "clipped", "mean", "median", "resolve", "trimmed_mean"]


@named(same=True)
def mean() -> Aggregate:
    """The weighted sum of the pushes, with the weights that the policy gives: the default.

    Most policies that wait for several pushes give weights that sum to 1. With this aggregate, replay of a
    lock-step policy computes one gradient for all tasks of an update; the other aggregates need the gradient
    of each task.

    Returns:
        The aggregate.

    >>> mean()
    mean()
    """
    return Aggregate("")


@named(same=True)
def median() -> Aggregate:
    """Coordinate-wise median: each number of the update is the median of that number over the pushes.

    Guarantees: the order of the pushes changes no bit except the sign of a zero; the median of one push is
    that push. If fewer than half of the pushes have arbitrary values, including infinities and NaN, every
    number stays between two numbers that the other workers pushed.

    With an even number of pushes, each number is the mean of the two middle values. The update is the sum of
    the weights times the median: every push counts once, whatever its number of samples or its staleness, see
    `Aggregate`. If workers have different data, the median is biased towards what most of them have in
    common, even if no push is faulty.

    Returns:
        The aggregate.

    >>> median()
    median()

    Reference: Yin, Chen, Ramchandran and Bartlett 2018, "Byzantine-robust distributed learning: towards
    optimal statistical rates", definition 1 and algorithm 1, option I.
    """
    from dmlcore.methods.aggregate import places

    return Aggregate("", reduce=places.median)


@named(same=True, bare=True, fraction=functools.partial(checks.real, low=0, below=0.5))
def trimmed_mean(fraction: float) -> Aggregate:
    """Coordinate-wise trimmed mean: leaves out the smallest and the largest values of each number.

    For each number of the update it leaves out the floor(fraction m) smallest and as many of the largest
    values of m pushes, and takes the mean of the others. If `fraction` is k / m up to a relative rounding
    error of 10^-6, it leaves out k. The update is the sum of the weights times that mean, see `Aggregate`.

    Guarantees: the order of the pushes changes no bit. If at most floor(fraction m) pushes have arbitrary
    values, including infinities and NaN, every number stays between two numbers that the other workers
    pushed. `trimmed_mean(0)` is `mean()` up to rounding if all weights of an update are equal.

    Args:
        fraction: the paper's beta, >= 0 and < 0.5.

    Returns:
        The aggregate.

    Raises:
        ValueError: `fraction` is out of range.

    >>> trimmed_mean(0.1)
    trimmed_mean(0.1)

    Reference: Yin, Chen, Ramchandran and Bartlett 2018, "Byzantine-robust distributed learning: towards
    optimal statistical rates", definition 2 and algorithm 1, option II.
    """
    from dmlcore.methods.aggregate import places

    return Aggregate("", reduce=functools.partial(places.trimmed_mean, fraction))


@named(same=True, bare=True, c=functools.partial(checks.real, above=0))
def clipped(c: float) -> Aggregate:
    """Clipped mean: the weighted sum of the pushes, each scaled down to norm `c` if its norm is larger.

    A push g enters as min(1, c / ||g||) g, with the Euclidean norm over all D parameters. Clipping happens
    at the server, after decoding and compensation. With local steps, the push that is clipped is a difference
    of parameters. An optimizer whose updates do not depend on the scale of gradients, such as Adam, undoes
    the clipping of an update with one push; the run says so once.

    Guarantees: the norm of the gradient of an update is at most c times the sum of its weights, up to
    rounding. A push with a norm of at most c keeps its bits. `clipped(math.inf)` is `mean()`. Infinities and
    NaN stay non-finite.

    Args:
        c: the largest norm of a push, in the unit of the gradients, > 0, or `math.inf`.

    Returns:
        The aggregate.

    Raises:
        ValueError: `c` is out of range.

    >>> clipped(1)
    clipped(1.0)

    Reference: Koloskova, Hendrikx and Stich 2023, "Revisiting gradient clipping: stochastic bias and tight
    convergence guarantees", for the clipping operator. It is also the centred clipping of Karimireddy, He and
    Jaggi 2021, "Learning from history for Byzantine robust optimization", with the centre 0.
    """
    from dmlcore.methods.aggregate import places

    return mean() if c == math.inf else Aggregate("", each=functools.partial(places.clip, c))


AGGREGATES: dict[str, Callable[..., Aggregate]] = {
    rule.__name__: rule for rule in (mean, median, trimmed_mean, clipped)
}


def resolve(aggregate: Aggregate | str | None) -> Aggregate:
    """Returns an aggregate from an object, the call or name that makes it, or None.

    Guarantees: `resolve(aggregate.name) is aggregate` for the aggregates of this package.

    Args:
        aggregate: an aggregate; or the call that makes it, or its bare name, as a string. None: `mean()`.

    Returns:
        The aggregate.

    Raises:
        ValueError: the string is not such a call, or an argument in it is wrong.

    >>> resolve("clipped(0.5)") is clipped(0.5)
    True
    >>> resolve("trimmed_mean(0.5)")
    Traceback (most recent call last):
    ValueError: fraction: expected a number >= 0 and < 0.5, got 0.5
    """
    if aggregate is None or isinstance(aggregate, Aggregate):
        return aggregate or mean()
    if isinstance(aggregate, str):
        return calls.made("aggregate", aggregate, AGGREGATES)
    expected = f"an Aggregate, or a call as text of one of {', '.join(AGGREGATES)}"
    return checks.fail("aggregate", aggregate, expected, checks.calling(aggregate))
