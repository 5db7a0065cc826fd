"""Local steps: what a task does with its samples, instead of one gradient of them all."""

from __future__ import annotations

from typing import Any

from dmlcore import checks
from dmlcore.types import LocalSteps


def local_steps(steps: int, optimizer: Any, keep_state: bool = False) -> LocalSteps:
    """Makes each task take local optimizer steps on mini-batches, and push the difference, pulled - reached.

    From the parameters w_0 that its worker pulled it makes w_{i+1} = w_i + u_i, where u_i is the local
    optimizer's update for the gradient of the i-th mini-batch, and pushes w_0 - w_H. The server's optimizer
    treats that as a gradient: with `optax.sgd(1)` and BSP the next parameters are the mean of those reached
    (FedAvg, local SGD), with Nesterov momentum it is DiLoCo, with `k_batch_async` FedBuff.

    Guarantee: `local_steps(1, optax.sgd(1))` pushes the gradient.

    `batch_size` of the run is that of a mini-batch. A task has H x batch_size samples, which count and take
    time as any do; load rules share out H x batch_size x P of them, so that a worker that gets fewer samples
    takes fewer steps, ceil(samples / batch_size), the last perhaps on a smaller mini-batch.

    Args:
        steps: H, the local steps of a task, >= 1.
        optimizer: the local optax optimizer.
        keep_state: whether a worker's next task continues from the local optimizer's state, as in DiLoCo;
            else each task starts from a fresh state, as in FedAvg. Kept states need every task to be in an
            update, in its worker's order, and no crash.

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
    """Returns what `local_steps` has made.

    >>> check_local(8)
    Traceback (most recent call last):
    ValueError: local: got 8, allowed is what dml.local_steps(steps, optimizer) returns
    """
    if not isinstance(local, LocalSteps):
        checks.fail("local", local, "what dml.local_steps(steps, optimizer) returns")
    return local
