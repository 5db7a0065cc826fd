"""The dynamic scheduling of H-PS: all workers finish at the same time, within memory."""

from collections.abc import Iterable, Sequence
from typing import Any

from dmlcore.calls import named
from dmlcore.checks import at_least, for_each, not_negative
from dmlcore.methods.loads.windows import BOUNDS, Caps, Shares, check_alpha, measuring
from dmlcore.types import Load


def _seconds(name: str, value: Any) -> float | tuple[float, ...]:
    """Returns checked seconds, of all workers or of each."""
    if isinstance(value, Iterable):
        return tuple(not_negative(name, each) for each in value)
    return not_negative(name, value)


@named(**BOUNDS, overhead=_seconds, transfer=_seconds, alpha=check_alpha, window=at_least(1))
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
    second of computing, o_i the time in which it computes none, B the total batch. Shares are rounded by
    largest remainder. They are equal until every worker has pushed once, and are computed again whenever all
    have pushed since; tasks in flight keep their size.

    Guarantees: the newest sizes of the workers present sum to B and keep within bounds. Without jitter, and
    with B large against rounding, the spread of finish times falls below 5% of a round within 10 rounds of a
    change of speed by up to 8x; where an overhead is not given, which lowers the measured speed, some later.

    Args:
        caps: most samples that a worker's memory holds: None, one number, one for each worker, or a function
            (worker, round) -> samples; rounds count the times that the batch was shared out, from 0.
        overhead: fixed seconds of a task measured with its computing, a number or one for each worker.
        transfer: seconds of a round that are not, such as those of pull and push; likewise.
        alpha: weight of the newest speed in its moving average, above 0 and at most 1.
        least: samples of a task, >= 1.
        window: tasks of each worker between two changes, >= 1.

    Raises:
        ValueError: a number is out of range; from `init`: B is below `least` for each worker, or caps leave
            no room for it; from a run: memory shrinks, or workers leave, until there is no room.

    >>> equal_finish_time(caps=256)
    equal_finish_time(caps=256)
    >>> load = equal_finish_time(caps=[40, 100, 100])
    >>> state = load.init(3, 192)
    >>> [load.size(state, worker) for worker in range(3)]
    [40, 76, 76]

    Reference: Xian et al. 2024, "Heterogeneous-aware parameter server" (abstract); formulas reconstructed.
    """

    def delays(num_workers: int) -> list[float]:
        both = for_each("overhead", overhead, num_workers), for_each("transfer", transfer, num_workers)
        return [own + sent for own, sent in zip(*both, strict=True)]

    def weigh(state: Shares) -> list[float] | None:
        return state.average_speeds(alpha, for_each("overhead", overhead, len(state.sizes)))

    return measuring(weigh, least, caps, window, delays)
