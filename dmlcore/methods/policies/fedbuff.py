"""FedBuff."""

from dmlcore.calls import named
from dmlcore.checks import at_least, not_negative
from dmlcore.methods.policies._damping import polynomial
from dmlcore.methods.policies._wait import fixed_k
from dmlcore.types import Policy


@named(k=at_least(1), alpha=not_negative)
def fedbuff(k: int, alpha: float = 0.5) -> Policy:
    """FedBuff: an update is the mean of `k` pushes, each reduced by its staleness; no worker waits.

    A push of staleness tau, in updates, has the weight (1 + tau)^-alpha / k in its update; if batch sizes
    differ, b / sum(b) replaces 1 / k, for a push of b samples and the sum over the update. A push is a
    gradient, or with `dml.local_steps` the difference that several local steps make.

    Guarantees: no worker waits; the weights of an update sum to at most 1. `fedbuff(k, 0)` is
    `k_batch_async(k)`.

    Args:
        k: the paper's K, the number of pushes in the buffer, >= 1; may exceed the number of workers.
        alpha: exponent of the staleness, >= 0. Default: 0.5, the paper's factor 1 / sqrt(1 + tau).

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `k` or `alpha` is out of range.

    >>> fedbuff(10), fedbuff(10, 0)
    (fedbuff(k=10), fedbuff(k=10, alpha=0.0))

    Reference: Nguyen et al. 2022, "Federated learning with buffered asynchronous aggregation", Algorithm 1
    and the staleness scaling of its experiments. Its secure aggregation is left out.
    """
    return fixed_k(k, any_worker=True, cancels=False, damp=polynomial(alpha))
