"""How much less a stale gradient counts."""

from collections.abc import Callable

# tau, the updates made since the gradient's worker pulled -> factor of its weight
DAMPING: dict[str, Callable[[int], float]] = {
    "none": lambda tau: 1.0,
    "inverse": lambda tau: 1 / (1 + tau),
    "reciprocal": lambda tau: 1 / max(tau, 1),
}
