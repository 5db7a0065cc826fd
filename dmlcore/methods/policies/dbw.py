"""Dynamic backup workers."""

from dmlcore.calls import named
from dmlcore.methods.policies._gain import CHECKS, largest_gain, rate
from dmlcore.types import Policy


@named(every=True, learning_rate=rate, **CHECKS)
def dbw(
    learning_rate: float, *, law: str = "exponential", explore: int = 2, observe_every: int = 10
) -> Policy:
    """Dynamic backup workers: K-sync with the k that has the largest measured gain per second.

    It is `adaptive_load` with the batch size of the load rule. Three things differ from the paper. The paper
    estimates V from the spread of the workers' gradients, and every mu(k) from the times at which gradients
    arrived, late ones included. Here late tasks are cancelled, mu(k) comes from a law that is fitted to the
    first rounds, and V is estimated as in `adaptive_load`.

    Guarantees: staleness 0.

    Args:
        learning_rate, law, explore, observe_every: as for `adaptive_load`.

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock. It watches the training: use it
        with `train`, or pass a `watch` to `simulate`.

    Raises:
        ValueError: a number is out of range, or `law` is not one of those of `adaptive_load`.

    >>> dbw(0.1)
    dbw(learning_rate=0.1, law='exponential', explore=2, observe_every=10)

    Reference: Xu, Neglia and Sebastianelli 2021, "Dynamic backup workers for parallel machine learning".
    """
    return largest_gain(learning_rate, None, law, explore, observe_every)
