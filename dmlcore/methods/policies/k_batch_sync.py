"""K-batch-sync."""

from dmlcore.calls import named
from dmlcore.checks import at_least
from dmlcore.methods.policies._wait import fixed_k
from dmlcore.types import Policy


@named(k=at_least(1))
def k_batch_sync(k: int) -> Policy:
    """K-batch-sync: a round applies the mean of the first `k` mini-batches of any workers.

    A worker that finishes early starts another mini-batch on the same version. At the `k`-th push the server
    cancels all tasks in flight. `rennala(k)` cancels nothing, and drops late gradients when they arrive; if
    workers differ in speed, its rounds are longer.

    Guarantees: staleness 0. With exponential task times of rate m a round takes k / (P m) on average.

    Args:
        k: mini-batches per update, >= 1; may exceed the number of workers.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `k` is not a whole number >= 1.

    >>> k_batch_sync(4)
    k_batch_sync(k=4)

    Reference: Dutta et al. 2018, section 2.
    """
    return fixed_k(k, any_worker=True, cancels=True)
