"""Local steps: a task takes several optimizer steps on its samples instead of computing one gradient."""

from typing import Any

from dmlcore import checks
from dmlcore.types import LocalSteps


def local_steps(steps: int, optimizer: Any, keep_state: bool = False) -> LocalSteps:
    """Makes each task take local optimizer steps on mini-batches and push the change of the parameters.

    From the pulled parameters w_0 a task computes w_{i+1} = w_i + u_i, where u_i is the local optimizer's
    update for the gradient of the i-th mini-batch. After H steps it pushes w_0 - w_H, pulled minus reached.
    The server's optimizer treats that as a gradient. With `optax.sgd(1)` and BSP the next parameters are the
    mean of those that the workers reached (FedAvg, local SGD); with Nesterov momentum at the server it is
    DiLoCo; with `k_batch_async` it is FedBuff.

    Guarantees: `local_steps(1, optax.sgd(1))` pushes the gradient.

    The `batch_size` of the run is the size of a mini-batch. A task has H x batch_size samples, which take
    computing time and count towards `samples=` as usual. Load rules divide H x batch_size x P samples among P
    workers. A worker with fewer samples takes fewer steps, ceil(samples / batch_size), the last one possibly
    on a smaller mini-batch.

    Args:
        steps: the papers' H, the number of local steps per task, >= 1.
        optimizer: the local optax optimizer.
        keep_state: True: a worker's next task continues with the state of the local optimizer, as in DiLoCo.
            False: each task starts with a new state, as in FedAvg. Kept states require that every task is in
            an update if its push arrives, in its worker's order. A `Crash` says whether the state is lost.

    Returns:
        The local steps, for the argument `local` of `Method` or `train`.

    Raises:
        ValueError: an argument is wrong; the message names it.

    >>> import optax
    >>> local_steps(8, optax.sgd(0.1))
    local_steps(8)

    Reference: McMahan et al. 2017, algorithm 1; Douillard et al. 2023, "DiLoCo", algorithm 1.
    """
    steps = checks.integer("steps", steps, low=1, high=2**20)
    keep_state = checks.boolean("keep_state", keep_state)
    name = f"local_steps({steps}{', keep_state=True' if keep_state else ''})"
    return LocalSteps(name, steps, checks.check_optax("optimizer", optimizer), keep_state)


def check_local(local: Any) -> LocalSteps:
    """Returns `local`; raises ValueError unless `local_steps` has made it.

    >>> check_local(8)
    Traceback (most recent call last):
    ValueError: local: expected what dml.local_steps(steps, optimizer) returns, got 8
    """
    if not isinstance(local, LocalSteps):
        checks.fail("local", local, "what dml.local_steps(steps, optimizer) returns")
    return local
