"""Rennala SGD."""

from dmlcore.calls import named
from dmlcore.checks import at_least
from dmlcore.methods.policies._wait import fixed_k
from dmlcore.types import Policy


@named(s=at_least(1))
def rennala(s: int) -> Policy:
    """Rennala SGD: an update is the mean of `s` gradients at the newest point; late ones are dropped.

    One worker may give several. A late gradient, of an older point, is dropped on arrival. Nothing is
    cancelled: a worker computes to the end, and begins anew at the newest point whether its gradient was used
    or dropped. `k_batch_sync(s)` cancels late work instead.

    Guarantees: the staleness of what is applied is 0, and no worker waits. If a task of worker i takes tau_i
    seconds, ascending in i, and links take no time, an update takes at most

        min over m of (s + 2 m) / sum_{i <= m} 1 / tau_i

    seconds, as by T worker i has finished its late task and floor(T / tau_i) - 1 others. That is at most
    twice t(s) = min over m of (s + m) / sum_{i <= m} 1 / tau_i, which no method that waits for s gradients at
    one point can beat by more than a constant. `rennala(1)` is `ringmaster(1)`.

    Args:
        s: the paper's S, gradients per update, >= 1. In theory max(1, ceil(sigma^2 / eps)), with the variance
            sigma^2 of a gradient, and the squared norm eps of its mean that is to be reached.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `s` is no whole number >= 1.

    >>> rennala(4)
    rennala(s=4)

    Reference: Tyurin and Richtarik 2023, "Optimal time complexities of parallel stochastic optimization
    methods under a fixed computation model", the section on Rennala SGD and its time complexity.
    """
    return fixed_k(s, any_worker=True, cancels=False, drops=True)
