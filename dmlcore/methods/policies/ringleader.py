"""Ringleader ASGD."""

from dataclasses import dataclass, field

from dmlcore.calls import named
from dmlcore.types import Decision, Policy, Push, Start


@dataclass
class Table:
    """State of Ringleader ASGD: the gradients of each worker."""

    present: set[int]  # workers that are present
    pushes: dict[int, list[Push]] = field(default_factory=dict)  # of each worker since the last update

    def take(self) -> list[tuple[int, int, float]]:
        """Returns the next update and empties the table, once every worker present is in it."""
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
    """Ringleader ASGD: gradients are kept by worker, and an update is the mean of the workers' means.

    No worker waits: it begins anew at the newest point as soon as its gradient has arrived. An update is made
    when every worker present has given a gradient. Each of the n workers that gave some then weighs 1 / n,
    however many they are; within a worker the mean is over samples. So where data differ by worker, fast
    workers do not draw the model to theirs.

    Guarantees: staleness is at most 1; the time between two updates is at most the longest task of a worker
    present. With tasks that all take as long every worker gives one gradient an update, as in `bsp`.

    What differs from the paper: there a round waits until every worker has given a gradient (phase 1), and
    then makes n updates of the same table, one for each worker, as the gradient that it had under way arrives
    and it begins anew (phase 2). So a gradient is in up to n updates. Here a task is in one update, and the n
    updates of a round are one. The learning rate that corresponds is n times the paper's; what arrives in
    phase 2 belongs to the next table; and the delay, up to 2 n - 2 updates there, is at most 1. The wait for
    every worker, the weights, and that workers begin anew at the newest point, are the paper's.

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
