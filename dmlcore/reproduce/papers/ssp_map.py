"""The map of SSP against ASP: its problems, and real clusters on that axis.

docs/papers/ssp.md says what was explored before.
"""

from typing import NamedTuple

PROBLEMS = ("matrix factorization", "digits")
CHEAP, EQUAL = "cheap pushes", "pushes as costly as pulls"
PUSHES = {CHEAP: 0.1, EQUAL: 0.5}  # share of the push in the server's time for a push and a pull


class Place(NamedTuple):
    """A real cluster on the map, with assumed sizes and speeds; each clock pulls and pushes all bytes."""

    name: str
    machines: int
    servers: int  # servers with equal parts of the parameters
    megabytes: float  # size of the parameters
    clock_seconds: float  # computing seconds of a clock
    gigabits: float  # bandwidth of a server's link, in Gbit/s


PLACES = (
    Place("LDA, NY Times, a pass", 32, 32, 40, 3.1, 10),
    Place("LDA, a tenth of a pass", 32, 32, 40, 0.31, 10),
    Place("LDA, a tenth, one server", 32, 1, 40, 0.31, 10),
    Place("factorization, Netflix, a pass", 32, 32, 199, 3.1, 10),
    Place("factorization, a tenth of a pass", 32, 32, 199, 0.31, 10),
    Place("factorization, a tenth, 1 Gb/s", 32, 32, 199, 0.31, 1),
    Place("ResNet-50, one batch, 16 servers", 16, 16, 102, 0.1, 10),
    Place("ResNet-50, one batch, one server", 16, 1, 102, 0.1, 10),
)
