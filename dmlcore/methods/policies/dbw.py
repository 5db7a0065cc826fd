"""Dynamic backup workers."""

from dmlcore.calls import named
from dmlcore.methods.policies._gain import CHECKS, largest_gain, rate
from dmlcore.types import Policy


@named(every=True, learning_rate=rate, **CHECKS)
def dbw(
    learning_rate: float, *, law: str = "exponential", explore: int = 2, observe_every: int = 10
) -> Policy:
    """Dynamic backup workers: K-sync with the k of the largest expected gain a second, as measured.

    It is `adaptive_load` with the batch size of the load rule. The original estimates V by the spread of the
    workers' gradients, and every mu(k) by the times at which gradients arrived, late ones included; here late
    work is cancelled, mu(k) is that of a law fitted to the first rounds, and V is as in `adaptive_load`.

    Guarantees: staleness 0.

    Args:
        learning_rate, law, explore, observe_every: as for `adaptive_load`.

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock. It watches the training: use it
        with `train`, or pass a `watch` to `simulate`.

    Raises:
        ValueError: a number is out of range, or there is no such law.

    >>> dbw(0.1)
    dbw(learning_rate=0.1, law='exponential', explore=2, observe_every=10)

    Reference: Xu, Neglia and Sebastianelli 2021, "Dynamic backup workers for parallel machine learning".
    """
    return largest_gain(learning_rate, None, law, explore, observe_every)
