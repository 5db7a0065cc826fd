"""How long a round takes where workers differ and transfers count: the time model of H-PS."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dmlcore import checks


def round_speedup(uneven: npt.ArrayLike, communication: npt.ArrayLike, bits: float) -> Any:
    """How many times faster a round of H-PS is than one of BSP, without jitter.

    A round of BSP is the slowest worker's computing and then both transfers, h + c with the time of balanced
    computing as the unit. H-PS balances the load, shortens the transfers to c k / 32 and hides them behind
    computing, or computing behind them: max(1, c k / 32).

    Args:
        uneven: h, mean speed of the workers over the least, >= 1.
        communication: c, both transfers at 32 bits over the time of balanced computing, >= 0.
        bits: k, of a value on its way, > 0.

    Returns:
        (h + c) / max(1, c k / 32), in the common shape of h and c.

    Raises:
        ValueError: an argument is out of range.

    >>> round(float(round_speedup(1.2, 0.2, 8)), 6), float(round_speedup(2.5, 1.0, 16))
    (1.4, 3.5)

    Reference: a model of the three mechanisms that the abstract of Xian et al. 2024 (H-PS) names.
    """
    h, c = np.asarray(uneven, float), np.asarray(communication, float)
    checks.real("bits", bits, above=0)
    if not (h >= 1).all():
        checks.fail("uneven", uneven, "numbers >= 1")
    if not ((c >= 0) & (c < np.inf)).all():
        checks.fail("communication", communication, "finite numbers >= 0")
    return (h + c) / np.maximum(1, c * bits / 32)
