"""Adaptive synchronous parallel (Wang and Zhu 2024): parameters and settings of its claims.

Only the abstract is available to us: 9.61% to 41.15% less time to converge than other strategies, and up to
3.29 points more accuracy. `dml.study` tunes every method with the same number of runs, on seeds that judge
nothing, and judges the times to a target on others. "Faster" requires 2%, because with a very large threshold
adaptive sync is ASP.

docs/papers/adaptive_sync.md tells what was explored before and what was changed after results had been seen,
and tests/test_adaptive_sync_claims.py shows that each claim can fail.

The places on the map are clusters that differ in three respects. They are here and not in `adaptive_sync_map`
because claims name places, and the command line reads claims without importing NumPy.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import Field

from dmlcore.reproduce.paper import TunedParameters, declare


class Communication(NamedTuple):
    """The cost of communication: c, rho, and the kinds of work of the server, which take it equally long."""

    ratio: float
    server_load: float = 0.0
    work: tuple[str, ...] = ("push", "pull", "update")


COMMUNICATION: Mapping[str, Communication] = {
    "cheap": Communication(1 / 8),
    "slow links": Communication(1.0),
    **{f"server load {load:g}": Communication(1 / 8, load) for load in (1.4, 2, 2.8, 4)},
    "dear": Communication(1.0, 2.0),  # slow links and a busy server
    "free pulls": Communication(1.0, 2.0, ("push", "update")),  # the same, but pulls cost the server nothing
}


class Place(NamedTuple):
    """A cluster on the map.

    Args:
        speeds: speed of the fastest worker / speed of the slowest; the others are evenly spaced in the log.
        slow: fraction of tasks in slow episodes, which are 4 times slower and 10 tasks long on average.
        communication: a key of `COMMUNICATION`.

    >>> print(Place(4, 0.1, "dear"))
    speeds 4x, 10% slow, dear
    """

    speeds: float
    slow: float
    communication: str

    def __str__(self) -> str:
        return f"{self.workers}, {self.communication}"

    @property
    def workers(self) -> str:
        """A description of its workers."""
        speeds = "equal speeds" if self.speeds == 1 else f"speeds {self.speeds:g}x"
        return f"{speeds}, {f'{self.slow:.0%} slow' if self.slow else 'steady'}"


KINDS = ((1, 0.2), (4, 0.0), (4, 0.2))  # unstable, heterogeneous, and both: Place.speeds and .slow
PLACES = tuple(Place(*kind, cost) for cost in ("cheap", "dear") for kind in KINDS)  # places of the claims
TROUBLED = tuple(place for place in PLACES if place[:2] == KINDS[-1])  # places for all rivals
FREE_PULLS = tuple(Place(*kind, "free pulls") for kind in KINDS)
ATLAS = tuple(  # further places, at full scale
    Place(speeds, slow, cost) for cost in COMMUNICATION for speeds in (1, 2, 4) for slow in (0.0, 0.2)
)
WITHOUT: Mapping[str, Mapping[str, Any]] = {  # adaptive sync without one of its rules
    "no stragglers": {"behind": math.inf},
    "stragglers not damped": {"damping": "none"},
    "equal shares in a group": {"shares": "uniform"},
    "groups open at the next push": {"patience": 1},
}


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
