"""The server on a real clock: it runs the state machine, updates the parameters and instructs workers."""

import itertools
import math
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from dmlcore import checks
from dmlcore.cluster.faults import Absences, Incident, incidents
from dmlcore.engines import mistakes
from dmlcore.engines.job import Job, Recording
from dmlcore.engines.server import Answer, Order
from dmlcore.engines.service import FairService, Transfers
from dmlcore.engines.worker import Arrival, Assignment, Clock, Failure, Freeze, Idle, Ready
from dmlcore.training.checkpoints import Checkpoints
from dmlcore.training.coding import EVERY_PUSH, memory_of
from dmlcore.training.stepper import Observer, State, Stepper, widths
from dmlcore.training.turns import Turn, Turns

PATIENCE_SECONDS = 1.0  # time between two checks that every worker is alive
MOST_DEATHS = 3  # deaths of a worker without a push in between after which the run fails
MOST_SECONDS, MOST_TASKS = 300.0, 100  # real seconds, and tasks per worker, without an update, likewise


class Crew(Protocol):
    """The workers of an engine: how the server starts, instructs and ends them."""

    def hire(self, worker: int, sizes: tuple[int, ...], hire: int) -> None:
        """Starts a worker, which will send `Ready` with the number `hire` of this start."""

    def post(self, worker: int, message: Any) -> None:
        """Sends a worker a message."""

    def dismiss(self, worker: int, starting: bool) -> None:
        """Ends a worker immediately (a crash); `starting`: it has not sent `Ready` yet."""

    def lost(self) -> Sequence[int]:
        """Returns the workers that died without an order to end."""

    def close(self) -> object:
        """Ends all workers when the run is over or has failed."""


class WorkerError(RuntimeError):
    """An exception in a worker's gradient; the message names worker, clock and cause."""


class Serving:
    """One run on a real clock.

    Args:
        job: the run.
        inbox: messages of workers.
        crew: the workers.
        clock: the clock of the run; it is set to 0 when every worker is ready.
        checkpoints: store of the server's state. None: the state is not saved.
        stepper: the server's arithmetic. None: the job's.
        serial: numbers of attempts.
        kill: function that ends the server's process. None: a crash only discards the server's state.
    """

    def __init__(
        self,
        job: Job,
        inbox: queue.Queue,
        crew: Crew,
        clock: Clock,
        checkpoints: Checkpoints | None = None,
        stepper: Stepper | None = None,
        serial: Iterator[int] | None = None,
        kill: Callable[[], None] | None = None,
    ):
        spec, faults = job.spec, job.spec.faults
        # Attempt -> when its copy left a server that takes time, and how long it waited there, in seconds; an
        # entry is removed at the push of the task that pulled.
        self._answered: dict[int, tuple[float, float]] = {}
        self._new_server = job.new_server(itertools.count() if serial is None else serial, self._answered)
        self._spec, self._stepper, self._inbox, self._crew = spec, stepper or job.stepper(), inbox, crew
        self._clock, self._faults, self._seconds = clock, faults, spec.stop.seconds
        self._service = job.service()
        # Transfers on links that are shared equally.
        self._transfers = Transfers(self._service) if isinstance(self._service, FairService) else None
        self._noted = 0.0  # when the last incident happened
        self._checkpoints, self._kill = checkpoints, kill
        self.server = self._new_server()
        self._absences = Absences()
        self._state: State = self._stepper.start()
        # (worker, clock) -> gradient, the parameters it was computed at (for compensation), and task.
        self._gradients: dict[tuple[int, int], tuple[Any, Any, Order]] = {}
        # Attempt -> the parameters that it reads, for delay compensation.
        self._views: dict[int, Any] = {}
        self._compensation = spec.compensation
        self._memory = memory_of(spec.transport, spec.local)
        self._observer = Observer(self._stepper)
        self._turns = self._new_turns()
        self._saved = 0  # updates at the last checkpoint
        self._idle: set[int] = set()  # workers that are away but whose process goes on
        self._schedule = incidents(faults)
        self._expected: dict[int, int] = {}  # workers that are starting -> number of that start
        self._hires = 0
        self._deaths = [0] * self.server.num_workers  # deaths of each worker since its last push
        # Updates made, with the machine's time and the number of tasks at which this number was first seen.
        self._progress = -1, 0.0, 0
        self._looked = 0.0  # when workers were last checked, on the machine's clock
        # Batch sizes of each worker's first task and of tasks that may follow, to compile for them at the
        # start.
        first = map(self._new_server().first_size, range(self.server.num_workers))
        more, changes = spec.policy.sizes, spec.load.observe is not None
        self._sizes = [(size, *more, *(widths(size) if changes else ())) for size in first]

    def run(
        self, metadata: dict[str, Any], since: float = 0.0, log: Sequence[dict[str, Any]] = ()
    ) -> Recording:
        """Runs to the end.

        Args:
            metadata: metadata of the trace.
            since: the present time in seconds, if the server was killed and continues from its checkpoint. At
                least the time of the checkpoint is used.
            log: incidents since then.

        Returns:
            Trace and parameters.

        Raises:
            WorkerError: a worker's gradient raised an exception.
            RuntimeError: no worker has a task, and none will get one.
        """
        found = self._load()
        now = max(since, found or 0.0)
        self._absences.log += [entry for entry in log if entry not in self._absences.log]
        while self._schedule and self._schedule[0].time < now:
            incident = self._schedule.pop(0)
            if incident.kind == "leave":
                self._absences.begin(incident)
            elif incident.kind == "join":
                self._absences.end(incident)
        self._muster()
        self._clock.set(now)
        begun = self.server.begin() if found is None else None
        if self.server.over:
            pass  # the last checkpoint was taken at the end
        elif now:
            self._resume(now)
        elif begun is not None:
            self._carry_out(begun, now)
            self._wake(0.0, now)
        while not self.server.over and (now := self._clock.now()) < self._seconds:
            if self._schedule and self._schedule[0].time <= now:
                incident = self._schedule.pop(0)
                getattr(self, f"_{incident.kind}")(incident)
            else:
                if not self._schedule and not self._expected:
                    self.server.check_alive(now)
                message = self._next_message(now)
                now = self._clock.now()
                # Messages wait in the inbox while the server works, so timers due before a message come
                # first.
                self._wake(min(now, message.due) if isinstance(message, Arrival) else now)
                if not self.server.over:
                    self._receive(message)
                self._cross()
                self._check_progress()
        if self.server.over and self._checkpoints is not None and self.server.num_updates > self._saved:
            self._save()  # if the call is repeated, nothing is left to do
        end = self.server.last_update if self.server.over else self._seconds
        more = {"incidents": self._absences.log, "ignored_arrivals": self.server.ignored}
        return Recording(self.server.trace(end, metadata | more), self._state[0])

    def _check_progress(self) -> None:
        """Raises RuntimeError if a run that ends after updates makes none for a long time."""
        updates, now, tasks = self.server.num_updates, time.monotonic(), self.server.num_tasks
        before, since, already = self._progress
        if updates != before:
            self._progress = updates, now, tasks
        elif self._seconds == math.inf and now > since + MOST_SECONDS:
            spent = tasks - already
            if spent > MOST_TASKS * self.server.num_workers:
                facts = {"time": self._clock.now(), "updates": updates, "most": spent}
                raise mistakes.error("never_updates", self.server.policy, **facts)

    def _muster(self) -> None:
        """Starts every worker that is not away, and waits until all have compiled."""
        for worker in range(self.server.num_workers):
            if worker not in self._absences.workers:
                self._hire(worker)
        while self._expected:
            message = self._next_message(-math.inf)
            if isinstance(message, Ready):
                self._is_ready(message)
            elif isinstance(message, Failure):
                self._receive(message)
            for worker in self._lost():
                self._hire(worker)
        self._stepper.compile(self.server.num_workers)
        if self.server.policy.on_observation is not None:
            self._observer.compile(self._state[0])

    def _hire(self, worker: int) -> None:
        self._hires += 1
        self._expected[worker] = self._hires
        self._crew.hire(worker, self._sizes[worker], self._hires)

    def _is_ready(self, message: Ready) -> bool:
        """Records that a worker has started; returns False if it was dismissed meanwhile."""
        if self._expected.get(message.worker) != message.hire:
            return False
        del self._expected[message.worker]
        return True

    def _lost(self) -> list[int]:
        """Returns the workers that died since the last check, at most once per `PATIENCE_SECONDS`."""
        if time.monotonic() - self._looked < PATIENCE_SECONDS:
            return []
        self._looked = time.monotonic()
        lost = [*self._crew.lost()]
        for worker in lost:
            self._deaths[worker] += 1
            if self._deaths[worker] == MOST_DEATHS:
                raise RuntimeError(f"the process of worker {worker} died {MOST_DEATHS} times without a push")
        return lost

    def _next_message(self, now: float) -> Any:
        """Returns the next message, or None when another event is due."""
        due = min(self._schedule[0].time if self._schedule else math.inf, self.server.due, self._seconds)
        due = due if self._transfers is None else min(due, self._transfers.due)
        try:
            return self._inbox.get(timeout=min(PATIENCE_SECONDS, max(0.0, (due - now) * self._clock.scale)))
        except queue.Empty:
            return None

    def _receive(self, message: Any) -> None:
        if isinstance(message, Failure):
            at = f"clock {message.clock}" if message.clock >= 0 else "before its first clock"
            error = WorkerError(f"worker {message.worker}, {at}: {message.cause}\n{message.details}")
            error.add_note(f"raised under {self.server.policy.name}, at {self._clock.now():g} s")
            raise error
        now = self._clock.now()
        if now >= self._seconds:
            return  # too late: the run is over
        self._replace(self._lost(), now)
        if isinstance(message, Ready):
            if self._is_ready(message) and message.worker not in self.server.present:
                self._carry_out(self.server.join(message.worker, now), now)
        elif isinstance(message, Arrival) and self._transfers is not None:
            self._transfers.push(min(message.due, now), message)
        elif isinstance(message, Arrival):
            self._arrive(message, now, min(message.due, now))

    def _cross(self) -> None:
        """Handles the transfers that have crossed the shared links: takes pushes, and sends copies."""
        while self._transfers is not None and not self.server.over:
            now = self._clock.now()
            if now >= self._seconds or (found := self._transfers.through(now)) is None:
                return
            time, task, answer, waited = found
            if answer is None:
                self._arrive(task, now, time, waited)
            elif task in self.server.flight[task.worker]:
                state, before = answer
                self._answered[task.attempt] = time, before + waited
                self._post(task.worker, Assignment(task, self._clock.now(), state, time))

    def _arrive(self, push: Arrival, now: float, came: float, crossed: float = 0.0) -> None:
        """Lets the server's processor take a push that arrived at `came`.

        `crossed`: the seconds by which sharing the server's link delayed it.
        """
        worker, clock, waited = push.worker, push.clock, 0.0
        if self._service is not None:
            taken, waited = self._service.take(worker, clock, came)
            if (read := self._wait(taken)) is None:
                return  # the push is lost, or the run is over
            waited += read - taken + crossed
            now = max(now, read, self._noted)  # not the time of waking up: delays would accumulate
        order = self.server.find(worker, clock, push.attempt)
        if order is None:
            return
        # A worker's clock may be off by the time of a message; its times are clipped to the known range.
        begun = min(max(push.begun, order.time), now)
        computed = min(max(push.computed, begun), now)
        self._gradients[worker, clock] = push.gradient, self._views.pop(push.attempt, None), order
        self._deaths[worker] = 0
        queued = self._answered.pop(order.attempt, (0.0, 0.0))[1]
        self._carry_out(self.server.push(order, now, begun, computed, queued, waited), now)

    def _wait(self, until: float) -> float | None:
        """Keeps the server busy until a time, extended by the updates that it makes meanwhile.

        Returns:
            The end in seconds; None if the server crashed meanwhile or the run is over.
        """
        server = self.server
        while True:
            fault = self._schedule[0].time if self._schedule else math.inf
            first = min(fault, server.due)
            time.sleep(max(0.0, min(until, first, self._seconds) - self._clock.now()) * self._clock.scale)
            if min(first, self._seconds) >= until:
                return until
            if self._seconds <= first:
                return None
            updates = server.num_updates
            if fault <= first:
                incident = self._schedule.pop(0)
                getattr(self, f"_{incident.kind}")(incident)
            else:
                self._wake(min(self._clock.now(), until))
            if self.server is not server or server.over:
                return None
            until += (server.num_updates - updates) * self._spec.seconds_per_update

    def _wake(self, until: float, begun: float | None = None) -> None:
        """Fires the timers that were due until a time; `begun`: time of the first one, at the start."""
        while not self.server.over and self.server.due <= until:
            now = self._noted = self._clock.now() if begun is None else begun
            if now >= self._seconds:
                return  # too late: the run is over
            self._carry_out(self.server.wake(now), now)
            begun = None

    def _carry_out(self, answer: Answer, now: float) -> None:
        server, (apply, cancel, start) = self.server, answer
        if apply and self._service is not None:
            self._service.update(now)
        if apply:
            apply = sorted(apply)  # the order in which replay sums them, since rounding depends on the order
            weights = self._counted(apply)
            gradients, views, orders = zip(*(self._gradients.pop((w, c)) for w, c, _ in apply), strict=True)
            pushes = [*zip(weights, gradients, views, strict=True)]
            total = self._stepper.update(pushes, self._state[0], self._compensation)
            made = server.samples, server.last_update
            self._state = self._stepper.step(total, self._state, weights, made)
            if server.policy.on_observation is not None:
                self._observer.update(total, len(pushes), sum(order.batch_size for order in orders))
        dropped = len(self._gradients) > len(server.pending)
        if self._memory is not None and dropped:
            name, given, expected = self._memory
            expected += f" (under {server.policy.name} a push was dropped)"
            checks.reject(name, given, expected, EVERY_PUSH)
        if dropped:
            self._gradients = {key: self._gradients[key] for key in server.pending}
        for worker in cancel:
            self._post(worker, Idle(server.taken(worker)))
        if len(self._views) > sum(map(len, server.flight)):
            present = {order.attempt for orders in server.flight for order in orders}
            self._views = {attempt: view for attempt, view in self._views.items() if attempt in present}
        for order in start:
            if order.pull:  # otherwise the worker has already begun it
                if self._compensation:
                    self._views[order.attempt] = self._state[0]
                since = order.time
                if self._service is not None and self._service.pulls_take:
                    since, waited = self._service.answer(order.worker, order.clock, since)
                    if self._transfers is not None:
                        self._answered[order.attempt] = math.inf, math.inf  # until it has crossed
                        self._transfers.copy(since, order, (self._state, waited))
                        continue
                    self._answered[order.attempt] = since, waited
                self._post(order.worker, Assignment(order, self._clock.now(), self._state, since))
        if server.looks:
            now = self._clock.now()
            server.observe(*self._observer.observation(server.num_updates, now, self._state[0]))
        due = server.num_updates >= self._saved + self._faults.checkpoint_every
        if self._checkpoints is None or not apply or not due or server.pending:
            return
        # Saving takes real time, so it is not always done when due. With server crashes it is: the lost
        # updates must be predictable.
        if self._faults.server_crashes or self._checkpoints.due():
            self._save()

    def _new_turns(self) -> Turns | None:
        """Returns the weights of additive updates, as far as the run has come; None for other problems."""
        if not self._stepper.problem.additive:
            return None
        server = self.server
        turns = Turns(self._stepper.problem.num_samples, server.num_workers, self._spec.batch_size)
        turns.weights([*map(Turn.of, server.progress(0.0).record.applied())])
        return turns

    def _counted(self, apply: Sequence[tuple[int, int, float]]) -> list[float]:
        """Returns the weights of pushes in an update."""
        if self._turns is None:
            return [weight for _, _, weight in apply]
        orders = [self._gradients[worker, clock][2] for worker, clock, _ in apply]
        update = self.server.num_updates - 1
        return self._turns.weights(
            [Turn(order.worker, order.clock, order.version, order.pull, update) for order in orders]
        )

    def _post(self, worker: int, message: Any) -> None:
        """Sends a worker a message, unless it is away or starting."""
        if worker not in self._absences.workers and worker not in self._expected:
            self._crew.post(worker, message)

    def _leave(self, incident: Incident) -> None:
        worker = incident.worker
        starting = self._expected.pop(worker, None) is not None
        if self._absences.begin(incident):
            now = self._note(incident)
            if incident.forgets or starting:
                self._crew.dismiss(worker, starting)
            else:
                self._idle.add(worker)
                self._crew.post(worker, Idle(self.server.taken(worker)))
            if worker in self.server.present:
                self._carry_out(self.server.leave(worker, now), now)

    def _join(self, incident: Incident) -> None:
        """Restarts the worker, which joins when it is ready, or lets it join if its process goes on."""
        worker = incident.worker
        if (joins := self._absences.end(incident)) is not None:
            now = self._note(joins)
            if worker not in self._idle:
                self._hire(worker)
            else:
                taken = -1 if joins.forgets else self.server.taken(worker)
                self._post(worker, Idle(taken, joins=True))
                self._carry_out(self.server.join(worker, now), now)
            self._idle.discard(worker)

    def _freeze(self, incident: Incident) -> None:
        self._note(incident)
        self._post(incident.worker, Freeze(incident.seconds))

    def _replace(self, lost: Sequence[int], now: float) -> None:
        """Replaces workers that died without an order to end; the other workers continue."""
        local = self._spec.local
        if lost and local is not None and local.must_remember:
            died = f"the process of worker {lost[0]} died at {now:g} s, and what it remembered is lost"
            raise RuntimeError(f"{died}; {local.name} needs it, so the run cannot go on")
        for worker in lost:
            self._absences.log.append(Incident(now, "died", worker).told(now))
            if worker not in self._absences.workers:
                self._hire(worker)
        self._idle.difference_update(lost)
        for worker in lost:
            if worker in self.server.present and not self.server.over:
                self._carry_out(self.server.leave(worker, now), now)

    def _down(self, incident: Incident) -> None:
        """Crashes the server; all that it has not saved is lost."""
        self._note(incident, lost_updates=self.server.num_updates - self._saved)
        if self._kill is not None:
            self._kill()
        self.server, self._gradients, self._state = self._new_server(), {}, self._stepper.start()
        self._observer = Observer(self._stepper)
        self._views.clear()
        time.sleep(incident.seconds * self._clock.scale)
        while not self._inbox.empty():  # sent while the server was down
            message = self._inbox.get()
            if isinstance(message, Failure):
                self._receive(message)
            elif isinstance(message, Ready):
                self._is_ready(message)
        if self._load() is None:
            self.server.begin()
            self._turns = self._new_turns()
        now = self._clock.now()
        if self._service is not None:
            self._service.reset(now)
        if self._transfers is not None:
            self._transfers.reset()
        self._resume(now)

    def _resume(self, now: float) -> None:
        """Continues from a checkpoint: tasks in flight begin again, and workers that went away leave."""
        if now >= self._seconds:
            return  # the run ended during the outage
        server = self.server
        for worker in range(server.num_workers):
            self._post(worker, Idle(-1))  # its tasks are lost
        self._absences.forgets |= self._absences.workers
        for answer in server.catch_up(self._absences.workers | {*self._expected}, now):
            self._carry_out(answer, now)

    def _save(self) -> None:
        assert self._checkpoints is not None
        self._saved = self.server.num_updates
        more = {"time": self._clock.now(), "journal": self.server.journal, "log": self._absences.log}
        self._checkpoints.save(self.server.num_updates, self._state, more)

    def _load(self) -> float | None:
        """Restores the last checkpoint and returns its time in seconds, or None if there is none."""
        found = None if self._checkpoints is None else self._checkpoints.load(self._state)
        if found is None:
            return None
        self._saved, state, more = found
        self._state = self._stepper.put(state)
        self.server = self._new_server().restore(more["journal"])
        self._turns = self._new_turns()
        self._absences.log[: len(more["log"])] = more["log"]
        return float(more["time"])

    def _note(self, incident: Incident, **more: Any) -> float:
        now = self._noted = self._clock.now()
        self._absences.log.append(incident.told(now, **more))
        return now
