"""Dynamic batching: proportional control of each worker's iteration time."""

from dmlcore.calls import named
from dmlcore.checks import at_least, not_negative
from dmlcore.methods.loads.windows import BOUNDS, Caps, Shares, check_alpha, measuring
from dmlcore.types import Load


@named(**BOUNDS, dead_band=not_negative, alpha=check_alpha, window=at_least(1))
def dynamic_batching(
    caps: Caps = None, *, least: int = 1, dead_band: float = 0.05, alpha: float = 0.5, window: int = 1
) -> Load:
    """Multiplies each batch size by the mean iteration time over the worker's own: b <- b mean(t) / t.

    t is the worker's iteration time: its moving average of seconds per sample times its current batch size b.
    While no batch size would change by more than the dead band, all stay the same, because a new size may
    need a compilation. The sizes are scaled so that they sum to the total batch B.

    Guarantees: the newest sizes of the workers present sum to B and are within their bounds. Without jitter,
    the times of workers that are not at a bound converge until |mean(t) / t - 1| <= dead_band.

    Args:
        caps, least, window: as for `equal_finish_time`.
        dead_band: sizes stay the same while all would change by at most this fraction, >= 0.
        alpha: weight of the newest time in its moving average, above 0 and at most 1.

    Returns:
        The load rule.

    Raises:
        ValueError: a number is out of range; from `init`: no sizes within the bounds sum to B.

    >>> dynamic_batching(caps=128, dead_band=0.1)
    dynamic_batching(caps=128, dead_band=0.1)

    Reference: Tyagi and Sharma 2020, "Taming resource heterogeneity in distributed ML training with dynamic
    batching". The paper weights gradients by b / sum(b), as `bsp` does.
    """

    def weigh(state: Shares) -> list[float] | None:
        seen, sizes = state.window, state.sizes
        state.average(alpha, {w: time / seen.samples[w] for w, time in seen.seconds.items() if time > 0})
        times = {w: rate * sizes[w] for w, rate in sorted(state.averages.items())}
        known = [time for worker, time in times.items() if worker in state.present]
        if not known:
            return None
        mean, slowest = sum(known) / len(known), max(known)
        factors = [mean / times.get(worker, slowest) for worker in range(len(sizes))]
        if all(abs(factors[worker] - 1) <= dead_band for worker in state.present):
            return None
        return [size * factor for size, factor in zip(sizes, factors, strict=True)]

    return measuring(weigh, least, caps, window)
