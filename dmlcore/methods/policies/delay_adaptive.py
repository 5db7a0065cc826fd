"""Delay-adaptive asynchronous SGD."""

from dmlcore.calls import named
from dmlcore.checks import at_least, or_none
from dmlcore.methods.policies._each import Each, each_push
from dmlcore.types import Policy, Push


@named(concurrency=or_none(at_least(1)))
def delay_adaptive(concurrency: int | None = None) -> Policy:
    """Delay-adaptive asynchronous SGD: weight 1 up to a delay of n updates, and n / delay beyond.

    A push of staleness tau, in updates, has the weight min(1, n / tau), where n is the concurrency. The mean
    of tau is n - 1, whatever the speeds (see `asp`), so only the gradients of stragglers are reduced. In
    contrast, `asp(damping="inverse")` with its factor 1 / (1 + tau) reduces nearly all gradients.

    Guarantees: no worker waits; weight times delay is at most n. If all tasks take equally long it is
    `asp()`.

    Args:
        concurrency: the paper's n, the number of gradients that are computed at the same time, >= 1.
            Default: the number of workers present.

    Returns:
        The policy. Its `max_lead` is infinite: the lead of a worker has no bound.

    Raises:
        ValueError: `concurrency` is neither None nor a whole number >= 1.

    >>> delay_adaptive(), delay_adaptive(4)
    (delay_adaptive(), delay_adaptive(concurrency=4))

    Reference: Mishchenko, Bach, Even and Woodworth 2022, "Asynchronous SGD beats minibatch SGD under
    arbitrary delays", the delay-adaptive step sizes of its theorems for smooth functions. The paper's step is
    the smaller of a constant of the order 1 / (n L) and one of the order 1 / (tau L); our weight is that
    step divided by the first constant.
    """

    def factor(each: Each, push: Push, tau: int) -> float:
        n = len(each.present) if concurrency is None else concurrency
        return n / max(n, tau)

    return each_push(factor)
