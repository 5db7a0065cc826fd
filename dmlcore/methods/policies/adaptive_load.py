"""K-sync with the k and the batch size that have the largest expected gain per second."""

from collections.abc import Iterable, Sequence
from typing import Any

from dmlcore import checks
from dmlcore.calls import named
from dmlcore.methods.policies._gain import CHECKS, largest_gain, rate
from dmlcore.types import Policy

SOURCES = ("loss", "gradients")


def _ascending(name: str, values: Any) -> list[int]:
    if not isinstance(values, Iterable):
        checks.fail(name, values, "whole numbers >= 1, such as [8, 16]")
    sizes = sorted({checks.integer(name, value, low=1) for value in values})
    return sizes or checks.fail(name, values, "at least one whole number")


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
    """Adaptive k and computation load, online: uses the (k, b) with the largest measured gain per second.

    By the descent lemma a step along the mean g of k gradients of b samples lowers the loss by
    eta (G - q E|g|^2), with E|g|^2 = G + V / (k b), where G is the squared norm of the mean gradient, V the
    variance of one sample's gradient and q half the curvature along g times eta. The policy uses the (k, b)
    for which (G - q (G + V / (k b))) / mu(k, b) is largest; mu(k, b) is the mean length of a round in
    seconds. Every observation gives |g|^2 and a running mean of the fall of the loss. The rest is estimated
    in one of two ways:

    - from the loss of all data (a real server has only samples of it): the product of successive gradients
      is G - 2 q |g|^2 on average. Together with the fall of the loss it gives q, as a running mean over 200
      updates;
    - from the received gradients alone: the trapezoid rule estimates the fall of the loss from the products
      of successive gradients, and q stays at 0.05, because these products cannot tell q apart from noise.

    `theory.mean_round` computes mu(k, b) from a law that is fitted to the response times in the first rounds,
    which wait for all workers. If G is proportional to the excess loss E, the chosen (k, b) also has the
    largest (E - phi(k, b)) / mu(k, b), which is the rule of the oracle `theory.greedy_schedule`. To limit
    the effect of a noisy observation, after the first choice k b changes by a factor of at most 2, or to
    the next value of the grid.

    Guarantees: staleness 0.

    Args:
        learning_rate: the eta of plain SGD, > 0.
        batch_sizes: the batch sizes to choose from, in samples; the first tasks have the largest.
        law: family of computation times, "exponential", "erlang" or "shifted".
        explore: number of first rounds that wait for all workers, >= 2.
        observe_every: the largest number of updates between two choices.
        estimate_from: "loss", the problem's loss of all its data, which the engine computes at no cost in
            virtual time; or "gradients", the received gradients: then q stays at 0.05, and the policy can
            fail if curvatures differ widely (in notebook 03 no seed reached the target of a logistic
            regression).

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock. It watches the training: use it
        with `train`, or pass a `watch` to `simulate`. It sets the batch size of every task, so the load rule
        has no effect.

    Raises:
        ValueError: a number is out of range, or `law` or `estimate_from` is not one of those listed.

    >>> adaptive_load(0.1, [1, 8, 32], law="erlang")
    adaptive_load(learning_rate=0.1, batch_sizes=[1, 8, 32], law='erlang', explore=2, ...)

    Reference: Egger, Kas Hanna and Bitar 2023. Their scheme knows the constants; the estimates are ours.
    """
    return largest_gain(
        learning_rate, [*batch_sizes], law, explore, observe_every, from_loss=estimate_from == "loss"
    )
