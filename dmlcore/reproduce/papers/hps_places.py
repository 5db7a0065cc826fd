"""Real pairs of model and link on the axis of the communication ratio, from assumed sizes and step times."""

from typing import Any, NamedTuple

from dmlcore.cluster import Cluster

GIGABITS = (1, 10, 100)  # per second, of a link


class Place(NamedTuple):
    """A model: the bytes that travel each way, and how long a worker computes a step of one batch."""

    name: str
    megabytes: float
    step_seconds: float

    @property
    def label(self) -> str:
        """Its name, and what is assumed of it, in two lines."""
        return f"{self.name}\n{self.megabytes:g} MB, {1000 * self.step_seconds:g} ms"


PLACES = (
    Place("LeNet-5", 0.25, 0.005),
    Place("ResNet-50", 102, 0.1),
    Place("transformer, 100M", 400, 0.3),
    Place("VGG-16", 553, 0.2),
)


def place_on(place: Place, gigabits: float, workers: int) -> dict[str, Any]:
    """Returns where a model on such links stands: c of free links, rho where the server has one such link.

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
