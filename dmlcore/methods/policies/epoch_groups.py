"""A2S: once an epoch those who are ahead of the slowest synchronise with each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from dmlcore import checks
from dmlcore.methods.policies.group import Group, join
from dmlcore.types import Decision, Policy, Push, Start


@dataclass
class A2SState:
    """State of A2S.

    Args:
        present: workers that are there.
        pushes: of each worker so far.
        checked: epochs that each had finished when they were compared last.
        members: of the group that is to synchronise.
        group: those of them who wait.
    """

    present: set[int]
    pushes: list[int]
    checked: list[int]
    members: set[int] = field(default_factory=set)
    group: Group = field(default_factory=Group)


def a2s(epoch: int, *, patience: int = 5) -> Policy:
    """Adaptive asynchronous-synchronous: ASP, but once an epoch those who are ahead wait for each other.

    Whenever every worker has finished an epoch since the last time, they are compared. If the fastest is
    s > 1 epochs ahead of the slowest, the s fastest of the K workers - at most K - 1 - are a group: each
    waits with its next push until all of them have come, or until one comes after more than `patience` pushes
    of anybody since the first. Then the mean of their gradients is an update, in shares of how many pushes
    each has made, and the group is dissolved. All other pushes are updates of their own.

    Guarantees: nobody waits for good; as long as nobody is two epochs ahead it is `asp()`.

    Args:
        epoch: pushes of a worker that make an epoch, >= 1.
        patience: the paper's C, pushes, >= 0.

    Returns:
        The policy.

    Raises:
        ValueError: a number is out of range.

    Example:
        >>> a2s(epoch=60)
        a2s(epoch=60, patience=5)

    Reference: Tan, Liu et al. 2022, International Journal of Intelligent Systems, and its public code; that
    the barrier dissolves the group is our reading. Its decay of the learning rate is the optimizer's matter.
    """
    epoch = checks.integer("epoch", epoch, low=1)
    patience = checks.integer("patience", patience, low=0)

    def init(num_workers: int) -> A2SState:
        return A2SState({*range(num_workers)}, [0] * num_workers, [0] * num_workers)

    def compare(state: A2SState) -> None:
        """Forms a group, where it is time and somebody is ahead."""
        epochs = [pushes // epoch for pushes in state.pushes]
        if state.members or any(epochs[w] <= state.checked[w] for w in state.present):
            return
        state.checked = epochs
        order = sorted(state.present, key=lambda w: (-epochs[w], w))
        ahead = epochs[order[0]] - epochs[order[-1]]
        if ahead > 1:
            state.members = {*order[: min(ahead, len(order) - 1)]}

    def opened(state: A2SState) -> Decision:
        state.members = set()
        apply, start = state.group.open()
        return Decision(apply, start=[Start(worker) for worker in sorted(start)])

    def on_push(state: A2SState, push: Push) -> tuple[A2SState, Decision]:
        worker = push.worker
        state.pushes[worker] += 1
        compare(state)
        state.group.count()
        if worker not in state.members:
            return state, Decision([(worker, push.clock, 1.0)], start=[Start(worker)])
        state.group.add(push, state.pushes[worker])
        if state.members <= state.group.waiting or state.group.passed > patience:
            return state, opened(state)
        return state, Decision()

    def on_leave(state: A2SState, worker: int, time: float) -> tuple[A2SState, Decision]:
        state.group.leave(worker, state.present, state.members)
        if state.group and state.members <= state.group.waiting:
            return state, opened(state)
        return state, Decision()

    def on_join(state: A2SState, worker: int, time: float) -> tuple[A2SState, Decision]:
        join(worker, state.present, state.pushes)
        return state, Decision(start=[Start(worker)])

    return Policy(f"a2s(epoch={epoch}, patience={patience})", init, on_push, None, on_leave, on_join)
