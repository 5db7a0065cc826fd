"""The load rule of most methods: equal shares."""

from dmlcore.calls import named
from dmlcore.types import Load


@named()
def equal() -> Load:
    """Gives every task the same number of samples: the total batch divided by the number of workers.

    Returns:
        The load rule.

    >>> load = equal()
    >>> load.size(load.init(8, 256), 0)
    32
    """
    return Load("", lambda num_workers, total: total // num_workers, lambda state, worker: state)
