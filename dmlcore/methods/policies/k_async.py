"""K-async."""

from dmlcore.calls import named
from dmlcore.checks import at_least
from dmlcore.methods.policies._wait import fixed_k
from dmlcore.types import Policy


@named(k=at_least(1))
def k_async(k: int) -> Policy:
    """K-async: an update is the mean of the first `k` workers' gradients; the other workers continue.

    The `k` workers wait for each other and start again from the new version.

    Guarantees: every update consists of one gradient from each of `k` workers. `k_async(1)` is `asp()`.

    Args:
        k: gradients per update, 1 to the number of workers.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `k` is not a whole number >= 1; from `init`: it exceeds the number of workers.

    >>> k_async(4)
    k_async(k=4)

    Reference: Dutta et al. 2018, section 2.
    """
    return fixed_k(k, any_worker=False, cancels=False)
