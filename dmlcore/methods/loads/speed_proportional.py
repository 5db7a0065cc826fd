"""The load rule of DBS-SGD: batches proportional to measured speeds."""

from __future__ import annotations

from dmlcore import checks
from dmlcore.methods.loads.windows import Bounds, Caps, Measuring, Shares, check_alpha
from dmlcore.types import Load


def speed_proportional(
    caps: Caps = None, *, least: int = 1, warm_up: int = 1, alpha: float = 0.5, window: int = 1
) -> Load:
    """Sizes proportional to measured speeds, so that an iteration takes all workers about as long.

    b_i = clip(round(B P_i / sum P), least, cap_i) with P_i samples per second of computing, and sum b_i = B:
    what bounds take from one worker goes to the others in proportion, and what rounding leaves to the largest
    remainders. Shares are equal during the warm-up, over which P_i is a plain mean; from then on it is a
    moving average over windows.

    Guarantees: the newest sizes of the present workers sum to B and keep within bounds. Without overheads it
    is `equal_finish_time` with the same bounds.

    Args:
        caps: the paper's b_max: None, one number, one for each worker, or a function (worker, round) ->
            samples, as for `equal_finish_time`.
        least: the paper's b_min, samples, >= 1.
        warm_up: windows before the first change, >= 1.
        alpha: weight of the newest speed in its moving average, above 0 and at most 1.
        window: tasks of each worker between two changes, >= 1.

    Returns:
        The load rule. Its `init` raises ValueError where bounds leave no room for B.

    Raises:
        ValueError: a number is out of range.

    Example:
        >>> speed_proportional(least=8, warm_up=5)
        speed_proportional(least=8, warm_up=5)

    Reference: Ji et al. 2019, "Performance-aware dynamic batch size SGD" (abstract); formulas reconstructed.
    """
    bounds = Bounds.checked(least, caps)
    warm_up = checks.integer("warm_up", warm_up, low=1)
    alpha = check_alpha(alpha)
    window = checks.integer("window", window, low=1)

    def weigh(state: Shares) -> list[float] | None:
        warming = state.windows <= warm_up
        speeds = state.average_speeds(1 / state.windows if warming else alpha, [0.0] * len(state.sizes))
        return speeds if state.windows >= warm_up else None

    options = {"warm_up": (warm_up, 1), "alpha": (alpha, 0.5), "window": (window, 1)}
    name = bounds.call("speed_proportional", **options)
    return Measuring(name, weigh, bounds, window).load()
