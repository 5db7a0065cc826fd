"""The rule of the policies in which every push is an update of its own, and no worker waits.

These policies differ in how they treat staleness: each multiplies the weight of a push by a factor that
depends on its staleness, or drops the push.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dmlcore.methods.policies._gate import Gate, gated, new
from dmlcore.types import Decision, Policy, Push


@dataclass
class Each(Gate):
    """State of such a policy. It uses the gate only to know which workers are present: no worker waits."""

    version: int = 0  # updates made


def each_push(
    factor: Callable[[Any, Push, int], float | None],  # state, push, staleness -> None: the push is dropped
    weight: float | None = 1.0,  # of a push whose factor is 1. None: 1 / number of workers present
    *,
    state: type[Each] = Each,
) -> Policy:
    """Returns the policy that applies each push, scaled by its factor, and starts the push's worker again."""

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
