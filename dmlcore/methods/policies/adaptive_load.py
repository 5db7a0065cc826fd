"""K-sync with the k and batch size of the largest expected gain a second."""

from collections.abc import Iterable, Sequence
from typing import Any

from dmlcore import checks
from dmlcore.calls import named
from dmlcore.methods.policies._gain import CHECKS, largest_gain, rate
from dmlcore.types import Policy

SOURCES = ("loss", "gradients")


def _ascending(name: str, values: Any) -> list[int]:
    if not isinstance(values, Iterable):
        checks.fail(name, values, "several whole numbers >= 1")
    sizes = sorted({checks.integer(name, value, low=1) for value in values})
    return sizes or checks.fail(name, values, "at least one")


@named(
    every=True, learning_rate=rate, batch_sizes=_ascending, **CHECKS, estimate_from=checks.one_of(*SOURCES)
)
def adaptive_load(
    learning_rate: float,
    batch_sizes: Sequence[int],
    *,
    law: str = "exponential",
    explore: int = 2,
    observe_every: int = 10,
    estimate_from: str = "loss",
) -> Policy:
    """Adaptive k and computation load, online: runs the (k, b) with the largest gain a second, as measured.

    By the descent lemma a step along the mean g of k gradients of b samples lowers the loss by
    eta (G - q E|g|^2), with E|g|^2 = G + V / (k b), where G is the square of the mean gradient, V the
    variance of one sample's gradient and q half the curvature along g times eta. The (k, b) with the largest
    G - q (G + V / (k b)) over mu(k, b) runs. Every observation gives |g|^2 and, as a running mean, the fall
    of the loss; what is left is

    - with the loss of all data, of which real servers have only samples: the product of successive gradients
      is G - 2 q |g|^2 on average. With the fall of the loss it gives q, as a running mean over 200 updates;
    - from the received gradients alone: the fall is that of the trapezoid rule, of which that product is one
      side, and q stays 0.05, since nothing tells it apart from noise.

    The length mu(k, b) of a round is `theory.mean_round` of a law fitted to the response times in the first
    rounds, which wait for all workers. Where G is in proportion to the excess loss E, the gain over mu(k, b)
    is largest where (E - phi(k, b)) / mu(k, b) is: the rule of the oracle `theory.greedy_schedule`. A noisy
    observation costs little: after the first choice, k b changes by a factor of 2 at most, or to the next
    value in the grid.

    Guarantees: staleness 0.

    Args:
        learning_rate: eta, of plain SGD.
        batch_sizes: to choose from; the first tasks have the largest.
        law: family of computation times, "exponential", "erlang" or "shifted".
        explore: rounds that wait for all workers, >= 2.
        observe_every: most updates between two choices.
        estimate_from: "loss", the problem's own, of all its data, which the engine shows free of charge; or
            "gradients", those that were received: then q stays 0.05, and where curvatures spread it can fail
            (in notebook 03 no seed reached the target of a logistic regression).

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock. It watches the training: use it
        with `train`, or pass a `watch` to `simulate`. It sets the batch size of every task, so no load rule
        is asked.

    Raises:
        ValueError: a number is out of range, or there is no such law or source.

    >>> adaptive_load(0.1, [1, 8, 32], law="erlang")
    adaptive_load(learning_rate=0.1, batch_sizes=[1, 8, 32], law='erlang', explore=2, ...)

    Reference: Egger, Kas Hanna and Bitar 2023, whose scheme knows the constants; the estimates are ours.
    """
    return largest_gain(
        learning_rate, [*batch_sizes], law, explore, observe_every, from_loss=estimate_from == "loss"
    )
