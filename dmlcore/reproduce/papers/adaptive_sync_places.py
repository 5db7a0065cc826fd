"""The places on the map of notebooks/02_adaptive_sync.ipynb: clusters that differ in three respects.

They are not in `adaptive_sync_map` because claims name places, and the command line reads claims without
importing NumPy.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple


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
