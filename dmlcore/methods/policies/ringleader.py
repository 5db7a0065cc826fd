"""Ringleader ASGD."""

from dataclasses import dataclass, field

from dmlcore.calls import named
from dmlcore.types import Decision, Policy, Push, Start


@dataclass
class Table:
    """State of Ringleader ASGD: the gradients of each worker."""

    present: set[int]  # workers that are present
    pushes: dict[int, list[Push]] = field(default_factory=dict)  # by worker, pushes since the last update

    def take(self) -> list[tuple[int, int, float]]:
        """Returns the next update and empties the table, if every worker present has pushed; else []."""
        if not self.present or not self.present <= self.pushes.keys():
            return []
        apply = []
        for worker, pushes in sorted(self.pushes.items()):
            total = sum(push.samples for push in pushes) * len(self.pushes)
            apply += [(worker, push.clock, push.samples / total) for push in pushes]
        self.pushes = {}
        return apply


@named()
def ringleader() -> Policy:
    """Ringleader ASGD: the server averages gradients per worker, and an update is the mean of these averages.

    No worker waits: it starts again from the newest version as soon as its gradient has arrived. The server
    makes an update when every worker present has given at least one gradient. Each of the n workers then has
    the weight 1 / n, however many gradients it gave; within a worker the mean is over samples. So if workers
    have different data, fast workers do not bias the model towards their own.

    Guarantees: staleness is at most 1; the time between two updates is at most the longest task of a worker
    present. If all tasks take equally long, every worker gives one gradient per update, as in `bsp`.

    What differs from the paper: there a round first waits until every worker has given a gradient (phase 1).
    It then makes n updates from the same table of gradients, one for each worker, when the gradient that the
    worker was computing arrives and the worker starts again (phase 2). So a gradient is used in up to n
    updates. Here a gradient is used once, and one update replaces the n updates of a round. The corresponding
    learning rate is n times the paper's; gradients that arrive in phase 2 belong to the next table; and the
    delay, up to 2 n - 2 updates in the paper, is at most 1. The same as in the paper are the wait for every
    worker, the weights, and that workers start again from the newest version.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    >>> ringleader()
    ringleader()

    Reference: Maranjyan and Richtarik 2025, "Ringleader ASGD: The first asynchronous SGD with optimal time
    complexity under data heterogeneity" (arXiv 2509.22860), Algorithm 1.
    """

    def init(num_workers: int) -> Table:
        return Table({*range(num_workers)})

    def on_push(table: Table, push: Push) -> tuple[Table, Decision]:
        table.pushes.setdefault(push.worker, []).append(push)
        return table, Decision(table.take(), start=[Start(push.worker)])

    def on_leave(table: Table, worker: int, time: float) -> tuple[Table, Decision]:
        table.present.remove(worker)
        return table, Decision(table.take())

    def on_join(table: Table, worker: int, time: float) -> tuple[Table, Decision]:
        table.present.add(worker)
        return table, Decision(start=[Start(worker)])

    return Policy("", init, on_push, None, on_leave, on_join)
