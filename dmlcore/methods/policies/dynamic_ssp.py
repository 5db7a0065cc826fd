"""Dynamic SSP: the window widens for the fastest worker where waiting later is predicted to cost less."""

from __future__ import annotations

from dataclasses import dataclass, field

from dmlcore import checks
from dmlcore.methods.policies.clocks import (
    ClockTable,
    GateState,
    check_weight,
    hold,
    join,
    leave,
    release,
    take_held,
)
from dmlcore.types import Decision, Policy, Push, Start


@dataclass
class DSSPState(GateState):
    """State of DSSP.

    Args:
        credit: clocks that a worker may still run beyond the lower bound (the paper's r_p).
        pushed_at: per worker, times of its last two pushes (the paper's A and, by difference, I).
    """

    credit: list[int] = field(default_factory=list)
    pushed_at: list[tuple[float, float]] = field(default_factory=list)


def _extra_clocks(state: DSSPState, worker: int, most: int) -> int:
    """The paper's controller: r in 0..most whose predicted wait min_k |Sim_slow[k] - Sim_p[r]| is least."""
    finished = state.clocks.finished
    slow = min(state.clocks.present, key=lambda w: (finished[w], state.pushed_at[w][1], w))
    (slow_before, slow_last), (before, last) = state.pushed_at[slow], state.pushed_at[worker]
    slow_interval, interval = slow_last - slow_before, last - before
    slow_times = [slow_last + (k + 1) * slow_interval for k in range(most + 1)]

    def wait(extra: int) -> float:
        return min(abs(time - (last + extra * interval)) for time in slow_times)

    return min(range(most + 1), key=wait)


def dssp(lower: int, upper: int, *, weight: float | None = None) -> Policy:
    """Dynamic stale synchronous parallel: an SSP window of `lower` to `upper` clocks, chosen as it runs.

    A worker within `lower` clocks of the slowest goes on. Beyond that, the fastest worker asks a controller
    for how many of the `upper - lower` extra clocks it may run before it waits: the number after which its
    predicted finish lies nearest to one of the slowest worker's. Every task starts from the newest version.

    Guarantees: `dssp(s, s)` is `essp(s)`. The lead is *not* bounded by `upper`: a worker is given credit anew
    each time it is used up and it is still the fastest, as in the paper's pseudo-code.

    Args:
        lower: the paper's s_L, clocks, >= 0.
        upper: the paper's s_U = s_L + r_max, clocks, >= lower.
        weight: of one push in the update. Default: as for `ssp`.

    Returns:
        The policy.

    Raises:
        ValueError: a bound is negative, no whole number, or `upper < lower`.

    Example:
        >>> dssp(lower=3, upper=15)
        dssp(lower=3, upper=15)

    Reference: Zhao et al. 2019, "Dynamic stale synchronous parallel distributed training for deep learning",
    algorithms 1 and 2.
    """
    lower = checks.integer("lower", lower, low=0)
    upper = checks.integer("upper", upper, low=lower, high=None)
    weight = check_weight(weight)
    most = upper - lower

    def init(num_workers: int) -> DSSPState:
        clocks = ClockTable(num_workers)
        return DSSPState(clocks, weight, credit=[0] * num_workers, pushed_at=[(0.0, 0.0)] * num_workers)

    def on_push(state: DSSPState, push: Push) -> tuple[DSSPState, Decision]:
        worker, clocks = push.worker, state.clocks
        slowest_before = clocks.slowest
        clock = clocks.advance(worker)
        state.pushed_at[worker] = (state.pushed_at[worker][1], push.time)
        if state.credit[worker] > 0:
            state.credit[worker] -= 1
            goes_on = True
        else:
            goes_on = clocks.slowest >= clock - lower
            if not goes_on and most and clock == max(clocks.finished[w] for w in clocks.present):
                state.credit[worker] = _extra_clocks(state, worker, most)
                goes_on = state.credit[worker] > 0
        if not goes_on:
            hold(state, worker, clock - lower)
            state.held.append((worker, push.clock, push.samples))
            return state, Decision()
        start = sorted([Start(worker), *release(state, slowest_before)], key=lambda each: each.worker)
        return state, Decision(take_held(state, push, rounds=not upper), (), (), start)

    def on_leave(state: DSSPState, worker: int, time: float) -> tuple[DSSPState, Decision]:
        start = leave(state, worker)
        return state, Decision(take_held(state, rounds=not upper) if start else (), (), (), start)

    def on_join(state: DSSPState, worker: int, time: float) -> tuple[DSSPState, Decision]:
        state.credit[worker], state.pushed_at[worker] = 0, (time, time)
        return state, Decision(start=join(state, worker, lower))

    name = f"dssp(lower={lower}, upper={upper}" + ("" if weight is None else f", weight={weight}") + ")"
    return Policy(name, init, on_push, lower if most == 0 else None, on_leave, on_join)
