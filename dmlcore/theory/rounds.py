"""The mean time of a round that waits for the k fastest of n workers, and the speed-up of a round by H-PS."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from dmlcore import checks
from dmlcore.theory.response import Response


def kth_of(survival: Callable[[float], float], n: int, scale: float) -> np.ndarray:
    """Returns the means of all order statistics of n independent copies of a time.

    mu_k is the integral over t of P(fewer than k of n are over at t). This probability is the regularised
    incomplete beta function I_S(t)(n - k + 1, k), with S(t) = P(Z > t). The integral is computed by
    quadrature, because the alternating sums of the closed form lose all digits from n = 50 on.

    Args:
        survival: t in seconds -> P(Z > t).
        n: number of copies, >= 1.
        scale: a typical time in seconds, such as the mean.

    Returns:
        mu_1 to mu_n in seconds, shape (W,) for W = n copies.

    Raises:
        ValueError: `n` is not a whole number >= 1, or P(Z > t) does not fall to 0.

    >>> import math
    >>> kth_of(lambda t: math.exp(-2 * t), 3, scale=0.5).round(6)   # (H_3 - H_(3 - k)) / 2
    array([0.166667, 0.416667, 0.916667])

    Reference: David and Nagaraja 2003, "Order statistics", section 3.1.
    """
    n = checks.integer("n", n, low=1)
    k = np.arange(1, n + 1)
    end = scale
    while n * survival(end) > 1e-14:  # bounds P(some copy is not over)
        end *= 2
        if end > 1e12 * scale:
            checks.reject("survival", f"{survival(end):g} at t = {end:g} s", "a function that falls to 0")

    def unfinished(t: float) -> np.ndarray:
        return scipy.special.betainc(n - k + 1, k, survival(t))

    points = scale / n, scale
    return scipy.integrate.quad_vec(unfinished, 0.0, end, epsrel=1e-9, norm="max", points=points)[0]


def mean_round(response: Response, n: int, batch_sizes: Sequence[int]) -> np.ndarray:
    """Returns mu(k, b), the mean time of a round that waits for the k fastest of n tasks of b samples.

    Args:
        response: law of a worker's response time.
        n: number of workers, >= 1.
        batch_sizes: the values of b, samples per task, each >= 1.

    Returns:
        Mean times in seconds, shape (W, B) for W = n workers and B batch sizes; row k - 1 is for k.

    Raises:
        ValueError: a number is out of range.

    >>> from dmlcore.theory import exponential
    >>> mean_round(exponential(float("inf"), 4.0), 2, [1, 2]).round(6)
    array([[0.125, 0.25 ],
           [0.375, 0.75 ]])

    Reference: Egger, Kas Hanna and Bitar 2023, section III.
    """
    if not len(batch_sizes):
        checks.fail("batch_sizes", batch_sizes, "at least one batch size")
    sizes = [checks.integer("batch_sizes", b, low=1) for b in batch_sizes]

    def column(b: int) -> np.ndarray:
        return kth_of(lambda t: float(response.survival(t, b)), n, response.mean(b))

    return np.stack([column(b) for b in sizes], axis=1)


def round_speedup(uneven: npt.ArrayLike, communication: npt.ArrayLike, bits: float) -> Any:
    """Returns the speed-up of a round of H-PS over a round of BSP, without jitter.

    The unit of time is the computing time with a balanced load. A round of BSP takes h + c: the computing
    time of the slowest worker, and then both transfers. H-PS balances the load, and overlaps computing with
    transfers that take c k / 32, so its round takes max(1, c k / 32).

    Args:
        uneven: h, the mean speed of the workers divided by the lowest speed, >= 1; a number or an array of
            shape (...).
        communication: c, the time of both transfers at 32 bits per value, divided by the computing time with
            a balanced load, >= 0; a number or an array of a shape (...) that broadcasts with that of h.
        bits: k, bits per value of a transfer, > 0.

    Returns:
        (h + c) / max(1, c k / 32), in the common shape of h and c.

    Raises:
        ValueError: an argument is out of range.

    >>> round(float(round_speedup(1.2, 0.2, 8)), 6), float(round_speedup(2.5, 1.0, 16))
    (1.4, 3.5)

    Reference: a model of the three mechanisms that the abstract of Xian et al. 2024 (H-PS) names.
    """
    h, c = np.asarray(uneven, float), np.asarray(communication, float)
    checks.real("bits", bits, above=0)
    if not (h >= 1).all():
        checks.fail("uneven", uneven, "numbers >= 1")
    if not ((c >= 0) & (c < np.inf)).all():
        checks.fail("communication", communication, "finite numbers >= 0")
    return (h + c) / np.maximum(1, c * bits / 32)
