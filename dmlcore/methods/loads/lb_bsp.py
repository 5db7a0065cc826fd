"""LB-BSP: samples move from the straggler to the fastest worker."""

from dmlcore.calls import named
from dmlcore.checks import at_least, or_none
from dmlcore.methods.loads.windows import BOUNDS, Caps, Shares, measuring
from dmlcore.types import Load


@named(**BOUNDS, step=or_none(at_least(1)), window=at_least(1))
def lb_bsp(caps: Caps = None, *, least: int = 1, step: int | None = None, window: int = 1) -> Load:
    """Balances batch sizes pair by pair: after each window the slowest worker gives samples to the fastest.

    The slowest worker is the one with the longest tasks in the window, the fastest the one with the shortest,
    among the workers whose bounds allow a change. The number of samples that move is the one with which both
    would finish together at their measured speeds, rounded down.

    Guarantees: the newest sizes of the workers present sum to the total batch B and are within their bounds.
    Without jitter, and while speeds stay the same, the longest task does not get longer from one window to
    the next, nor the shortest one shorter.

    Args:
        caps, least, window: as for `equal_finish_time`.
        step: the largest number of samples that move at once, >= 1. Default: None, no bound.

    Returns:
        The load rule.

    Raises:
        ValueError: a number is out of range; from `init`: no sizes within the bounds sum to B.

    >>> lb_bsp(step=8)
    lb_bsp(step=8)

    Reference: Chen et al. 2020, "Semi-dynamic load balancing" (SoCC). The paper also predicts speeds; here
    only the move of samples is implemented.
    """

    def weigh(state: Shares) -> list[float]:
        seen, sizes = state.window, list(state.sizes)
        workers = sorted(w for w in state.present if seen.seconds.get(w, 0.0) > 0)
        room = {w: state.cap(w) - sizes[w] for w in workers}
        rate = {w: seen.seconds[w] / seen.samples[w] for w in workers}  # seconds per sample
        time = {w: rate[w] * sizes[w] for w in workers}
        slow = max((w for w in workers if sizes[w] > least), key=lambda w: time[w], default=None)
        fast = min((w for w in workers if room[w] > 0), key=lambda w: time[w], default=None)
        if slow is not None and fast is not None and time[slow] > time[fast]:
            together = int((time[slow] - time[fast]) / (rate[slow] + rate[fast]))
            moved = min(together, sizes[slow] - least, room[fast], state.total if step is None else step)
            sizes[slow] -= moved
            sizes[fast] += moved
        return [float(size) for size in sizes]

    return measuring(weigh, least, caps, window)
