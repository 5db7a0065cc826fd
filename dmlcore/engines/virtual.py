"""The virtual clock: one loop over a heap of events, with a handler for each kind.

A task's whole life - pull, compute, push - is drawn when it starts, so it is one event: the arrival of its
push. What else happens at a known time, such as a fault, is on a heap of its own: it is handled before every
push that the server takes later, and may put off or void it. A new kind of event is a handler, and tuples
`(time, serial number, handler, ...)` on one of the heaps. Timers of a policy are with the server, which sets
them again when it is restored.
"""

from __future__ import annotations

import gc
import itertools
import math
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any

from dmlcore.cluster.faults import Incident, incidents
from dmlcore.engines.server import NOTHING, Answer, Order, Server
from dmlcore.engines.sharing import FairService, handle_copy_joins, handle_push_joins
from dmlcore.engines.spec import RunSpec
from dmlcore.trace import Trace
from dmlcore.types import Watch

# A push: when it arrives, serial number, handler, task, when its computing begins and ends, when it is sent,
# how long the pull before it has waited in the server's queues, and how long itself so far.
PushEvent = tuple[float, int, Callable[[Any, Any], bool], Order, float, float, float, float, float]
# What a worker computes in a pipeline, until it may be sent: serial number, task, begin and end of computing,
# and how long its pull has waited.
Computing = tuple[int, Order, float, float, float]

inf = math.inf
TICKS = 0.1, 0.5  # real seconds from one look at how far a run has come to the next, roughly
MANY_CANCELLED = 1000  # pushes on the heap, from which it is swept as soon as they are half of it


class VirtualClock:
    """One run of a policy on a virtual clock.

    Events at equal times: faults first, then arrivals in the order in which their tasks started, then timers
    in the order in which they were set.

    Args:
        spec: the run.
        watch: shows a policy that watches its training how it goes.
        progress: is told now and then which share of the run is done.
    """

    def __init__(
        self, spec: RunSpec, watch: Watch | None = None, progress: Callable[[float], None] | None = None
    ):
        workers = spec.cluster.num_workers
        self.spec, self.watch, self.links, self.service = spec, watch, spec.links(), spec.service()
        self.faults = spec.faults if spec.faults.events else None
        self.timers = spec.policy.on_wake is not None
        self.may_look = watch is not None or self.faults is not None or self.timers
        self.pipelined, self.updates_take = spec.transport.pipelined, spec.seconds_per_update > 0
        self.serial = itertools.count()
        self.server = self.new_server()
        self.heap: list[Any] = [END]  # arrivals
        self.timed: list[Any] = []  # what else happens when
        self.progress, self.ticked = progress, 0.0
        self.end = spec.stop.seconds
        self.num_cancelled = 0  # pushes, since the last sweep; at most so many are on the heap
        self.limit = inf  # an event before it is handled without another look
        self.event: Any = None  # that is being handled
        self.sending: list[PushEvent | None] = [None] * workers  # the next push of each worker
        # Copies that each worker will get over a shared link, in order, and how long they have waited before;
        # attempt -> when one was through, and how long it waited on the link.
        self.coming: list[list[tuple[Order, float]]] = [[] for _ in range(workers)]
        self.came: dict[int, tuple[float, float]] = {}
        # A push that the server reads while something else happens: when it is taken, and how long it waited.
        self.read: tuple[PushEvent, float, float] | None = None
        self.computing: list[Computing | None] = [None] * workers
        # Of each worker, from when until when; only where something can fail.
        self.frozen: list[list[tuple[float, float]]] = [[] for _ in range(workers if self.faults else 0)]
        self.away = [0] * workers  # for how many reasons
        self.log: list[dict[str, Any]] = []
        self.checkpoint = (0, 0)  # updates, and length of the journal then
        self.life = 0  # how often the server was restarted
        self.now = 0.0  # when something happened last
        self.pace = self.links.pace  # None: no changes of speed by time
        # Links of the server that are shared equally, of which each transfer is an event.
        self.fair = self.service if isinstance(self.service, FairService) else None
        # Whether a push is sent when it is computed, and arrives at once.
        self.plain = not (self.faults or self.pace or self.pipelined or self.links.pushes_take)
        answers, self.handle_arrival = None, VirtualClock.handle_push
        if self.service is not None:
            self.take, self.handle_arrival = self.service.take, VirtualClock.handle_served
            answers = self.service.answer if self.service.pulls_take else None
        links = self.links, self.links.compute_seconds, self.links.pulls_take
        plain = self.plain and self.fair is None
        self.at_hand = self.heap, self.sending, *links, answers, self.handle_arrival, plain

    def run(self) -> Trace:
        """Runs to the end and returns the trace."""
        heap, last, known = self.heap, self.end, incidents(self.spec.faults)
        for number, incident in enumerate(known, start=-len(known)):
            heappush(self.timed, (incident.time, number, VirtualClock.handle_incident, incident))
        self.set_limit()
        over = self.carry_out(self.server.begin(), 0.0)
        if self.timers:
            over = self.carry_out(self.server.wake(0.0), 0.0)
        first = min(heap[0][0], self.limit)
        if self.progress is not None and first < inf:
            self.at(first, VirtualClock.handle_tick, first + math.ulp(1.0))
        while not over:
            self.event = event = heap[0]
            if event[0] < self.limit or not self.is_late(event[0]):
                over = event[2](self, event)
            else:
                over = self.handle_timed()
            if heap[0] is self.event:
                heappop(heap)
        more = {"incidents": self.log, "ignored_arrivals": self.server.ignored} if self.faults else {}
        end = last if last < math.inf else max(self.now, self.server.last_update)
        return self.server.trace(end, self.spec.metadata("simulate") | more)

    def timer(self) -> float:
        """Returns when the policy's next timer is due; one that was missed fires now."""
        return max(self.server.due, self.now) if self.timers else inf

    def set_limit(self) -> None:
        """Notes when the next event that is no arrival is due, or else the end."""
        limit = self.timed[0][0] if self.timed else inf
        if self.fair is not None and self.fair.due < limit:
            limit = self.fair.due
        self.limit = min(limit, self.timer(), self.end)

    def is_late(self, time: float) -> bool:
        """Whether something else comes before an arrival that is handled at `time`, or the end does."""
        if self.timed and self.timed[0][0] <= time:
            return True
        if self.fair is not None and self.fair.due <= time and self.fair.due < inf:
            return True
        return time > self.end or self.timer() < time

    def handle_timed(self) -> bool:
        """Handles what comes before the next arrival, or ends the run; returns whether it is over.

        Where links are shared, something comes before most arrivals: it then goes on to the end of the run.
        """
        self.event = None  # the arrival stays on the heap
        heap, timed, fair, end, over, timer = self.heap, self.timed, self.fair, self.end, False, inf
        timers = self.timers
        if fair is not None:
            into, out = fair.into, fair.out
        while not over:
            arrival, read = heap[0], self.read
            taken = read[1] if read is not None and read[0] is arrival else arrival[0]
            first = event = timed[0][0] if timed else inf
            if fair is not None:
                if into.due < first:
                    first = into.due
                if out.due < first:
                    first = out.due
            if timers:
                timer = self.timer()
            if (first > taken or first == inf) and timer >= taken:  # nothing comes before the arrival
                if fair is None or taken > end or arrival is END:
                    over = taken > end
                    break
                if (read is None or read[0] is not arrival) and arrival[2] is self.handle_arrival:
                    order = arrival[3]
                    if self.sending[order[0]] is arrival:
                        taken, waited = fair.take(order[0], order[1], taken)
                        self.read = arrival, taken, waited
                        if first <= taken or timer < taken or taken > end:
                            continue
                self.limit = inf
                over = arrival[2](self, arrival)
                if heap[0] is arrival:
                    heappop(heap)
                continue
            if first > end and timer > end:
                return True
            if timer < first:
                over = self.carry_out(self.server.wake(timer), timer)
            elif event == first:
                popped = heappop(timed)
                over = popped[2](self, popped)
            else:
                self.through(first)
        self.set_limit()
        return over

    def through(self, now: float) -> None:
        """A transfer has crossed the server's link, which others shared."""
        assert self.fair is not None
        fair = self.fair
        if fair.out.due < fair.into.due:
            (order, _), waited = fair.out.leave()
            self.copy_is_through(order, now, waited)
            return
        (order, push), waited = fair.into.leave()
        if push is not None and self.sending[order[0]] is push:
            self.push_is_through(push, now, waited)
        else:  # the server has to read it, and it does not count
            fair.take(order[0], order[1], now)
            if push is not None and self.faults is not None:
                self.copy(order, now)
                self.server.ignored += 1

    def handle_tick(self, event: Any) -> bool:
        """Tells how far the run has come, and when to tell it again."""
        now, _, _, step = event
        least, most = TICKS
        took, self.ticked = time.monotonic() - self.ticked, time.monotonic()
        step *= 2 if took < least else 0.5 if took > most else 1
        stop, server = self.spec.stop, self.server
        shares = (now / self.end, server.num_updates / stop.updates, server.samples / stop.samples)
        assert self.progress is not None
        self.progress(min(max(shares), 1.0))
        fair = inf if self.fair is None else self.fair.due
        if self.heap[0] is not END or self.timed or min(fair, self.timer()) < inf:  # else it is a deadlock
            self.at(now + step, VirtualClock.handle_tick, step)
        return False

    def new_server(self) -> Server:
        """Returns a server to which nothing has happened."""
        return Server(self.spec, self.plan, self.serial, keeps_journal=self.faults is not None)

    def carry_out(self, answer: Answer, now: float) -> bool:
        """Carries out what the server answers; returns whether the run is over.

        Workers begin tasks, and the arrivals of their pushes are placed.
        """
        self.now = now
        _, cancel, start = answer
        heap, sending, links, compute_seconds, pulls_take, answers, handle_arrival, plain = self.at_hand
        if (cancel or self.updates_take) and self.service is not None:
            self.serve(answer, now)
        if cancel:
            for worker in cancel:
                sending[worker] = self.computing[worker] = None
            self.num_cancelled += len(cancel)
            if self.num_cancelled > MANY_CANCELLED and 2 * self.num_cancelled > len(heap):
                self.sweep()
        queued = 0.0
        for order in start:
            worker, clock, size, _, pull, begun, serial, _ = order
            if not pull:
                serial = next(self.serial)
            else:
                if answers is not None:
                    begun, queued = answers(worker, clock, begun)
                    if self.fair is not None:
                        self.coming[worker].append((order, queued))
                        if begun > now:
                            self.at(begun, handle_copy_joins, order)
                        else:
                            self.fair.send(self.fair.out, now, order)
                            if self.fair.due < self.limit:
                                self.limit = self.fair.due
                        continue
                if pulls_take:
                    begun += links.pull_seconds(worker, clock)
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
        """Takes pushes that were cancelled off the heap, where they would stay until their time."""
        self.num_cancelled = 0
        if self.faults is not None:
            return  # with faults a push is looked at when it arrives
        push, sending, heap = self.handle_arrival, self.sending, self.heap
        heap[:] = [each for each in heap if each[2] is not push or sending[each[3][0]] is each]
        heapify(heap)

    def serve(self, answer: Answer, now: float) -> None:
        """Lets a server that takes time make an update; what cancelled tasks have sent it will read."""
        assert self.service is not None
        apply, cancel, _ = answer
        if apply:
            self.service.update(now)
            if self.read is not None and self.read[1] > now:  # it goes on reading after the update
                reading, taken, waited = self.read
                took = self.spec.seconds_per_update
                self.read = reading, taken + took, waited + took
        for worker in cancel:
            self.stray(worker, now)

    def stray(self, worker: int, now: float) -> None:
        """Lets the server read what a worker has sent of a task that does not count any more."""
        event = self.sending[worker]
        if event is None or event[6] >= now or (self.read is not None and self.read[0] is event):
            return  # not sent yet, or the server is reading it
        if event[2] is self.handle_arrival:
            heappush(self.heap, (event[0], next(self.serial), VirtualClock.handle_read, event[3]))
        elif event[0] > now:  # not on the server's link yet
            self.at(event[0], VirtualClock.handle_stray, event[3])

    def sent(
        self, order: Order, serial: int, begun: float, end: float, now: float, queued: float
    ) -> PushEvent | None:
        """Returns the event of the push that a worker sends next, with changes of its speed by time, faults,
        pipelines and links."""
        worker, clock, size, _, _, since, _, _ = order
        if self.pace is not None:
            end = self.links.finish(worker, clock, size, begun)
        departs = end
        if self.faults is not None and self.frozen[worker]:
            begun, departs = self.thaw(worker, since, begun, end)
            end = departs
        if self.pipelined:
            before = self.computing[worker]
            if before is not None and begun < before[3]:
                begun, end = before[3], self.links.finish(worker, clock, size, before[3])
            self.computing[worker] = (serial, order, begun, end, queued)
            if before is None:
                return None
            # With the copy on which this task is computed comes leave to push the task before it.
            departs = begun
            serial, order, begun, end, queued = before
        arrival = departs
        if self.links.pushes_take:
            arrival += self.links.push_seconds(worker, order.clock)
        # Pushes of one worker arrive in order; on a shared link, when the one before has been taken.
        ready, alone = arrival, self.event is None or self.fair is not None
        arrival = max(arrival, now if alone else self.event[0])
        waited = arrival - ready if self.fair is not None else 0.0
        if self.faults is not None:
            arrival += self.faults.deliveries(worker, order.clock)[0]
        handler = handle_push_joins if self.fair is not None else self.handle_arrival
        event = (arrival, serial, handler, order, begun, end, departs, queued, waited)
        if arrival < inf and self.fair is None:
            return event
        self.sending[worker] = event
        self.place(event)
        return None

    def place(self, event: Any) -> None:
        """Places a push where it is handled when it arrives; never, if that is never."""
        if event[0] < inf:
            heappush(self.timed if self.fair is not None else self.heap, event)
            if self.fair is not None and event[0] < self.limit:
                self.limit = event[0]

    def at(self, time: float, handler: Callable[[Any, Any], bool], *what: Any) -> None:
        """Lets a handler be called at a time that is not an arrival's."""
        heappush(self.timed, (time, next(self.serial), handler, *what))
        if time < self.limit:
            self.limit = time

    def push_is_through(self, event: PushEvent, now: float, waited: float) -> None:
        """The server's processor may take a push."""
        _, serial, _, order, begun, computed, departs, queued, before = event
        handler, waited = self.handle_arrival, before + waited
        arrived = (now, serial, handler, order, begun, computed, departs, queued, waited)
        self.sending[order.worker] = arrived
        heappush(self.heap, arrived)

    def copy_is_through(self, order: Order, now: float, waited: float) -> None:
        """A worker gets its copy, and computes; copies of one worker arrive in order."""
        coming = self.coming[order.worker]
        if coming[0][0] is not order:  # it waits for the copies before it
            self.came[order.attempt] = now, waited
            return
        through = now
        while True:
            worker, clock, size, _, _, _, attempt, _ = order
            _, queued = coming.pop(0)
            if order in self.server.flight[worker]:  # else it was cancelled or lost
                begun = now + self.links.pull_seconds(worker, clock) if self.links.pulls_take else now
                end = begun + self.links.compute_seconds(worker, clock, size)
                queued += waited + now - through
                if self.plain:
                    event = (end, attempt, handle_push_joins, order, begun, end, end, queued, 0.0)
                    self.sending[worker] = event
                    heappush(self.timed, event)
                else:
                    self.sent(order, attempt, begun, end, now, queued)
            if not coming or coming[0][0].attempt not in self.came:
                return
            order = coming[0][0]
            through, waited = self.came.pop(order.attempt)

    def look(self, answer: Answer, now: float) -> None:
        """Shows a watching policy its training, takes the server's checkpoint, and looks at its timers."""
        server = self.server
        if self.timers:
            self.set_limit()
        if self.watch is not None and server.looks:
            server.observe(*self.watch(server.progress(now)._replace(life=self.life)))
        if self.faults is None or not answer[0] or server.pending:
            return
        if server.num_updates >= self.checkpoint[0] + self.faults.checkpoint_every:
            self.checkpoint = (server.num_updates, len(server.journal or ()))

    def plan(self, order: Order) -> tuple[float, float, float]:
        """Returns when a task's computing begins and ends, and how long its pull waits in queues."""
        worker = order.worker
        sending, computing = self.sending[worker], self.computing[worker]
        if sending is not None and sending[3] is order:
            return sending[4], sending[5], sending[7]
        if computing is not None and computing[1] is order:
            return computing[2], computing[3], computing[4]
        if self.fair is not None:  # its copy is under way, unless the server has forgotten it
            return inf, inf, next((queued for each, queued in self.coming[worker] if each is order), 0.0)
        due = self.links.computing(worker, order.clock, order.batch_size, order.pull, order.time)
        return (*due, 0.0)

    def handle_end(self, event: Any) -> bool:
        """Nothing is left that could happen."""
        raise self.server.deadlock(self.now)

    def handle_push(self, event: PushEvent) -> bool:
        """A push arrives, unless its task was cancelled, lost or put off since it was placed on the heap."""
        now, _, _, order, begun, computed, _, _, _ = event
        if self.sending[order[0]] is not event:
            return self.miss(order, now)
        answer = self.server.push(order, now, begun, computed)
        if self.faults is not None:
            self.copy(order, now)
        if answer is not NOTHING:
            return self.carry_out(answer, now)
        self.now = now
        return False

    def handle_served(self, event: PushEvent) -> bool:
        """The same at a server that takes time: the push waits its turn, and is read."""
        arrived, _, _, order, begun, computed, _, queued, waited = event
        worker = order[0]
        if self.sending[worker] is not event:
            return self.miss(order, arrived)
        read = self.read
        if read is not None and read[0] is event:
            _, now, wait = read
        else:
            now, wait = self.take(worker, order[1], arrived)
        if now >= self.limit and self.is_late(now):  # so late that something else happens first
            self.read = event, now, wait
            return self.handle_timed()
        self.sending[worker] = None
        answer = self.server.push(order, now, begun, computed, queued, waited + wait)
        if self.faults is not None:
            self.copy(order, arrived)
        if answer is not NOTHING:
            return self.carry_out(answer, now)
        self.now = now
        return False

    def miss(self, order: Order, now: float) -> bool:
        """What arrives does not count any more."""
        if self.faults is not None and order not in self.server.flight[order[0]]:
            self.copy(order, now)
            self.server.ignored += 1
        return False

    def copy(self, order: Order, now: float) -> None:
        """Lets a push that was sent more than once arrive again."""
        assert self.faults is not None
        for later in self.faults.deliveries(order.worker, order.clock)[1:]:
            self.place((now + later, next(self.serial), VirtualClock.handle_copy, order))

    def handle_copy(self, event: Any) -> bool:
        """A push arrives again, and does not count."""
        self.server.ignored += 1
        return self.handle_stray(event)

    def handle_stray(self, event: Any) -> bool:
        """A push arrives that does not count: the server has to read it."""
        if self.service is not None:
            now, _, _, order = event
            if self.fair is not None:
                self.fair.send(self.fair.into, now, order)
            else:
                self.handle_read(event)
        return False

    def handle_read(self, event: Any) -> bool:
        """The server reads a push that does not count."""
        assert self.service is not None
        now, _, _, order = event
        self.service.take(order[0], order[1], now)
        return False

    def handle_incident(self, event: Any) -> bool:
        """A worker or the server fails or comes back."""
        now, _, _, incident = event
        getattr(self, incident.kind)(incident, now)
        return self.server.over

    def freeze(self, incident: Incident, now: float) -> None:
        """A worker does nothing for a while; what it has sent is on its way."""
        worker, seconds, pace = incident.worker, incident.seconds, self.pace
        self.note(incident, now)
        idle = max([now, *(end for _, end in self.frozen[worker])])  # it goes on at this time + seconds
        self.frozen[worker].append((now, now + seconds))

        def put_off(time: float) -> float:
            return time if time <= now else time + seconds

        def computed_by(begun: float, computed: float, again: float) -> float:
            """When computing ends that was to begin and end at these times, and now begins at `again`."""
            if pace is None or computed <= now:
                return put_off(computed)
            stops = (begun, again) if begun > now else (idle, idle + seconds)
            return pace.resumed(worker, computed, *stops)

        sending, computing = self.sending[worker], self.computing[worker]
        if sending is not None and sending[6] <= now:
            sending = None
        free = leaves = -inf  # when the task that it sends next is computed, and is sent
        if sending is not None:
            arrival, _, handler, order, begun, computed, departs, *queued = sending
            again = put_off(begun)
            free = leaves = computed_by(begun, computed, again)
        if computing is not None:
            serial, its_order, its_begun, its_computed, its_queued = computing
            leaves = put_off(its_begun)
            if pace is not None and sending is not None:  # it begins when the task before it is computed
                leaves = free if its_begun == computed else max(leaves, free)
            its_end = computed_by(its_begun, its_computed, leaves)
            self.computing[worker] = (serial, its_order, leaves, its_end, its_queued)
        if sending is not None:
            later = seconds if pace is None or leaves == inf else leaves - departs
            number, (pulled, pushed) = next(self.serial), queued
            event = (arrival + later, number, handler, order, again, free, leaves, pulled, pushed)
            self.sending[worker] = event
            self.place(event)

    def thaw(self, worker: int, since: float, begun: float, computed: float) -> tuple[float, float]:
        """Returns when a task let begin at `since` begins and ends, its worker's freezes included."""
        pace = self.pace
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
        """A worker is gone, with its copy and its tasks."""
        worker = incident.worker
        self.away[worker] += 1
        if self.away[worker] == 1:
            self.note(incident, now)
            self.lose(worker, now)

    def lose(self, worker: int, now: float) -> None:
        """The server hears that a worker is gone."""
        answer = self.server.leave(worker, now)
        if self.service is not None:
            self.stray(worker, now)
        self.sending[worker] = self.computing[worker] = None
        self.carry_out(answer, now)

    def join(self, incident: Incident, now: float) -> None:
        """A worker is back, without a copy."""
        worker = incident.worker
        self.away[worker] -= 1
        if self.away[worker] == 0:
            self.note(incident, now)
            self.frozen[worker].clear()
            self.carry_out(self.server.join(worker, now), now)

    def down(self, incident: Incident, now: float) -> None:
        """The server is gone for a while: nothing arrives, and it goes on from its last checkpoint."""
        updates, length = self.checkpoint
        self.note(incident, now, lost_updates=self.server.num_updates - updates)
        self.now = back = now + incident.seconds
        if self.service is not None:
            self.service.reset(back)
        ignored, journal = self.server.ignored, (self.server.journal or [])[:length]
        before, self.server = self.server, self.new_server().restore(journal)
        if self.service is not None:
            self.server.recall(before)
            self.read = None
        self.server.ignored = ignored
        self.life += 1
        workers = range(self.server.num_workers)
        for worker in workers:
            self.sending[worker] = self.computing[worker] = None
        # What happens to workers meanwhile, the server learns when it is back; what was sent is lost.
        self.heap[:] = [END]
        self.came.clear()
        for copies in self.coming:
            copies.clear()
        stay = VirtualClock.handle_incident, VirtualClock.handle_tick
        kept = [each for each in self.timed if each[2] in stay]
        self.timed[:] = [(max(time, back), *rest) for time, *rest in kept]
        heapify(self.timed)
        self.set_limit()
        if back >= self.end:
            self.timed.clear()  # nothing happens any more
            self.server.timers.clear()
            return
        gone = {worker for worker in workers if self.away[worker]}
        self.carry_out(self.server.resume(back), back)
        for worker in sorted(self.server.present & gone):
            self.lose(worker, back)
        for worker in sorted({*workers} - gone - self.server.present):
            self.carry_out(self.server.join(worker, back), back)

    def note(self, incident: Incident, now: float, **more: Any) -> None:
        """Logs what happened, for the trace's metadata."""
        self.now = now
        self.log.append(incident._replace(time=now)._asdict() | more)


# The last event of every run, if nothing ends it before.
END = (inf, inf, VirtualClock.handle_end)


def make_timeline(
    spec: RunSpec, watch: Watch | None = None, progress: Callable[[float], None] | None = None
) -> Trace:
    """Returns the trace of a run on a virtual clock; `progress` is told which share of it is done."""
    # The run makes few cycles, and the collector would look through all tasks in flight again and again.
    collects = gc.isenabled()
    gc.disable()
    clock = None
    try:
        clock = VirtualClock(spec, watch, progress)
        return clock.run()
    finally:
        if clock is not None:
            vars(clock).clear()  # the server refers to the clock: a cycle, which holds every task of the run
        if collects:
            gc.enable()
