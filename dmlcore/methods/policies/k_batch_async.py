"""K-batch-async."""

from dmlcore.calls import named
from dmlcore.checks import at_least
from dmlcore.methods.policies._wait import fixed_k
from dmlcore.types import Policy


@named(k=at_least(1))
def k_batch_async(k: int) -> Policy:
    """K-batch-async: an update is the mean of any `k` mini-batches; no work is cancelled.

    Each worker starts its next mini-batch immediately, on the newest version.

    Guarantees: no worker waits. With exponential task times of rate m an update takes k / (P m) on average.
    `k_batch_async(1)` is `asp()`.

    Args:
        k: mini-batches per update, >= 1; may exceed the number of workers.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `k` is not a whole number >= 1.

    >>> k_batch_async(4)
    k_batch_async(k=4)

    Reference: Dutta et al. 2018, section 2.
    """
    return fixed_k(k, any_worker=True, cancels=False)
