"""Rounds with a deadline."""

from dmlcore import checks
from dmlcore.calls import named
from dmlcore.methods.policies._wait import Rounds, check_workers, seconds_or_inf, wait_for_k
from dmlcore.types import Policy


@named(seconds=seconds_or_inf, at_least=checks.at_least(1), late=checks.one_of("cancel", "apply"))
def deadline(seconds: float, *, at_least: int = 1, late: str = "cancel") -> Policy:
    """Deadline-based rounds: a round ends at its deadline, with the mean of the gradients that have arrived.

    A round begins with the update of the previous round. It ends when all workers present have pushed, and at
    the latest after `seconds`, with the pushes that have arrived, but never before the first `at_least`
    pushes. So the policy is backup workers with a timeout instead of a count; `backup` takes both. As in
    `bsp` the mean is over samples: a task of b samples has the weight b / sum(b).

    Guarantees: staleness 0 with `late="cancel"`. `deadline(math.inf)` is `bsp()`. With exponential task times
    of mean m, P workers and links that take no time, P (1 - exp(-d / m)) pushes arrive by the deadline d on
    average. A round then takes int_0^d 1 - (1 - exp(-t / m))^P dt on average; if no push has arrived by d,
    the round takes m / P longer on average, until the first push.

    Args:
        seconds: the deadline, in seconds from the start of a round, > 0 or `math.inf`, including pulls and
            pushes.
        at_least: number of pushes that a round waits for even beyond its deadline, from 1 to the number of
            workers.
        late: what happens to tasks in flight at the end of a round. "cancel": the server cancels them, and
            their workers begin the next round with all others. "apply": they continue, and the server
            applies each in the round in which it arrives; its staleness is the number of updates since its
            pull.

    Returns:
        The policy. With `late="cancel"` its `max_lead` is 0: no worker leads another by a clock. With "apply"
        it is None: no bound is declared. With a finite deadline it sets a timer for every round.

    Raises:
        ValueError: a number is out of range, or `late` is not one of those listed; from `init`: `at_least`
            exceeds the number of workers.

    >>> deadline(0.5), deadline(2.0, at_least=4, late="apply")
    (deadline(seconds=0.5), deadline(seconds=2.0, at_least=4, late='apply'))
    """

    def init(num_workers: int) -> Rounds:
        check_workers(num_workers, at_least=at_least)
        return Rounds(num_workers, num_workers, seconds=seconds, fewest=at_least)

    return wait_for_k(init, any_worker=False, cancels=late == "cancel", deadlines=True)
