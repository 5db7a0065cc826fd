"""The throughput of a server whose workers compute between pushes, as a closed queueing network."""

import numpy as np

from dmlcore import checks


def mean_value_analysis(num_workers: int, service: float, think: float) -> np.ndarray:
    """Returns the pushes per second of 1 to `num_workers` workers that do not wait for each other.

    Guarantees: exact if the service times are exponential, the server handles pushes in the order of their
    arrival, and the mean time between the end of a push and a worker's next push is `think` seconds, with any
    distribution. With n workers a push takes R(n) = service * (1 + Q(n - 1)) seconds, because it finds the
    queue of n - 1 workers. The throughput is X(n) = n / (R(n) + think) pushes/s, and on average
    Q(n) = X(n) R(n) pushes are at the server.

    Args:
        num_workers: P, >= 1.
        service: mean seconds that the server needs for a push, > 0.
        think: mean seconds between the end of a worker's push and its next push, >= 0: computing and
            transfers.

    Returns:
        X(1) to X(P) in pushes/s, shape (P,). X(n) is at most n / (service + think), and at most 1 / service.

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
