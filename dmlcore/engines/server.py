"""The server's state machine: what a policy has decided, which worker has which task, and the record of it.

It has no clock and no gradients. Engines tell it what happened when, and carry out what it answers: the same
state machine runs on a virtual clock, in threads and on a cluster.
"""

from __future__ import annotations

import copy
import itertools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from dmlcore import checks
from dmlcore.engines import mistakes
from dmlcore.engines.spec import MOST, RunSpec
from dmlcore.trace import Trace
from dmlcore.trace.record import LANDED, ROW, Rows, land, pack, tasks_frame, updates_frame
from dmlcore.types import NOTHING_YET, Decision, Observation, Progress, Push, Start

MOST_TASKS = 200_000  # without an update, before a run that is to end with updates is given up; or timers
FURTHEST = 2**30  # clock that a policy may ask for: from there on there are as many again
OWN = "state", "load_state"  # of the policy and the load: anything
# What changes from call to call, but for the journal.
STATE = (
    *OWN, "_cancels", "_clock", "_done", "_free", "_last_cut", "_look", "_looked", "_num_cut", "_num_timers",
    "_passed", "_patience", "_redone", "_times", "_wakes", "_woken", "flight", "ignored", "num_updates",
    "over", "pending", "present", "record", "samples", "timers",
)  # fmt: skip
NOTHING_TOLD = (0, 1.0)  # of its copy, to a worker that does not keep it
nan = math.nan
new = tuple.__new__  # half the cost of a named tuple's own constructor, on the path of every push


class Order(NamedTuple):
    """A task that a worker has.

    Args:
        worker: 0-based.
        clock: number of the task.
        batch_size: samples.
        version: of the parameters that the worker pulls, or has.
        pull: whether the worker pulls, or goes on with its cached copy.
        time: when it was let go, after the update that let it; where it keeps its copy, when it had computed
            the task before; seconds.
        attempt: serial number of the pull, since a task that was lost may be given out again.
        told: when it pulled, see `Policy.on_pull`: the clock of its copy, for `Policy.keep_copy`, and the
            weight of its tasks in their updates for as long as it keeps the copy.
    """

    worker: int
    clock: int
    batch_size: int
    version: int
    pull: bool
    time: float
    attempt: int
    told: tuple[int, float]

    def following(self, time: float) -> Order:
        """Returns the next task of a worker that keeps its copy: it has computed this one at `time`."""
        worker, clock, batch_size, version, _, _, attempt, told = self
        return new(Order, (worker, clock + 1, batch_size, version, False, time, attempt, told))


# What an engine has to carry out, in this order: (worker, clock, weight) of the pushes that form an update,
# none where it is empty; workers that throw their tasks away; tasks that begin.
Answer = tuple[Sequence[tuple[int, int, float]], Sequence[int], Sequence[Order]]
NOTHING: Answer = ((), (), ())


class Server:
    """One run of a policy: every call is something that happened; the answer is what it leads to.

    Guarantees: a push counts once, however often it arrives; what a cancelled or lost task sends is ignored;
    the same calls give the same answers, so that a server is restored from its journal (`restore`).

    Args:
        spec: the run.
        plan: order -> when its computing begins and ends as planned, and how long its pull waits in the
            server's queues; for tasks that are cut.
        serial: numbers of attempts, which a restored server must not use again.
        keeps_journal: whether the server may have to be restored.
    """

    # In a dictionary they take longer to look up, at every push.
    __slots__ = (
        "_at_push", "_cancels", "_clock", "_depth", "_done", "_free", "_last_cut", "_look",
        "_looked", "_most", "_noted", "_num_cut", "_num_timers", "_passed", "_patience", "_patient",
        "_plan", "_redone", "_serial", "_starting", "_times", "_update_seconds", "_wakes", "_woken",
        "flight", "ignored", "journal", "load", "load_state", "num_updates", "over", "pending", "policy",
        "present", "record", "samples", "spec", "state", "timers",
    )  # fmt: skip

    def __init__(
        self,
        spec: RunSpec,
        plan: Callable[[Order], tuple[float, float, float]],
        serial: Iterator[int] | None = None,
        keeps_journal: bool = True,
    ):
        self.spec, self.policy, self.load, self._plan = spec, spec.policy, spec.load, plan
        self._serial = itertools.count() if serial is None else serial
        # Tasks without an update, or without an end in sight, before a run is given up.
        self._patient = max(MOST_TASKS, 2 * self.num_workers)
        self._most = min(spec.stop.updates, self._patient), spec.stop.samples  # updates, before a look
        with checks.noting(
            f"init under {self.policy.name}, load {self.load.name}, {self.num_workers} workers"
        ):
            self.state = self.policy.init(self.num_workers)
            self.load_state = self.load.init(self.num_workers, spec.batch_size * self.num_workers)
        self.present = set(range(self.num_workers))
        self.flight: list[tuple[Order, ...]] = [()] * self.num_workers  # tasks of each worker
        self.num_updates = self.samples = 0
        self.over = False
        self.journal: list[tuple[Any, ...]] | None = [] if keeps_journal else None
        self.ignored = 0  # arrivals that did not count
        # Pushes not applied yet, by worker and clock: row of the record, and task.
        self.pending: dict[tuple[int, int], tuple[int, Order]] = {}
        self.record = bytearray()  # packed rows of `Task`
        # Pending timers, a heap: when each is due, its number in the order of setting, token. The first of
        # all is there from the start.
        self.timers: list[tuple[float, int, Any]] = [] if self.policy.on_wake is None else [(0.0, 0, None)]
        self._num_timers = len(self.timers)  # set so far
        self._wakes: list[tuple[float, int, int]] = []  # when, rows of the record by then, timer
        self._woken: tuple[float, int] = (nan, 0)  # since when no progress was made, and timers since then
        self._update_seconds = spec.seconds_per_update
        self._depth = 2 if spec.transport.pipelined else 1  # tasks that a worker has at once
        self._done = [-1] * self.num_workers  # clock of each worker's last push
        self._free = [0.0] * self.num_workers  # and when it was computed
        self._clock = [-1] * self.num_workers  # and of the last task that it began
        self._last_cut = [-1] * self.num_workers  # highest clock of each worker's tasks that were cut
        self._num_cut = 0  # tasks that were cut, and not redone
        self._cancels: list[float] = []  # when workers were cancelled by a decision without an update
        self._redone: set[int] = set()  # rows of attempts that were lost and made again
        self._times: list[float] = []  # of updates
        self._looked = 0
        self._patience = self._patient  # row of the record by which an update must have been made
        self._passed = 0.0, 0  # time and rows of the record, at the last look at whether time passes
        self._look = 0 if self.policy.on_observation is not None else math.inf
        # Where the load rule never changes them, sizes are asked once.
        fixed = self.load.observe is None and self.policy.batch_size is None
        sizes = [self._size(worker, 0) for worker in range(self.num_workers)] if fixed else None
        lists = self.present, self.flight, self._clock, self._last_cut
        # At every push: a field of a named tuple takes three times as long to look up.
        kept = self.flight, self._done, self._free, self.record, self.pending
        self._at_push = self.policy.on_push, self.policy.keep_copy, *kept
        self._noted = self.journal is not None or self.load.observe is not None
        self._starting = self._depth, *lists, sizes, self.policy.on_pull

    @property
    def num_workers(self) -> int:
        """Of the cluster, present or not."""
        return self.spec.cluster.num_workers

    def begin(self) -> Answer:
        """Every worker starts its clock 0 on version 0 at time 0; in a pipeline, its clock 1 too."""
        size = self.policy.batch_size
        tasks = [Start(w, size) for w in range(self.num_workers)]
        return (), (), [order for depth in range(self._depth) for order in self._start(tasks, 0.0, depth + 1)]

    def find(self, worker: int, clock: int, attempt: int) -> Order | None:
        """Returns the task of which a push arrives; None: it does not count, and is noted as ignored."""
        for order in self.flight[worker]:
            if order.clock == clock and order.attempt == attempt:
                return order
        self.ignored += 1
        return None

    def push(
        self,
        order: Order,
        time: float,
        begun: float,
        computed: float,
        pull_queued: float = 0.0,
        push_queued: float = 0.0,
    ) -> Answer:
        """The server takes the push of a task in flight, which was computed from `begun` to `computed`, and
        has waited in queues for so many seconds."""
        worker, clock, size, version, pull, since, _, told = order
        on_push, keep_copy, flights, done, free, record, pending = self._at_push
        flight = flights[worker]
        left = () if len(flight) == 1 else _without(flight, order)
        done[worker], free[worker] = clock, computed
        row = len(record) // ROW
        kept: tuple[Order, ...] = ()
        try:
            keeps = keep_copy is not None and keep_copy(told[0], clock + 1)
            push = new(Push, (worker, clock, version, time, computed - begun, size, keeps))
            if self._noted:
                self._note_push(push, begun, computed, pull_queued, push_queued)
            if keeps:  # its worker has kept its copy and begun its next task when it had computed this one
                self._clock[worker] = clock + 1
                kept = (order.following(computed),)
                left = (*left, *kept) if left else kept
            flights[worker] = left
            answer = on_push(self.state, push)
        except Exception as error:
            error.add_note(self._where(f"push of worker {worker}, clock {clock}", time))
            raise
        alone = False  # whether the decision makes an update of this push, and nothing else but starts
        try:
            self.state, decision = answer
            if decision is not NOTHING_YET:
                apply, drop, cancel, start, wake = decision
                if count := len(apply):
                    first, its_clock, weight = apply[0]
                    alone = count == 1 and first == worker and its_clock == clock and wake is None
                    alone = alone and not (drop or cancel)
                len(start)  # it has a length
        except (TypeError, ValueError, LookupError):
            decision, alone = self._read("on_push", answer), False
        number = self.num_updates if alone else -1
        pulled = since if pull else nan
        try:
            record += pack(
                worker, clock, size, version, pulled, begun, computed, time, pull_queued, push_queued,
                weight if alone else 0.0, number,
            )  # fmt: skip
        except struct.error:
            mistakes.check_parts(self.policy, decision)
            raise
        if not alone:
            pending[worker, clock] = row, order
            if decision is not NOTHING_YET or row >= self._patience:
                return self._carry_out(decision, time, kept)
            return ((), (), kept) if kept else NOTHING

        # The short way of most pushes: each is an update.
        if kept and weight != told[1]:
            raise mistakes.other_weight(self.policy, order, weight)
        if self._update_seconds:
            time = self._updated(time)
        self._times.append(time)
        self.num_updates = number = number + 1
        self.samples = samples = self.samples + size
        updates, enough = self._most
        over = (number >= updates or samples >= enough) and self._ends(time)
        if start and not over:
            try:
                started = self._start(start, time)
            except Exception:
                mistakes.check_parts(self.policy, decision)
                raise
            return apply, (), [*kept, *started] if kept else started
        return apply, (), kept

    def _note_push(self, push: Push, *times: float) -> None:
        """Notes a push, computed from when until when, with its waits, for those that may want to know it."""
        if self.journal is not None:
            self.journal.append(("push", push.worker, push.clock, push.time, *times))
        if self.load.observe is not None:
            self.load_state = self.load.observe(self.load_state, push)

    def leave(self, worker: int, time: float) -> Answer:
        """A worker is gone; the tasks that it had are lost."""
        self._note("leave", worker, time)
        self._cut(worker, time)
        self.present.remove(worker)
        return self._decided("on_leave", f"worker {worker} leaves", time, worker, time)

    def join(self, worker: int, time: float) -> Answer:
        """A worker is back, without a copy."""
        self._note("join", worker, time)
        self.present.add(worker)
        return self._decided("on_join", f"worker {worker} joins", time, worker, time)

    def wake(self, time: float) -> Answer:
        """The timer that is due first fires."""
        if self.journal is not None:
            self.journal.append(("wake", time))
        _, number, token = heappop(self.timers)
        self._wakes.append((time, len(self.record) // ROW, number))
        self._check_wakes(time)
        return self._decided("on_wake", f"timer {token!r}", time, token, time)

    @property
    def due(self) -> float:
        """When the next timer is due, seconds; infinite where none is pending."""
        return self.timers[0][0] if self.timers else math.inf

    @property
    def looks(self) -> bool:
        """Whether it is time to show the policy how its training goes."""
        return self.num_updates >= self._look and not self.over

    def observe(self, *seen: Any) -> None:
        """Shows the policy an `Observation`, whose fields these are."""
        if self.journal is not None:
            self.journal.append(("observe", *seen))
        assert self.policy.on_observation is not None
        observation = Observation(*seen)
        try:
            self.state = self.policy.on_observation(self.state, observation)
        except Exception as error:
            error.add_note(self._where(f"observation of update {observation.update}", observation.time))
            raise
        self._looked = self.num_updates
        # At first after 0, 1, 2, 4, 8, ... updates.
        self._look = self.num_updates + min(self.policy.observe_every, max(self.num_updates, 1))

    def progress(self, time: float) -> Progress:
        """Returns how far the run has come."""
        live = {self.num_updates, *(order.version for orders in self.flight for order in orders)}
        live.update(order.version for _, order in self.pending.values())
        rows = Rows(self.record)
        oldest = min((row for row, _ in self.pending.values()), default=len(rows))
        return Progress(time, self.num_updates, rows, live, self._looked, oldest)

    def resume(self, time: float) -> Answer:
        """The server is back from a checkpoint: tasks in flight begin again on the version that it has."""
        if self.journal is not None:
            self.journal.append(("resume", time))
        again: list[Order] = []
        time = max(time, self.last_update)  # an update under way was made first
        for worker, orders in enumerate(self.flight):
            self.flight[worker] = ()
            for depth, (_, clock, size, *_) in enumerate(orders, start=1):
                again += self._start([Start(worker, size, clock)], time, depth)
        return (), (), again

    def snapshot(self) -> dict[str, Any]:
        """Returns all that changes in a server from call to call, in copies.

        Raises:
            Exception: as `copy.deepcopy` of a policy's state or a load's.
        """
        found = {name: getattr(self, name) for name in STATE}
        return {
            name: copy.deepcopy(value) if name in OWN else copy.copy(value) for name, value in found.items()
        }

    def restore(
        self, journal: Sequence[tuple[Any, ...]], since: tuple[int, dict[str, Any]] | None = None
    ) -> Server:
        """Brings a new server to where the one that kept this journal was.

        `since`: how long the journal was when a snapshot was taken, and the snapshot; what came before is not
        gone through again.
        """
        # What it already has is not noted again.
        self.journal, self._noted = None, self.load.observe is not None
        first = 0
        if since is None:
            self.begin()
        else:
            first, before = since
            for name, value in before.items():
                own = getattr(self, name)
                if name in OWN:
                    setattr(self, name, copy.deepcopy(value))
                elif isinstance(own, list | bytearray):  # others refer to it
                    own[:] = value
                elif isinstance(own, set | dict):
                    own.clear()
                    own.update(value)
                else:
                    setattr(self, name, value)
        flight, push = self.flight, self.push
        for kind, *happened in itertools.islice(journal, first, None):
            if kind == "push":
                worker, clock, *times = happened
                order = flight[worker][0]
                if order[1] != clock:
                    (order,) = (order for order in flight[worker] if order.clock == clock)
                push(order, *times)
            else:
                getattr(self, kind)(*happened)
        self.journal, self._noted = [*journal], True
        return self

    def recall(self, before: Server) -> None:
        """Takes over the record of the server that kept the journal: it knew how cut tasks were planned."""
        self.record[:] = before.record[: len(self.record)]  # a checkpoint is taken when nothing is pending

    @property
    def has_cut(self) -> bool:
        """Whether some task never arrived, and was not begun again."""
        return self._num_cut > 0

    @property
    def num_tasks(self) -> int:
        """How many tasks arrived or were cut."""
        return len(self.record) // ROW

    @property
    def last_update(self) -> float:
        """When the last update was made, seconds; 0 before the first."""
        return self._times[-1] if self._times else 0.0

    def check_alive(self, time: float) -> None:
        """Raises RuntimeError where nothing will ever happen: no worker has a task, no timer is set."""
        if self.over or self.timers:
            return
        # In a pipeline a worker sends a task when it begins the next one.
        if not any(len(orders) == self._depth for orders in self.flight):
            raise self.deadlock(time)

    def deadlock(self, time: float) -> RuntimeError:
        """Returns what to raise where nothing will ever happen."""
        return mistakes.deadlock(self.policy, time, self.num_updates, len(self.present))

    def trace(self, time: float, metadata: dict[str, Any]) -> Trace:
        """Ends the run at `time` and returns its trace."""
        for worker in range(self.num_workers):
            self._cut(worker, time)
        tasks = tasks_frame(self.record, self.spec.cluster.server is not None)
        if self.policy.on_wake is not None:
            metadata = metadata | {"wakes": self._wakes_after(tasks["push_end"].notna())}
        if self._cancels:
            metadata = metadata | {"cancels": self._cancels}
        if self._redone:
            tasks = tasks.drop(index=sorted(self._redone)).reset_index(drop=True)
        trace = Trace(tasks, updates_frame(self._times, tasks), metadata | {"end_time": time})
        try:
            return trace.validate()
        except ValueError as error:
            where = f"{self.policy.name} on {self.spec.cluster}"
            raise ValueError(f"{where} recorded an invalid trace: {error}") from error

    def _note(self, hook: str, worker: int, time: float) -> None:
        if getattr(self.policy, f"on_{hook}") is None:
            raise mistakes.no_hook(self.policy, f"on_{hook}", worker)
        if self.journal is not None:
            self.journal.append((hook, worker, time))

    def _decided(self, hook: str, event: str, time: float, *happened: Any) -> Answer:
        """Carries out what the policy decides about something that happened; a load that has such a hook is
        told before."""
        try:
            if (tell := getattr(self.load, hook, None)) is not None:
                self.load_state = tell(self.load_state, happened[0])
            answer = getattr(self.policy, hook)(self.state, *happened)
        except Exception as error:
            error.add_note(self._where(event, time))
            raise
        return self._carry_out(self._read(hook, answer), max(time, self.last_update))

    def _where(self, event: str, time: float) -> str:
        return mistakes.where(self.policy, self.load, event, time)

    def _read(self, hook: str, answer: Any) -> Decision:
        """Returns the decision in a policy's answer, and takes over the state."""
        try:
            self.state, (apply, drop, cancel, start, *timer) = answer
            (wake,) = timer or (None,)  # four fields are a decision without a timer
            _ = len(apply), len(cancel), len(start)  # they have a length
        except (TypeError, ValueError, LookupError):
            raise mistakes.no_decision(self.policy, hook, answer) from None
        return Decision(apply, drop, cancel, start, wake)

    def _carry_out(
        self, decision: tuple[Any, Any, Any, Any, Any], time: float, kept: tuple[Order, ...] = ()
    ) -> Answer:
        """Carries out a decision; `kept` is the task that a worker has begun without the server."""
        apply, drop, cancel, start, wake = decision
        try:
            pending, keeps = self.pending, self.policy.keep_copy
            if apply:
                samples, number, record = 0, self.num_updates, self.record
                for worker, clock, weight in apply:
                    found = pending.pop((worker, clock), None)
                    if found is None:
                        raise mistakes.not_at_server(self.policy, "applies", (worker, clock))
                    row, order = found
                    if keeps is not None and weight != order[7][1] and keeps(order[7][0], clock + 1):
                        raise mistakes.other_weight(self.policy, order, weight)
                    samples += order[2]
                    land(record, row * ROW + LANDED, weight, number)
                time = self._updated(time)
                self._times.append(time)
                self.num_updates = number + 1
                self.samples += samples
                updates, enough = self._most
                if (self.num_updates >= updates or self.samples >= enough) and self._ends(time):
                    return apply, (), kept
            elif len(self.record) // ROW > self._patience:
                self._check_updates(time)
            for key in drop:
                if pending.pop(key, None) is None:
                    raise mistakes.not_at_server(self.policy, "drops", key)
            if cancel and not apply:
                self._cancels.append(time)
            cut, workers = self._cut, len(self.flight)
            for worker in cancel:
                if not 0 <= worker < workers:
                    raise mistakes.unknown_worker(self.policy, "cancels", worker, time)
                cut(worker, time)
            started = self._start(start, time)
            if wake is not None:
                self._set_timer(wake, time)
            return apply, cancel, [*kept, *started] if kept else started
        except Exception:
            mistakes.check_parts(self.policy, decision)
            raise

    def _set_timer(self, wake: Any, time: float) -> None:
        """Sets the timer that a decision of this time asks for."""
        policy = self.policy
        if policy.on_wake is None:
            raise mistakes.no_on_wake(policy, wake)
        try:
            seconds, token = wake
        except (TypeError, ValueError):
            raise mistakes.no_timer(policy, wake) from None
        due = time + checks.real(f"{policy.name}, seconds of wake", seconds, low=0)
        if due < math.inf:
            heappush(self.timers, (due, self._num_timers, token))
        self._num_timers += 1

    def _check_wakes(self, time: float) -> None:
        """Raises RuntimeError where timers alone would keep a run from its end."""
        progress = self.num_updates if self.spec.stop.seconds == math.inf else time
        since, count = self._woken
        self._woken = (since, count + 1) if since == progress else (progress, 1)
        if self._woken[1] > MOST_TASKS:
            raise mistakes.only_wakes(self.policy, time, self.num_updates, MOST_TASKS)

    def _wakes_after(self, arrived: Any) -> list[list[float | int]]:
        """Returns of each timer that fired when, after how many pushes, and its number.

        `arrived`: of each row of the record, whether its push arrived.
        """
        pushes = [0, *arrived.cumsum().tolist()]
        return [[time, pushes[row], number] for time, row, number in self._wakes]

    def _updated(self, time: float) -> float:
        """Returns when an update is made that is decided now; one that is under way at the end counts."""
        return min(time + self._update_seconds, max(self.spec.stop.seconds, time))

    def _ends(self, time: float) -> bool:
        """Whether the run is over after the update of this time; if not, looks at whether it ever will be."""
        stop = self.spec.stop
        self.over = self.num_updates >= stop.updates or self.samples >= stop.samples
        if not self.over:
            self._check_time(time)
            self._most = min(stop.updates, self.num_updates + self._patient), stop.samples
        return self.over

    def _check_time(self, time: float) -> None:
        """Raises RuntimeError where a run that is to end with seconds needs more tasks than there can be."""
        end, rows = self.spec.stop.seconds, len(self.record) // ROW
        since, before = self._passed
        tasks, left = rows - before, end - time
        if end == math.inf or tasks < self._patient:
            return
        if left * tasks > MOST * self.num_workers * (time - since):
            raise mistakes.no_time(self.policy, time, end, tasks, time - since)
        self._passed = time, rows

    def _check_updates(self, time: float) -> None:
        """Raises RuntimeError where a run makes no update that is to end with them, or no time passes."""
        last = Rows(self.record).last_applied()
        rows = len(self.record) // ROW
        if rows > last + self._patient and self.spec.stop.seconds == math.inf:
            raise mistakes.never_updates(self.policy, time, self.num_updates, self._patient)
        self._check_time(time)
        self._patience = max(last, rows - 1) + self._patient

    def _start(self, start: Sequence[Start], time: float, depth: int = 0) -> list[Order]:
        """Gives out tasks, until each worker has `depth`: by default as many as fill its pipeline."""
        orders: list[Order] = []
        full, present, flights, clocks, last_cut, sizes, on_pull = self._starting
        version, serial, told = self.num_updates, self._serial, NOTHING_TOLD
        for worker, asked, ahead in start:
            if worker not in present:
                raise mistakes.cannot_start(self.policy, worker, False, time)
            flight = flights[worker]
            if flight and len(flight) >= (depth or full):
                raise mistakes.cannot_start(self.policy, worker, True, time)
            clock = clocks[worker] + 1
            if ahead is not None:
                clock = self._ahead(worker, ahead, clock if flight else 0)
            clocks[worker] = clock
            if clock <= last_cut[worker]:
                self._redo(worker, clock)
            try:
                known = sizes if asked is None else None
                size = self._size(worker, clock, asked) if known is None else known[worker]
                if on_pull is not None:
                    told = on_pull(self.state, worker)
            except Exception as error:
                error.add_note(self._where(f"start of worker {worker}, clock {clock}", time))
                raise
            if on_pull is not None:
                try:
                    _, _ = told
                except (TypeError, ValueError):
                    raise mistakes.nothing_told(self.policy, told) from None
            order = new(Order, (worker, clock, size, version, True, time, next(serial), told))
            flights[worker] = (*flight, order) if flight else (order,)
            orders.append(order)
            if full > 1 and len(flights[worker]) < (depth or full):
                orders += self._start([Start(worker, asked)], time, depth)
        return orders

    def _redo(self, worker: int, clock: int) -> None:
        """Strikes out the last attempt at a task that was cut, if there was one: it begins again."""
        row = Rows(self.record).last(worker, clock)
        if row >= 0 and row not in self._redone:
            self._redone.add(row)
            self._num_cut -= 1

    def _ahead(self, worker: int, clock: int, least: int) -> int:
        """Returns the clock that a policy asks for; in a pipeline one that is not being computed."""
        if type(clock) is not int or clock > FURTHEST:
            name = f"{self.policy.name}, worker {worker}"
            clock = checks.integer(name, clock, low=0, high=FURTHEST, why="the clock to start")
        if clock <= self._done[worker]:
            raise mistakes.back_in_time(self.policy, worker, clock, self._done[worker])
        return max(clock, least)

    def _size(self, worker: int, clock: int, asked: int | None = None) -> int:
        """Returns the samples of a task, checked: as the policy asks, or else by the load rule."""
        size: Any = self.load.size(self.load_state, worker) if asked is None else asked
        if type(size) is int and 1 <= size <= MOST:
            return size
        rule = self.load if asked is None else self.policy
        name = f"{rule.name}, worker {worker}, clock {clock}"
        return checks.integer(name, size, low=1, high=MOST, why="samples of a task")

    def _cut(self, worker: int, time: float) -> None:
        """Records tasks of a worker that never arrive: the phase that each is in ends now."""
        flight = self.flight[worker]
        if not flight:
            return
        self.flight[worker] = ()
        last, free, record = self._last_cut[worker], self._free[worker], self.record
        for order in flight:
            _, clock, size, version, pull, since, _, _ = order
            begun, end, queued = self._plan(order)
            if time < since:  # it was let begin by an update that is still under way
                time = since
            if begun < free:  # in a pipeline: it computes one task at a time
                begun, end = free, end + free - begun
            free = end
            if end > time:
                begun, end = begun if begun < time else time, time
            waited, pulled = min(queued, begun - since) if queued else 0.0, since if pull else nan
            record += pack(worker, clock, size, version, pulled, begun, end, nan, waited, 0.0, 0.0, -1)
            if clock > last:
                self._last_cut[worker] = last = clock
        self._num_cut += len(flight)


def _without(flight: tuple[Order, ...], order: Order) -> tuple[Order, ...]:
    return tuple(each for each in flight if each is not order)
