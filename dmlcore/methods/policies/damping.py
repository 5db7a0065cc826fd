"""Damping: the factors by which the weight of a stale gradient is reduced."""

from collections.abc import Callable

# tau, the updates between a worker's pull and the arrival of its push -> factor of the push's weight
DAMPING: dict[str, Callable[[int], float]] = {
    "none": lambda tau: 1.0,
    "inverse": lambda tau: 1 / (1 + tau),
    "reciprocal": lambda tau: 1 / max(tau, 1),
}


def polynomial(a: float) -> Callable[[int], float]:
    """Returns the function tau -> (1 + tau)^-a.

    >>> [polynomial(0.5)(tau) for tau in (0, 3)]
    [1.0, 0.5]
    """
    return lambda tau: (1 + tau) ** -a


def hinge(a: float, b: float) -> Callable[[int], float]:
    """Returns the function of tau that is 1 for tau <= b, and 1 / (1 + a (tau - b)) beyond.

    >>> [hinge(2, 4)(tau) for tau in (0, 4, 6)]
    [1.0, 1.0, 0.2]
    """
    return lambda tau: 1.0 if tau <= b else 1 / (1 + a * (tau - b))
