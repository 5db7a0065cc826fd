"""A bound on the error of SGD on a strongly convex objective: geometric decay to a noise floor."""

import math
from typing import Any, NamedTuple, Self

import numpy as np

from dmlcore import checks


class Constants(NamedTuple):
    """The constants of a problem and a step that the bound needs.

    They are rarely known in practice, so a policy that uses them is an oracle.

    Args:
        learning_rate: the papers' eta, > 0.
        smoothness: L, the Lipschitz constant of the gradient, > 0.
        strong_convexity: c, > 0, with eta c < 1.
        gradient_variance: sigma^2, the variance of one sample's gradient, >= 0.

    >>> Constants(0.001, 2.0, strong_convexity=1.0, gradient_variance=10.0).smoothness
    2.0
    """

    learning_rate: float
    smoothness: float
    strong_convexity: float
    gradient_variance: float

    def checked(self) -> Self:
        """Checks the constants.

        Returns:
            The same constants.

        Raises:
            ValueError: a constant is out of range.

        >>> Constants(0.001, 2.0, 1.0, 10.0).checked().learning_rate
        0.001
        """
        for name, value in zip(self._fields[:3], self[:3], strict=True):
            checks.positive(name, value)
        checks.not_negative("gradient_variance", self.gradient_variance)
        if self.learning_rate * self.strong_convexity >= 1:
            expected = f"a number < {1 / self.strong_convexity:g} (1 / c)"
            checks.fail("learning_rate", self.learning_rate, expected)
        return self


def floor(constants: Constants, k: Any, batch_size: Any) -> Any:
    """Returns phi(k, b) = eta L sigma^2 / (2 c k b), the excess loss at which SGD on k b samples stops.

    Args:
        constants: of the problem and the step.
        k: number of workers that a round waits for, >= 1; an array or a number.
        batch_size: b, samples per task, >= 1; an array or a number.

    Returns:
        phi as an excess loss, an array in the common shape of `k` and `batch_size`.

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
    """Returns alpha = -ln(1 - eta c): each round multiplies the excess over the floor by e^-alpha.

    So after j rounds the bound is phi + (E_0 - phi) e^(-alpha j).

    Args:
        constants: of the problem and the step.

    Returns:
        alpha; its unit is 1 / rounds.

    Raises:
        ValueError: a constant is out of range.

    >>> round(decay(Constants(0.001, 2.0, 1.0, 10.0)), 9)
    0.0010005
    """
    constants.checked()
    return -math.log1p(-constants.learning_rate * constants.strong_convexity)
