"""K-sync with a k that grows when successive gradients stop pointing the same way."""

from dataclasses import dataclass

from dmlcore.calls import named
from dmlcore.checks import at_least, or_none
from dmlcore.methods.policies._wait import Rounds, check_workers, wait_for_k
from dmlcore.types import Observation, Policy


@dataclass
class PflugRounds(Rounds):
    """State of the test."""

    count: int = 0  # updates with a negative product of successive gradients, less all others
    since: int = 0  # updates since k last changed


@named(
    every=True,
    k=at_least(1),
    step=at_least(1),
    most=or_none(at_least(1)),
    threshold=at_least(0),
    burn_in=at_least(0),
    observe_every=at_least(1),
)
def pflug(
    k: int = 1,
    *,
    step: int = 1,
    most: int | None = None,
    threshold: int = 10,
    burn_in: int = 100,
    observe_every: int = 10,
) -> Policy:
    """K-sync that waits for more workers once successive gradients point against each other.

    While the error falls, the product g_j . g_(j-1) of successive gradients is positive more often than
    negative; once the error has reached its floor for the current k, it is not. A count goes up by 1 if
    g_j . g_(j-1) < 0, and down by 1 otherwise. When the count exceeds `threshold` more than `burn_in` updates
    after the last change of k, k grows by `step` and the count is reset to 0. The policy needs no constant of
    the problem.

    Guarantees: staleness 0; k never falls.

    Args:
        k: gradients per update in the first rounds, >= 1.
        step: the amount by which k grows, >= 1.
        most: the largest k. Default: the number of workers.
        threshold: the largest count at which k stays the same, >= 0.
        burn_in: after a change, k stays the same for at least this many updates, >= 0.
        observe_every: the largest number of updates between two observations; an observation includes the
            products of all its updates.

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock. It watches the training: use it
        with `train`, or pass a `watch` to `simulate`.

    Raises:
        ValueError: a number is out of range; from `init`: a k exceeds the number of workers.

    >>> pflug(10, step=10, most=40)
    pflug(k=10, step=10, most=40, threshold=10, burn_in=100, observe_every=10)

    Reference: Kas Hanna et al. 2022, algorithm 1, after Pflug 1990 and Chee and Toulis 2018.
    """
    if most is not None:
        at_least(k)("most", most)

    def init(num_workers: int) -> PflugRounds:
        check_workers(num_workers, k=k, most=most)
        return PflugRounds(num_workers, k)

    def on_observation(state: PflugRounds, seen: Observation) -> PflugRounds:
        largest = state.num_workers if most is None else most
        for product in seen.products:
            state.since += 1
            state.count += 1 if product < 0 else -1
            if state.count > threshold and state.since > burn_in and state.k + step <= largest:
                state.k, state.count, state.since = state.k + step, 0, 0
        return state

    return wait_for_k(
        init, any_worker=False, cancels=True, on_observation=on_observation, observe_every=observe_every
    )
