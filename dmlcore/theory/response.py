"""Laws of a worker's response time: Z(b) = X + Y(b), the communication and the computation of b samples.

X is exponential. The mean of Y(b) is proportional to b, and its laws are those of the straggler literature.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy

from dmlcore import checks, notebook


class Response(NamedTuple):
    """The law of Z(b), in seconds.

    Args:
        name: the call that makes this law.
        communication_rate: rate of X in 1 / seconds; infinity: no communication.
        computation: b -> frozen `scipy.stats` distribution of Y(b), in seconds.
        survival: t, b -> P(Z(b) > t), for an array of times t >= 0 in seconds; of the same shape.
        scales: whether Y(b) / b has the same law for all b.

    >>> exponential(2.0, 10.0)
    exponential(2, 10)
    """

    name: str
    communication_rate: float
    computation: Callable[[int], Any]
    survival: Callable[[Any, int], np.ndarray]
    scales: bool = True

    __repr__ = notebook.by_name

    def mean(self, batch_size: int) -> float:
        """Returns the mean E[Z(b)].

        Args:
            batch_size: b, in samples, >= 1.

        Returns:
            The mean in seconds; NaN if `batch_size` is out of range.

        Raises:
            TypeError: `batch_size` is not a number.

        >>> erlang(2.0, 10.0).mean(5)
        1.0
        """
        return 1 / self.communication_rate + float(self.computation(batch_size).mean())

    def sample(self, batch_size: int, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Draws values of Z(b).

        Args:
            batch_size: b, in samples, >= 1.
            shape: of the result.
            rng: NumPy's random generator.

        Returns:
            Response times in seconds, of that shape.

        Raises:
            ValueError: `batch_size` is negative.

        >>> exponential(2.0, 10.0).sample(5, (3, 2), np.random.default_rng(0)).shape
        (3, 2)
        """
        communication = rng.exponential(1 / self.communication_rate, shape)
        return communication + self.computation(batch_size).rvs(shape, random_state=rng)


def exponential(communication_rate: float, sample_rate: float) -> Response:
    """Returns the law with Y(b) ~ Exp(sample_rate / b): a slow worker is slow for all of its samples.

    Args:
        communication_rate: rate of X in 1 / seconds, > 0; infinity: no communication.
        sample_rate: mean speed in samples/s, > 0.

    Returns:
        The law.

    Raises:
        ValueError: a rate is not > 0.

    >>> law = exponential(2.0, 10.0)
    >>> law.mean(5), round(float(law.survival(0.0, 5)), 3)
    (1.0, 1.0)
    """
    law = shifted(communication_rate, sample_rate, 0.0)
    return law._replace(name=f"exponential({law.communication_rate:g}, {float(sample_rate):g})")


def shifted(communication_rate: float, sample_rate: float, seconds_per_sample: float) -> Response:
    """Returns the law with Y(b) ~ b * seconds_per_sample + Exp(sample_rate / b): a fixed and a random part.

    Args:
        communication_rate: as for `exponential`.
        sample_rate: of the random part, in samples/s, > 0.
        seconds_per_sample: seconds per sample of the fixed part, >= 0.

    Returns:
        The law.

    Raises:
        ValueError: a rate is not > 0, or the shift is negative.

    >>> law = shifted(2.0, 10.0, 0.1)
    >>> law.mean(5), float(law.survival(0.5, 5))
    (1.5, 1.0)
    """
    x = checks.real("communication_rate", communication_rate, above=0)
    y = checks.positive("sample_rate", sample_rate)
    shift = checks.not_negative("seconds_per_sample", seconds_per_sample)
    return Response(
        f"shifted({x:g}, {y:g}, {shift:g})",
        x,
        lambda b: scipy.stats.expon(loc=b * shift, scale=b / y),
        lambda t, b: two_exponentials(np.maximum(np.asarray(t) - b * shift, 0), x, y / b),
    )


def erlang(communication_rate: float, sample_rate: float) -> Response:
    """Returns the law with Y(b) ~ Erlang(b, sample_rate): every sample takes its own Exp(sample_rate).

    Args:
        communication_rate, sample_rate: as for `exponential`.

    Returns:
        The law.

    Raises:
        ValueError: a rate is not > 0.

    >>> erlang(2.0, 10.0).mean(5)
    1.0
    """
    x = checks.real("communication_rate", communication_rate, above=0)
    y = checks.positive("sample_rate", sample_rate)

    def survival(t: Any, b: int) -> np.ndarray:
        return exponential_and_erlang(t, x, b, y)

    return Response(
        f"erlang({x:g}, {y:g})", x, lambda b: scipy.stats.gamma(b, scale=1 / y), survival, scales=False
    )


LAWS: dict[str, Callable[..., Response]] = {law.__name__: law for law in (exponential, erlang, shifted)}


def fit_response(
    law: str, communication: Sequence[float], computation: Sequence[float], batch_size: int
) -> Response:
    """Fits a law to measured times: it has their mean, and a shift is fitted to the smallest time.

    Args:
        law: "exponential", "erlang" or "shifted".
        communication: measured X in seconds, at least one.
        computation: measured Y(b) in seconds, at least one.
        batch_size: b of all measured tasks, in samples.

    Returns:
        The law.

    Raises:
        ValueError: there is no such law, no time was measured, or the mean of `computation` is 0.

    >>> fit_response("erlang", [0.1, 0.3], [1.0, 1.5], 5)
    erlang(5, 4)
    """
    checks.choice("law", law, LAWS)
    b = checks.integer("batch_size", batch_size, low=1)
    x, y = (np.asarray(times, float) for times in (communication, computation))
    sound = all(times.size and (np.isfinite(times) & (times >= 0)).all() for times in (x, y))
    if not (sound and y.mean() > 0):
        got = (x.tolist(), y.tolist())
        checks.fail("communication, computation", got, "finite times >= 0, with computation not all 0")
    rate = 1 / x.mean() if x.mean() > 0 else math.inf
    if law != "shifted":
        return LAWS[law](rate, b / y.mean())
    # The smallest of n exponential times is on average 1 / n of their mean, counted from the shift.
    above = (y.mean() - y.min()) * y.size / max(y.size - 1, 1)
    return shifted(rate, b / max(above, 1e-12 * y.mean()), max(y.mean() - above, 0.0) / b)


def two_exponentials(t: Any, one: float, two: float) -> np.ndarray:
    """Returns P(A + B > t) of independent A ~ Exp(one), B ~ Exp(two); a rate may be infinite.

    With the rates u <= v it is e^(-u t) (1 + u (1 - e^(-(v - u) t)) / (v - u)), or its limit if u = v.
    """
    slow, fast = sorted((one, two))
    t = np.asarray(t, float)
    if fast == math.inf:
        return np.exp(-slow * t)
    return np.exp(-slow * t) * (1 + slow * t * scipy.special.exprel(-(fast - slow) * t))


def exponential_and_erlang(t: Any, x: float, b: int, y: float) -> np.ndarray:
    """Returns P(A + B > t) of independent A ~ Exp(x), B ~ Erlang(b, y); x may be infinite.

    The method is uniformisation (Jensen 1953): a Poisson process has the rate of the faster stage, and each
    of its jumps ends the current stage with some probability. All terms are positive, so that no digits are
    lost by cancellation.
    """
    t = np.asarray(t, float)
    if x == math.inf:
        return scipy.special.gammaincc(b, y * t)
    rate = max(x, y)
    most = rate * float(t.max(initial=0.0))
    jumps = np.arange(int(most + 12 * math.sqrt(most) + 40))
    # Jumps until A and B are over: one for each stage of the faster kind, a geometric number for each other.
    # Special functions give their laws quickly, because quadrature calls this function often, with one t.
    if y > x:
        unfinished = (1 - x / y) ** np.maximum(jumps - b, 0)
    else:
        unfinished = np.where(jumps > b, scipy.special.betainc(np.maximum(jumps - b, 1), b, 1 - y / x), 1.0)
    mean = rate * t[..., None]
    poisson = np.exp(scipy.special.xlogy(jumps, mean) - mean - scipy.special.gammaln(jumps + 1))
    return np.minimum(poisson @ unfinished, 1.0)  # rounding may give slightly more than 1
