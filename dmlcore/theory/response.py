"""How long a worker takes to answer: Z(b) = X + Y(b), communication and the computation of b samples.

X is exponential, and the laws of Y, with a mean proportional to b, are those of the straggler literature.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy

from dmlcore import checks


class Response(NamedTuple):
    """The law of Z(b)."""

    name: str  # the call that makes this law
    communication_rate: float  # of X, 1 / seconds; infinity: no communication
    computation: Callable[[int], Any]  # b -> frozen `scipy.stats` distribution of Y(b), seconds
    survival: Callable[[Any, int], np.ndarray]  # times t >= 0, seconds, array; b -> P(Z(b) > t), array
    scales: bool = True  # whether Y(b) / b has the same law for all b

    def __repr__(self) -> str:
        return self.name

    def mean(self, batch_size: int) -> float:
        """Returns E[Z(b)], seconds."""
        return 1 / self.communication_rate + float(self.computation(batch_size).mean())

    def sample(self, batch_size: int, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Returns draws of Z(b), seconds."""
        communication = rng.exponential(1 / self.communication_rate, shape)
        return communication + self.computation(batch_size).rvs(shape, random_state=rng)


def exponential(communication_rate: float, sample_rate: float) -> Response:
    """Y(b) ~ Exp(sample_rate / b): a slow worker is slow for all of its samples.

    Args:
        communication_rate: of X, 1 / seconds, > 0; infinity: no communication.
        sample_rate: samples per second, > 0.

    Raises:
        ValueError: a rate is not > 0.

    >>> law = exponential(2.0, 10.0)
    >>> law.mean(5), round(float(law.survival(0.0, 5)), 3)
    (1.0, 1.0)
    """
    law = shifted(communication_rate, sample_rate, 0.0)
    return law._replace(name=f"exponential({law.communication_rate:g}, {float(sample_rate):g})")


def shifted(communication_rate: float, sample_rate: float, seconds_per_sample: float) -> Response:
    """Y(b) ~ b * seconds_per_sample + Exp(sample_rate / b): no worker is faster than the shift.

    Args:
        communication_rate: as for `exponential`.
        sample_rate: of the random part, samples per second, > 0.
        seconds_per_sample: of the fixed part, >= 0.

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
    """Y(b) ~ Erlang(b, sample_rate): every sample takes its own Exp(sample_rate).

    Args:
        communication_rate, sample_rate: as for `exponential`.

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
    """Returns the law of a family that agrees with measured times: in the mean, and a shift in the least.

    Args:
        law: "exponential", "erlang" or "shifted".
        communication: measured X, seconds, at least one.
        computation: measured Y(b), seconds, at least one.
        batch_size: b of all of them.

    Raises:
        ValueError: there are no such law or no times, or computing took none.

    >>> fit_response("erlang", [0.1, 0.3], [1.0, 1.5], 5)
    erlang(5, 4)
    """
    checks.choice("law", law, LAWS)
    b = checks.integer("batch_size", batch_size, low=1)
    x, y = (np.asarray(times, float) for times in (communication, computation))
    sound = all(times.size and (np.isfinite(times) & (times >= 0)).all() for times in (x, y))
    if not (sound and y.mean() > 0):
        got = (x.tolist(), y.tolist())
        checks.fail("communication, computation", got, "finite times >= 0, those of computing not all 0")
    rate = 1 / x.mean() if x.mean() > 0 else math.inf
    if law != "shifted":
        return LAWS[law](rate, b / y.mean())
    # The least of so many exponential times is their mean over the number above the shift.
    above = (y.mean() - y.min()) * y.size / max(y.size - 1, 1)
    return shifted(rate, b / max(above, 1e-12 * y.mean()), max(y.mean() - above, 0.0) / b)


def two_exponentials(t: Any, one: float, two: float) -> np.ndarray:
    """Returns P(A + B > t) of independent A ~ Exp(one), B ~ Exp(two); a rate may be infinite.

    With u < v the rates it is e^(-u t) (1 + u (1 - e^(-(v - u) t)) / (v - u)), also where they are equal.
    """
    slow, fast = sorted((one, two))
    t = np.asarray(t, float)
    if fast == math.inf:
        return np.exp(-slow * t)
    return np.exp(-slow * t) * (1 + slow * t * scipy.special.exprel(-(fast - slow) * t))


def exponential_and_erlang(t: Any, x: float, b: int, y: float) -> np.ndarray:
    """Returns P(A + B > t) of independent A ~ Exp(x), B ~ Erlang(b, y); x may be infinite.

    By uniformisation (Jensen 1953): the jumps of a Poisson process as fast as the faster stage either end
    a stage or do not. All terms are positive: nothing cancels.
    """
    t = np.asarray(t, float)
    if x == math.inf:
        return scipy.special.gammaincc(b, y * t)
    rate = max(x, y)
    most = rate * float(t.max(initial=0.0))
    jumps = np.arange(int(most + 12 * math.sqrt(most) + 40))
    # Jumps until both are over: one each for the stages of the fast kind, a geometric number for the others.
    # These laws by their special functions: quadrature asks for one t after the other, and often.
    if y > x:
        unfinished = (1 - x / y) ** np.maximum(jumps - b, 0)
    else:
        unfinished = np.where(jumps > b, scipy.special.betainc(np.maximum(jumps - b, 1), b, 1 - y / x), 1.0)
    mean = rate * t[..., None]
    poisson = np.exp(scipy.special.xlogy(jumps, mean) - mean - scipy.special.gammaln(jumps + 1))
    return np.minimum(poisson @ unfinished, 1.0)  # rounding
