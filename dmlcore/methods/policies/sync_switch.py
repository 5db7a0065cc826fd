"""Sync-Switch: BSP first, then ASP."""

import math
from dataclasses import dataclass

from dmlcore.calls import named
from dmlcore.checks import at_least, or_none, positive
from dmlcore.methods.policies._gate import Gate, gated
from dmlcore.types import Decision, Policy, Push


@dataclass
class SwitchGate(Gate):
    """State of Sync-Switch."""

    rounds_left: int = 0  # remaining rounds of BSP


@named(rounds=at_least(0), weight=or_none(positive))
def sync_switch(rounds: int, *, weight: float | None = 1.0) -> Policy:
    """Sync-Switch: BSP for a number of rounds, then ASP.

    Guarantees: `sync_switch(0)` is `asp()`; if `rounds` is at least the number of rounds in the run, it is
    `bsp()`.

    Args:
        rounds: number of rounds of BSP, >= 0. The paper states it as a fraction of the training: multiply
            that fraction by the number of clocks of a worker.
        weight: the weight of one push in its update after the switch to ASP, as for `asp`.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `rounds` or `weight` is out of range.

    >>> sync_switch(500)
    sync_switch(rounds=500)

    Reference: Li et al. 2021, "Sync-Switch: hybrid parameter synchronization for distributed deep learning".
    In the paper the learning rate and the momentum also change at the switch; here they stay the same.
    """

    def init(num_workers: int) -> SwitchGate:
        if rounds:
            return SwitchGate(num_workers, max_lead=0, rounds=True, rounds_left=rounds)
        return SwitchGate(num_workers, math.inf, weight)

    def counted(gate: SwitchGate, decision: Decision) -> tuple[SwitchGate, Decision]:
        if decision.apply and gate.rounds_left:
            gate.rounds_left -= 1
            if not gate.rounds_left:
                gate.max_lead, gate.weight, gate.rounds = math.inf, weight, False
                gate.look()
        return gate, decision

    def on_push(gate: SwitchGate, push: Push) -> tuple[SwitchGate, Decision]:
        clock = gate.advance(push.worker)
        if gate.rounds_left and gate.slowest < clock:
            return gate, gate.wait(push, until=clock)
        return counted(gate, gate.proceed(push))

    def on_leave(gate: SwitchGate, worker: int, time: float) -> tuple[SwitchGate, Decision]:
        return counted(gate, gate.leave(worker))

    return gated(on_push, math.inf)._replace(init=init, on_leave=on_leave, max_lead=None)
