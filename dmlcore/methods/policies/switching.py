"""Sync-Switch: synchronous first, asynchronous then."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dmlcore import checks
from dmlcore.methods.policies.clocks import ClockTable, WindowState, check_weight, window_rule
from dmlcore.types import Decision, Policy, Push


@dataclass
class SwitchState(WindowState):
    """State of Sync-Switch.

    Args:
        rounds: still to do in lock-step.
    """

    rounds: int = 0


def sync_switch(rounds: int, *, weight: float | None = 1.0) -> Policy:
    """Sync-Switch: BSP for so many rounds, ASP from then on.

    Guarantees: `sync_switch(0)` is `asp()`; as long as the run, it is `bsp()`.

    Args:
        rounds: of BSP, >= 0. The paper's fraction of the training, times the clocks of a worker in it.
        weight: of one push in an update of ASP, as for `asp`.

    Returns:
        The policy.

    Raises:
        ValueError: a number is out of range.

    Example:
        >>> sync_switch(500)
        sync_switch(rounds=500)

    Reference: Li et al. 2021, "Sync-Switch: hybrid parameter synchronization for distributed deep learning",
    whose learning rate and momentum change with the switch, too.
    """
    rounds = checks.integer("rounds", rounds, low=0)
    weight = check_weight(weight)
    rules = {True: window_rule(0), False: window_rule(math.inf)}

    def init(num_workers: int) -> SwitchState:
        table = ClockTable(num_workers)
        return SwitchState(table, None if rounds else weight, rounds=rounds)

    def counted(answer: tuple[SwitchState, Decision]) -> tuple[SwitchState, Decision]:
        state, decision = answer
        if decision.apply and state.rounds:
            state.rounds -= 1
            if not state.rounds:
                state.weight = weight
                state.count_present()
        return state, decision

    def on_push(state: SwitchState, push: Push) -> tuple[SwitchState, Decision]:
        return counted(rules[state.rounds > 0][0](state, push))

    def on_leave(state: SwitchState, worker: int, time: float) -> tuple[SwitchState, Decision]:
        return counted(rules[state.rounds > 0][1](state, worker, time))

    def on_join(state: SwitchState, worker: int, time: float) -> tuple[SwitchState, Decision]:
        return counted(rules[state.rounds > 0][2](state, worker, time))

    shown = "" if weight == 1.0 else f", weight={weight}"
    return Policy(f"sync_switch(rounds={rounds}{shown})", init, on_push, None, on_leave, on_join)
