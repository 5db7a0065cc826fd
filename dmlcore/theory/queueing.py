"""How many pushes a second a server takes from workers who compute in between: a closed queueing network."""

from __future__ import annotations

import numpy as np

from dmlcore import checks


def mean_value_analysis(num_workers: int, service: float, think: float) -> np.ndarray:
    """Returns the pushes a second of 1 to `num_workers` workers who do not wait for each other.

    Guarantee: exact where the server's time is exponential, first come, first served, and a worker is away
    for `think` seconds on average between pushes, whatever the distribution. With n workers a push takes
    R(n) = service * (1 + Q(n - 1)), since it finds the queue of n - 1 workers; X(n) = n / (R(n) + think)
    pushes are made a second, and Q(n) = X(n) R(n) are at the server.

    Args:
        num_workers: P, >= 1.
        service: mean seconds of a push at the server, > 0.
        think: mean seconds between the end of a push and the next, >= 0: computing and transfers.

    Returns:
        X(1) to X(P), shape (P,): at most n / (service + think) and 1 / service.

    Raises:
        ValueError: an argument is out of range.

    >>> mean_value_analysis(4, service=1.0, think=3.0).round(3)
    array([0.25 , 0.471, 0.654, 0.794])

    Source: Reiser and Lavenberg 1980.
    """
    num_workers = checks.integer("num_workers", num_workers, low=1)
    service, think = checks.positive("service", service), checks.not_negative("think", think)
    queue, found = 0.0, np.empty(num_workers)
    for workers in range(1, num_workers + 1):
        response = service * (1 + queue)
        found[workers - 1] = workers / (response + think)
        queue = found[workers - 1] * response
    return found
