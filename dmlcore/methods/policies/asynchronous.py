"""Asynchronous parallel: nobody waits. How large a step is may follow the gradient's samples and its age."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from dmlcore import checks
from dmlcore.methods.policies.clocks import ClockTable, WindowState, check_weight, window, window_rule
from dmlcore.methods.policies.damping import DAMPING
from dmlcore.types import Decision, Policy, Push


@dataclass
class CoupledState(WindowState):
    """State where steps follow samples or age.

    Args:
        version: updates made.
        samples: of the last push of each worker that is there.
        total: of them.
    """

    version: int = 0
    samples: dict[int, int] = field(default_factory=dict)
    total: int = 0

    def count(self, worker: int, samples: int | None) -> None:
        """Takes a worker's newest batch size for its last; None: the worker is gone."""
        self.total -= self.samples.pop(worker, 0)
        if samples is not None:
            self.samples[worker] = samples
            self.total += samples


SCALING: dict[str, Callable[[CoupledState, Push], float]] = {
    "none": lambda state, push: 1.0,
    "samples": lambda state, push: push.samples * len(state.samples) / state.total,
}


def asp(
    *,
    weight: float | None = 1.0,
    scaling: str = "none",
    damping: str = "none",
) -> Policy:
    """Asynchronous parallel: every push is an update, and nobody ever waits.

    A push of b samples that is tau updates old has the weight `weight` * scaling * damping. With
    `damping="inverse"` it is delay-adaptive asynchronous SGD, with `scaling="samples"` DBS-SGD where batches
    follow speeds.

    Guarantees: with P workers the mean staleness over gradients tends to P - 1, whatever their speeds. With
    one worker it is plain SGD. `k_async(1)` is the same policy as `asp()`.

    Args:
        weight: of one push in the update. Default 1: a gradient of one worker is a whole step, as is usual
            for asynchronous SGD; None: 1 / number of workers, as in `ssp`.
        scaling: "none", however many samples it has; or "samples", b / mean(b), the mean over the last push
            of each worker that is there.
        damping: "none"; "inverse", 1 / (1 + tau); or "reciprocal", 1 / max(tau, 1).

    Returns:
        The policy.

    Raises:
        ValueError: a number is out of range, or there is no such rule.

    Example:
        >>> asp(), asp(scaling="samples", damping="inverse")
        (asp(), asp(scaling='samples', damping='inverse'))

    Reference: Recht et al. 2011, "Hogwild!"; Dean et al. 2012, "Large scale distributed deep networks";
    Ji et al. 2019, "Performance-aware dynamic batch size SGD" (couplings reconstructed).
    """
    weight = check_weight(weight)
    scale, damp = checks.choice("scaling", scaling, SCALING), checks.choice("damping", damping, DAMPING)
    given = {"weight": weight, "scaling": scaling, "damping": damping}
    usual = inspect.signature(asp).parameters
    shown = [f"{name}={value!r}" for name, value in given.items() if value != usual[name].default]
    name = f"asp({', '.join(shown)})"
    policy = window(name, math.inf, weight, cached=False)
    if scaling == damping == "none":
        return policy
    on_push, on_leave, on_join = window_rule(math.inf)

    def init(num_workers: int) -> CoupledState:
        return CoupledState(ClockTable(num_workers), weight)

    def coupled_push(state: CoupledState, push: Push) -> tuple[CoupledState, Decision]:
        state.count(push.worker, push.samples)
        factor = scale(state, push) * damp(state.version - push.version_read)
        state.version += 1
        _, decision = on_push(state, push)
        return state, decision._replace(
            apply=[(w, clock, share * factor) for w, clock, share in decision.apply]
        )

    def coupled_leave(state: CoupledState, worker: int, time: float) -> tuple[CoupledState, Decision]:
        state.count(worker, None)
        return state, on_leave(state, worker, time)[1]

    return policy._replace(init=init, on_push=coupled_push, on_leave=coupled_leave, on_join=on_join)
