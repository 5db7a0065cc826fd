"""When to wait for one worker more: the switching theorem of adaptive fastest-k SGD."""

from __future__ import annotations

import itertools
import math

import numpy as np

from dmlcore import checks
from dmlcore.theory.bound import Constants, decay, floor


def switching_times(
    round_seconds: np.ndarray, constants: Constants, batch_size: int, error: float
) -> np.ndarray:
    """Returns when to go from waiting for k workers to waiting for k + 1.

    t_k = t_(k-1) + mu_k / alpha (ln(mu_(k+1) - mu_k) - ln(eta L sigma^2 mu_k)
          + ln(2 c k (k + 1) s E_(k-1) - eta L (k + 1) sigma^2)),

    with t_0 = 0 and E_(k-1) the bound at t_(k-1). There the bound falls as fast with k as with k + 1. A
    switch that is due at once takes place at t_(k-1).

    Args:
        round_seconds: mu_1 to mu_n, seconds, (n,), rising.
        constants: of the problem and the step.
        batch_size: s, samples of a worker's task.
        error: E_0 = F(w_0) - F*.

    Returns:
        t_1 to t_(n-1), seconds, (n - 1,).

    Raises:
        ValueError: `round_seconds` does not rise, or a constant is out of range.

    >>> mu = np.cumsum(1 / np.arange(5, 0, -1)) / 5
    >>> switching_times(mu, Constants(0.001, 2.0, 1.0, 10.0), 10, 100.0).round(2)
    array([ 496.92,  621.62,  793.65, 1102.52])

    Reference: Kas Hanna, Bitar, Parag, Dasari and El Rouayheb 2020, theorem 1.
    """
    eta, smoothness, convexity, variance = constants.checked()
    noise, alpha, time, times = eta * smoothness * variance, decay(constants), 0.0, []
    if not (np.diff(round_seconds) > 0).all():
        checks.fail("round_seconds", np.asarray(round_seconds).tolist(), "seconds that rise with k")
    for k, (mu, longer) in enumerate(itertools.pairwise(round_seconds), start=1):
        left = 2 * convexity * k * (k + 1) * batch_size * error - noise * (k + 1)
        lasts = 0.0
        if left > 0 and noise > 0:
            lasts = mu / alpha * (math.log(longer - mu) - math.log(noise * mu) + math.log(left))
        elif noise == 0:
            lasts = math.inf  # without noise the fastest round is the best for good
        lasts = max(lasts, 0.0)
        end = floor(constants, k, batch_size)
        error = end + (error - end) * math.exp(-alpha * lasts / mu)
        time += lasts
        times.append(time)
    return np.array(times)
