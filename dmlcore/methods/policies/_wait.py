"""The rule of the policies that wait for K gradients, as in Dutta et al. 2018, section 2.

These policies differ in two respects. The K gradients come from any worker ("batch"), or one from each of K
workers. When the K-th arrives, the server cancels the tasks in flight ("sync"), or lets them finish, so that
their gradients arrive stale ("async"). A stale gradient is applied or dropped, as the policy says. Means are
over samples: a task of b samples has the weight b / sum(b) in its update, which is 1 / K if all batches are
equal. A round may have a deadline, after which it waits for fewer gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dmlcore import checks
from dmlcore.methods.policies._damping import DAMPING
from dmlcore.types import NOTHING_YET, Decision, Policy, Push, Start


@dataclass
class Rounds:
    """State of a policy that waits for K gradients."""

    num_workers: int  # of the cluster
    k: int  # gradients to wait for, from the next round on
    batch_size: int | None = None  # samples per task, from the next round on. None: the load rule sets it
    seconds: float | None = None  # deadline, in seconds from the start of the round. None: no deadline
    fewest: int = 1  # gradients to wait for once the deadline has passed
    arrived: list[Push] = field(default_factory=list)  # pushes since the last update
    version: int = 0  # updates made

    def __post_init__(self) -> None:
        self.present = set(range(self.num_workers))
        self.needed = self.k  # gradients to wait for in this round
        self.resize()

    def resize(self) -> None:
        """Makes the starts of this round again, because its tasks have a new batch size."""
        self.size = self.batch_size
        self.starts = [Start(worker, self.size) for worker in range(self.num_workers)]


def wait_for_k(
    init: Callable[[int], Any],  # number of workers -> `Rounds`
    *,
    any_worker: bool,  # a worker may give several of the K gradients, and not only one
    cancels: bool,  # the server cancels the tasks in flight when the K-th gradient arrives
    drops: bool = False,  # the server drops gradients of older versions; needs `any_worker`
    damp: Callable[[int], float] = DAMPING["none"],  # staleness -> factor of a gradient's weight
    deadlines: bool = False,  # rounds may have a deadline
    begin: Callable[[Any, float], None] | None = None,  # sets `k` and `batch_size` of the round that begins
    **fields: Any,
) -> Policy:
    """Returns the policy that waits for K gradients; `fields` are further fields of `Policy`."""

    def complete(state: Rounds) -> bool:
        k = state.needed
        if not any_worker and k > len(state.present):
            # One gradient per worker: at most as many can come as workers are present or have pushed.
            k = min(k, len(state.present.union(push.worker for push in state.arrived)))
        return len(state.arrived) >= k and bool(state.present)

    def update(state: Rounds, idle: set[int], time: float) -> tuple[Rounds, Decision]:
        """Applies the pushes that arrived. `idle`: workers present that neither compute nor wait."""
        total = sum(push.samples for push in state.arrived)
        apply = [
            (push.worker, push.clock, push.samples / total * damp(state.version - push.version_read))
            for push in sorted(state.arrived)
        ]
        if not any_worker:
            idle = idle | {push.worker for push in state.arrived}
        if begin is not None:
            begin(state, time)
        state.needed, state.arrived = state.k, []
        state.version += 1
        if state.size != state.batch_size:
            state.resize()
        cancel = sorted(state.present - idle) if cancels else []
        free = state.present if cancels else state.present & idle
        start = [state.starts[worker] for worker in sorted(free)]
        return state, Decision(apply, (), cancel, start, timer(state))

    def timer(state: Rounds) -> tuple[float, int] | None:
        """Returns the timer of the round that begins, in seconds; its token is the round's version."""
        return None if state.seconds is None else (state.seconds, state.version)

    def on_wake(state: Rounds, version: int | None, time: float) -> tuple[Rounds, Decision]:
        if version is None:
            return state, Decision(wake=timer(state))
        if version != state.version:
            return state, NOTHING_YET  # that round ended before its deadline
        state.needed = min(state.needed, state.fewest)
        return update(state, set(), time) if complete(state) else (state, NOTHING_YET)

    def on_push(state: Rounds, push: Push) -> tuple[Rounds, Decision]:
        if drops and push.version_read < state.version:
            return state, Decision(drop=[(push.worker, push.clock)], start=(state.starts[push.worker],))
        state.arrived.append(push)
        if complete(state):
            return update(state, {push.worker}, push.time)
        return state, Decision(start=(state.starts[push.worker],)) if any_worker else NOTHING_YET

    def on_leave(state: Rounds, worker: int, time: float) -> tuple[Rounds, Decision]:
        state.present.remove(worker)
        return update(state, set(), time) if complete(state) else (state, NOTHING_YET)

    def on_join(state: Rounds, worker: int, time: float) -> tuple[Rounds, Decision]:
        state.present.add(worker)
        if complete(state):
            return update(state, {worker}, time)
        waits = not any_worker and any(push.worker == worker for push in state.arrived)
        return state, Decision(start=() if waits else (state.starts[worker],))

    lock_step = 0 if cancels and not any_worker else None
    if deadlines:
        fields["on_wake"] = on_wake
    return Policy("", init, on_push, lock_step, on_leave, on_join, **fields)


def fixed_k(k: int, *, any_worker: bool, cancels: bool, **rest: Any) -> Policy:
    """Returns the policy that waits for `k` gradients in every round; `rest` goes to `wait_for_k`."""

    def init(num_workers: int) -> Rounds:
        if not any_worker:
            check_workers(num_workers, k=k)
        return Rounds(num_workers, k)

    return wait_for_k(init, any_worker=any_worker, cancels=cancels, **rest)


def check_workers(num_workers: int, **numbers: int | None) -> None:
    """Raises ValueError if one of `numbers` exceeds the number of workers."""
    for name, number in numbers.items():
        if number is not None:
            checks.integer(name, number, low=1, high=num_workers, why="the number of workers")


def seconds_or_inf(name: str, value: float) -> float:
    """Returns a time limit in seconds: a number > 0, or `math.inf` for no limit."""
    return checks.real(name, value, above=0)
