"""K-sync or K-batch-async with a K that grows as the loss falls."""

import math
from dataclasses import dataclass
from typing import Any

from dmlcore import checks
from dmlcore.calls import named
from dmlcore.methods.policies._wait import Rounds, wait_for_k
from dmlcore.types import Observation, Policy


@dataclass
class AdaSyncRounds(Rounds):
    """State of AdaSync."""

    first_loss: float | None = None  # F(w_0); None before the first observation


@named(every=True, k=checks.at_least(1), batch_async=checks.boolean, observe_every=checks.at_least(1))
def adasync(k: int = 1, *, batch_async: bool = False, observe_every: int = 10) -> Policy:
    """AdaSync: waits for few gradients at first, and for more as the loss falls.

    Let F(w) be the loss and P the number of workers. For K-sync, with exponential task times, K solves
    K^2 / (P - K) = K_0^2 / (P - K_0) F(w_0) / F(w). For K-batch-async, K = K_0 sqrt(F(w_0) / F(w)). K is
    rounded to a whole number from 1 to P; if the loss rises, K falls again.

    Guarantees: staleness 0 with K-sync.

    Args:
        k: the paper's K_0, the K of the first rounds, >= 1; less than P for K-sync.
        batch_async: whether to use K-batch-async instead of K-sync.
        observe_every: the largest number of updates between two observations.

    Returns:
        The policy. For K-sync its `max_lead` is 0: no worker leads another by a clock. For K-batch-async it
        is None: no bound is declared. It watches the training: use it with `train`, or pass a `watch` to
        `simulate`.

    Raises:
        ValueError: a number is out of range; from `init`: `k` is too large for the number of workers.

    >>> adasync(2)
    adasync(k=2, batch_async=False, observe_every=10)

    Reference: Dutta, Wang and Joshi 2020, "Slow and stale gradients can win the race", section 5.
    """

    def init(num_workers: int) -> AdaSyncRounds:
        largest = num_workers if batch_async else max(num_workers - 1, 1)
        checks.integer("k", k, low=1, high=largest, why=f"for {num_workers} workers")
        return AdaSyncRounds(num_workers, k)

    def on_observation(state: AdaSyncRounds, seen: Observation) -> AdaSyncRounds:
        if state.first_loss is None:
            state.first_loss = seen.loss
        p = state.num_workers
        # With a loss that is 0, negative or not a number, the policy waits for all workers.
        ratio = state.first_loss / seen.loss if seen.loss > 0 else math.inf
        ratio = max(ratio, 0.0) if math.isfinite(ratio) else math.inf
        if ratio == math.inf or (k == p and not batch_async):
            wanted = math.inf
        elif batch_async:
            wanted = k * math.sqrt(ratio)
        else:
            c = k * k / (p - k) * ratio  # K^2 + c K - c P = 0
            wanted = 2 * p / (1 + math.sqrt(1 + 4 * p / c)) if c > 0 else 0
        state.k = round(min(max(wanted, 1), p))
        return state

    watch: dict[str, Any] = {"on_observation": on_observation, "observe_every": observe_every}
    return wait_for_k(init, any_worker=batch_async, cancels=not batch_async, **watch)
