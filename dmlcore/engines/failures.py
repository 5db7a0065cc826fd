"""Faults on the virtual clock: the effect of each kind of incident on workers, server and messages."""

from heapq import heappush
from math import inf
from typing import Any

from dmlcore.cluster.faults import Absences, Incident, incidents
from dmlcore.engines.server import Answer, Order

SNAPSHOT = 1000  # length of the journal, in calls, from which a snapshot is worth its time


class Failures:
    """The faults of one run and their state; each kind of incident has a method of its name.

    Args:
        clock: the `VirtualClock` of the run.
    """

    def __init__(self, clock: Any):
        workers = clock.spec.cluster.num_workers
        self.clock, self.faults = clock, clock.spec.faults
        self.absences = Absences()
        # Start and end of each worker's freezes, seconds.
        self.frozen: list[list[tuple[float, float]]] = [[] for _ in range(workers)]
        self.checkpoint = (0, 0)  # updates, and length of the journal, at the last checkpoint
        self.life = 0  # how often the server was restarted
        self.of_push = self.faults.of_push  # faults of pushes, by worker and clock
        # The last snapshot with the length of the journal at that time, and the length for the next snapshot.
        self.snapshot: tuple[int, dict[str, Any]] | None = None
        self.snapshot_due: float = SNAPSHOT

    def begin(self) -> None:
        """Schedules all incidents; they come before all other events at the same time."""
        known = incidents(self.faults)
        for number, incident in enumerate(known, start=-len(known)):
            heappush(self.clock.timed, (incident.time, number, handle_incident, incident))

    def metadata(self) -> dict[str, Any]:
        """Returns the entries of the trace's metadata about faults."""
        return {"incidents": self.absences.log, "ignored_arrivals": self.clock.server.ignored}

    def look(self, answer: Answer) -> None:
        """Takes a checkpoint of the server if one is due."""
        server = self.clock.server
        due = server.num_updates >= self.checkpoint[0] + self.faults.checkpoint_every
        if due and answer[0] and not server.pending:
            length = len(server.journal or ())
            self.checkpoint = (server.num_updates, length)
            if length >= self.snapshot_due:  # so that a crash need not repeat the whole journal
                self.snapshot_due = 1.25 * length  # all together take about five times as long as the last
                try:
                    self.snapshot = length, server.snapshot()
                except Exception:  # a policy's state may be any object, also one that cannot be copied
                    self.snapshot_due = inf

    def copy(self, order: Order, now: float) -> None:
        """Schedules the further arrivals of a push that was sent more than once."""
        clock = self.clock
        for later in self.faults.deliveries(order.worker, order.clock)[1:]:
            clock.place((now + later, next(clock.serial), handle_copy, order))

    def ignore(self, order: Order, now: float) -> None:
        """Counts a push as ignored; it may arrive again if it was sent more than once."""
        self.copy(order, now)
        self.clock.server.ignored += 1

    def freeze(self, incident: Incident, now: float) -> None:
        """Freezes a worker for a while; messages that it has sent are not affected."""
        clock = self.clock
        worker, seconds, pace = incident.worker, incident.seconds, clock.pace
        self.note(incident, now)
        idle = max([now, *(end for _, end in self.frozen[worker])])  # it continues at this time + seconds
        self.frozen[worker].append((now, now + seconds))

        def put_off(time: float) -> float:
            return time if time <= now else time + seconds

        def computed_by(begun: float, computed: float, again: float) -> float:
            """Returns the new end of a task planned from `begun` to `computed` that now begins at `again`."""
            if pace is None or computed <= now:
                return put_off(computed)
            stops = (begun, again) if begun > now else (idle, idle + seconds)
            return pace.resumed(worker, computed, *stops)

        sending, computing = clock.sending[worker], clock.computing[worker]
        if sending is not None and sending[6] <= now:
            sending = None
        free = leaves = -inf  # when the task to be pushed next is computed, and when its push is sent
        if sending is not None:
            arrival, _, handler, order, begun, computed, departs, *queued = sending
            again = put_off(begun)
            free = leaves = computed_by(begun, computed, again)
        if computing is not None:
            serial, its_order, its_begun, its_computed, its_queued = computing
            leaves = put_off(its_begun)
            if pace is not None and sending is not None:  # it begins when its predecessor is computed
                leaves = free if its_begun == computed else max(leaves, free)
            its_end = computed_by(its_begun, its_computed, leaves)
            clock.computing[worker] = (serial, its_order, leaves, its_end, its_queued)
        if sending is not None:
            later = seconds if pace is None or leaves == inf else leaves - departs
            number, (pulled, pushed) = next(clock.serial), queued
            event = (arrival + later, number, handler, order, again, free, leaves, pulled, pushed)
            clock.sending[worker] = event
            clock.place(event)

    def thaw(self, worker: int, since: float, begun: float, computed: float) -> tuple[float, float]:
        """Returns begin and end of a task released at `since`, in seconds, with its worker's freezes."""
        pace = self.clock.pace
        for start, end in self.frozen[worker]:
            stopped = max(start, since)
            delay = end - stopped
            if delay > 0:
                if computed >= start and pace is not None:
                    stops = (begun, begun + delay) if begun >= start else (stopped, end)
                    computed = pace.resumed(worker, computed, *stops)
                elif computed >= start:
                    computed += delay
                begun += delay if begun >= start else 0.0
                since = end
        return begun, computed

    def leave(self, incident: Incident, now: float) -> None:
        """Removes a worker, with its copy and its tasks."""
        if not self.absences.begin(incident):
            return
        self.note(incident, now)
        clock, worker = self.clock, incident.worker
        if worker not in clock.server.present:
            return  # it was away when the server began
        answer = clock.server.leave(worker, now)
        if clock.service is not None:
            clock.stray(worker, now)
        clock.sending[worker] = clock.computing[worker] = None
        clock.carry_out(answer, now)

    def join(self, incident: Incident, now: float) -> None:
        """Brings a worker back, without cached parameters."""
        clock, worker = self.clock, incident.worker
        if (joins := self.absences.end(incident)) is not None:
            self.note(joins, now)
            self.frozen[worker].clear()
            clock.carry_out(clock.server.join(worker, now), now)

    def down(self, incident: Incident, now: float) -> None:
        """Crashes the server: nothing arrives during the outage, then it continues from its checkpoint."""
        clock, (updates, length) = self.clock, self.checkpoint
        self.note(incident, now, lost_updates=clock.server.num_updates - updates)
        clock.now = back = now + incident.seconds
        if clock.service is not None:
            clock.service.reset(back)
        ignored, journal = clock.server.ignored, (clock.server.journal or [])[:length]
        before, clock.server = clock.server, clock.new_server().restore(journal, self.snapshot)
        if clock.service is not None:
            clock.server.recall(before)
            clock.read = None
        clock.server.ignored = ignored
        self.life += 1
        # The server learns of the workers' incidents when it is up again; messages sent to it are lost.
        clock.forget(back)
        if back >= clock.end:
            clock.timed.clear()  # no event follows
            clock.server.timers.clear()
            return
        self.absences.forgets |= self.absences.workers
        for answer in clock.server.catch_up(self.absences.workers, back):
            clock.carry_out(answer, back)
        for worker in self.absences.workers:
            clock.sending[worker] = clock.computing[worker] = None

    def note(self, incident: Incident, now: float, **more: Any) -> None:
        """Logs an incident for the trace's metadata."""
        self.clock.now = now
        self.absences.log.append(incident.told(now, **more))


# Further handlers of the virtual clock, for runs with faults.


def handle_incident(clock: Any, event: Any) -> bool:
    """Carries out an incident of a worker or the server."""
    now, _, _, incident = event
    getattr(clock.failures, incident.kind)(incident, now)
    return clock.server.over


def handle_copy(clock: Any, event: Any) -> bool:
    """Handles the second arrival of a push, which does not count."""
    clock.server.ignored += 1
    return clock.handle_stray(event)
