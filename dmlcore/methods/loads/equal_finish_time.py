"""The dynamic scheduling of H-PS: all workers finish at the same time, within the limits of their memory."""

from collections.abc import Iterable, Sequence
from typing import Any

from dmlcore.calls import named
from dmlcore.checks import at_least, for_each, not_negative
from dmlcore.methods.loads.windows import BOUNDS, Caps, Shares, check_alpha, measuring
from dmlcore.types import Load


def _seconds(name: str, value: Any) -> float | tuple[float, ...]:
    """Checks and returns seconds: one number for all workers, or one per worker (W,)."""
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
    """Chooses batch sizes from measured speeds so that all workers finish at one time T, within memory.

    T solves sum_i clip(v_i (T - o_i), least, cap_i) = B. Here v_i is the moving average of worker i's speed
    in samples per second of computation, o_i the seconds in which it does not compute samples, and B the
    total batch in samples. Sizes are rounded by the largest remainder. They are equal until every worker has
    pushed once, and are computed again each time that every worker has pushed again. Tasks in flight keep
    their size.

    Guarantees: the newest sizes of the workers present sum to B and are within their bounds. Without jitter,
    and with B large compared to rounding, the spread of finish times falls below 5% of a round within 10
    rounds of a change of speed by up to 8x. If `overhead` is left out although there is one, the measured
    speeds are too low, and it takes a few more rounds.

    Args:
        caps: the largest batch size of a worker, in samples, as its memory allows: one number for all
            workers, one per worker (W,), or a function (worker, round) -> samples, where `round` counts, from
            0, how often the batch has been divided. Default: None, no bound.
        overhead: fixed seconds per task that are part of the measured computing time; one number for all
            workers, or one per worker (W,).
        transfer: seconds per round that are not part of it, such as pull and push; one number or (W,).
        alpha: weight of the newest speed in its moving average, above 0 and at most 1.
        least: the smallest batch size in samples, >= 1.
        window: tasks of each worker between two changes, >= 1.

    Returns:
        The load rule.

    Raises:
        ValueError: a number is out of range; from `init`: no sizes within the bounds sum to B; from a run:
            caps shrink, or workers leave, until no sizes within the bounds sum to B.

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
