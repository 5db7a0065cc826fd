"""The virtual clock: one loop over a heap of events, with a handler for each kind.

All times of a task - pull, compute, push - are known when it starts, so a task is one event: the arrival of
its push. Other events at known times, such as faults, are on a second heap. They are handled before every
push that the server takes later, and may postpone or cancel it. A new kind of event is a handler, and tuples
`(time, serial number, handler, ...)` on one of the heaps. The server keeps the timers of a policy, and sets
them again when it is restored.
"""

import itertools
import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

from dmlcore.collecting import paused
from dmlcore.engines.crossing import Crossing, handle_push_joins
from dmlcore.engines.failures import Failures, handle_incident
from dmlcore.engines.server import NOTHING, Answer, Order, Server
from dmlcore.engines.service import FairService, SharedLink
from dmlcore.engines.spec import RunSpec
from dmlcore.trace import Trace
from dmlcore.types import Watch

# A push: arrival, serial number, handler, task, begin and end of computing, departure, wait of the pull
# before it in the server's queues, and its own wait so far. Times in seconds.
PushEvent = tuple[float, int, Callable[[Any, Any], bool], Order, float, float, float, float, float]
# A task in a pipeline, until its push may be sent: serial number, task, begin and end of computing, and wait
# of its pull.
Computing = tuple[int, Order, float, float, float]

inf = math.inf
IDLE = SharedLink(0.0)  # in place of each link that is not shared
MANY_CANCELLED = 1000  # cancelled pushes are removed when they exceed this number and the number of workers


class VirtualClock:
    """One run of a policy on a virtual clock.

    At equal times faults come first, then arrivals in the order in which their tasks started, then timers in
    the order in which they were set.

    Args:
        spec: the run.
        watch: function that shows the training to a policy that watches it.
    """

    # Slots are faster to look up than a dictionary, which matters at every event.
    __slots__ = (
        "at_hand", "computing", "crossing", "draws", "end", "event", "failures", "handle_arrival", "heap",
        "limit", "links", "may_look", "now", "num_cancelled", "pace", "pipelined", "plain", "read",
        "restarts", "sending", "serial", "server", "service", "spec", "take", "timed", "timers",
        "updates_take", "watch",
    )  # fmt: skip

    def __init__(self, spec: RunSpec, watch: Watch | None = None):
        workers = spec.cluster.num_workers
        self.spec, self.watch, self.draws, self.service = spec, watch, spec.draws(), spec.service()
        self.failures = Failures(self) if spec.faults.events else None
        self.timers = spec.policy.on_wake is not None
        self.restarts = spec.faults.server_crashes
        self.may_look = watch is not None or self.restarts or self.timers
        self.pipelined, self.updates_take = spec.transport.pipelined, spec.seconds_per_update > 0
        self.serial = itertools.count()
        self.server = self.new_server()
        self.heap: list[Any] = [END]  # arrivals
        self.timed: list[Any] = []  # all other events
        self.end = spec.stop.seconds
        self.num_cancelled = 0  # cancelled pushes since the last sweep
        self.limit = inf  # arrivals before this time need no further check
        self.event: Any = None  # the event that is being handled
        self.sending: list[PushEvent | None] = [None] * workers  # the next push of each worker
        # A push that the server reads while other events happen, the end of reading, and its wait in seconds.
        self.read: tuple[PushEvent, float, float] | None = None
        self.computing: list[Computing | None] = [None] * workers
        self.now = 0.0  # time of the last event
        self.pace = self.draws.pace  # None: no changes of speed at a time
        # Whether a push is sent as soon as it is computed, and arrives immediately.
        self.plain = not (self.failures or self.pace or self.pipelined or self.draws.pushes_take)
        # The server's links with equal sharing, where each transfer is an event.
        self.crossing, self.links = None, (IDLE, IDLE)
        if isinstance(self.service, FairService):
            self.crossing, self.links = Crossing(self, self.service), (self.service.into, self.service.out)
            self.limit = -inf
        answers = None
        self.handle_arrival: Callable[[Any, Any], bool] = VirtualClock.handle_push
        if self.service is not None:
            self.take, self.handle_arrival = self.service.take, VirtualClock.handle_served
            answers = self.service.answer if self.service.pulls_take else None
        times = self.draws, self.draws.compute_seconds, self.draws.pulls_take
        how = self.handle_arrival, self.plain and self.crossing is None
        self.at_hand: tuple[Any, ...] = (self.heap, self.sending, *times, answers, *how)

    def run(self) -> Trace:
        """Runs to the end and returns the trace."""
        heap, last = self.heap, self.end
        if self.failures is not None:
            self.failures.begin()
        self.set_limit()
        over = self.carry_out(self.server.begin(), 0.0)
        if self.timers:
            over = self.carry_out(self.server.wake(0.0), 0.0)
        while not over:
            if heap[0][0] >= self.limit and self.handle_timed():
                break
            self.event = event = heap[0]
            over = event[2](self, event)
            if heap[0] is self.event:
                heappop(heap)
        more = {} if self.failures is None else self.failures.metadata()
        end = last if last < math.inf else max(self.now, self.server.last_update)
        return self.server.trace(end, self.spec.metadata("simulate") | more)

    def timer(self) -> float:
        """Returns when the policy's next timer is due, in seconds; a timer that was missed fires now."""
        return max(self.server.due, self.now) if self.timers else inf

    def set_limit(self) -> None:
        """Sets the limit to the next event that is not an arrival, or to the end of the run."""
        if self.crossing is None:
            self.limit = min(self.timed[0][0] if self.timed else inf, self.timer(), self.end)

    def handle_timed(self) -> bool:
        """Handles the events before the next arrival, or ends the run; returns whether it is over.

        Where links are shared, it handles arrivals, too, since other events come before most of them.
        """
        self.event = None  # the arrival stays on the heap
        heap, timed, end, timers, over = self.heap, self.timed, self.end, self.timers, False
        crossing, (into, out) = self.crossing, self.links
        while not over:
            arrival, read = heap[0], self.read
            taken = arrival[0] if read is None or read[0] is not arrival else read[1]
            first, timer = timed[0][0] if timed else inf, self.timer() if timers else inf
            crossed = into.due if into.due <= out.due else out.due
            if timer < taken and timer < first and timer < crossed:
                if timer > end:
                    return True
                over = self.carry_out(self.server.wake(timer), timer)
            elif crossed < first and crossed <= taken and crossing is not None:
                if crossed > end:
                    return True
                if crossed == into.due:
                    crossing.push_is_through(crossed, *into.leave())
                else:
                    crossing.copy_is_through(crossed, *out.leave())
            elif first <= taken and first < inf:
                if first > end:
                    return True
                event = heappop(timed)
                over = event[2](self, event)
            elif taken > end:
                return True
            elif crossing is None:  # no event comes before the arrival
                break
            else:
                self.event = arrival
                over = arrival[2](self, arrival)
                if heap[0] is self.event:
                    heappop(heap)
                self.event = None
        self.set_limit()
        return over

    def new_server(self) -> Server:
        """Returns a server in its first state."""
        return Server(self.spec, self.plan, self.serial, keeps_journal=self.restarts)

    def carry_out(self, answer: Answer, now: float) -> bool:
        """Carries out the server's answer; returns whether the run is over.

        Workers begin tasks, and the arrivals of their pushes are put on the heap.
        """
        self.now = now
        _, cancel, start = answer
        if self.service is not None:
            if cancel or self.updates_take:
                self.serve(answer, now)
            if self.crossing is not None:
                start = self.crossing.send_copies(start, now)
                if not (start or cancel or self.may_look):
                    return self.server.over
        heap, sending, draws, compute_seconds, pulls_take, answers, handle_arrival, plain = self.at_hand
        if cancel:
            computing = self.computing
            for worker in cancel:
                sending[worker] = computing[worker] = None
            self.num_cancelled += len(cancel)
            if self.num_cancelled > max(MANY_CANCELLED, len(sending)):
                self.sweep()
        queued = 0.0
        for order in start:
            worker, clock, size, _, pull, begun, serial, _ = order
            if not pull:
                serial = next(self.serial)
            else:
                if answers is not None:
                    begun, queued = answers(worker, clock, begun)
                if pulls_take:
                    begun += draws.pull_seconds(worker, clock)
            end = begun + compute_seconds(worker, clock, size)
            event: PushEvent | None
            if plain:
                event = (end, serial, handle_arrival, order, begun, end, end, queued, 0.0)
            elif (event := self.sent(order, serial, begun, end, now, queued)) is None:
                continue
            sending[worker] = event
            if heap[0] is self.event:
                heapreplace(heap, event)  # half the work of pop and push
            else:
                heappush(heap, event)
        if self.may_look:
            self.look(answer, now)
        return self.server.over

    def sweep(self) -> None:
        """Removes cancelled pushes from the heap, where they would stay until their arrival."""
        self.num_cancelled = 0
        if self.failures is not None:
            return  # with faults the arrival of a cancelled push must be handled
        push, sending, heap = self.handle_arrival, self.sending, self.heap
        heap[:] = [each for each in heap if each[2] is not push or sending[each[3][0]] is each]
        heapify(heap)

    def serve(self, answer: Answer, now: float) -> None:
        """Lets a server that takes time make the update, and read the pushes of cancelled tasks."""
        assert self.service is not None
        apply, cancel, _ = answer
        if apply and self.updates_take:
            self.service.update(now)
            if self.read is not None and self.read[1] > now:  # it continues reading after the update
                reading, taken, waited = self.read
                took = self.spec.seconds_per_update
                self.read = reading, taken + took, waited + took
        for worker in cancel:
            self.stray(worker, now)

    def stray(self, worker: int, now: float) -> None:
        """Lets the server read a push that a worker sent for a task that no longer counts."""
        event = self.sending[worker]
        if event is None or event[6] >= now or (self.read is not None and self.read[0] is event):
            return  # it is not sent yet, or the server is reading it
        if event[2] is not handle_push_joins:
            heappush(self.heap, (event[0], next(self.serial), VirtualClock.handle_read, event[3]))
        elif event[0] > now:  # it has not reached the server's link yet
            self.at(event[0], VirtualClock.handle_stray, event[3])

    def sent(
        self, order: Order, serial: int, begun: float, end: float, now: float, queued: float
    ) -> PushEvent | None:
        """Returns the event of the push that a worker sends next, or None if it is scheduled elsewhere.

        Changes of speed at a time, faults, pipelines and links are included.
        """
        worker, clock, size, _, _, since, _, _ = order
        if self.pace is not None:
            end = self.draws.finish(worker, clock, size, begun)
        departs = end
        if self.failures is not None and self.failures.frozen[worker]:
            begun, departs = self.failures.thaw(worker, since, begun, end)
            end = departs
        if self.pipelined:
            before = self.computing[worker]
            if before is not None and begun < before[3]:
                begun, end = before[3], self.draws.finish(worker, clock, size, before[3])
            self.computing[worker] = (serial, order, begun, end, queued)
            if before is None:
                return None
            # The push of the task before is sent when the copy for this task has arrived.
            departs = begun
            serial, order, begun, end, queued = before
        arrival = departs
        if self.draws.pushes_take:
            arrival += self.draws.push_seconds(worker, order.clock)
        # Pushes of one worker arrive in order; on a shared link, after the server has read the one before.
        ready, alone = arrival, self.event is None or self.crossing is not None
        arrival = max(arrival, now if alone else self.event[0])
        waited = arrival - ready if self.crossing is not None else 0.0
        if self.failures is not None and order[:2] in self.failures.of_push:
            arrival += self.failures.faults.deliveries(worker, order[1])[0]
        handler = handle_push_joins if self.crossing is not None else self.handle_arrival
        event = (arrival, serial, handler, order, begun, end, departs, queued, waited)
        if arrival < inf and self.crossing is None:
            return event
        self.sending[worker] = event
        self.place(event)
        return None

    def place(self, event: Any) -> None:
        """Puts a push on the heap for its arrival, unless it never arrives."""
        if event[0] < inf:
            heappush(self.heap if self.crossing is None else self.timed, event)

    def at(self, time: float, handler: Callable[[Any, Any], bool], *what: Any) -> None:
        """Schedules a call `handler(clock, event)` at `time`, for an event that is not an arrival."""
        heappush(self.timed, (time, next(self.serial), handler, *what))
        if time < self.limit:
            self.limit = time

    def look(self, answer: Answer, now: float) -> None:
        """Shows the training to a policy that watches it, takes checkpoints, and updates the next timer."""
        server = self.server
        if self.timers:
            self.set_limit()
        life = 0 if self.failures is None else self.failures.life
        if self.watch is not None and server.looks:
            log = () if self.failures is None else self.failures.absences.log
            server.observe(*self.watch(server.progress(now)._replace(life=life, incidents=log)))
        if self.failures is not None and self.restarts:
            self.failures.look(answer)

    def plan(self, order: Order) -> tuple[float, float, float]:
        """Returns begin and end of a task's computing, and the wait of its pull in queues, in seconds."""
        worker = order.worker
        sending = self.sending[worker]
        if sending is not None and sending[3] is order:
            return sending[4], sending[5], sending[7]
        computing = self.computing[worker]
        if computing is not None and computing[1] is order:
            return computing[2], computing[3], computing[4]
        if self.crossing is not None:  # its copy is being sent, unless the server has lost it
            return inf, inf, self.crossing.queued(order)
        due = self.draws.computing(worker, order.clock, order.batch_size, order.pull, order.time)
        return (*due, 0.0)

    def handle_end(self, event: Any) -> bool:
        """Raises RuntimeError: no other event is left."""
        raise self.server.deadlock(self.now)

    def handle_push(self, event: PushEvent) -> bool:
        """Handles the arrival of a push, unless its task was cancelled, lost or postponed meanwhile."""
        if self.sending[event[3][0]] is not event:
            return self.miss(event[3], event[0])
        return self.is_read(event, event[0], 0.0)

    def handle_served(self, event: PushEvent) -> bool:
        """Handles the arrival of a push at a server that takes time: the push waits and is then read."""
        order, read = event[3], self.read
        if self.sending[order[0]] is not event:
            return self.miss(order, event[0])
        if read is None or read[0] is not event:
            now, waited = self.take(order[0], order[1], event[0])
            read = event, now, event[8] + waited
            if now >= self.limit:  # other events may come first, and may cancel it: it stays on the heap
                self.read, self.event, self.limit = read, None, -inf
                return False
        return self.is_read(*read)

    def is_read(self, event: PushEvent, now: float, waited: float) -> bool:
        """Handles a push that the server has read; `waited`: its wait in the server's queues, seconds."""
        arrived, _, _, order, begun, computed, _, queued, _ = event
        self.sending[order[0]], self.now = None, now
        answer = self.server.push(order, now, begun, computed, queued, waited)
        if self.failures is not None and order[:2] in self.failures.of_push:
            self.failures.copy(order, arrived)
        return answer is not NOTHING and self.carry_out(answer, now)

    def miss(self, order: Order, now: float) -> bool:
        """Handles the arrival of a push that no longer counts."""
        if self.failures is not None and order not in self.server.flight[order[0]]:
            self.failures.ignore(order, now)
        return False

    def handle_stray(self, event: Any) -> bool:
        """Handles the arrival of a push that does not count: the server must still read it."""
        if self.crossing is not None:
            self.crossing.service.into.join(event[0], event[3])
        elif self.service is not None:
            self.handle_read(event)
        return False

    def handle_read(self, event: Any) -> bool:
        """Lets the server read a push that does not count."""
        assert self.service is not None
        now, _, _, order = event
        self.service.take(order[0], order[1], now)
        return False

    def forget(self, back: float) -> None:
        """Discards all messages and tasks; incidents remain, not before `back`."""
        for worker in range(len(self.sending)):
            self.sending[worker] = self.computing[worker] = None
        self.heap[:] = [END]
        if self.crossing is not None:
            self.crossing.forget()
        kept = [each for each in self.timed if each[2] is handle_incident]
        self.timed[:] = [(max(time, back), *rest) for time, *rest in kept]
        heapify(self.timed)
        self.set_limit()


# The last event of every run, if it has not ended before.
END = (inf, inf, VirtualClock.handle_end)


def make_timeline(spec: RunSpec, watch: Watch | None = None) -> Trace:
    """Returns the trace of a run on a virtual clock."""
    with paused():  # the collector would scan all tasks in flight repeatedly
        clock = VirtualClock(spec, watch)
        try:
            return clock.run()
        finally:
            # They refer to the clock: these cycles would keep every task of the run alive.
            del clock.server, clock.failures, clock.crossing
