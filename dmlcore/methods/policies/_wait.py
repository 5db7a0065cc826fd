"""The rule of the policies that wait for K gradients, as in Dutta et al. 2018, section 2.

They differ in two answers: may the K come from any worker ("batch") or only one from each, and is the work in
flight cancelled when the K-th arrives ("sync") or does it go on, to arrive stale ("async"). What arrives
stale is applied, or else dropped. Means are over samples: a task of b samples has the weight b / sum b in its
update, 1 / K where all have as many. A round may have a deadline, from which on it waits for fewer.
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
    batch_size: int | None = None  # samples of the tasks that begin from then on; None asks the load rule
    seconds: float | None = None  # deadline of every round, from its begin on; None: there is none
    fewest: int = 1  # gradients to wait for once the deadline has passed
    arrived: list[Push] = field(default_factory=list)  # pushes since the last update
    version: int = 0  # updates made

    def __post_init__(self) -> None:
        self.present = set(range(self.num_workers))
        self.needed = self.k  # of this round
        self.resize()

    def resize(self) -> None:
        """Makes the starts of this round, which has tasks of another size."""
        self.size = self.batch_size
        self.starts = [Start(worker, self.size) for worker in range(self.num_workers)]


def wait_for_k(
    init: Callable[[int], Any],  # number of workers -> `Rounds`
    *,
    any_worker: bool,  # the gradients may come from any worker, and not only one from each
    cancels: bool,  # work in flight is cancelled when the last of them arrives
    drops: bool = False,  # gradients of older versions are dropped as they arrive; for `any_worker` only
    damp: Callable[[int], float] = DAMPING["none"],  # staleness -> factor of a gradient's weight
    deadlines: bool = False,  # the rounds have some
    begin: Callable[[Any, float], None] | None = None,  # sets `k` and `batch_size` of the round that begins
    **fields: Any,
) -> Policy:
    """Returns the policy that waits for K gradients; `fields` are further ones of it."""

    def complete(state: Rounds) -> bool:
        k = state.needed
        if not any_worker and k > len(state.present):
            # One gradient from each: no more can come than there are workers present or in `arrived`.
            k = min(k, len(state.present.union(push.worker for push in state.arrived)))
        return len(state.arrived) >= k and bool(state.present)

    def update(state: Rounds, idle: set[int], time: float) -> tuple[Rounds, Decision]:
        """Applies what arrived. `idle`: workers present that neither compute nor wait for this update."""
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
        """Returns the timer of the round that begins; its token is the number of the round."""
        return None if state.seconds is None else (state.seconds, state.version)

    def on_wake(state: Rounds, version: int | None, time: float) -> tuple[Rounds, Decision]:
        if version is None:
            return state, Decision(wake=timer(state))
        if version != state.version:
            return state, NOTHING_YET  # all had arrived before this round's deadline
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
    """Returns the policy that waits for `k` gradients in every round; `rest` as for `wait_for_k`."""

    def init(num_workers: int) -> Rounds:
        if not any_worker:
            check_workers(num_workers, k=k)
        return Rounds(num_workers, k)

    return wait_for_k(init, any_worker=any_worker, cancels=cancels, **rest)


def check_workers(num_workers: int, **numbers: int | None) -> None:
    """Raises ValueError unless every number given is at most the number of workers."""
    for name, number in numbers.items():
        if number is not None:
            checks.integer(name, number, low=1, high=num_workers, why="the number of workers")


def seconds_or_inf(name: str, value: float) -> float:
    """Returns a limit of time: a number > 0, or `math.inf`, which is none."""
    return checks.real(name, value, above=0)
