"""The server's state machine: the policy's state, the tasks of each worker, and the record of the run.

It has no clock and no gradients. Engines call it for each event and carry out its answer. The same state
machine runs on a virtual clock, on threads and on a Ray cluster.
"""

from __future__ import annotations

import copy
import itertools
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, cast

from dmlcore import checks
from dmlcore.checks import MAX_COUNT
from dmlcore.cluster.faults import Crash
from dmlcore.engines import mistakes
from dmlcore.engines.spec import RunSpec
from dmlcore.trace import Trace
from dmlcore.trace.record import LANDED, ROW, Record, land, pack, tasks_frame, updates_frame
from dmlcore.types import NOTHING_YET, Decision, Observation, Progress, Push, Start

MOST_TASKS = 200_000  # tasks, or timers, without an update after which a run that ends after updates fails
FURTHEST = 2**30  # largest clock that a policy may ask for; as many clocks can follow it
OWN = "state", "load_state"  # states of the policy and the load, which may be any objects
# The attributes that calls change, except the journal.
STATE = (
    *OWN, "_cancels", "_clock", "_done", "_free", "_last_cut", "_look", "_looked", "_next_check",
    "_num_timers", "_passed", "_redone", "_times", "_wakes", "_woken", "flight", "ignored", "num_updates",
    "over", "pending", "present", "record", "samples", "timers",
)  # fmt: skip
NOTHING_TOLD = (0, 1.0)  # (copy_clock, weight) for a worker that never keeps its copy
nan = math.nan
new: Any = tuple.__new__  # half the cost of a named tuple's own constructor; every push uses it


class Order(NamedTuple):
    """A task assigned to a worker.

    Args:
        worker: number of the worker, 0-based.
        clock: number of the task.
        batch_size: samples of the task.
        version: version of the parameters that the worker pulls or has cached.
        pull: whether the worker pulls, or keeps its cached copy.
        time: when the task was released, in seconds: after the update that released it, or when the worker
            had computed its task before, if it keeps its copy.
        attempt: serial number of the pull, since a lost task may be assigned again.
        told: (copy_clock, weight) from `Policy.on_pull`: the clock of the copy, for `Policy.keep_copy`, and
            the weight of the worker's tasks for as long as it keeps the copy.
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
        """Returns the next task of a worker that keeps its copy and has computed this task at `time`."""
        worker, clock, batch_size, version, _, _, attempt, told = self
        return new(Order, (worker, clock + 1, batch_size, version, False, time, attempt, told))


# What an engine must carry out, in this order: (worker, clock, weight) of the pushes that form an update,
# empty if there is no update; workers that discard their tasks; tasks that begin.
Answer = tuple[Sequence[tuple[int, int, float]], Sequence[int], Sequence[Order]]
NOTHING: Answer = ((), (), ())


def _copied(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns copies of attributes in `STATE`, whose own entries never change in place."""
    return {name: copy.deepcopy(value) if name in OWN else copy.copy(value) for name, value in state.items()}


class Server:
    """The state machine of one run: each method is an event, and returns the `Answer` for the engine.

    Guarantees: a push counts once, however often it arrives; pushes of cancelled and lost tasks are ignored;
    the same calls give the same answers, so a server can be restored from its journal (`restore`).

    Args:
        spec: the run.
        plan: order -> planned begin and end of computing, and the wait of its pull in the server's queues, in
            seconds; used for tasks that are cut.
        serial: numbers of attempts; a restored server must not use them again.
        keeps_journal: whether the server may have to be restored.
    """

    # Slots are faster to look up than a dictionary, which matters at every push.
    __slots__ = (
        *STATE, "_depth", "_enough", "_keep_copy", "_normalises", "_noted", "_on_pull", "_on_push",
        "_patience", "_plan", "_serial", "_sizes", "_update_seconds", "journal", "load", "policy", "spec",
    )  # fmt: skip

    def __init__(
        self,
        spec: RunSpec,
        plan: Callable[[Order], tuple[float, float, float]],
        serial: Iterator[int] | None = None,
        keeps_journal: bool = True,
    ):
        self.spec, self.policy, self.load, self._plan = spec, spec.policy, spec.load, plan
        # Fields of a named tuple take three times as long to look up.
        self._on_push, self._on_pull = self.policy.on_push, self.policy.on_pull
        self._keep_copy = self.policy.keep_copy
        self._serial = itertools.count() if serial is None else serial
        # Number of tasks without an update, or without approaching the end, after which a run fails.
        self._patience = max(MOST_TASKS, 2 * self.num_workers)
        self._enough = spec.stop.updates, spec.stop.samples
        with checks.noting(
            f"init under {self.policy.name}, load {self.load.name}, {self.num_workers} workers"
        ):
            self.state = self.policy.init(self.num_workers)
            self.load_state = self.load.init(self.num_workers, spec.batch_size * self.num_workers)
        self.present = set(range(self.num_workers))
        self.flight: list[tuple[Order, ...]] = [()] * self.num_workers  # tasks in flight of each worker
        self.num_updates = self.samples = 0
        self.over = False
        self.journal: list[tuple[Any, ...]] | None = [] if keeps_journal else None
        self.ignored = 0  # arrivals that did not count
        # Pushes not applied yet: (worker, clock) -> row of the record, and task.
        self.pending: dict[tuple[int, int], tuple[int, Order]] = {}
        self.record = bytearray()  # packed rows of `Task`
        # Heap of pending timers: due time, number in the order of setting, token. The first timer exists from
        # the start.
        self.timers: list[tuple[float, int, Any]] = [] if self.policy.on_wake is None else [(0.0, 0, None)]
        self._num_timers = len(self.timers)  # set so far
        self._wakes: list[tuple[float, int, int]] = []  # fired timers: time, rows of the record then, number
        self._woken: tuple[float, int] = (nan, 0)  # progress at the last timer, and timers without progress
        self._update_seconds = spec.seconds_per_update
        self._normalises = spec.local is not None and spec.local.normalised
        self._depth = 2 if spec.transport.pipelined else 1  # number of tasks that a worker has at once
        self._done = [-1] * self.num_workers  # clock of each worker's last push
        self._free = [0.0] * self.num_workers  # when the task of that push was computed, seconds
        self._clock = [-1] * self.num_workers  # clock of each worker's last begun task
        self._last_cut = [-1] * self.num_workers  # highest clock of each worker's cut tasks
        self._cancels: list[float] = []  # times of decisions that cancelled workers without an update
        self._redone: set[int] = set()  # rows of lost attempts whose task was started again
        self._times: list[float] = []  # times of updates, seconds
        self._looked = 0
        self._next_check = self._patience  # row of the record at which it is checked that the run can end
        self._passed = 0.0, 0  # time, and rows of the record, at the last such check
        self._look = 0 if self.policy.on_observation is not None else math.inf
        # If the load rule never changes sizes, it is called once per worker.
        fixed = self.load.observe is None and self.policy.batch_size is None
        self._sizes = [self._size(worker, 0) for worker in range(self.num_workers)] if fixed else None
        self._noted = self.journal is not None or self.load.observe is not None

    def first_size(self, worker: int) -> int:
        """Returns the samples of a worker's first task."""
        return self._size(worker, 0, self.policy.batch_size)

    @property
    def num_workers(self) -> int:
        """W, the number of workers of the cluster, present or not."""
        return self.spec.cluster.num_workers

    def begin(self) -> Answer:
        """Starts the first clock of workers on version 0 at time 0; in a pipeline, the second one too.

        Workers that are away at time 0 leave before the engine sends them anything: they have begun no clock.
        """
        policy, tasks = self.policy, cast(Sequence[Start], ())
        if policy.on_begin is not None:
            self.state, tasks = policy.on_begin(self.state, self.spec.seed)
        else:
            tasks = [Start(worker, policy.batch_size) for worker in range(self.num_workers)]
        begun = [order for depth in range(self._depth) for order in self._start(tasks, 0.0, depth + 1)]
        crashed = (fault for fault in self.spec.faults.events if isinstance(fault, Crash) and not fault.time)
        for worker in sorted({fault.worker for fault in crashed}):
            self.flight[worker], self._clock[worker] = (), -1
            self.present.remove(worker)
            begun += self._decided("on_leave", f"worker {worker} is away", 0.0, worker, 0.0)[2]
        return (), (), [order for order in begun if order in self.flight[order.worker]]

    def find(self, worker: int, clock: int, attempt: int) -> Order | None:
        """Returns the task of a push that arrives; None if it does not count and is ignored."""
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
        """Takes the push of a task in flight.

        Args:
            order: the task.
            time: when the server takes the push, in seconds, as are the following times.
            begun: when computing began.
            computed: when computing ended.
            pull_queued: how long the pull waited in the server's queues.
            push_queued: how long the push waited in the server's queues.
        """
        worker, clock, size, version, pull, since, _, told = order
        flight, keep_copy, record = self.flight[worker], self._keep_copy, self.record
        left = () if len(flight) == 1 else tuple(each for each in flight if each is not order)
        self._done[worker], self._free[worker] = clock, computed
        row = len(record) // ROW
        kept: tuple[Order, ...] = ()
        try:
            keeps = keep_copy is not None and keep_copy(told[0], clock + 1)
            push = new(Push, (worker, clock, version, time, computed - begun, size, keeps))
            if self._noted:
                self._note("push", worker, clock, time, begun, computed, pull_queued, push_queued)
                if self.load.observe is not None:
                    self.load_state = self.load.observe(self.load_state, push)
            if keeps:  # the worker began its next task on its cached copy when it had computed this one
                self._clock[worker] = clock + 1
                kept = (order.following(computed),)
                left = (*left, *kept) if left else kept
            self.flight[worker] = left
            answer = self._on_push(self.state, push)
        except Exception as error:
            error.add_note(self._where(f"push of worker {worker}, clock {clock}", time))
            raise
        alone = False  # whether the decision is an update with this push only, and starts
        try:
            self.state, decision = answer
            if decision is not NOTHING_YET:
                apply, drop, cancel, start, wake = decision
                if count := len(apply):
                    first, its_clock, weight = apply[0]
                    alone = count == 1 and first == worker and its_clock == clock and wake is None
                    alone = alone and not (drop or cancel)
                len(start)  # raises TypeError if it is not a sequence
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
        if row >= self._next_check:
            self._check_progress(time)
        if not alone:
            self.pending[worker, clock] = row, order
            if decision is not NOTHING_YET:
                return self._carry_out(decision, time, kept)
            return ((), (), kept) if kept else NOTHING

        # Fast path for policies where each push is an update.
        if kept and weight != told[1]:
            raise mistakes.error("other_weight", self.policy, order=order, weight=weight)
        if self._update_seconds:
            time = self._updated(time)
        self._times.append(time)
        self.num_updates = number = number + 1
        self.samples = samples = self.samples + size
        updates, enough = self._enough
        if number >= updates or samples >= enough:
            self.over = True
        elif start:
            try:
                started = self._start(start, time)
            except Exception:
                mistakes.check_parts(self.policy, decision)
                raise
            return apply, (), [*kept, *started] if kept else started
        return apply, (), kept

    def leave(self, worker: int, time: float) -> Answer:
        """Removes a worker; its tasks in flight are lost."""
        self._note("leave", worker, time)
        self._cut(worker, time)
        self.present.remove(worker)
        return self._decided("on_leave", f"worker {worker} leaves", time, worker, time)

    def join(self, worker: int, time: float) -> Answer:
        """Adds a worker that has rejoined, without cached parameters."""
        self._note("join", worker, time)
        self.present.add(worker)
        return self._decided("on_join", f"worker {worker} joins", time, worker, time)

    def wake(self, time: float) -> Answer:
        """Fires the timer that is due first."""
        self._note("wake", time)
        _, number, token = heappop(self.timers)
        self._wakes.append((time, self.num_tasks, number))
        self._check_wakes(time)
        return self._decided("on_wake", f"timer {token!r}", time, token, time)

    @property
    def due(self) -> float:
        """When the next timer is due, in seconds; infinite if none is pending."""
        return self.timers[0][0] if self.timers else math.inf

    @property
    def looks(self) -> bool:
        """Whether an observation for the policy is due."""
        return self.num_updates >= self._look and not self.over

    def observe(self, *seen: Any) -> None:
        """Shows the policy an `Observation`; `seen` are its fields."""
        self._note("observe", *seen)
        assert self.policy.on_observation is not None
        observation = Observation(*seen)
        try:
            self.state = self.policy.on_observation(self.state, observation)
        except Exception as error:
            error.add_note(self._where(f"observation of update {observation.update}", observation.time))
            raise
        self._looked = self.num_updates
        # The first observations come after 0, 1, 2, 4, 8, ... updates.
        self._look = self.num_updates + min(self.policy.observe_every, max(self.num_updates, 1))

    def progress(self, time: float) -> Progress:
        """Returns the progress of the run at `time`."""
        live = {self.num_updates, *(order.version for orders in self.flight for order in orders)}
        live.update(order.version for _, order in self.pending.values())
        rows = Record(self.record)
        oldest = min((row for row, _ in self.pending.values()), default=len(rows))
        return Progress(time, self.num_updates, rows, live, self._looked, oldest, times=self._times)

    def resume(self, time: float) -> Answer:
        """Continues after a restart from a checkpoint: tasks in flight begin again on the present version."""
        self._note("resume", time)
        again: list[Order] = []
        time = max(time, self.last_update)  # an update under way was made first
        for worker, orders in enumerate(self.flight):
            self.flight[worker] = ()
            for depth, (_, clock, size, *_) in enumerate(orders, start=1):
                again += self._start([Start(worker, size, clock)], time, depth)
        return (), (), again

    def catch_up(self, away: set[int], time: float) -> Iterator[Answer]:
        """Yields the answers with which a restarted server continues: workers left or rejoined meanwhile.

        Args:
            away: workers that are away now.
            time: seconds.
        """
        yield self.resume(time)
        for worker in sorted(self.present & away):
            yield self.leave(worker, time)
        for worker in sorted({*range(self.num_workers)} - away - self.present):
            yield self.join(worker, time)

    def snapshot(self) -> dict[str, Any]:
        """Returns copies of all attributes that calls change.

        Raises:
            Exception: `copy.deepcopy` of the policy's or the load's state raised it.
        """
        return _copied({name: getattr(self, name) for name in STATE})

    def restore(
        self, journal: Sequence[tuple[Any, ...]], since: tuple[int, dict[str, Any]] | None = None
    ) -> Server:
        """Brings this new server to the state of the server that kept the journal.

        Args:
            journal: the calls to repeat.
            since: a snapshot, with the length of the journal when it was taken; only later calls are
                repeated. None: all calls are repeated.

        Returns:
            This server.
        """
        # Repeated calls are not added to the journal again.
        self.journal, self._noted = None, self.load.observe is not None
        first = 0
        if since is None:
            self.begin()
        else:
            first, before = since
            for name, value in _copied(before).items():
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
        """Copies the record of the server that kept the journal, which knew the plans of cut tasks."""
        self.record[:] = before.record[: len(self.record)]  # no push is pending at a checkpoint

    def taken(self, worker: int) -> int:
        """Returns the clock of the last push of a worker that the server has taken; -1: none."""
        return self._done[worker]

    @property
    def num_tasks(self) -> int:
        """The number of tasks that arrived or were cut."""
        return len(self.record) // ROW

    @property
    def last_update(self) -> float:
        """When the last update was made, in seconds; 0 before the first."""
        return self._times[-1] if self._times else 0.0

    def check_alive(self, time: float) -> None:
        """Raises RuntimeError in a deadlock: no worker has a task and no timer is set."""
        if self.over or self.timers:
            return
        # In a pipeline a worker sends a task when it begins the next one.
        if not any(len(orders) == self._depth for orders in self.flight):
            raise self.deadlock(time)

    def deadlock(self, time: float) -> Exception:
        """Returns the error for a deadlock at `time`."""
        kind, workers = "deadlock" if self.present else "abandoned", len(self.present)
        return mistakes.error(kind, self.policy, time=time, updates=self.num_updates, workers=workers)

    def trace(self, time: float, metadata: dict[str, Any]) -> Trace:
        """Ends the run at `time` and returns its trace."""
        for worker in range(self.num_workers):
            self._cut(worker, time)
        tasks = tasks_frame(self.record, self.spec.cluster.server is not None)
        if self.policy.on_wake is not None:  # of each timer: time, number of pushes before it, and its number
            pushes = [0, *tasks["push_end"].notna().cumsum().tolist()]
            metadata = metadata | {"wakes": [[at, pushes[row], number] for at, row, number in self._wakes]}
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

    def _note(self, *call: Any) -> None:
        if self.journal is not None:
            self.journal.append(call)

    def _decided(self, hook: str, event: str, time: float, *happened: Any) -> Answer:
        """Calls a hook of the load, if it has it, and of the policy, and carries out the decision."""
        if getattr(self.policy, hook) is None:
            raise mistakes.error("no_hook", self.policy, hook=hook, worker=happened[0])
        if self.num_tasks > self._next_check:
            self._check_progress(time)
        try:
            if (tell := getattr(self.load, hook, None)) is not None:
                self.load_state = tell(self.load_state, happened[0])
            answer = getattr(self.policy, hook)(self.state, *happened)
        except Exception as error:
            error.add_note(self._where(event, time))
            raise
        return self._carry_out(self._read(hook, answer), max(time, self.last_update))

    def _where(self, event: str, time: float) -> str:
        """Returns the note for an exception of the policy or the load: the event and its time."""
        return f"raised under {self.policy.name}, load {self.load.name}: {event}, at {time:g} s"

    def _read(self, hook: str, answer: Any) -> Decision:
        """Stores the state in a policy's answer, and returns the decision in it."""
        try:
            self.state, (apply, drop, cancel, start, wake) = answer
            _ = len(apply), len(cancel), len(start)  # raises TypeError if one is not a sequence
        except (TypeError, ValueError, LookupError):
            facts = {"part": hook, "answer": answer, "expected": mistakes.DECISION}
            raise mistakes.error("no_answer", self.policy, **facts) from None
        return Decision(apply, drop, cancel, start, wake)

    def _carry_out(
        self, decision: tuple[Any, Any, Any, Any, Any], time: float, kept: tuple[Order, ...] = ()
    ) -> Answer:
        """Carries out a decision; `kept`: the task that the worker has begun on its cached copy."""
        apply, drop, cancel, start, wake = decision
        try:
            pending, keeps = self.pending, self._keep_copy
            if apply:
                samples, number, record = 0, self.num_updates, self.record
                if self._normalises and all(push[:2] in pending for push in apply):
                    sizes = [pending[worker, clock][1].batch_size for worker, clock, _ in apply]
                    apply = self.spec.normalised(apply, sizes)
                for worker, clock, weight in apply:
                    found = pending.pop((worker, clock), None)
                    if found is None:
                        raise mistakes.error(
                            "not_at_server", self.policy, does="applies", key=(worker, clock)
                        )
                    row, order = found
                    if keeps is not None and weight != order[7][1] and keeps(order[7][0], clock + 1):
                        raise mistakes.error("other_weight", self.policy, order=order, weight=weight)
                    samples += order[2]
                    land(record, row * ROW + LANDED, weight, number)
                time = self._updated(time)
                self._times.append(time)
                self.num_updates = number + 1
                self.samples += samples
                updates, enough = self._enough
                self.over = self.num_updates >= updates or self.samples >= enough
                if self.over:
                    return apply, (), kept
            for key in drop:
                if pending.pop(key, None) is None:
                    raise mistakes.error("not_at_server", self.policy, does="drops", key=key)
            if cancel and not apply:
                self._cancels.append(time)
            cut, workers = self._cut, len(self.flight)
            for worker in cancel:
                if not 0 <= worker < workers:
                    raise mistakes.error("not_there", self.policy, does="cancels", worker=worker, time=time)
                cut(worker, time)
            started = self._start(start, time)
            if wake is not None:
                self._set_timer(wake, time)
            return apply, cancel, [*kept, *started] if kept else started
        except Exception:
            mistakes.check_parts(self.policy, decision)
            raise

    def _set_timer(self, wake: Any, time: float) -> None:
        """Sets the timer of a decision made at `time`."""
        policy = self.policy
        if policy.on_wake is None:
            raise ValueError(f"{policy.name} sets a timer, wake={wake!r}, but has no on_wake")
        try:
            seconds, token = wake
        except (TypeError, ValueError):
            facts = {"part": "wake", "answer": wake, "expected": "a pair (seconds, token)"}
            raise mistakes.error("no_answer", policy, **facts) from None
        due = time + checks.real(f"{policy.name}, seconds of wake", seconds, low=0)
        if due < math.inf:
            heappush(self.timers, (due, self._num_timers, token))
        self._num_timers += 1

    def _check_wakes(self, time: float) -> None:
        """Raises RuntimeError if only timers fire, and the run would never end."""
        progress = self.num_updates if self.spec.stop.seconds == math.inf else time
        since, count = self._woken
        self._woken = (since, count + 1) if since == progress else (progress, 1)
        if self._woken[1] > MOST_TASKS:
            raise mistakes.error(
                "only_wakes", self.policy, time=time, updates=self.num_updates, most=MOST_TASKS
            )

    def _updated(self, time: float) -> float:
        """Returns when an update decided at `time` is made; an update in progress at the end counts."""
        return min(time + self._update_seconds, max(self.spec.stop.seconds, time))

    def _check_progress(self, time: float) -> None:
        """Raises RuntimeError if a run that ends after updates makes none, or if hardly any time passes.

        A run that ends at a time must not need more tasks until then than a trace can hold.
        """
        rows, end = self.num_tasks, self.spec.stop.seconds
        since, before = self._passed
        if end == math.inf:
            if rows > Record(self.record).last_applied() + self._patience:
                facts = {"updates": self.num_updates, "most": self._patience}
                raise mistakes.error("never_updates", self.policy, time=time, **facts)
        elif (end - time) * (rows - before) > MAX_COUNT * self.num_workers * (time - since):
            facts = {"end": end, "tasks": rows - before, "passed": time - since}
            raise mistakes.error("no_time", self.policy, time=time, **facts)
        self._passed, self._next_check = (time, rows), rows - 1 + self._patience

    def _start(self, start: Sequence[Start], time: float, depth: int = 0) -> list[Order]:
        """Starts tasks until each worker has `depth` of them; 0: as many as fill its pipeline."""
        orders: list[Order] = []
        full, flights, clocks, on_pull = self._depth, self.flight, self._clock, self._on_pull
        version, serial, told = self.num_updates, self._serial, NOTHING_TOLD
        for worker, asked, ahead in start:
            if worker not in self.present:
                raise mistakes.error("not_there", self.policy, does="starts", worker=worker, time=time)
            flight = flights[worker]
            if flight and len(flight) >= (depth or full):
                raise ValueError(f"{self.policy.name} starts worker {worker}, which is busy, at {time:g} s")
            clock = clocks[worker] + 1
            if ahead is not None:
                clock = self._ahead(worker, ahead, clock if flight else 0)
            clocks[worker] = clock
            if clock <= self._last_cut[worker] and (row := Record(self.record).last(worker, clock)) >= 0:
                self._redone.add(row)
            try:
                known = self._sizes if asked is None else None
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
                    facts = {"part": "on_pull", "answer": told, "expected": "a pair (copy_clock, weight)"}
                    raise mistakes.error("no_answer", self.policy, **facts) from None
            order = new(Order, (worker, clock, size, version, True, time, next(serial), told))
            flights[worker] = (*flight, order) if flight else (order,)
            orders.append(order)
            if full > 1 and len(flights[worker]) < (depth or full):
                orders += self._start([Start(worker, asked)], time, depth)
        return orders

    def _ahead(self, worker: int, clock: int, least: int) -> int:
        """Returns the clock that a policy asks for, or `least`, if a pipeline already computes that clock."""
        if type(clock) is not int or clock > FURTHEST:
            name = f"{self.policy.name}, worker {worker}"
            clock = checks.integer(name, clock, low=0, high=FURTHEST, why="the clock to start")
        if clock <= (done := self._done[worker]):
            starts = f"{self.policy.name} starts clock {clock} of worker {worker}"
            raise ValueError(f"{starts}, which has done clock {done}")
        return max(clock, least)

    def _size(self, worker: int, clock: int, asked: int | None = None) -> int:
        """Returns the samples of a task, checked: those that the policy asked for, or the load rule's."""
        size: Any = self.load.size(self.load_state, worker) if asked is None else asked
        if type(size) is int and 1 <= size <= MAX_COUNT:
            return size
        rule = self.load if asked is None else self.policy
        name = f"{rule.name}, worker {worker}, clock {clock}"
        return checks.integer(name, size, low=1, high=MAX_COUNT, why="samples of a task")

    def _cut(self, worker: int, time: float) -> None:
        """Records a worker's tasks as never arriving; the present phase of each ends at `time`."""
        flight = self.flight[worker]
        if not flight:
            return
        self.flight[worker] = ()
        last, free, record = self._last_cut[worker], self._free[worker], self.record
        for order in flight:
            _, clock, size, version, pull, since, _, _ = order
            begun, end, queued = self._plan(order)
            if time < since:  # the update that released it is still in progress
                time = since
            if begun < free:  # in a pipeline the worker computes one task at a time
                begun, end = free, end + free - begun
            free = end
            if end > time:
                begun, end = begun if begun < time else time, time
            waited, pulled = min(queued, begun - since) if queued else 0.0, since if pull else nan
            record += pack(worker, clock, size, version, pulled, begun, end, nan, waited, 0.0, 0.0, -1)
            if clock > last:
                self._last_cut[worker] = last = clock
