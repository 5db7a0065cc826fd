"""Adaptive number of workers and computation load (Egger et al. 2023): parameters and settings of its claims.

The abstract claims only directions, K1 to K3: faster, with much less computation, at slightly more
communication; all sizes are ours. They are judged where the rival, adaptive k, really adapts, which K0
checks: on data with so much noise that the target is near the lowest floor. K1-proven and others repeat
them with constants for which the error bound holds (`measures.proven`), K1-fair and others compare the scheme
without an oracle with rivals that `dml.study` tunes on other seeds.

docs/papers/adaptive_k_load.md tells what was explored before and what was changed after results had been
seen, and tests/test_adaptive_k_load.py shows that each claim can fail.
"""

from typing import Any

from pydantic import Field

from dmlcore.reproduce.paper import TunedParameters, declare

RATIOS = (0.2, 1.0, 5.0)
LAWS = ("exponential", "erlang", "shifted")
MORE = 1.001  # smallest speed-up that counts as faster, to exclude ties
JUDGED = ("exponential", "shifted")  # laws of the comparison without an oracle, at ratio 1
ONLINE_RIVALS = ("fixed k", "fixed (k, b)", "Pflug", "AdaSync", "DBW")
RIVALS = (*ONLINE_RIVALS, "adaptive k (oracle)")
SPREADS = (1, 8, 64)  # largest over smallest curvature
FEATURES = (100, 200)  # of the linear regression
KNOWN = ("bound", "oracle")  # schedules from constants of the bound, and from fitted ones
FIRST_SEED = 5000  # the first seed that judges what only full scale measures


class AdaptiveKLoadParameters(TunedParameters):
    """Parameters of notebooks/03_adaptive_k_load.ipynb; `workers` is n."""

    workers: int = Field(20, ge=8)
    networks: bool = False  # at full scale, whether to train LeNet-5, too


def cell(law: str, ratio: float) -> str:
    """Returns the label of a law of computation times and a ratio of communication to computation.

    >>> cell("erlang", 0.2)
    'erlang, ratio 0.2'
    """
    return f"{law}, ratio {ratio:g}"


def labels(first: Any, second: Any) -> tuple[str, ...]:
    """Returns a label for each pair.

    >>> labels(["uplinks"], ["DBW", "Pflug"])
    ('uplinks: DBW', 'uplinks: Pflug')
    """
    return tuple(f"{one}: {other}" for one in first for other in second)


CELLS = tuple(cell(law, ratio) for law in LAWS for ratio in RATIOS)
OWN = tuple(cell(law, 1.0) for law in JUDGED)  # settings in which the joint schedule is also tuned
TUNED = labels([f"{count} features" for count in FEATURES], JUDGED)
WIDE = labels(KNOWN, JUDGED)
BOUND = tuple(cell("exponential", ratio) for ratio in RATIOS)
LINKS = ("uplinks", "downlinks")
LINKED, LINKED_TUNED, LINKED_WIDE = (labels(LINKS, settings) for settings in (CELLS, TUNED, WIDE))
AGAINST = labels(["exponential"], RIVALS[-2:]) + labels(["shifted"], RIVALS)
PRICED = labels(["shifted"], RIVALS) + labels(["digits"], ONLINE_RIVALS)
ON_IMAGES = labels(["MNIST", "CIFAR-10"], ONLINE_RIVALS)


PAPER = declare(globals(), AdaptiveKLoadParameters)
