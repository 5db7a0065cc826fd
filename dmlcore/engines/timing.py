"""When the phases of a task are due, as drawn for the cluster: the same on a virtual clock and a real one."""

from __future__ import annotations

from dmlcore.cluster.draws import PULL, PUSH, Draws
from dmlcore.engines.server import Order


class Timing:
    """Phases of tasks under one seed.

    Args:
        draws: of the cluster and seed.
        pull_bytes: that a pull transfers.
        push_bytes: that a push transfers.
    """

    def __init__(self, draws: Draws, pull_bytes: int, push_bytes: int):
        self._draws, self._pull_bytes, self._push_bytes = draws, pull_bytes, push_bytes

    def computing(self, order: Order) -> tuple[float, float]:
        """Returns when computing begins and ends."""
        begun = order.time
        if order.pull:
            begun += self._draws.transfer_seconds(PULL, order.worker, order.clock, self._pull_bytes)
        return begun, begun + self._draws.compute_seconds(order.worker, order.clock, order.batch_size)

    def pushing(self, worker: int, clock: int) -> float:
        """Returns how long the push travels."""
        return self._draws.transfer_seconds(PUSH, worker, clock, self._push_bytes)
