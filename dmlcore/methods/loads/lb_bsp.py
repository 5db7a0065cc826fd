"""LB-BSP: samples move from the straggler to the fastest worker."""

from dmlcore.calls import named
from dmlcore.checks import at_least, or_none
from dmlcore.methods.loads.windows import BOUNDS, Caps, Shares, measuring
from dmlcore.types import Load


@named(**BOUNDS, step=or_none(at_least(1)), window=at_least(1))
def lb_bsp(caps: Caps = None, *, least: int = 1, step: int | None = None, window: int = 1) -> Load:
    """Sizes that are balanced pair by pair: after a window the slowest worker gives samples to the fastest.

    The two are those whose tasks took longest and shortest in the window, among those whose bounds allow it;
    what moves is what would let them finish together at the speeds they showed, rounded down.

    Guarantees: the newest sizes of the workers present sum to B and keep within bounds. Without jitter, and
    while speeds stay, the longest task never gets longer, nor the shortest shorter, by the next window.

    Args:
        caps, least, window: as for `equal_finish_time`.
        step: most samples that move at once, >= 1; None: no bound.

    Raises:
        ValueError: a number is out of range; from `init`: bounds leave no room for B.

    >>> lb_bsp(step=8)
    lb_bsp(step=8)

    Reference: Chen et al. 2020, "Semi-dynamic load balancing" (SoCC), which also predicts speeds: this is the
    move alone.
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
