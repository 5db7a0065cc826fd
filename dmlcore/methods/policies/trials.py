"""MindFlayer SGD: workers make trials at a gradient, each cut off after a time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from dmlcore.calls import named
from dmlcore.checks import at_least, fail, for_each, one_or_each, or_none, positive
from dmlcore.methods.policies.rounds import seconds_or_inf
from dmlcore.types import Decision, Policy, Push, Start

Token = tuple[str, int]  # ("begin", number of a round) or ("cut", number of a timer)


@dataclass
class Trials:
    """State of MindFlayer SGD.

    A round begins once the server has made the previous update, which may take time. The policy therefore
    learns the start of a round from the round's first timer, which fires after the shortest trial. Each later
    timer is for the trial that is due first.
    """

    seconds: Sequence[float]  # longest trial of each worker, in seconds
    trials: Sequence[int]  # trials of each worker in a round
    round: int = 0  # number of the current round
    arrived: list[Push] = field(default_factory=list)  # in this round
    # Workers whose trial began with the round; their due time is known once the first timer has fired.
    began: set[int] = field(default_factory=set)
    due: dict[int, float] = field(default_factory=dict)  # by worker, seconds when another trial is cut off
    # A heap of (due time, worker). Entries of trials that are over stay until they are popped.
    queue: list[tuple[float, int]] = field(default_factory=list)
    timer: float = math.inf  # when the valid timer fires, in seconds
    timers: int = 0  # number of the valid timer

    def __post_init__(self) -> None:
        self.present = {*range(len(self.trials))}
        self.left = [0] * len(self.trials)  # trials that each worker has yet to finish in this round
        self.active: set[int] = set()  # workers with such trials
        self.renew()

    def renew(self) -> tuple[list[Start], tuple[float, Token]]:
        """Begins a round and returns the starts of its workers, and its first timer (seconds, token)."""
        self.arrived, self.due, self.queue = [], {}, []
        self.timer, self.timers = math.inf, self.timers + 1
        self.active = {worker for worker in self.present if self.trials[worker]}
        self.began = set(self.active)
        for worker in self.active:
            self.left[worker] = self.trials[worker]
        self.shortest = min((self.seconds[worker] for worker in self.active), default=math.inf)
        return [Start(worker) for worker in sorted(self.active)], (self.shortest, ("begin", self.round))

    def begin(self, worker: int, time: float) -> None:
        """Records that a trial of a worker begins at `time`."""
        self.began.discard(worker)
        due = self.due[worker] = time + self.seconds[worker]
        if due < math.inf:
            heappush(self.queue, (due, worker))

    def end(self, worker: int, time: float) -> list[Start]:
        """Records that a worker's trial is over; returns the start of its next trial, if one is left."""
        self.left[worker] -= 1
        if self.left[worker]:
            self.begin(worker, time)
            return [Start(worker)]
        self.leave(worker)
        return []

    def leave(self, worker: int) -> None:
        """Records that a worker has no trials left in this round."""
        self.left[worker] = 0
        self.active.discard(worker)
        self.began.discard(worker)
        self.due.pop(worker, None)

    def due_at(self, token: Token, time: float) -> list[int]:
        """Returns the workers whose trial is due when the timer with this token fires."""
        if token == ("begin", self.round):
            cut = {worker for worker in self.began if self.seconds[worker] == self.shortest}
            for worker in self.began - cut:
                self.begin(worker, time - self.shortest)
            return sorted(cut)
        return self.cut() if token == ("cut", self.timers) else []

    def cut(self) -> list[int]:
        """Returns the workers whose trial is due when the valid timer fires."""
        fired, self.timer, found = self.timer, math.inf, []
        while self.queue and self.queue[0][0] <= fired:
            due, worker = heappop(self.queue)
            if self.due.get(worker) == due:
                found.append(worker)
        return sorted(found)

    def wake(self, time: float) -> tuple[float, Token] | None:
        """Returns the timer to set, if a trial is due before the valid timer fires."""
        while self.queue and self.due.get(self.queue[0][1]) != self.queue[0][0]:
            heappop(self.queue)
        if not self.queue or self.queue[0][0] >= self.timer:
            return None
        self.timer, self.timers = self.queue[0][0], self.timers + 1
        return max(self.timer - time, 0.0), ("cut", self.timers)

    def update(self, expected: float | None) -> list[tuple[int, int, float]]:
        """Returns the weighted tasks of this round's update; empty if no gradient has arrived."""
        total = sum(push.samples for push in self.arrived)
        count = 1.0 if expected is None else len(self.arrived) / expected
        return [(push.worker, push.clock, push.samples / total * count) for push in sorted(self.arrived)]


@named(seconds=one_or_each(seconds_or_inf), trials=one_or_each(at_least(0)), expected=or_none(positive))
def mindflayer(
    seconds: float | Sequence[float], trials: int | Sequence[int] = 1, expected: float | None = None
) -> Policy:
    """MindFlayer SGD: in a round worker i makes B_i trials at a gradient, each cut off after t_i seconds.

    The server cancels a trial after t_i seconds, and the worker begins its next trial, on other samples of
    the same version. When all trials of all workers are over, the gradients that have arrived make one
    update, and the next round begins; if none has arrived, it begins on the same version. So a task time with
    a heavy tail costs at most t_i. With exponential task times the policy gains nothing. A worker that joins
    begins B_i trials in the current round.

    Guarantees: staleness 0; a round takes at most max_i B_i t_i seconds, plus the time that the server
    takes. If a trial of worker i takes at most t_i with probability p_i, sum_i p_i B_i gradients arrive in a
    round on average. `mindflayer(math.inf)` is `bsp()`.

    Args:
        seconds: the paper's t_i, in seconds, > 0 or `math.inf`, including the pull and the push; one number
            for all workers, or one per worker (W,).
        trials: the paper's B_i, >= 0; one number for all workers, or one per worker (W,). A worker with 0
            trials computes nothing.
        expected: the paper's B = sum_i p_i B_i, > 0. The sum of the gradients is divided by it, so that
            rounds with many gradients have more weight. Default: divide by the number of gradients that have
            arrived, which gives a mean over samples as in `bsp` and needs no p_i.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker. It sets timers that
        cut off trials.

    Raises:
        ValueError: a number is out of range, or no worker has a trial; from `init`: the number of entries is
            not the number of workers.

    >>> mindflayer(0.5), mindflayer([0.5, 2.0], trials=[4, 1])
    (mindflayer(seconds=0.5), mindflayer(seconds=[0.5, 2.0], trials=[4, 1]))

    Reference: Maranjyan, Shaikh Omar and Richtarik 2025, "MindFlayer SGD: Efficient parallel SGD in the
    presence of heterogeneous and random worker compute times" (arXiv 2410.04285), Algorithms 1 and 2.
    """
    if not any(trials if isinstance(trials, Sequence) else [trials]):
        fail("trials", trials, "at least one trial of some worker")

    def init(num_workers: int) -> Trials:
        return Trials(for_each("seconds", seconds, num_workers), for_each("trials", trials, num_workers))

    def decide(
        state: Trials, time: float, start: Sequence[Start] = (), **rest: Any
    ) -> tuple[Trials, Decision]:
        """Begins the next round if all trials are over, otherwise the trials in `start`."""
        if state.active or not any(state.trials[worker] for worker in state.present):
            return state, Decision(start=start, wake=state.wake(time), **rest)
        apply = state.update(expected)
        state.round += 1
        begin, wake = state.renew()
        return state, Decision(apply, start=begin, wake=wake, **rest)

    def on_push(state: Trials, push: Push) -> tuple[Trials, Decision]:
        if push.worker not in state.active:  # its task was to be cancelled, but had finished before
            return decide(state, push.time, drop=[(push.worker, push.clock)])
        state.arrived.append(push)
        return decide(state, push.time, state.end(push.worker, push.time))

    def on_wake(state: Trials, token: Token | None, time: float) -> tuple[Trials, Decision]:
        if token is None:
            idle = sorted(state.present - state.active)
            return state, Decision(cancel=idle, wake=(state.shortest, ("begin", 0)))
        cancel = state.due_at(token, time)
        start = [each for worker in cancel for each in state.end(worker, time)]
        return decide(state, time, start, cancel=cancel)

    def on_leave(state: Trials, worker: int, time: float) -> tuple[Trials, Decision]:
        state.present.remove(worker)
        state.leave(worker)
        return decide(state, time)

    def on_join(state: Trials, worker: int, time: float) -> tuple[Trials, Decision]:
        state.present.add(worker)
        if not state.trials[worker]:
            return decide(state, time)
        state.active.add(worker)
        state.left[worker] = state.trials[worker]
        state.begin(worker, time)
        return decide(state, time, [Start(worker)])

    return Policy("", init, on_push, None, on_leave, on_join, on_wake=on_wake)
