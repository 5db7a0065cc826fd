"""Which workers are away because of faults, on a virtual and on a real clock, and the log of incidents."""

from collections import Counter
from typing import Any

from dmlcore.cluster.faults import Incident


class Absences:
    """The absences of one run; a worker is away as long as any of its faults lasts.

    Attributes:
        workers: those that are away.
        forgets: those of them that have lost their memory.
        log: the incidents that a trace's metadata tell.
    """

    def __init__(self) -> None:
        self._faults = Counter[int]()  # that keep each worker away at present
        self.workers: set[int] = set()
        self.forgets: set[int] = set()
        self.log: list[dict[str, Any]] = []

    def begin(self, incident: Incident) -> bool:
        """Begins a "leave"; returns whether the worker leaves now, or was away already."""
        worker = incident.worker
        self._faults[worker] += 1
        self.workers.add(worker)
        if incident.forgets:
            self.forgets.add(worker)
        return self._faults[worker] == 1

    def end(self, incident: Incident) -> Incident | None:
        """Ends one by its "join", and returns that with what is forgotten; None if the worker stays away."""
        worker = incident.worker
        self._faults[worker] -= 1
        if self._faults[worker] > 0:
            return None
        incident = incident._replace(forgets=worker in self.forgets)
        self.workers.discard(worker)
        self.forgets.discard(worker)
        return incident
