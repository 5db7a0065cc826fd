"""Theorems about stale synchronous parallel: step sizes, a bound on the regret, a bound on late updates."""

import math

import numpy as np

from dmlcore import checks


def regret_rates(
    distance: float, lipschitz: float, staleness: int, num_workers: int, steps: int
) -> np.ndarray:
    """Returns the step sizes of theorem 1: eta_t = sigma / sqrt(t), sigma = F / (L sqrt(2 (s + 1) P)).

    Args:
        distance: the paper's F, with |x - x'|^2 / 2 <= F^2 for all points that are visited, > 0.
        lipschitz: the paper's L, the Lipschitz constant of every f_t, > 0.
        staleness: the paper's s, in clocks, >= 0.
        num_workers: the paper's P, >= 1.
        steps: the paper's T, the number of updates of all workers, >= 1.

    Returns:
        eta_1 to eta_T, shape (T,). Update t is that of worker (t - 1) mod P at clock (t - 1) // P.

    Raises:
        ValueError: an argument is out of range.

    >>> regret_rates(2.0, 1.0, staleness=1, num_workers=4, steps=4).round(4)
    array([0.5   , 0.3536, 0.2887, 0.25  ])

    Reference: Ho et al. 2013, theorem 1.
    """
    steps = checks.integer("steps", steps, low=1)
    sigma = distance / (lipschitz * math.sqrt(_doubled_window(distance, lipschitz, staleness, num_workers)))
    return sigma / np.sqrt(np.arange(1, steps + 1))


def regret_bound(distance: float, lipschitz: float, staleness: int, num_workers: int, steps: int) -> float:
    """Returns 4 F L sqrt(2 (s + 1) P T), a bound on the regret with the step sizes of `regret_rates`.

    Let f = f_1 + ... + f_T be a sum of convex functions with the minimum x*, and x_t the parameters that the
    t-th read returned. The regret sum_t (f_t(x_t) - f_t(x*)) is at most this bound. The bound is informative
    for T > 16 (s + 1) P.

    Args:
        distance, lipschitz, staleness, num_workers, steps: F, L, s, P and T, as for `regret_rates`.

    Returns:
        The bound, in the unit of f_t.

    Raises:
        ValueError: an argument is out of range.

    >>> regret_bound(2.0, 1.0, staleness=1, num_workers=4, steps=100)
    320.0

    Reference: Ho et al. 2013, theorem 1.
    """
    steps = checks.integer("steps", steps, low=1)
    window = _doubled_window(distance, lipschitz, staleness, num_workers)
    return 4 * distance * lipschitz * math.sqrt(window * steps)


def most_out_of_turn(staleness: int, num_workers: int) -> int:
    """Returns 2 s (P - 1), a bound on the updates by which a read differs from a sequential order.

    In the sequential order, updates come clock by clock, and worker by worker in each clock. A read may lack
    updates that come before it in this order, and may have updates that come after it; the bound is on both
    together. For s = 0, which is BSP, it is P - 1.

    Args:
        staleness: the paper's s, in clocks, >= 0.
        num_workers: the paper's P, >= 1.

    Returns:
        The number of updates.

    Raises:
        ValueError: an argument is out of range.

    >>> most_out_of_turn(3, 8), most_out_of_turn(0, 8)
    (42, 7)

    Reference: Ho et al. 2013, lemma 1.
    """
    staleness = checks.integer("staleness", staleness, low=0)
    return max(2 * staleness, 1) * (checks.integer("num_workers", num_workers, low=1) - 1)


def _doubled_window(distance: float, lipschitz: float, staleness: int, num_workers: int) -> int:
    """Checks all arguments and returns 2 (s + 1) P."""
    checks.real("distance", distance, above=0, high=1e150)
    checks.real("lipschitz", lipschitz, above=0, high=1e150)
    staleness = checks.integer("staleness", staleness, low=0)
    return 2 * (staleness + 1) * checks.integer("num_workers", num_workers, low=1)
