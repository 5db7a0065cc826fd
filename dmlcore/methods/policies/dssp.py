"""Dynamic stale synchronous parallel."""

from dataclasses import dataclass, field

from dmlcore import checks
from dmlcore.calls import named
from dmlcore.methods.policies._gate import Gate, gated
from dmlcore.types import Decision, Policy, Push


@dataclass
class DSSPGate(Gate):
    """State of DSSP."""

    # By worker: the clocks that it may still run beyond the lower bound (the paper's r_p), and the times of
    # its last two pushes in seconds (the paper's A; their difference is the paper's I).
    credit: list[int] = field(default_factory=list)
    pushed_at: list[tuple[float, float]] = field(default_factory=list)


@named(lower=checks.at_least(0), upper=checks.at_least(0), weight=checks.or_none(checks.positive))
def dssp(lower: int, upper: int, *, weight: float | None = None) -> Policy:
    """Dynamic stale synchronous parallel: SSP with a max lead between `lower` and `upper` clocks.

    A worker that leads the slowest by at most `lower` clocks starts its next task. Beyond that, a controller
    decides how many of the `upper - lower` extra clocks the fastest worker may run before it waits. It
    predicts the finish times of both workers, and chooses the number after which the fastest worker's finish
    is nearest to a finish of the slowest worker. Every task starts from the newest version.

    Guarantees: `dssp(s, s)` is `essp(s)`. `upper` does *not* bound the lead: a worker that has used up its
    extra clocks and is still the fastest gets new ones, as in the paper's pseudo-code.

    Args:
        lower: the paper's s_L, clocks, >= 0.
        upper: the paper's s_U = s_L + r_max, clocks, >= lower.
        weight: the weight of one push in its update. Default: as for `ssp`.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: a bound is negative or not a whole number, or `upper < lower`.

    >>> dssp(lower=3, upper=15)
    dssp(lower=3, upper=15)

    Reference: Zhao et al. 2019, "Dynamic stale synchronous parallel distributed training for deep learning",
    algorithms 1 and 2.
    """
    checks.integer("upper", upper, low=lower)
    most = upper - lower

    def init(num_workers: int) -> DSSPGate:
        gate = DSSPGate(num_workers, lower, weight, rounds=upper == 0)
        gate.credit, gate.pushed_at = [0] * num_workers, [(0.0, 0.0)] * num_workers
        return gate

    def extra_clocks(gate: DSSPGate, worker: int) -> int:
        """The paper's controller: the r <= most with the smallest wait min_k |Sim_slow[k] - Sim_p[r]|."""
        pushed_at = gate.pushed_at
        slow = min(gate.present, key=lambda w: (gate.finished[w], pushed_at[w][1], w))
        (slow_before, slow_last), (before, last) = pushed_at[slow], pushed_at[worker]
        slow_times = [slow_last + (k + 1) * (slow_last - slow_before) for k in range(most + 1)]

        def wait(extra: int) -> float:
            return min(abs(time - (last + extra * (last - before))) for time in slow_times)

        return min(range(most + 1), key=wait)

    def on_push(gate: DSSPGate, push: Push) -> tuple[DSSPGate, Decision]:
        worker, clock = push.worker, gate.advance(push.worker)
        gate.pushed_at[worker] = (gate.pushed_at[worker][1], push.time)
        if gate.credit[worker] > 0:
            gate.credit[worker] -= 1
            return gate, gate.proceed(push)
        if gate.slowest >= clock - lower:
            return gate, gate.proceed(push)
        if most and clock == max(gate.finished[w] for w in gate.present):  # the fastest worker
            gate.credit[worker] = extra_clocks(gate, worker)
            if gate.credit[worker] > 0:
                return gate, gate.proceed(push)
        return gate, gate.wait(push, until=clock - lower)

    def on_join(gate: DSSPGate, worker: int, time: float) -> tuple[DSSPGate, Decision]:
        gate.credit[worker], gate.pushed_at[worker] = 0, (time, time)
        return gate, gate.join(worker)

    policy = gated(on_push, lower, weight)
    return policy._replace(init=init, on_join=on_join, max_lead=lower if most == 0 else None)
