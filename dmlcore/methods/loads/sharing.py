"""Functions that divide a total number of samples among workers by their speeds, within bounds."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from dmlcore import checks


def finish_together(
    speeds: Sequence[float], total: int, least: int, caps: Sequence[int], delays: Sequence[float]
) -> np.ndarray:
    """Returns shares (W,) clip(v_i (T - o_i), least, cap_i), for the T with which they sum to `total`.

    The sum does not fall as T grows, and it is linear between the times at which a worker reaches a bound. A
    bisection finds the interval between two such times, and T follows exactly. Arguments are as for
    `share_out`.

    >>> finish_together([100, 200, 400], 70, least=1, caps=[70, 70, 30], delays=[0, 0, 0])
    array([13.33333333, 26.66666667, 30.        ])
    """
    v, o, high = (np.asarray(each, float) for each in (speeds, delays, caps))
    o = o - o.min()
    times = np.sort(np.concatenate([o + least / v, o + high / v]))

    def shares(time: float) -> np.ndarray:
        return np.clip(v * (time - o), least, high)

    index = bisect_left(times, total, hi=len(times) - 1, key=lambda time: shares(time).sum())
    around = times[max(index - 1, 0) : index + 1]
    return shares(float(np.interp(total, [shares(time).sum() for time in around], around)))


def round_to_sum(shares: np.ndarray, total: int, least: int, caps: Sequence[int]) -> list[int]:
    """Rounds shares (W,) to whole numbers that sum to `total`: down, and up for the largest remainders.

    >>> round_to_sum(np.array([13.2, 26.5, 30.3]), 70, 1, [70, 70, 70])
    [13, 27, 30]
    """
    sizes = np.clip(np.floor(shares).astype(int), least, caps)
    while left := total - int(sizes.sum()):  # one pass changes a size by at most 1
        step, bound = (1, np.asarray(caps)) if left > 0 else (-1, np.full(len(sizes), least))
        order = np.argsort(step * (sizes - shares), kind="stable")
        sizes[order[(sizes != bound)[order]][: abs(left)]] += step
    return sizes.tolist()


def share_out(
    speeds: Sequence[float],
    total: int,
    *,
    least: int = 1,
    caps: Sequence[int] | None = None,
    delays: Sequence[float] | None = None,
) -> list[int]:
    """Divides samples among workers in proportion to speeds, or so that all finish at one time.

    Guarantees: the shares are whole numbers that sum to `total`; each is at least `least` and at most its
    cap.

    Args:
        speeds: v of each worker, shape (W,), samples/s, > 0. Without `delays` any weights serve.
        total: the number of samples to divide.
        least: the smallest share of a worker, in samples, >= 1.
        caps: the largest share of each worker, in samples, shape (W,). Default: None, no bound.
        delays: o of each worker, seconds in which it does not compute samples, shape (W,). Default: None, 0.

    Returns:
        The number of samples of each worker, W numbers.

    Raises:
        ValueError: no shares within the bounds sum to `total`.

    >>> share_out([100, 200, 400], 70)
    [10, 20, 40]
    >>> share_out([100, 200, 400], 70, delays=[0, 0, 0.1])
    [16, 31, 23]
    >>> share_out([100, 200, 400], 70, caps=[20, 20, 20])
    Traceback (most recent call last):
    ValueError: caps: expected room for the total batch of 70 samples, got [20, 20, 20], 60 in all
    """
    workers = len(speeds)
    if total < (needed := workers * least):
        checks.fail("total batch", total, f"at least {needed} ({least} for each of {workers} workers)")
    most = [total] * workers if caps is None else [min(cap, total) for cap in caps]
    for worker, cap in enumerate(most):
        if cap < least:
            checks.fail(f"caps[{worker}]", cap, f"a number >= {least} (the smallest batch)")
    if sum(most) < total:
        given = f"{[*(caps or most)]}, {sum(caps or most)} in all"
        checks.reject("caps", given, f"room for the total batch of {total} samples")
    shares = finish_together(speeds, total, least, most, [0.0] * workers if delays is None else delays)
    return round_to_sum(shares, total, least, most)
