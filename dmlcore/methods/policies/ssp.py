"""Stale synchronous parallel."""

from dmlcore.calls import named
from dmlcore.checks import at_least, or_none, positive
from dmlcore.methods.policies._gate import Gate, gated
from dmlcore.types import Decision, Policy, Push


@named(staleness=at_least(0, infinite=True), weight=or_none(positive))
def ssp(staleness: int | float, *, weight: float | None = None) -> Policy:
    """Stale synchronous parallel: a worker may lead the slowest by at most `staleness` clocks.

    Guarantees: the clocks that two workers work on differ by at most `staleness`; a task of clock c has seen
    every update of clocks <= c - staleness - 1, and all updates of its own worker. `ssp(0)` is `bsp()`.

    As long as its cached copy is fresh enough, a worker adds its own updates to that copy (read-my-writes)
    and starts its next task without waiting for the server. Otherwise it pulls; if the slowest worker is too
    far behind, it waits before the pull. The server applies a push when it arrives, with one exception: the
    push of a worker that must wait is applied together with the next push after which a worker starts. No
    worker reads in between, so for an optimizer that is linear in the gradient, such as plain SGD, the result
    is the same up to rounding; with momentum or Adam one merged step differs from several. Because of merged
    updates, `updates=` is a different amount of work at different `staleness`: compare by `seconds=` or
    `samples=`. With `staleness=math.inf` no worker waits or pulls; `essp(math.inf)` becomes ASP.

    Args:
        staleness: the paper's s, the largest lead in clocks, a whole number >= 0 or `math.inf`.
        weight: the weight of one push in its update. Default: 1 / number of workers, whatever the number of
            samples in the push, so that one clock of all workers moves the parameters as far as one step of
            BSP; with `staleness=0` a round is weighted by samples, as in `bsp`.

    Returns:
        The policy. Its `max_lead` is `staleness`, and its workers keep cached copies.

    Raises:
        ValueError: `staleness` is negative or not a whole number.

    >>> ssp(staleness=3)
    ssp(staleness=3)

    Reference: Ho et al. 2013, section 2 (conditions 1-4) and section 3 (cache rule).
    """
    max_lead = staleness

    def keep_copy(copy_clock: int, clock: int) -> bool:  # the worker calls this before it begins a clock c
        return copy_clock >= clock - max_lead  # condition 3: the copy has all updates up to c - s - 1

    def on_push(gate: Gate, push: Push) -> tuple[Gate, Decision]:
        clock = gate.advance(push.worker)  # the clock c that the worker begins next
        needed = clock - max_lead  # condition 3: it must see all updates of the clocks up to c - s - 1
        if push.keeps_copy:  # it has begun, on its cached copy
            return gate, gate.proceed(push)
        if gate.slowest >= needed:  # every worker has pushed them: the newest version contains them
            return gate, gate.proceed(push)
        return gate, gate.wait(push, until=needed)  # condition 1: the slowest worker is too far behind

    return gated(on_push, max_lead, weight, keep_copy=keep_copy)
