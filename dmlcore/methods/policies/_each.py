"""The rule of the policies in which every push is an update of its own, and no worker waits.

They differ in what a push counts, by its staleness: a factor of its weight; or nothing, and then it is
dropped.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dmlcore.methods.policies._gate import Gate, gated, new
from dmlcore.types import Decision, Policy, Push


@dataclass
class Each(Gate):
    """State of such a policy; as no worker is held, what it needs of a gate is who is present."""

    version: int = 0  # updates made


def each_push(
    factor: Callable[[Any, Push, int], float | None],  # state, push, staleness -> None: the push is dropped
    weight: float | None = 1.0,  # of a push whose factor is 1. None: 1 / number of workers present
    *,
    state: type[Each] = Each,
) -> Policy:
    """Returns the policy that makes every push an update, with its factor, and starts its worker again."""

    def on_push(each: Each, push: Push) -> tuple[Each, Decision]:
        worker, clock = push.worker, push.clock
        each.finished[worker] += 1
        found = factor(each, push, each.version - push.version_read)
        start = each.go[worker]
        if found is None:
            return each, Decision(drop=[(worker, clock)], start=start)
        each.version += 1
        return each, new(Decision, ([(worker, clock, each.share * found)], (), (), start, None))

    return gated(on_push, math.inf, weight, state=state)
