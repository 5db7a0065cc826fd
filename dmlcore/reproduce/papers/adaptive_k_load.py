"""Adaptive number of workers and computation load (Egger et al. 2023): its claims, and what would show them.

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

from dmlcore.reproduce.paper import TunedParameters, abstract, declare, ours, theory

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
IMAGES = ("MNIST", "CIFAR-10")


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
AGAINST = labels(["exponential"], RIVALS[-2:]) + labels(["shifted"], RIVALS)

CLAIMS = {
    "K1-bound": theory(expected=(1.135, 1.185), parts=BOUND, data="none", always=True),
    "K2-bound": theory(expected=(0.465, 0.485), parts=BOUND, data="none", always=True),
    "K3-bound": theory(expected=(1.005, 1.025), parts=BOUND, data="none", always=True),
    "K0": ours(expected=(3, None), unit="workers", parts=CELLS),
    "K1": abstract(parts=CELLS),
    "K1-own": ours(parts=OWN),
    "K2": abstract(expected=(None, 0.8), parts=CELLS),
    "K3": abstract(expected=(None, 1.1), parts=labels(LINKS, CELLS)),
    "K0-proven": ours(expected=(3, None), unit="workers", parts=CELLS),
    "K1-proven": ours(parts=CELLS),
    "K2-proven": ours(expected=(None, 0.8), parts=CELLS),
    "K3-proven": ours(expected=(None, 1.1), parts=labels(LINKS, CELLS)),
    "K1-tuned": ours(parts=TUNED),
    "K2-tuned": ours(expected=(None, 0.8), parts=TUNED),
    "K3-tuned": ours(expected=(None, 1.1), parts=labels(LINKS, TUNED)),
    "K1-wide": ours(parts=WIDE),
    "K2-wide": ours(expected=(None, 0.8), parts=WIDE),
    "K3-wide": ours(expected=(None, 1.1), parts=labels(LINKS, WIDE)),
    "K1-grid": ours(parts=JUDGED),
    "K1-fair": ours(parts=AGAINST),
    "K2-fair": ours(expected=(None, 1), parts=AGAINST),
    "K3-fair": ours(expected=(None, 1.1), parts=AGAINST),
    "K1-priced": ours(parts=labels(["shifted"], RIVALS) + labels(["digits"], ONLINE_RIVALS)),
    "K1-price": ours(expected=(None, 1.25)),
    "K1-law": ours(expected=(None, 1.25), parts=("told exponential", "told erlang")),
    "K1-spread": ours(parts=tuple(f"curvatures 1 to {spread}" for spread in SPREADS)),
    "K1-digits": ours(parts=ONLINE_RIVALS, data="digits"),
    "K1-images": ours(parts=labels(IMAGES, ONLINE_RIVALS), data="MNIST, CIFAR-10"),
    "K2-images": ours(expected=(None, 1), parts=labels(IMAGES, ONLINE_RIVALS), data="MNIST, CIFAR-10"),
}

PAPER = declare(
    __file__,
    CLAIMS,
    {"unit": "x", "expected": (MORE, None), "data": "any"},
    notebook="03_adaptive_k_load.ipynb",
    parameters=AdaptiveKLoadParameters,
    quick_seconds=115,
)
