"""Rennala SGD."""

from dmlcore.calls import named
from dmlcore.checks import at_least
from dmlcore.methods.policies._wait import fixed_k
from dmlcore.types import Policy


@named(s=at_least(1))
def rennala(s: int) -> Policy:
    """Rennala SGD: an update is the mean of `s` gradients of the newest version; others are dropped.

    One worker may give several of the `s` gradients. The server drops a late gradient, one of an older
    version, when it arrives. It cancels nothing: a worker finishes its task and starts again from the newest
    version, whether its gradient was used or dropped. `k_batch_sync(s)` cancels late tasks instead.

    Guarantees: applied gradients have staleness 0, and no worker waits. If a task of worker i takes tau_i
    seconds, ascending in i, and links take no time, an update takes at most

        min over m of (s + 2 m) / sum_{i <= m} 1 / tau_i

    seconds, because after T seconds worker i has finished its late task and floor(T / tau_i) - 1 others. That
    is at most twice t(s) = min over m of (s + m) / sum_{i <= m} 1 / tau_i. No method that waits for s
    gradients of one version is faster than t(s) by more than a constant factor. `rennala(1)` is
    `ringmaster(1)`.

    Args:
        s: the paper's S, gradients per update, >= 1. The theory uses max(1, ceil(sigma^2 / eps)), where
            sigma^2 is the variance of a gradient and eps the target for the squared norm of its mean.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `s` is not a whole number >= 1.

    >>> rennala(4)
    rennala(s=4)

    Reference: Tyurin and Richtarik 2023, "Optimal time complexities of parallel stochastic optimization
    methods under a fixed computation model", the section on Rennala SGD and its time complexity.
    """
    return fixed_k(s, any_worker=True, cancels=False, drops=True)
