"""Communication ratios of real models on real links, from assumed sizes and step times."""

from typing import Any, NamedTuple

from dmlcore.cluster import Cluster

GIGABITS = (1, 10, 100)  # bandwidths of links, in Gbit/s


class Place(NamedTuple):
    """A model: the megabytes of a transfer in each direction, and the seconds of a step on one batch."""

    name: str
    megabytes: float
    step_seconds: float

    @property
    def label(self) -> str:
        """The name and the assumptions, in two lines."""
        return f"{self.name}\n{self.megabytes:g} MB, {1000 * self.step_seconds:g} ms"


PLACES = (
    Place("LeNet-5", 0.25, 0.005),
    Place("ResNet-50", 102, 0.1),
    Place("transformer, 100M", 400, 0.3),
    Place("VGG-16", 553, 0.2),
)


def place_on(place: Place, gigabits: float, workers: int) -> dict[str, Any]:
    """Returns c and rho of a model: c for workers' own links, rho if the server has one such link.

    >>> found = place_on(Place("ResNet-50", 102, 0.1), 10, workers=8)
    >>> round(found["c"], 2), round(found["rho"], 2)
    (1.63, 2.48)
    """
    nbytes, bandwidth = int(place.megabytes * 10**6), gigabits * 1e9 / 8
    cluster = Cluster.uniform(workers, samples_per_second=1 / place.step_seconds)
    alone = Cluster.uniform(workers, samples_per_second=1 / place.step_seconds, bandwidth=bandwidth)
    return {
        "model": place.name,
        "gigabits": gigabits,
        "c": alone.regime(nbytes, 1).communication_ratio,
        "rho": cluster.with_server(bandwidth=bandwidth).regime(nbytes, 1).server_load,
    }
