"""Eager stale synchronous parallel."""

from dmlcore.calls import named
from dmlcore.checks import at_least, or_none, positive
from dmlcore.methods.policies._gate import Gate, gated
from dmlcore.types import Decision, Policy, Push


@named(staleness=at_least(0, infinite=True), weight=or_none(positive))
def essp(staleness: int | float, *, weight: float | None = None) -> Policy:
    """Eager SSP: the max lead of `ssp`, but every task starts from the newest version.

    Guarantees: those of `ssp`. `essp(0)` is `bsp()`; `essp(math.inf)` is `asp(weight=1 / num_workers)`.

    Args:
        staleness: the paper's s, the largest lead in clocks, a whole number >= 0 or `math.inf`.
        weight: the weight of one push in its update. Default: as for `ssp`.

    Returns:
        The policy. Its `max_lead` is `staleness`.

    Raises:
        ValueError: `staleness` is negative or not a whole number.

    >>> essp(staleness=3)
    essp(staleness=3)

    Reference: Dai et al. 2015, "High-performance distributed ML at scale through parameter server
    consistency models".
    """
    max_lead = staleness

    def on_push(gate: Gate, push: Push) -> tuple[Gate, Decision]:
        needed = gate.advance(push.worker) - max_lead  # as in `ssp`, but without a cached copy
        if gate.slowest < needed:
            return gate, gate.wait(push, until=needed)
        return gate, gate.proceed(push)

    return gated(on_push, max_lead, weight)
