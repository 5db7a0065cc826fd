"""The server on a real clock: its state machine, the parameters, and what workers are told."""

from __future__ import annotations

import itertools
import math
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from dmlcore import checks
from dmlcore.cluster.faults import Incident, ServerCrash, incidents
from dmlcore.engines import mistakes
from dmlcore.engines.job import Job, Recording
from dmlcore.engines.observing import Observer
from dmlcore.engines.server import Answer, Order
from dmlcore.engines.sharing import Crossings, FairService
from dmlcore.engines.worker import Arrival, Assignment, Clock, Failure, Freeze, Idle, Ready
from dmlcore.training.checkpoints import Checkpoints, journal_arrays, journal_entries
from dmlcore.training.coding import memory_of
from dmlcore.training.stepper import State, Stepper, widths
from dmlcore.training.turns import Turn, Turns

PATIENCE_SECONDS = 1.0  # between two looks at whether every worker is alive
MOST_DEATHS = 3  # of a worker without a push in between, before the run is given up
MOST_SECONDS, MOST_TASKS = 300.0, 100  # real ones, and tasks of each worker, without an update, likewise


class Crew(Protocol):
    """The workers, as the server reaches them."""

    def hire(self, worker: int, sizes: tuple[int, ...], hire: int) -> None:
        """Starts a worker, which will send `Ready` with the number of its start."""

    def post(self, worker: int, message: Any) -> None:
        """Sends a worker a message."""

    def dismiss(self, worker: int, starting: bool) -> None:
        """Ends a worker at once, which may not have sent `Ready` yet: a crash."""

    def lost(self) -> Sequence[int]:
        """Returns the workers that died without being told to."""

    def close(self) -> object:
        """Ends all workers when the run is over or has failed."""


class WorkerError(RuntimeError):
    """A worker's gradient raised; the message names worker, clock and cause."""


class Serving:
    """One run on a real clock.

    Args:
        job: the run.
        inbox: messages of workers.
        crew: the workers.
        clock: of the run; set to 0 when every worker is ready.
        checkpoints: where the server's state is kept; None: nowhere.
        stepper: the server's arithmetic; None: the job's.
        serial: numbers of attempts.
        kill: how the server's process dies; None: it forgets all it knows.
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
        # Attempt -> when its copy has left a server that takes time, and how long it waited there; until the
        # push of the task that pulled.
        self._answered: dict[int, tuple[float, float]] = {}
        self._new_server = job.new_server(itertools.count() if serial is None else serial, self._answered)
        self._spec, self._stepper, self._inbox, self._crew = spec, stepper or job.stepper(), inbox, crew
        self._clock, self._faults, self._seconds = clock, faults, spec.stop.seconds
        self._service = job.service()
        # Of links that are shared equally.
        self._crossings = Crossings(self._service) if isinstance(self._service, FairService) else None
        self._noted = 0.0  # when the last incident happened
        self._checkpoints, self._kill = checkpoints, kill
        self.server = self._new_server()
        self.log: list[dict[str, Any]] = []
        self._state: State = self._stepper.start()
        self._gradients: dict[tuple[int, int], tuple[Any, Any, Order]] = {}  # and what they were taken on
        # What each attempt is computed on, where delays are compensated.
        self._views: dict[int, Any] = {}
        self._compensation = spec.compensation
        self._memory = memory_of(spec.transport, spec.local)
        self._observer = Observer(self._stepper)
        self._turns = self._new_turns()
        self._saved = 0  # updates, at the last checkpoint
        self._away = [0] * self.server.num_workers  # for how many reasons
        self._schedule = incidents(faults)
        self._expected: dict[int, int] = {}  # workers that are starting -> number of that start
        self._hires = 0
        self._deaths = [0] * self.server.num_workers  # of each worker since its last push
        # Updates made, and when, on the machine's clock, and after how many tasks that was first seen.
        self._progress = -1, 0.0, 0
        self._looked = 0.0  # when, on the machine's clock, workers were last seen alive
        self._server_crashes = any(isinstance(fault, ServerCrash) for fault in faults.events)
        # Of every worker's first task, and of others that may come: to compile for them before.
        more, (_, _, first) = spec.policy.sizes, self._new_server().begin()
        self._sizes = {
            order.worker: (order.batch_size, *more, *(widths(order.batch_size) if spec.sizes_change else ()))
            for order in first
        }

    def run(
        self, metadata: dict[str, Any], since: float = 0.0, log: Sequence[dict[str, Any]] = ()
    ) -> Recording:
        """Runs to the end.

        Args:
            metadata: of the trace.
            since: the time by now, where it was killed and goes on from its last checkpoint. Default: that of
                the checkpoint, or 0 where there is none.
            log: what happened meanwhile.

        Returns:
            Trace and parameters.

        Raises:
            WorkerError: a gradient raised.
            RuntimeError: no worker has a task, and none will.
        """
        found = self._load()
        now = max(since, found or 0.0)
        self.log += [entry for entry in log if entry not in self.log]
        passed = [incident for incident in self._schedule if incident.time < now]
        self._schedule = self._schedule[len(passed) :]
        for incident in passed:
            self._away[incident.worker] += {"leave": 1, "join": -1}.get(incident.kind, 0)
        self._muster()
        self._clock.set(now)
        begun = self.server.begin() if found is None else None
        if self.server.over:
            pass  # the last checkpoint was the end
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
                # Messages wait in the inbox while the server is at work: what arrived first comes first.
                self._wake(min(now, message.due) if isinstance(message, Arrival) else now)
                if not self.server.over:
                    self._receive(message)
                self._cross()
                self._check_progress()
        if self.server.over and self._checkpoints is not None and self.server.num_updates > self._saved:
            self._save()  # the same call again has nothing left to do
        end = self.server.last_update if self.server.over else self._seconds
        more = {"incidents": self.log, "ignored_arrivals": self.server.ignored}
        return Recording(self.server.trace(end, metadata | more), self._state[0])

    def _check_progress(self) -> None:
        """Raises RuntimeError where a run that is to end with updates goes on and on without one."""
        updates, now, tasks = self.server.num_updates, time.monotonic(), self.server.num_tasks
        before, since, already = self._progress
        if updates != before:
            self._progress = updates, now, tasks
        elif self._seconds == math.inf and now > since + MOST_SECONDS:
            spent = tasks - already
            if spent > MOST_TASKS * self.server.num_workers:
                raise mistakes.never_updates(self.server.policy, self._clock.now(), updates, spent)

    def _muster(self) -> None:
        """Starts every worker that is not away and waits until all is compiled."""
        for worker, reasons in enumerate(self._away):
            if not reasons:
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
        """Takes note that a worker has started; False where it is one that was dismissed meanwhile."""
        if self._expected.get(message.worker) != message.hire:
            return False
        del self._expected[message.worker]
        return True

    def _lost(self) -> list[int]:
        """Workers that died since the last look, which is taken now and then."""
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
        """Returns the next message, or None when something else is due."""
        due = min(self._schedule[0].time if self._schedule else math.inf, self.server.due, self._seconds)
        due = due if self._crossings is None else min(due, self._crossings.due)
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
        elif isinstance(message, Arrival) and self._crossings is not None:
            self._crossings.push(min(message.due, now), message)
        elif isinstance(message, Arrival):
            self._arrive(message, now, min(message.due, now))

    def _cross(self) -> None:
        """Takes the pushes that are through a link which others share, and sends the copies that are."""
        while self._crossings is not None and not self.server.over:
            now = self._clock.now()
            if now >= self._seconds or (found := self._crossings.through(now)) is None:
                return
            time, task, answer, waited = found
            if answer is None:
                self._arrive(task, now, time, waited)
            elif task in self.server.flight[task.worker]:
                state, before = answer
                self._answered[task.attempt] = time, before + waited
                self._post(task.worker, Assignment(task, self._clock.now(), state, time))

    def _arrive(self, push: Arrival, now: float, came: float, crossed: float = 0.0) -> None:
        """The server's processor takes a push that came at a time; a shared link took it so much longer."""
        worker, clock, waited = push.worker, push.clock, 0.0
        if self._service is not None:
            taken, waited = self._service.take(worker, clock, came)
            if (read := self._wait(taken)) is None:
                return  # lost, or the run is over
            waited += read - taken + crossed
            now = max(now, read, self._noted)  # not when it woke up: that would add up
        order = self.server.find(worker, clock, push.attempt)
        if order is None:
            return
        # A clock that follows the server's may be off by a message's way, but not beyond what is known.
        begun = min(max(push.begun, order.time), now)
        computed = min(max(push.computed, begun), now)
        self._gradients[worker, clock] = push.gradient, self._views.pop(push.attempt, None), order
        self._deaths[worker] = 0
        queued = self._answered.pop(order.attempt, (0.0, 0.0))[1]
        self._carry_out(self.server.push(order, now, begun, computed, queued, waited), now)

    def _wait(self, until: float) -> float | None:
        """Lets the server be busy until a time, or longer by the updates that it makes meanwhile.

        Returns:
            Until when; None: it does not know any more what it was doing, or the run is over.
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
        """Lets the timers fire that were due by a time; `begun` is that of the start, the first of them."""
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
            apply = sorted(apply)  # as replay sums them: another order is rounded otherwise
            weights = self._counted(apply)
            gradients, views, orders = zip(*(self._gradients.pop((w, c)) for w, c, _ in apply), strict=True)
            pushes = [*zip(weights, gradients, views, strict=True)]
            total = self._stepper.update(pushes, self._state[0], self._compensation)
            self._state = self._stepper.step(total, self._state)
            if server.policy.on_observation is not None:
                self._observer.update(total, len(pushes), sum(order.batch_size for order in orders))
        dropped = len(self._gradients) > len(server.pending)
        if self._memory is not None and (dropped or server.has_cut):
            name, given, allowed = self._memory
            allowed += f", under {server.policy.name}, which has dropped or cancelled a task"
            checks.fail(name, given, allowed)
        if dropped:
            self._gradients = {key: self._gradients[key] for key in server.pending}
        for worker in cancel:
            self._post(worker, Idle())
        if len(self._views) > sum(map(len, server.flight)):
            present = {order.attempt for orders in server.flight for order in orders}
            self._views = {attempt: view for attempt, view in self._views.items() if attempt in present}
        for order in start:
            if order.pull:  # else the worker has begun it by itself
                if self._compensation:
                    self._views[order.attempt] = self._state[0]
                since = order.time
                if self._service is not None and self._service.pulls_take:
                    since, waited = self._service.answer(order.worker, order.clock, since)
                    if self._crossings is not None:
                        self._answered[order.attempt] = math.inf, math.inf  # until it is through
                        self._crossings.copy(since, order, (self._state, waited))
                        continue
                    self._answered[order.attempt] = since, waited
                self._post(order.worker, Assignment(order, self._clock.now(), self._state, since))
        if server.looks:
            now = self._clock.now()
            server.observe(*self._observer.observation(server.num_updates, now, self._state[0]))
        due = server.num_updates >= self._saved + self._faults.checkpoint_every
        if self._checkpoints is None or not apply or not due or server.pending:
            return
        # Saving takes time, and the clock is real; but what a crash will lose is to be foreseen.
        if self._server_crashes or self._checkpoints.due():
            self._save()

    def _new_turns(self) -> Turns | None:
        """What counts of additive updates, as far as the run has come."""
        if not self._stepper.problem.additive:
            return None
        server = self.server
        turns = Turns(self._stepper.problem.num_samples, server.num_workers, self._spec.batch_size)
        turns.weights([*map(Turn.of, server.progress(0.0).record.applied())])
        return turns

    def _counted(self, apply: Sequence[tuple[int, int, float]]) -> list[float]:
        """The weights of pushes in an update."""
        if self._turns is None:
            return [weight for _, _, weight in apply]
        orders = [self._gradients[worker, clock][2] for worker, clock, _ in apply]
        update = self.server.num_updates - 1
        return self._turns.weights(
            [Turn(order.worker, order.clock, order.version, order.pull, update) for order in orders]
        )

    def _post(self, worker: int, message: Any) -> None:
        """Sends a worker a message, if it is there."""
        if not self._away[worker] and worker not in self._expected:
            self._crew.post(worker, message)

    def _leave(self, incident: Incident) -> None:
        worker = incident.worker
        self._away[worker] += 1
        if self._away[worker] == 1:
            now = self._note(incident)
            starting = self._expected.pop(worker, None) is not None
            self._crew.dismiss(worker, starting)
            if worker in self.server.present:
                self._carry_out(self.server.leave(worker, now), now)

    def _join(self, incident: Incident) -> None:
        """Starts the worker again; it joins when it is ready."""
        worker = incident.worker
        self._away[worker] -= 1
        if self._away[worker] == 0:
            self._note(incident)
            self._hire(worker)

    def _freeze(self, incident: Incident) -> None:
        self._note(incident)
        self._post(incident.worker, Freeze(incident.seconds))

    def _replace(self, lost: Sequence[int], now: float) -> None:
        """Workers are gone that were not told to leave: the others go on, and new ones take their places."""
        for worker in lost:
            self.log.append({"time": now, "kind": "died", "worker": worker, "seconds": 0.0})
            self._hire(worker)
        for worker in lost:
            if worker in self.server.present and not self.server.over:
                self._carry_out(self.server.leave(worker, now), now)

    def _down(self, incident: Incident) -> None:
        """The server dies: what it has not saved is gone."""
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
        if self._crossings is not None:
            self._crossings.reset()
        self._resume(now)

    def _resume(self, now: float) -> None:
        """Goes on from a checkpoint: workers at work begin their tasks again, those gone meanwhile leave."""
        if now >= self._seconds:
            return  # the run ended meanwhile
        server = self.server
        gone = {w for w, reasons in enumerate(self._away) if reasons} | {*self._expected}
        for worker in range(server.num_workers):
            self._post(worker, Idle())  # what it has is lost
        self._carry_out(server.resume(now), now)
        for worker in sorted(server.present & gone):
            self._carry_out(server.leave(worker, now), now)
        for worker in sorted(set(range(server.num_workers)) - gone - server.present):
            self._carry_out(server.join(worker, now), now)

    def _save(self) -> None:
        assert self._checkpoints is not None
        self._saved = self.server.num_updates
        more = {
            "time": self._clock.now(),
            "journal": journal_arrays(self.server.journal or ()),
            "log": self.log,
        }
        self._checkpoints.save(self.server.num_updates, self._state, more)

    def _load(self) -> float | None:
        """Goes back to the last checkpoint and returns its time, or None where there is none."""
        found = None if self._checkpoints is None else self._checkpoints.load(self._state)
        if found is None:
            return None
        self._saved, state, more = found
        self._state = self._stepper.put(state)
        self.server = self._new_server().restore(journal_entries(more["journal"]))
        self._turns = self._new_turns()
        self.log = [*more["log"], *self.log[len(more["log"]) :]]
        return float(more["time"])

    def _note(self, incident: Incident, **more: Any) -> float:
        now = self._noted = self._clock.now()
        self.log.append(incident._replace(time=now)._asdict() | more)
        return now
