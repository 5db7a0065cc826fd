"""n-softsync."""

from dmlcore.calls import named
from dmlcore.checks import at_least, one_of
from dmlcore.methods.policies._damping import DAMPING
from dmlcore.methods.policies._wait import Rounds, check_workers, wait_for_k
from dmlcore.types import Policy


@named(n=at_least(1), damping=one_of(*DAMPING))
def n_softsync(n: int, *, damping: str = "none") -> Policy:
    """n-softsync: an update is the mean of any floor(P / n) gradients of P workers; no worker waits.

    The weight of each gradient in the mean is multiplied by damping(tau), where tau is its staleness in
    updates.

    Guarantees: `n_softsync(P)` is `asp(damping=damping)`; without damping `n_softsync(n)` is
    `k_batch_async(P // n)`. With equal workers the mean staleness over gradients is about n.

    Args:
        n: the number of updates in the time in which each worker pushes once, from 1 to the number of
            workers.
        damping: "none", factor 1; "reciprocal", 1 / max(tau, 1), which is the paper's alpha_0 / tau, and
            alpha_0 for tau = 0; or "inverse", 1 / (1 + tau).

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `n` is not a whole number >= 1, or `damping` is not one of those listed; from `init`: `n`
            exceeds the number of workers.

    >>> n_softsync(4, damping="reciprocal")
    n_softsync(n=4, damping='reciprocal')

    Reference: Zhang, Gupta, Lian and Liu 2016, "Staleness-aware async-SGD for distributed deep learning",
    section 3.
    """

    def init(num_workers: int) -> Rounds:
        check_workers(num_workers, n=n)
        return Rounds(num_workers, num_workers // n)

    return wait_for_k(init, any_worker=True, cancels=False, damp=DAMPING[damping])
