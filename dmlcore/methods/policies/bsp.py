"""Bulk synchronous parallel."""

from dmlcore.calls import named
from dmlcore.methods.policies._gate import Gate, gated
from dmlcore.types import Decision, Policy, Push


@named()
def bsp() -> Policy:
    """Bulk synchronous parallel: every round waits for all workers and applies the mean of their gradients.

    The mean is over samples: a task of b samples has the weight b / sum(b) in its round, which is 1 / number
    of workers if all tasks have the same batch size.

    Guarantees: staleness 0; the parameters after u updates do not depend on task and transfer times. `ssp(0)`
    and `k_sync(num_workers)` are the same policy.

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock.

    >>> bsp()
    bsp()

    Reference: Valiant 1990, "A bridging model for parallel computation".
    """

    def on_push(gate: Gate, push: Push) -> tuple[Gate, Decision]:
        clock = gate.advance(push.worker)
        if gate.slowest < clock:  # some worker has not pushed in this round
            return gate, gate.wait(push, until=clock)
        return gate, gate.proceed(push)

    return gated(on_push, max_lead=0)
