"""A2S: once per epoch, the workers that are ahead of the slowest one synchronise with each other."""

from dataclasses import dataclass, field

from dmlcore.calls import named
from dmlcore.checks import at_least
from dmlcore.methods.policies._group import Group, answer, join
from dmlcore.types import NOTHING_YET, Decision, Policy, Push


@dataclass
class A2SState:
    """State of A2S."""

    present: set[int]  # workers that are present
    pushes: list[int]  # number of pushes of each worker so far
    checked: list[int]  # epochs that each worker had finished at the last comparison
    members: set[int] = field(default_factory=set)  # workers of the group that will synchronise
    group: Group = field(default_factory=Group)  # the members that wait already


@named(every=True, epoch=at_least(1), patience=at_least(0))
def a2s(epoch: int, *, patience: int = 5) -> Policy:
    """Adaptive asynchronous-synchronous: ASP, but once per epoch the fastest workers wait for each other.

    The server compares the workers each time that every worker has finished a further epoch. If the fastest
    worker is s > 1 epochs ahead of the slowest, the s fastest of the K workers (at most K - 1) form a group.
    Each member waits after its next push. The barrier opens when all members have pushed, or at a member's
    push once more than `patience` pushes of any worker have arrived since the group's first. The weighted
    mean of the group's gradients is then one update, and the group is dissolved. The weight of a gradient is
    in proportion to the number of pushes that its worker has made. Every other push is an update of its own.

    Guarantees: every wait ends; as long as no worker is two epochs ahead, the policy acts as `asp()`.

    Args:
        epoch: number of pushes of a worker that make an epoch, >= 1.
        patience: the paper's C, >= 0; its unit is one push.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `epoch` or `patience` is out of range.

    >>> a2s(epoch=60)
    a2s(epoch=60, patience=5)

    Reference: Tan, Liu et al. 2022, International Journal of Intelligent Systems, and its public code. That
    the group is dissolved when the barrier opens is our reading. The paper's decay of the learning rate is
    left to the optimizer.
    """

    def init(num_workers: int) -> A2SState:
        return A2SState({*range(num_workers)}, [0] * num_workers, [0] * num_workers)

    def compare(state: A2SState) -> None:
        """Forms a group if all workers have finished a further epoch and the fastest is 2 or more ahead."""
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
        return answer(*state.group.open())

    def on_push(state: A2SState, push: Push) -> tuple[A2SState, Decision]:
        worker = push.worker
        state.pushes[worker] += 1
        compare(state)
        state.group.passed += bool(state.group)
        if worker not in state.members:
            return state, answer([(worker, push.clock, 1.0)], {worker})
        state.group.add(push, state.pushes[worker])
        if state.members <= state.group.waiting or state.group.passed > patience:
            return state, opened(state)
        return state, NOTHING_YET

    def on_leave(state: A2SState, worker: int, time: float) -> tuple[A2SState, Decision]:
        state.group.leave(worker, state.present, state.members)
        if state.group and state.members <= state.group.waiting:
            return state, opened(state)
        return state, NOTHING_YET

    def on_join(state: A2SState, worker: int, time: float) -> tuple[A2SState, Decision]:
        join(worker, state.present, state.pushes)
        return state, answer([], {worker})

    return Policy("", init, on_push, None, on_leave, on_join)
