"""K-sync."""

from dmlcore.calls import named
from dmlcore.checks import at_least
from dmlcore.methods.policies._wait import fixed_k
from dmlcore.types import Policy


@named(k=at_least(1))
def k_sync(k: int) -> Policy:
    """K-sync: a round applies the mean of the first `k` workers' gradients and cancels the rest.

    As in `bsp` the mean is over samples: a task of b samples has the weight b / sum(b).

    Guarantees: staleness 0. With exponential task times of rate m and P workers a round takes
    (H_P - H_{P-k}) / m on average, where H_n is the n-th harmonic number. `k_sync(num_workers)` is `bsp()`.

    Args:
        k: the paper's K, gradients per update, 1 to the number of workers.

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock.

    Raises:
        ValueError: `k` is not a whole number >= 1; from `init`: it exceeds the number of workers.

    >>> k_sync(4)
    k_sync(k=4)

    Reference: Dutta et al. 2018, "Slow and stale gradients can win the race", section 2; backup workers are
    the same rule (Chen et al. 2016): `backup(b)` is `k_sync(num_workers - b)`.
    """
    return fixed_k(k, any_worker=False, cancels=True)
