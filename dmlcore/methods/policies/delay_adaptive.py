"""Delay-adaptive asynchronous SGD."""

from dmlcore.calls import named
from dmlcore.checks import at_least, or_none
from dmlcore.methods.policies._each import Each, each_push
from dmlcore.types import Policy, Push


@named(concurrency=or_none(at_least(1)))
def delay_adaptive(concurrency: int | None = None) -> Policy:
    """Delay-adaptive asynchronous SGD: whole steps up to the concurrency n, then n / delay of one.

    A push that is tau updates old has the weight min(1, n / tau). As tau is n - 1 on average, whatever the
    speeds (`asp`), only the gradients of stragglers count less; `asp(damping="inverse")`, 1 / (1 + tau),
    shortens nearly all steps.

    Guarantees: no worker waits; weight times delay is at most n. With tasks that all take as long it is
    `asp()`.

    Args:
        concurrency: n, gradients that are computed at once, >= 1. Default: the number of workers present.

    Returns:
        The policy. Its `max_lead` is infinite: the lead of a worker has no bound.

    Raises:
        ValueError: `concurrency` is neither None nor a whole number >= 1.

    >>> delay_adaptive(), delay_adaptive(4)
    (delay_adaptive(), delay_adaptive(concurrency=4))

    Reference: Mishchenko, Bach, Even and Woodworth 2022, "Asynchronous SGD beats minibatch SGD under
    arbitrary delays", the delay-adaptive step sizes of its theorems for smooth functions: the smaller of a
    constant of the order 1 / (n L) and one of the order 1 / (tau L), here in units of the first.
    """

    def factor(each: Each, push: Push, tau: int) -> float:
        n = len(each.present) if concurrency is None else concurrency
        return n / max(n, tau)

    return each_push(factor)
