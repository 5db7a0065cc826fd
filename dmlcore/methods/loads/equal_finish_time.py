"""The dynamic scheduling of H-PS: all workers finish at the same time, within memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dmlcore import checks
from dmlcore.methods.loads.windows import Bounds, Caps, Measuring, Shares, check_alpha
from dmlcore.types import Load


def equal_finish_time(
    caps: Caps = None,
    *,
    overhead: float | Sequence[float] = 0.0,
    transfer: float | Sequence[float] = 0.0,
    alpha: float = 0.5,
    least: int = 1,
    window: int = 1,
) -> Load:
    """Sizes by measured speeds such that all workers finish at one time T, as far as their memory allows.

    T solves sum_i clip(v_i (T - o_i), least, cap_i) = B: v_i is the moving average of a worker's samples per
    second of computing, o_i the time in which it computes none, B the total batch. Shares are rounded to
    whole samples by largest remainder. They are equal until every worker has pushed once, and are made anew
    whenever all have since; where no worker waits, tasks that run keep the size that they began with.

    Guarantees: the newest sizes of the present workers sum to B and keep within bounds. Without jitter, and
    with B large against rounding, the spread of finish times falls below 5% of a round within 10 rounds of a
    change of speed by up to 8x. An overhead that is not told leaves the same sizes in the end, some rounds
    later: it passes for slowness.

    Args:
        caps: most samples that a worker's memory holds: None, one number, one for each worker, or a
            function (worker, round) -> samples of memory that fluctuates; rounds count the times that the
            batch was shared out, from 0.
        overhead: fixed seconds of a task that are measured with its computing, a number or one for each
            worker.
        transfer: seconds of a round that are not, such as those of pull and push; likewise.
        alpha: weight of the newest speed in its moving average, above 0 and at most 1.
        least: samples of a task, >= 1.
        window: tasks of each worker between two changes, >= 1.

    Returns:
        The load rule. Its `init` raises ValueError where B is below `least` for each worker, or caps leave no
        room for it; so does a run in which memory shrinks, or workers leave, until there is none.

    Raises:
        ValueError: a number is out of range.

    Example:
        >>> equal_finish_time(caps=256)
        equal_finish_time(caps=256)
        >>> load = equal_finish_time(caps=[40, 100, 100])
        >>> state = load.init(3, 192)
        >>> [load.size(state, worker) for worker in range(3)]
        [40, 76, 76]

    Reference: Xian et al. 2024, "Heterogeneous-aware parameter server" (abstract); formulas reconstructed.
    """
    bounds = Bounds.checked(least, caps)
    alpha = check_alpha(alpha)
    window = checks.integer("window", window, low=1)
    overhead, transfer = _seconds("overhead", overhead), _seconds("transfer", transfer)

    def delays(num_workers: int) -> list[float]:
        own = checks.for_each("overhead", overhead, num_workers)
        sent = checks.for_each("transfer", transfer, num_workers)
        return [sum(both) for both in zip(own, sent, strict=True)]

    def weigh(state: Shares) -> list[float] | None:
        return state.average_speeds(alpha, checks.for_each("overhead", overhead, len(state.sizes)))

    seconds = {"overhead": (overhead, 0.0), "transfer": (transfer, 0.0)}
    name = bounds.call("equal_finish_time", **seconds, alpha=(alpha, 0.5), window=(window, 1))
    return Measuring(name, weigh, bounds, window, delays).load()


def _seconds(name: str, value: float | Sequence[float]) -> float | tuple[float, ...]:
    """Returns checked seconds, of all workers or of each."""
    if isinstance(value, Iterable):
        return tuple(checks.real(name, each, low=0, high=1e300) for each in value)
    return checks.real(name, value, low=0, high=1e300)
