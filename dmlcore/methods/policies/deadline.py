"""Rounds with a deadline."""

from dmlcore import checks
from dmlcore.calls import named
from dmlcore.methods.policies._wait import Rounds, check_workers, seconds_or_inf, wait_for_k
from dmlcore.types import Policy


@named(seconds=seconds_or_inf, at_least=checks.at_least(1), late=checks.one_of("cancel", "apply"))
def deadline(seconds: float, *, at_least: int = 1, late: str = "cancel") -> Policy:
    """Deadline-based rounds: a round ends at a time, with the mean of the gradients that have arrived.

    A round begins with the update of the one before. It ends when all workers present have pushed, or else
    `seconds` later with what has arrived, but not before the first `at_least` pushes. So these are backup
    workers with a timeout instead of a count; `backup` takes both. As in `bsp` the mean is over samples: a
    task of b samples weighs b / sum b.

    Guarantees: staleness 0 with `late="cancel"`. `deadline(math.inf)` is `bsp()`. With exponential task times
    of mean m, P workers and links that take no time, P (1 - exp(-d / m)) pushes arrive by the deadline d on
    average. A round then takes int_0^d 1 - (1 - exp(-t / m))^P dt, and where none has arrived by d, on
    average m / P more until the first.

    Args:
        seconds: the deadline, from the start of a round, > 0, or `math.inf`; pulls and pushes count.
        at_least: pushes for which a round waits all the same, 1 to the number of workers.
        late: what becomes of tasks under way at the end of a round: "cancel", their workers begin the next
            round with all others; or "apply", they go on, and are applied with the round in which they
            arrive, stale by the updates made since.

    Returns:
        The policy. With `late="cancel"` its `max_lead` is 0: no worker leads another by a clock. With "apply"
        it is None: no bound is declared. With a finite deadline it sets a timer for every round.

    Raises:
        ValueError: a number is out of range, or there is no such rule; from `init`: `at_least` exceeds the
            number of workers.

    >>> deadline(0.5), deadline(2.0, at_least=4, late="apply")
    (deadline(seconds=0.5), deadline(seconds=2.0, at_least=4, late='apply'))
    """

    def init(num_workers: int) -> Rounds:
        check_workers(num_workers, at_least=at_least)
        return Rounds(num_workers, num_workers, seconds=seconds, fewest=at_least)

    return wait_for_k(init, any_worker=False, cancels=late == "cancel", deadlines=True)
