"""The load rule of most methods: equal shares."""

from dmlcore.calls import named
from dmlcore.types import Load


@named()
def equal() -> Load:
    """Every worker's task has the same number of samples: the total batch over the number of workers.

    >>> load = equal()
    >>> load.size(load.init(8, 256), 0)
    32
    """
    return Load("", lambda num_workers, total: total // num_workers, lambda state, worker: state)
