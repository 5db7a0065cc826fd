"""Asynchronous parallel."""

import math
from dataclasses import dataclass, field

from dmlcore.calls import named
from dmlcore.checks import one_of, or_none, positive
from dmlcore.methods.policies._damping import DAMPING
from dmlcore.methods.policies._each import Each, each_push
from dmlcore.methods.policies._gate import Gate, gated, new
from dmlcore.types import Decision, Policy, Push


@dataclass
class CoupledGate(Each):
    """State of ASP if weights depend on samples or on staleness."""

    samples: dict[int, int] = field(default_factory=dict)  # in the last push of each worker that is present


@named(weight=or_none(positive), scaling=one_of("none", "samples"), damping=one_of(*DAMPING))
def asp(*, weight: float | None = 1.0, scaling: str = "none", damping: str = "none") -> Policy:
    """Asynchronous parallel: every push is an update, and no worker waits.

    A push of b samples and staleness tau, in updates, has the weight `weight` * scaling * damping. With
    `scaling="samples"` and batch sizes in proportion to worker speeds, this is DBS-SGD. `delay_adaptive`
    reduces weights less than `damping="inverse"`, and `fedasync` has other functions of tau.

    Guarantees: with P workers the mean staleness over gradients tends to P - 1, whatever their speeds. With
    one worker it is plain SGD. `k_async(1)` is the same policy as `asp()`.

    Args:
        weight: the weight of one push in its update. Default 1: each gradient makes a full step, as is usual
            for asynchronous SGD. None: 1 / number of workers, as in `ssp`.
        scaling: "none", factor 1; or "samples", b / mean(b), the mean over the last push of each worker
            present.
        damping: "none", factor 1; "inverse", 1 / (1 + tau); or "reciprocal", 1 / max(tau, 1).

    Returns:
        The policy. Its `max_lead` is infinite: the lead of a worker has no bound.

    Raises:
        ValueError: `weight` is out of range, or `scaling` or `damping` is not one of those listed.

    >>> asp(), asp(scaling="samples", damping="inverse")
    (asp(), asp(scaling='samples', damping='inverse'))

    Reference: Recht et al. 2011, "Hogwild!"; Dean et al. 2012, "Large scale distributed deep networks";
    Ji et al. 2019, "Performance-aware dynamic batch size SGD" (couplings reconstructed).
    """

    def on_push(gate: Gate, push: Push) -> tuple[Gate, Decision]:
        worker = push.worker
        gate.finished[worker] += 1
        return gate, new(Decision, ([(worker, push.clock, gate.share)], (), (), gate.go[worker], None))

    if scaling == damping == "none":
        return gated(on_push, math.inf, weight)

    def coupled(gate: CoupledGate, push: Push, tau: int) -> float:
        factor = DAMPING[damping](tau)
        gate.samples[push.worker] = push.samples
        if scaling == "samples":
            factor *= push.samples * len(gate.samples) / sum(gate.samples.values())
        return factor

    def on_leave(gate: CoupledGate, worker: int, time: float) -> tuple[Gate, Decision]:
        gate.samples.pop(worker, None)
        return gate, gate.leave(worker)

    return each_push(coupled, weight, state=CoupledGate)._replace(on_leave=on_leave)
