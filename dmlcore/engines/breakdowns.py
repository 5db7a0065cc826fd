"""The simulator where things break: the server's book on a virtual clock, with crashes, hangs and losses.

Without faults it makes, row by row, the trace that `simulate` makes faster.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Any

from dmlcore.cluster.faults import Faults, Incident, incidents
from dmlcore.engines.server import Answer, Server
from dmlcore.engines.setup import Setup
from dmlcore.engines.timing import Timing
from dmlcore.trace import Trace
from dmlcore.types import Watch


class Breakdowns:
    """One simulated run with faults.

    Args:
        new_server: makes an empty book.
        timing: of tasks.
        faults: what breaks when.
        seconds: when the run ends; infinite: when the book says so.
        watch: for a policy that watches its training.
    """

    def __init__(
        self,
        new_server: Callable[[], Server],
        timing: Timing,
        faults: Faults,
        seconds: float = math.inf,
        watch: Watch | None = None,
    ):
        self._new_server, self._timing, self._faults, self._seconds = new_server, timing, faults, seconds
        self._watch, self._life = watch, 0
        self.server = new_server()
        self.log: list[dict[str, Any]] = []
        self._sequence = itertools.count()
        self._heap: list[tuple[float, int, str, Any]] = []
        num_workers = self.server.num_workers
        self._plan: list[tuple[float, float, float] | None] = [None] * num_workers  # begun, computed, arrival
        self._frozen = [0.0] * num_workers  # until when
        self._away = [0] * num_workers  # for how many reasons
        self._checkpoint: tuple[int, int] = (0, 0)  # updates, and length of the journal then

    def run(self) -> float:
        """Runs to the end and returns when that is."""
        for incident in incidents(self._faults):
            self._at(incident.time, "incident", incident)
        self._carry_out(self.server.begin(), 0.0)
        now = 0.0
        while not self.server.over:
            if not any(self.server.flight) and not any(kind == "incident" for _, _, kind, _ in self._heap):
                self.server.check_alive(now)
            time, _, kind, what = heapq.heappop(self._heap)
            if time > self._seconds:
                return self._seconds
            now = time
            if kind == "incident":
                getattr(self, f"_{what.kind}")(what, now)
            elif kind == "copy" or self._is_due(what):
                self._arrive(what, now, copied=kind == "copy")
        return now if math.isinf(self._seconds) else self._seconds

    def _at(self, time: float, kind: str, what: Any) -> None:
        heapq.heappush(self._heap, (time, next(self._sequence), kind, what))

    def _is_due(self, push: tuple) -> bool:
        """Whether a push is still what its worker will send: no freeze has put it off since."""
        attempt, worker, _, *plan = push
        order = self.server.flight[worker]
        return order is None or order.attempt != attempt or tuple(plan) == self._plan[worker]

    def _arrive(self, push: tuple, now: float, copied: bool) -> None:
        attempt, worker, clock, begun, computed, _ = push
        if not copied:
            for later in self._faults.deliveries(worker, clock)[1:]:
                self._at(now + later, "copy", push)
        answer = self.server.push(worker, clock, now, begun, computed, attempt)
        if answer is not None:
            self._carry_out(answer, now)

    def _carry_out(self, answer: Answer, now: float) -> None:
        server = self.server
        for order in answer.start:
            worker = order.worker
            begun, computed = self._timing.computing(order)
            late = max(0.0, self._frozen[worker] - order.time)
            begun, computed = begun + late, computed + late
            first, *_ = self._faults.deliveries(worker, order.clock)
            arrival = max(computed + self._timing.pushing(worker, order.clock), now) + first
            self._plan[worker] = plan = (begun, computed, arrival)
            push = (order.attempt, worker, order.clock, *plan)
            self._at(arrival, "push", push)
        if self._watch is not None and server.looks:
            server.observe(*self._watch(server.progress(now)._replace(life=self._life)))
        due = server.num_updates >= self._checkpoint[0] + self._faults.checkpoint_every
        if answer.apply and due and not server.pending:
            self._checkpoint = (server.num_updates, len(server.journal))

    def _freeze(self, incident: Incident, now: float) -> None:
        worker, seconds = incident.worker, incident.seconds
        self._note(incident, now)
        self._frozen[worker] = max(self._frozen[worker], now + seconds)
        order, plan = self.server.flight[worker], self._plan[worker]
        if order is None or plan is None or plan[1] <= now:
            return  # it has nothing to do, or what it did is on its way
        begun, computed, arrival = plan
        late = (begun if begun <= now else begun + seconds, computed + seconds, arrival + seconds)
        self._plan[worker] = late
        if math.isfinite(seconds):
            self._at(arrival + seconds, "push", (order.attempt, worker, order.clock, *late))

    def _leave(self, incident: Incident, now: float) -> None:
        worker = incident.worker
        self._away[worker] += 1
        if self._away[worker] == 1:
            self._note(incident, now)
            self._carry_out(self.server.leave(worker, now), now)

    def _join(self, incident: Incident, now: float) -> None:
        worker = incident.worker
        self._away[worker] -= 1
        if self._away[worker] == 0:
            self._note(incident, now)
            self._frozen[worker] = 0.0
            self._carry_out(self.server.join(worker, now), now)

    def _down(self, incident: Incident, now: float) -> None:
        """The server is gone for a while: nothing arrives, and it goes on from its last checkpoint."""
        updates, length = self._checkpoint
        self._note(incident, now, lost_updates=self.server.num_updates - updates)
        back = now + incident.seconds
        ignored, journal = self.server.ignored, self.server.journal[:length]
        self.server = self._new_server().restore(journal)
        self._life += 1
        self.server.ignored = ignored
        # What happens to workers meanwhile, the server learns when it is back; what was sent is lost.
        kept = [(max(time, back), n, kind, what) for time, n, kind, what in self._heap if kind == "incident"]
        self._heap = kept
        heapq.heapify(self._heap)
        if back >= self._seconds:
            self._heap = [(math.inf, 0, "incident", incident)]  # nothing happens any more
            return
        gone = {w for w, reasons in enumerate(self._away) if reasons}
        answer = self.server.resume(back)
        self._carry_out(answer, back)
        for worker in sorted(self.server.present & gone):
            self._carry_out(self.server.leave(worker, back), back)
        for worker in sorted(set(range(self.server.num_workers)) - gone - self.server.present):
            self._carry_out(self.server.join(worker, back), back)

    def _note(self, incident: Incident, now: float, **more: Any) -> None:
        self.log.append(incident._replace(time=now)._asdict() | more)


def simulate_breakdowns(setup: Setup, watch: Watch | None = None) -> Trace:
    """Returns the trace of a simulated run with faults; its metadata tells what happened."""
    timing = setup.timing()
    run = Breakdowns(setup.servers(timing.computing), timing, setup.faults, setup.stop.seconds, watch)
    end = run.run()
    more = {"incidents": run.log, "ignored_arrivals": run.server.ignored}
    return run.server.trace(end, setup.metadata("simulate") | more)
