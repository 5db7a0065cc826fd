"""The one rule that says which of two methods is faster, and whether a claim holds."""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from dmlcore import checks
from dmlcore.calls import checked

LEVEL = 0.05  # methods of which neither is known to be slower than by this are level
LOOK = 0.01  # probability that the interval of one look misses the median; at five looks at most 0.05
END = checks.or_none(checks.real)  # check of an end of a range
LOOKS = 8, 16, 32, 64, 128  # numbers of seeds at which comparisons look; 8 are the fewest with an interval


class Ratio(NamedTuple):
    """The median of paired samples, how well it is known, and what that decides.

    Args:
        median: of the pairs; NaN without pairs.
        low: lower end of the interval of the median; -inf: too few pairs.
        high: upper end; inf: too few pairs, or too many that are inf.
        seeds: number of pairs.
        outcome: "faster", "slower" or "level" of two methods; "holds" or "fails" of a range; or "undecided".
        unpaired: number of seeds that are no pair, because neither method reached the target.

    >>> print(Ratio(1.07, 1.04, 1.09, 16, "slower"))
    7% slower (between 4% and 9% slower; 16 seeds)
    >>> print(Ratio(0.99, 0.94, 1.04, 128, "undecided"))
    undecided: between 6% faster and 4% slower (128 seeds)
    """

    median: float
    low: float
    high: float
    seeds: int
    outcome: str
    unpaired: int = 0

    def __str__(self) -> str:
        lost = f", and {self.unpaired} on which neither reached the target" if self.unpaired else ""
        seeds = f"{self.seeds} seed{'s' * (self.seeds != 1)}{lost}"
        if self.outcome in ("holds", "fails"):
            between = f"between {self.low:.3g} and {self.high:.3g}"
            return f"{self.outcome}: {self.median:.3g} ({between}; {seeds})"
        known = _between(self.low, self.high)
        if self.outcome == "undecided":
            return f"undecided: {known} ({seeds})"
        return f"{'level' if self.outcome == 'level' else times(self.median)} ({known}; {seeds})"


@checked(samples=partial(checks.array, nan=True), low=END, high=END)
def decide(samples: npt.ArrayLike, low: float | None = None, high: float | None = None) -> Ratio:
    """Decides by the interval of the samples' median whether it is in a range, or which method is faster.

    The interval has a coverage of at least 99% for samples of any distribution, because it consists of order
    statistics: of 8 samples the least and the largest, of 16 the third from either end, of 32 the ninth, of
    64 the 22nd, of 128 the 49th. A comparison that looks after 8, 16, 32, 64 and 128 seeds, and stops when it
    is decided, is wrong with a probability of at most 5%.

    Args:
        samples: one per seed, shape (S,): times of a method over those of another one with the same seed, or
            what a range is about. inf: only the other method reached the target; NaN: neither did.
        low: lower end of a range, which belongs to it. Default: None, no such end.
        high: upper end. Default: None. Without both the samples are ratios of two methods.

    Returns:
        Median, interval and outcome. Of a range: "holds" if the interval is inside, "fails" if it is outside.
        Of two methods: "faster" or "slower" if it is below or above 1, and "level" if it is within 5% of 1.
        Otherwise "undecided", as always with fewer than 8 pairs.

    Raises:
        ValueError: a sample is not a number, or `low` is above `high`.

    >>> decide([1.2, 1.1, 1.3, 1.2, 1.4, 1.1, 1.2, float("inf")])
    Ratio(median=1.2, low=1.1, high=inf, seeds=8, outcome='slower', unpaired=0)
    >>> decide([1.2, 1.1, 1.3, 1.2, 1.4, 1.1, 1.2, 1.3], low=1.0, high=1.5).outcome
    'holds'

    Source: Conover 1999, "Practical Nonparametric Statistics", section 3.2, by `scipy.stats.quantile_test`.
    """
    if low is not None and high is not None and low > high:
        checks.reject("low", f"{low:g}, above high = {high:g}", "at most high")
    given = np.asarray(samples, float)
    values = given[~np.isnan(given)]
    middle, least, most = float(np.median(values)) if len(values) else math.nan, -math.inf, math.inf
    if len(values) >= LOOKS[0]:
        least, most = map(float, scipy.stats.quantile_test(values, q=0, p=0.5).confidence_interval(1 - LOOK))
    known = {"slower": least > 1, "faster": most < 1, "level": least >= 1 / (1 + LEVEL) and most <= 1 + LEVEL}
    if low is not None or high is not None:
        bottom, top = -math.inf if low is None else low, math.inf if high is None else high
        inside = bottom <= least and most <= top and len(values) >= LOOKS[0]
        known = {"holds": inside, "fails": least > top or most < bottom}
    outcome = next((name for name, holds in known.items() if holds), "undecided")
    return Ratio(middle, least, most, len(values), outcome, len(given) - len(values))


def times(ratio: float) -> str:
    """Returns how much slower or faster a ratio of times is, in words.

    >>> [times(ratio) for ratio in (1.07, 0.9, 2.5, 0.25, 1.0)]
    ['7% slower', '10% faster', '2.5 times as long', '4 times as fast', 'as fast']
    >>> times(math.inf)
    'not at the target in time'
    """
    if math.isinf(ratio):
        return "not at the target in time"
    if ratio <= 0:
        return "alone at the target"
    if 0.5 < ratio < 2:
        share = round(100 * abs(ratio - 1), 0 if abs(ratio - 1) >= 0.01 else 1)
        return f"{share:g}% {'slower' if ratio > 1 else 'faster'}" if share else "as fast"
    return f"{ratio:.3g} times as long" if ratio > 1 else f"{1 / ratio:.3g} times as fast"


def _between(low: float, high: float) -> str:
    if low == -math.inf:
        return f"fewer than {LOOKS[0]} seeds decide nothing"
    if low == high:
        return times(low)
    if high == math.inf and low > 1:
        return f"at least {times(low)}"
    first, last = map(times, (high, low) if high < 1 else (low, high))
    words = " slower", " faster", " times as long", " times as fast"
    shared = next(filter(last.endswith, words), "")
    return f"between {first.removesuffix(shared)} and {last}"
