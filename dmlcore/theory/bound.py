"""The error of SGD on a strongly convex objective, as a bound: geometric decay to a noise floor."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dmlcore import checks


class Constants(NamedTuple):
    """What the bound knows of a problem and a step. They are rarely known: what uses them is an oracle."""

    learning_rate: float  # eta, > 0
    smoothness: float  # L, the gradient's Lipschitz constant, > 0
    strong_convexity: float  # c, with eta c < 1, > 0
    gradient_variance: float  # sigma^2, of one sample's gradient, >= 0

    def checked(self) -> Constants:
        """Returns these constants; raises ValueError where one is out of range."""
        for name, value in zip(self._fields[:3], self[:3], strict=True):
            checks.positive(name, value)
        checks.not_negative("gradient_variance", self.gradient_variance)
        if self.learning_rate * self.strong_convexity >= 1:
            checks.fail(
                "learning_rate", self.learning_rate, f"< {1 / self.strong_convexity:g}, which is 1 / c"
            )
        return self


def floor(constants: Constants, k: Any, batch_size: Any) -> Any:
    """Returns phi(k, b) = eta L sigma^2 / (2 c k b), where the error of averages over k b samples ends.

    Args:
        constants: of the problem and the step.
        k: workers that are waited for, array or number.
        batch_size: b, samples of each, likewise.

    Returns:
        Excess loss, of their shape.

    Raises:
        ValueError: a constant or a number is out of range.

    >>> floor(Constants(0.001, 2.0, 1.0, 10.0), [1, 5], 10)
    array([0.001 , 0.0002])

    Reference: Bottou, Curtis and Nocedal 2018, theorem 4.6; Dutta et al. 2018, section 3.
    """
    eta, smoothness, convexity, variance = constants.checked()
    samples = np.asarray(k) * np.asarray(batch_size)
    if not (samples > 0).all():
        checks.fail("k, batch_size", (k, batch_size), "numbers > 0")
    return eta * smoothness * variance / (2 * convexity * samples)


def decay(constants: Constants) -> float:
    """Returns alpha = -ln(1 - eta c): each round, what exceeds the floor shrinks by e^-alpha.

    So after j rounds the bound is phi + (E_0 - phi) e^(-alpha j).

    >>> round(decay(Constants(0.001, 2.0, 1.0, 10.0)), 9)
    0.0010005
    """
    constants.checked()
    return -math.log1p(-constants.learning_rate * constants.strong_convexity)
