"""The map of SSP against ASP: claims over the load of the server, and real clusters on that axis.

docs/papers/ssp.md says what was explored before.
"""

from typing import NamedTuple

from dmlcore.reproduce.paper import ours, theory

PROBLEMS = ("matrix factorization", "digits")
CHEAP, EQUAL = "cheap pushes", "pushes as costly as pulls"
PUSHES = {CHEAP: 0.1, EQUAL: 0.5}  # share of the push in the server's time for a push and a pull
CROSSOVER = (
    "first server load at which SSP, with the best s from other seeds, is 5% faster than ASP; 0: on the free "
    "server, inf: at none up to 4"
)


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

MAP = {
    "S9-crossover": ours(
        "SSP overtakes ASP where asynchronous workers saturate the server, at a load of about 1",
        f"{CROSSOVER}; {CHEAP}",
        expected=(1 / 1.5, 1.5),
        unit="",
        parts=PROBLEMS,
    ),
    "S9-theory": theory(
        "SSP overtakes ASP where mean-value analysis slows ASP by its lead on the free server",
        "load of the crossover / load that the theory predicts; cheap pushes",
        expected=(1 / 1.5, 1.5),
        parts=PROBLEMS,
        repeats="S9-crossover",  # divided by a constant per problem
    ),
    "S9-dear": ours(
        "SSP overtakes ASP by a load of 4 also where pushes are as costly as pulls (full scale)",
        f"{CROSSOVER}; {EQUAL}",
        expected=(None, 4),
        unit="",
        parts=PROBLEMS,
    ),
    "S9-saturated-BSP": ours(
        "At four times the load that saturates the server SSP is faster than BSP",
        "time to the target: BSP / SSP with the best s from other seeds; cheap pushes",
        parts=PROBLEMS,
    ),
    "S9-saturated-ASP": ours(
        "At four times the load that saturates the server SSP is faster than ASP",
        "time to the target: ASP / SSP with the best s from other seeds; cheap pushes",
        parts=PROBLEMS,
    ),
}
