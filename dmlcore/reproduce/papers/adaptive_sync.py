"""Adaptive synchronous parallel (Wang and Zhu 2024): parameters and settings of its claims.

Only the abstract is available to us: 9.61% to 41.15% less time to converge than other strategies, and up to
3.29 points more accuracy. `dml.study` tunes every method with the same number of runs, on seeds that judge
nothing, and judges the times to a target on others. "Faster" requires 2%, because with a very large threshold
adaptive sync is ASP.

docs/papers/adaptive_sync.md tells what was explored before and what was changed after results had been seen,
and tests/test_adaptive_sync_claims.py shows that each claim can fail.
"""

from pydantic import Field

from dmlcore.reproduce.paper import TunedParameters, declare
from dmlcore.reproduce.papers.adaptive_sync_places import FREE_PULLS, PLACES, TROUBLED

MAIN = ("BSP", "ASP", "SSP")  # rivals on every cluster
RIVALS = (*MAIN, "DSSP", "Sync-Switch", "A2S")
COSTS = tuple(place.communication for place in TROUBLED)
LEAST = 1 / (1 - 0.0961)
BAND = (LEAST, 1 / (1 - 0.4115))  # range of speed-ups that the abstract reports
POINTS = 3.29  # points of accuracy that the abstract reports
FASTER = 1.02  # smallest speed-up that counts as faster
BETTER = 0.01  # smallest difference in points of accuracy that counts as better
DATA = ("MNIST", "CIFAR-10")  # data sets of full scale

TROUBLES = tuple(f"{rival}, {cost}" for cost in COSTS for rival in RIVALS)
ON_PLACES, ON_FREE_PULLS = (
    tuple(f"{rival}, {place}" for place in places for rival in MAIN) for places in (PLACES, FREE_PULLS)
)
ON_DATA = tuple(f"{data}, {rival}" for data in DATA for rival in MAIN)


class AdaptiveSyncParameters(TunedParameters):
    """Parameters of notebooks/02_adaptive_sync.ipynb; `workers` is P."""

    seeds: int = Field(3, ge=2)
    workers: int = Field(8, ge=4, multiple_of=4)
    epochs: float = Field(5.0, gt=0)  # epochs of MNIST and of CIFAR-10 at full scale


PAPER = declare(globals(), AdaptiveSyncParameters)
