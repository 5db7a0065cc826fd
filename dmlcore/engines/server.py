"""The server's book: what a policy has decided, who works on what, and the record of it.

It has no clock and no gradients. Engines tell it what happened when, and carry out what it answers; so the
same book is kept on a virtual clock, by threads and on a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from dmlcore import checks
from dmlcore.engines.stop import Stop
from dmlcore.trace import Trace
from dmlcore.trace.record import not_at_server, tasks_frame, updates_frame
from dmlcore.types import Decision, Load, Observation, Policy, Progress, Push

MOST_TASKS = 200_000  # without an update, before a run that is to end with updates is given up


class Order(NamedTuple):
    """What a worker is told: a task to begin.

    Args:
        worker: who.
        clock: number of the task.
        batch_size: samples.
        version: of the parameters that the worker has, or pulls.
        pull: whether it pulls, or goes on with its copy.
        time: when it pulls, or when it had its copy ready, seconds.
        attempt: serial number, since a task that was lost may be given out again.
    """

    worker: int
    clock: int
    batch_size: int
    version: int
    pull: bool
    time: float
    attempt: int


class Answer(NamedTuple):
    """What an engine has to carry out, in this order.

    Args:
        apply: (worker, clock, weight) of the pushes that form an update; empty: none.
        cancel: workers that throw their task away.
        start: tasks to begin.
    """

    apply: Sequence[tuple[int, int, float]] = ()
    cancel: Sequence[int] = ()
    start: Sequence[Order] = ()


class Server:
    """One run of a policy: every call is something that happened; the answer is what it leads to.

    Guarantees: a push counts once, however often it arrives; what a cancelled or lost task sends is ignored;
    the same calls give the same answers, so that a book is restored from its journal (`restore`).

    Args:
        policy: the server's rule.
        num_workers: W.
        stop: when the run is over.
        load: rule for the batch sizes.
        batch_size: samples of one worker's task, before the load rule.
        plan: order -> when its computing would begin and end, for tasks that are cut.
        serial: numbers of attempts, which a restored book must not use again.
        pulls_only: no worker may go on with its copy.
    """

    def __init__(
        self,
        policy: Policy,
        num_workers: int,
        stop: Stop,
        load: Load,
        batch_size: int,
        plan: Callable[[Order], tuple[float, float]],
        serial: Iterator[int],
        pulls_only: bool = False,
    ):
        self.pulls_only = pulls_only
        self.policy, self.num_workers, self.stop, self.load, self.plan = policy, num_workers, stop, load, plan
        self._serial, self.batch_size = serial, batch_size
        self.state = policy.init(num_workers)
        self.load_state = load.init(num_workers, batch_size * num_workers)
        self.present = set(range(num_workers))
        self.flight: list[Order | None] = [None] * num_workers
        self.num_updates = self.samples = 0
        self.over = False
        self.journal: list[tuple[Any, ...]] = []
        self.ignored = 0  # arrivals that did not count
        self.pending: dict[tuple[int, int], tuple[int, int]] = {}  # pushes kept here: (row, samples)
        self._done = [-1] * num_workers  # clock of each worker's last push
        self._clock = [-1] * num_workers  # and of the last task that it began
        self._version = [0] * num_workers
        self._record: list[tuple] = []
        self._cut_rows: dict[tuple[int, int], int] = {}
        self._redone: list[int] = []  # rows of attempts that were lost and made again
        self._landed: list[tuple] = []
        self._update_rows: list[tuple] = []
        self._looked = 0
        self._look = 0 if policy.on_observation is not None else math.inf
        # Rows until an update must have come, where only updates end the run.
        self._patience = MOST_TASKS if stop.seconds == math.inf else math.inf

    def begin(self) -> Answer:
        """Every worker starts its clock 0 on version 0 at time 0."""
        size = self.policy.batch_size
        return Answer(start=[self._start(w, size, True, None, 0.0, 0.0) for w in range(self.num_workers)])

    def push(
        self,
        worker: int,
        clock: int,
        time: float,
        begun: float,
        computed: float,
        attempt: int | None = None,
    ) -> Answer | None:
        """A push arrives; None where it does not count: it came before, or its task was cancelled."""
        order = self.flight[worker]
        if order is None or order.clock != clock or attempt not in (None, order.attempt):
            self.ignored += 1
            return None
        self.journal.append(("push", worker, clock, time, begun, computed))
        self.flight[worker] = None
        self._done[worker] = clock
        push = Push(worker, clock, order.version, time, computed - begun, order.batch_size)
        if self.load.observe is not None:
            self.load_state = self.load.observe(self.load_state, push)
        self.pending[worker, clock] = (len(self._record), order.batch_size)
        self._record.append((time, 0, *self._read(order), begun, computed))
        decision = self._decided("on_push", push)
        return self._carry_out(decision, time, worker, computed)

    def leave(self, worker: int, time: float) -> Answer:
        """A worker is gone; what it was working on is lost."""
        self._tell("on_leave", worker)
        self.journal.append(("leave", worker, time))
        self._cut(worker, time)
        self.present.remove(worker)
        if self.load.on_leave is not None:
            self.load_state = self.load.on_leave(self.load_state, worker)
        decision = self._decided("on_leave", worker, time)
        return self._carry_out(decision, time, -1, time)

    def join(self, worker: int, time: float) -> Answer:
        """A worker is back, without a copy."""
        self._tell("on_join", worker)
        self.journal.append(("join", worker, time))
        self.present.add(worker)
        if self.load.on_join is not None:
            self.load_state = self.load.on_join(self.load_state, worker)
        decision = self._decided("on_join", worker, time)
        return self._carry_out(decision, time, -1, time)

    @property
    def looks(self) -> bool:
        """Whether it is time to show the policy how its training goes."""
        return self.num_updates >= self._look and not self.over

    def observe(self, *seen: Any) -> None:
        """Shows the policy an `Observation`, whose fields these are."""
        self.journal.append(("observe", *seen))
        assert self.policy.on_observation is not None
        self.state = self.policy.on_observation(self.state, Observation(*seen))
        self._looked = self.num_updates
        self._look = next_look(self.policy, self.num_updates)

    def progress(self, time: float) -> Progress:
        """Returns how far the run has come."""
        live = {self.num_updates, *(order.version for order in self.flight if order is not None)}
        live.update(self._record[row][5] for row, _ in self.pending.values())
        return Progress(time, self.num_updates, self._record, self._landed, live, self._looked)

    def resume(self, time: float) -> Answer:
        """The server is back from a checkpoint: tasks that were in flight begin again on what it has."""
        self.journal.append(("resume", time))
        orders = [
            order._replace(version=self.num_updates, pull=True, time=time, attempt=next(self._serial))
            for order in self.flight
            if order is not None
        ]
        for order in orders:
            self.flight[order.worker] = order
            self._version[order.worker] = self.num_updates
        return Answer(start=orders)

    def restore(self, journal: Sequence[tuple[Any, ...]]) -> Server:
        """Brings a new book to where the one that kept this journal was."""
        self.begin()
        for kind, *arguments in journal:
            getattr(self, kind)(*arguments)
        return self

    @property
    def last_update(self) -> float:
        """When the last update was made, seconds; 0 before the first."""
        return self._update_rows[-1][0] if self._update_rows else 0.0

    @property
    def last_samples(self) -> int:
        """Samples in the last update."""
        return self._update_rows[-1][2]

    def check_alive(self, time: float) -> None:
        """Raises RuntimeError where nothing will ever happen: nobody works, and nobody is to come."""
        if not self.over and not any(self.flight):
            who = f"all {len(self.present)} workers wait" if self.present else "every worker has left"
            raise RuntimeError(
                f"{self.policy.name} deadlocks at {time:g} s after {self.num_updates} updates: {who}; "
                "a decision must start somebody whenever nothing else is in flight"
            )

    def trace(self, time: float, metadata: dict[str, Any]) -> Trace:
        """Ends the run at `time` and returns its trace."""
        for worker in range(self.num_workers):
            self._cut(worker, time)
        tasks = tasks_frame(self._record, self._landed)
        if self._redone:
            tasks = tasks.drop(index=self._redone).reset_index(drop=True)
        return Trace(tasks, updates_frame(self._update_rows), metadata | {"end_time": time}).validate()

    def _decided(self, hook: str, *happened: Any) -> Decision:
        """What the policy decides about something that happened."""
        answer = getattr(self.policy, hook)(self.state, *happened)
        try:
            self.state, (apply, drop, cancel, start) = answer
            if len(apply):
                _, _, _ = apply[0]
            if len(start):
                _, _, _, _ = start[0]
        except (TypeError, ValueError, LookupError):
            raise no_decision(self.policy, hook, answer) from None
        return Decision(apply, drop, cancel, start)

    def _carry_out(self, decision: Decision, time: float, worker: int, computed: float) -> Answer:
        apply, drop, cancel, start = decision
        if apply:
            samples = 0
            for w, clock, weight in apply:
                if (w, clock) not in self.pending:
                    raise not_at_server(self.policy, "applies", (w, clock))
                row, count = self.pending.pop((w, clock))
                samples += count
                self._landed.append((row, self.num_updates, weight))
            self.num_updates += 1
            self.samples += samples
            if self._patience < math.inf:
                self._patience = len(self._record) + MOST_TASKS
            self._update_rows.append((time, len(apply), samples))
            if self.num_updates >= self.stop.updates or self.samples >= self.stop.samples:
                self.over = True
                return Answer(apply)
        elif len(self._record) > self._patience:
            raise never_updates(self.policy, time, self.num_updates)
        for key in drop:
            if self.pending.pop(key, None) is None:
                raise not_at_server(self.policy, "drops", key)
        for w in cancel:
            if not 0 <= w < self.num_workers:
                raise ValueError(f"{self.policy.name} cancels worker {w}, which is not there, at {time:g} s")
            self._cut(w, time)
        orders = [
            self._start(w, asked, pull, clock, time, computed if w == worker and not pull else time)
            for w, asked, pull, clock in start
        ]
        return Answer(apply, cancel, orders)

    def _start(
        self, w: int, asked: int | None, pull: bool, clock: int | None, time: float, since: float
    ) -> Order:
        if w not in self.present or self.flight[w] is not None:
            fault = "is busy" if w in self.present else "is not there"
            raise ValueError(f"{self.policy.name} starts worker {w}, which {fault}, at {time:g} s")
        if clock is None:
            clock = self._clock[w] + 1
        elif clock <= self._done[w]:
            raise back_in_time(self.policy, w, clock, self._done[w])
        self._clock[w] = clock
        rule: Any = self.policy
        size = asked
        if size is None:
            rule, size = self.load, self.load.size(self.load_state, w)
        size = checks.integer(f"{rule.name}, worker {w}, clock {clock}", size, low=1, why="samples of a task")
        if pull:
            self._version[w] = self.num_updates
        elif self.pulls_only:
            raise keeps_copies(self.policy, w)
        if (w, clock) in self._cut_rows:
            self._redone.append(self._cut_rows.pop((w, clock)))
        order = Order(w, clock, size, self._version[w], pull, since, next(self._serial))
        self.flight[w] = order
        return order

    def _read(self, order: Order) -> tuple[int, int, int, int, float]:
        pulled = order.time if order.pull else math.nan
        return order.worker, order.clock, order.batch_size, order.version, pulled

    def _cut(self, worker: int, time: float) -> None:
        """Records a worker's task that never arrives, if it has one: its last phase ends now."""
        order = self.flight[worker]
        if order is not None:
            self.flight[worker] = None
            begun, end = self.plan(order)
            self._cut_rows[worker, order.clock] = len(self._record)
            self._record.append((math.nan, 0, *self._read(order), min(begun, time), min(end, time)))

    def _tell(self, hook: str, worker: int) -> None:
        if getattr(self.policy, hook) is None:
            raise ValueError(
                f"{self.policy.name} has no {hook}, but worker {worker} leaves or joins; "
                "a policy needs both for a cluster whose workers crash or hang"
            )


def keeps_copies(policy: Policy, worker: int) -> ValueError:
    """What to raise where a worker goes on with its copy, but the server must know what it computes on."""
    return ValueError(
        f"policy: got {policy.name}, which lets worker {worker} keep its copy, which only it knows; "
        "allowed with delay compensation, codecs or a pipeline is one all of whose tasks pull"
    )


def next_look(policy: Policy, num_updates: int) -> int:
    """Returns after how many updates a policy sees its training next: at first after 0, 1, 2, 4, 8, ..."""
    return num_updates + min(policy.observe_every, max(num_updates, 1))


def never_updates(policy: Policy, time: float, num_updates: int) -> RuntimeError:
    """What to raise where a run would go on for ever."""
    return RuntimeError(
        f"{policy.name} makes no update: {MOST_TASKS:,} tasks arrived since update {num_updates}, by "
        f"{time:g} s; are they all dropped, or never applied? `seconds=` ends a run without updates"
    )


def no_decision(policy: Policy, hook: str, answer: Any) -> ValueError:
    """What to raise where a policy's answer is none."""
    allowed = "a state and a Decision, with lists of (worker, clock, weight) to apply and of Start to start"
    return ValueError(f"{policy.name}, {hook}: got {answer!r}, allowed is {allowed}")


def back_in_time(policy: Policy, worker: int, clock: int, last: int) -> ValueError:
    """What to raise where a policy starts a clock that has been."""
    return ValueError(f"{policy.name} starts clock {clock} of worker {worker}, which has done clock {last}")
