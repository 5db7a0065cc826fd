"""Backup workers."""

from dmlcore import checks
from dmlcore.calls import named
from dmlcore.methods.policies._wait import Rounds, wait_for_k
from dmlcore.types import Policy


@named(b=checks.at_least(0), timeout=checks.or_none(checks.positive))
def backup(b: int, timeout: float | None = None) -> Policy:
    """Backup workers: a round ends with the first P - b pushes of P workers, or else at a timeout.

    The update is the mean of these gradients, over samples as in `bsp`. The server cancels the tasks of the
    other workers, and all workers begin the next round. With a timeout, a round ends at the latest `timeout`
    seconds after it began, with the pushes that have arrived by then, but never before its first push. If
    fewer than P - b workers are present, a round ends with the pushes of all of them.

    Guarantees: staleness 0; with a timeout no round takes longer, unless it waits for its first push.
    `backup(b)` is `k_sync(P - b)`, `backup(0)` is `bsp()`, and `backup(0, timeout=d)` is `deadline(d)`. With
    exponential task times of rate m and no timeout a round takes (H_P - H_b) / m on average, where H_n is
    the n-th harmonic number.

    Args:
        b: the paper's b, the number of workers that a round does not wait for, from 0 to the number of
            workers less 1. The paper counts N + b workers, where we write P.
        timeout: in seconds from the start of a round, > 0, including pulls and pushes. Default: None, no
            timeout.

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock. With a timeout it sets a timer
        for every round.

    Raises:
        ValueError: `b` or `timeout` is out of range; from `init`: `b` is not less than the number of workers.

    >>> backup(2), backup(2, timeout=0.5)
    (backup(b=2), backup(b=2, timeout=0.5))

    Reference: Chen, Pan, Monga, Bengio and Jozefowicz 2016, "Revisiting distributed synchronous SGD", section
    3. The timeout is our addition.
    """

    def init(num_workers: int) -> Rounds:
        checks.integer("b", b, low=0, high=num_workers - 1, why="the number of workers minus 1")
        return Rounds(num_workers, num_workers - b, seconds=timeout)

    return wait_for_k(init, any_worker=False, cancels=True, deadlines=timeout is not None)
