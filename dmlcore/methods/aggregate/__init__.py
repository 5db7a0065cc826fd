"""Aggregates: how the pushes of one update are made into one gradient.

`Aggregate` says what becomes of the weights that a policy gives to pushes. JAX is imported once gradients are
made, since timelines do without.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from dmlcore import calls, checks
from dmlcore.calls import memoised
from dmlcore.types import Aggregate

__all__ = ["AGGREGATES", "Aggregate", "clipped", "mean", "median", "resolve", "trimmed_mean"]


@memoised()
def mean() -> Aggregate:
    """The weighted sum of the pushes, with the weights that the policy gives: the default.

    Most policies that wait for several pushes give weights that sum to 1. In lock-step replay computes one
    gradient of all tasks of an update; the other aggregates need the gradient of each.

    >>> mean()
    mean()
    """
    return Aggregate("mean()")


@memoised()
def median() -> Aggregate:
    """Coordinate-wise median: each number of the update is the median of that number over the pushes.

    Guarantees: permuting the pushes changes no bit but the sign of a zero; of one push it is that push. As
    long as fewer than half of the pushes are arbitrary, infinite or NaN included, every number stays between
    two that others pushed.

    Of an even number of pushes it is the mean of the two in the middle. The update is the sum of the weights
    times the median: a push is one vote, whatever its samples or its age, see `Aggregate`.
    Where workers own different data it leans to what most of them have in common, also if all are honest.

    >>> median()
    median()

    Reference: Yin, Chen, Ramchandran and Bartlett 2018, "Byzantine-robust distributed learning: towards
    optimal statistical rates", definition 1 and algorithm 1, option I.
    """

    def reduce(pushes: Any, present: Any) -> Any:
        from dmlcore.methods.aggregate import places

        return places.median(pushes, present)

    return Aggregate("median()", reduce=reduce)


@memoised(fraction=functools.partial(checks.real, low=0, below=0.5))
def trimmed_mean(fraction: float) -> Aggregate:
    """Coordinate-wise trimmed mean: the least and the largest values of each number are left out.

    Of m pushes floor(fraction m) are left out at either end, for each number apart, and the mean of the
    others is taken; a fraction that is k / m but for rounding, 1 in 10^6, leaves out k. The update is the sum
    of the weights times that mean, see `Aggregate`.

    Guarantees: permuting the pushes changes no bit. As long as at most floor(fraction m) pushes are
    arbitrary, infinite or NaN included, every number stays between two that others pushed.
    `trimmed_mean(0)` is `mean()` up to rounding where all weights of an update are equal.

    Args:
        fraction: the paper's beta, >= 0 and < 0.5.

    Raises:
        ValueError: `fraction` is out of range.

    >>> trimmed_mean(0.1)
    trimmed_mean(0.1)

    Reference: Yin, Chen, Ramchandran and Bartlett 2018, "Byzantine-robust distributed learning: towards
    optimal statistical rates", definition 2 and algorithm 1, option II.
    """

    def reduce(pushes: Any, present: Any) -> Any:
        from dmlcore.methods.aggregate import places

        return places.trimmed_mean(fraction, pushes, present)

    return Aggregate(f"trimmed_mean({fraction})", reduce=reduce)


@memoised(c=functools.partial(checks.real, above=0))
def clipped(c: float) -> Aggregate:
    """Clipped mean: the weighted sum of the pushes, each scaled down to norm `c` where it is longer.

    A push g counts as min(1, c / ||g||) g, with the Euclidean norm of all its numbers. It is clipped as it
    arrives: decoded and compensated. With local steps it is a difference of parameters that is clipped.

    Guarantees: an update is no longer than c times the sum of its weights, up to rounding. A push within the
    bound keeps its bits. `clipped(math.inf)` is `mean()`. What is not finite does not become finite.

    Args:
        c: the largest norm, > 0, or `math.inf`.

    Raises:
        ValueError: `c` is out of range.

    >>> clipped(1)
    clipped(1.0)

    Reference: Koloskova, Hendrikx and Stich 2023, "Revisiting gradient clipping: stochastic bias and tight
    convergence guarantees", on the operator; it is the centred clipping of Karimireddy, He and Jaggi 2021,
    "Learning from history for Byzantine robust optimization", about 0.
    """
    if c == math.inf:
        return mean()

    def each(push: Any) -> Any:
        from dmlcore.methods.aggregate import places

        return places.clip(c, push)

    return Aggregate(f"clipped({c})", each=each)


AGGREGATES: dict[str, Callable[..., Aggregate]] = {
    rule.__name__: rule for rule in (mean, median, trimmed_mean, clipped)
}


def resolve(aggregate: Aggregate | str | None) -> Aggregate:
    """Returns an aggregate from an object, the call or name that makes it, or None (`mean`).

    Guarantee: `resolve(aggregate.name) is aggregate` for those of this package.

    Raises:
        ValueError: it is no such call, or an argument is wrong.

    >>> resolve("clipped(0.5)") is clipped(0.5)
    True
    >>> resolve("trimmed_mean(0.5)")
    Traceback (most recent call last):
    ValueError: fraction: got 0.5, allowed is a number >= 0 and < 0.5
    """
    if aggregate is None or isinstance(aggregate, Aggregate):
        return aggregate or mean()
    if isinstance(aggregate, str):
        return calls.made("aggregate", aggregate, AGGREGATES)
    calling = ", ".join(AGGREGATES)
    hint = "; was it called?" if callable(aggregate) else ""
    return checks.fail("aggregate", aggregate, f"an Aggregate, or a call of {calling} as text{hint}")
