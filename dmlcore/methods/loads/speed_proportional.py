"""The load rule of DBS-SGD: batches proportional to measured speeds."""

from dmlcore.calls import named
from dmlcore.checks import at_least
from dmlcore.methods.loads.windows import BOUNDS, Caps, Shares, check_alpha, measuring
from dmlcore.types import Load


@named(**BOUNDS, warm_up=at_least(1), alpha=check_alpha, window=at_least(1))
def speed_proportional(
    caps: Caps = None, *, least: int = 1, warm_up: int = 1, alpha: float = 0.5, window: int = 1
) -> Load:
    """Chooses batch sizes in proportion to measured speeds, so that iterations take about equally long.

    b_i = clip(round(B P_i / sum(P)), least, cap_i), with the speed P_i of worker i in samples per second of
    computation and the total batch B in samples. The sizes sum to B: samples that a bound takes from one
    worker go to the others in proportion, and rounding is by the largest remainder. During the warm-up sizes
    are equal and P_i is a plain mean; after it P_i is a moving average.

    Guarantees: the newest sizes of the workers present sum to B and are within their bounds. Without
    overheads it is `equal_finish_time` with the same bounds.

    Args:
        caps, least: the paper's b_max and b_min, as for `equal_finish_time`.
        warm_up: number of windows before the first change, >= 1.
        alpha, window: as for `equal_finish_time`.

    Returns:
        The load rule.

    Raises:
        ValueError: a number is out of range; from `init`: no sizes within the bounds sum to B.

    >>> speed_proportional(least=8, warm_up=5)
    speed_proportional(least=8, warm_up=5)

    Reference: Ji et al. 2019, "Performance-aware dynamic batch size SGD" (abstract); formulas reconstructed.
    """

    def weigh(state: Shares) -> list[float] | None:
        newest = 1 / state.windows if state.windows <= warm_up else alpha
        speeds = state.average_speeds(newest, [0.0] * len(state.sizes))
        return speeds if state.windows >= warm_up else None

    return measuring(weigh, least, caps, window)
