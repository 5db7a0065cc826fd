"""Dynamic batching: proportional control of each worker's iteration time."""

from dmlcore.calls import named
from dmlcore.checks import at_least, not_negative
from dmlcore.methods.loads.windows import BOUNDS, Caps, Shares, check_alpha, measuring
from dmlcore.types import Load


@named(**BOUNDS, dead_band=not_negative, alpha=check_alpha, window=at_least(1))
def dynamic_batching(
    caps: Caps = None, *, least: int = 1, dead_band: float = 0.05, alpha: float = 0.5, window: int = 1
) -> Load:
    """Sizes that are scaled by how far each worker's iteration time is off the mean: b <- b mean(t) / t.

    t is a worker's moving average of seconds per sample times its size now. While no size would change by
    more than the dead band, all stay, as a new size may cost a compilation. Sizes are scaled to sum to B.

    Guarantees: the newest sizes of the workers present sum to B and keep within bounds. Without jitter the
    times of workers within bounds converge until |mean(t) / t - 1| <= dead_band.

    Args:
        caps, least, window: as for `equal_finish_time`.
        dead_band: relative change of a size, >= 0, up to which it stays.
        alpha: weight of the newest time in its moving average, above 0 and at most 1.

    Raises:
        ValueError: a number is out of range; from `init`: bounds leave no room for B.

    >>> dynamic_batching(caps=128, dead_band=0.1)
    dynamic_batching(caps=128, dead_band=0.1)

    Reference: Tyagi and Sharma 2020, "Taming resource heterogeneity in distributed ML training with dynamic
    batching"; gradients are weighted by b / sum b, as `bsp` does.
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
