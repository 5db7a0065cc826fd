"""Client sampling: a policy of m workers, for whom those of a larger cluster stand in, drawn at random."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dmlcore import checks
from dmlcore.calls import named
from dmlcore.methods.policies.gated import bsp, new
from dmlcore.methods.policies.rounds import check_enough
from dmlcore.types import NOTHING_YET, Decision, Observation, Policy, Push, Start


@dataclass
class Sampling:
    """State of client sampling. What the policy takes for workers are places for workers of the cluster."""

    inner: Any  # state of the policy of m workers
    odds: np.ndarray | None  # of each worker of the cluster to be drawn; None: equal
    present: list[int]  # workers that are present, ascending
    seed: int = 0
    draws: int = 0  # made so far
    worker_at: dict[int, int] = field(default_factory=dict)  # place -> worker
    place_of: dict[int, int] = field(default_factory=dict)  # worker -> place
    at_work: dict[int, int | None] = field(default_factory=dict)  # place -> size of its task, see `Start`

    def fill(self, places: Sequence[int]) -> None:
        """Draws workers for places, as far as there are enough among those present that have no other place.

        Workers ascend as their places do.
        """
        if not places:
            return
        for place in places:
            self.worker_at.pop(place, None)
        among, busy = self.present, {*self.worker_at.values()}
        if len(places) < len(among) - len(busy):
            odds = None if self.odds is None else self.odds[among] / self.odds[among].sum()
            random, self.draws = np.random.default_rng((self.seed, self.draws)), self.draws + 1
            # As many more as have a place, in a random order, so that enough are left without those.
            count = len(places) + len(busy)
            drawn = random.choice(len(among), count, replace=False, p=odds, shuffle=bool(busy))
            among = [among[number] for number in drawn.tolist()]
        free = sorted([worker for worker in among if worker not in busy][: len(places)])
        self.worker_at.update(zip(places, free, strict=False))
        self.place_of = {worker: place for place, worker in self.worker_at.items()}

    def start(self, tasks: Sequence[Start]) -> list[Start]:
        """Returns the starts of the workers at these places, whose clocks are their own."""
        at_work, worker_at = self.at_work, self.worker_at
        for place, size, _ in tasks:
            at_work[place] = size
        return sorted([new(Start, (worker_at[place], size, None)) for place, size, _ in tasks])


def pulling(name: str, policy: Any) -> Policy | None:
    """Returns a policy under which all tasks pull, or None."""
    if policy is None:
        return None
    checks.check_kind(name, policy, Policy)
    missing = policy.on_leave is None or policy.on_join is None
    if missing or policy.keep_copy or policy.on_begin or policy.on_pull:
        expected = "a policy whose tasks all pull, whose workers may leave and join, and that does not sample"
        checks.fail(name, policy, expected)
    return policy


@named(m=checks.at_least(1), policy=pulling, weights=checks.one_or_each(checks.positive))
def sampled(m: int, policy: Policy | None = None, weights: float | Sequence[float] = 1.0) -> Policy:
    """Client sampling: of n workers, m at a time take part, under a policy that sees m workers.

    Whenever the policy starts workers, others are drawn in their place, at random without replacement, from
    those that are present and not at work. Under `bsp()`, `k_sync(k)` or `deadline(seconds)`, which start all
    workers together, each round so has a new sample; `sampled(m, fedbuff(k))` is FedBuff with concurrency m.
    If a worker leaves, one that is idle takes over at once; the policy hears of it only if none is.

    Guarantees: as long as all workers are present, `sampled(num_workers, policy)` is `policy`, but for
    pipelines and fragments, which it does not support. Samples follow from the run's seed. With equal weights
    a decision that starts workers takes O(m) time, however many workers there are.

    Args:
        m: the number of workers that take part at a time, from 1 to the number of workers.
        policy: the rule for these m workers, without cached copies; what it is told as the clock of a push is
            only good to name the task. Default: None, `bsp()`.
        weights: each worker is drawn with a probability proportional to its weight, > 0, among those that are
            left, such as its number of samples; one number for all workers, or one per worker (W,). They are
            for equal loads: a load such as `fixed(shard_sizes)` counts the sizes itself.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: an argument is out of range; from `init`: `m` exceeds the number of workers, or the number
            of weights is not that of the workers.

    >>> import dmlcore as dml
    >>> sampled(10), sampled(13, dml.k_sync(10))
    (sampled(m=10), sampled(m=13, policy=k_sync(k=10)))
    >>> trace = dml.simulate(sampled(2), dml.Cluster.uniform(100), updates=20)
    >>> trace.tasks.groupby("update")["worker"].nunique().unique().tolist()
    [2]

    Reference: McMahan et al. 2017, algorithm 1, the set S_t. Bonawitz et al. 2019, "Towards federated
    learning at scale: system design", sample 130% of the k workers of a round: `sampled(1.3 k, k_sync(k))`.
    """
    rule: Any = bsp() if policy is None else policy  # `pulling` has checked which functions it has
    take = rule.on_push

    def init(num_workers: int) -> Sampling:
        check_enough(num_workers, m=m)
        each = checks.for_each("weights", weights, num_workers)
        odds = None if isinstance(weights, float) else np.array(each)
        if odds is not None and not (odds / odds.sum()).all():
            checks.fail("weights", f"{min(each):g} to {max(each):g}", "ratios below 1e300")
        return Sampling(rule.init(m), odds, [*range(num_workers)])

    def on_begin(state: Sampling, seed: int) -> tuple[Sampling, Sequence[Start]]:
        state.seed = seed
        state.fill(range(m))
        return state, state.start([Start(place, rule.batch_size) for place in range(m)])

    def answer(state: Sampling, answered: tuple[Any, Any]) -> tuple[Sampling, Decision]:
        """Translates the policy's decision about places."""
        state.inner, decision = answered
        if decision is NOTHING_YET:
            return state, decision
        apply, drop, cancel, start, wake = decision
        apply = [(*task, weight) for _, task, weight in apply]
        drop = [task for _, task in drop]
        for place in cancel:
            state.at_work.pop(place, None)
        cancel = sorted(state.worker_at[place] for place in cancel)
        state.fill(sorted(place for place, *_ in start))
        return state, new(Decision, (sorted(apply), drop, cancel, state.start(start), wake))

    def on_push(state: Sampling, push: Push) -> tuple[Sampling, Decision]:
        worker, clock, version, time, seconds, samples, keeps_copy = push
        place = state.place_of[worker]
        del state.at_work[place]
        # What the policy takes for a clock says whose task it was.
        task = new(Push, (place, (worker, clock), version, time, seconds, samples, keeps_copy))
        return answer(state, take(state.inner, task))

    def on_leave(state: Sampling, worker: int, time: float) -> tuple[Sampling, Decision]:
        del state.present[bisect_left(state.present, worker)]
        place = state.place_of.get(worker)
        if place is None:
            return state, NOTHING_YET
        state.fill([place])
        if place in state.worker_at:
            again = [Start(place, state.at_work[place])] if place in state.at_work else []
            return state, Decision(start=state.start(again))
        state.at_work.pop(place, None)
        return answer(state, rule.on_leave(state.inner, place, time))

    def on_join(state: Sampling, worker: int, time: float) -> tuple[Sampling, Decision]:
        insort(state.present, worker)
        vacant = [place for place in range(m) if place not in state.worker_at]
        if not vacant:
            return state, NOTHING_YET
        state.fill(vacant[:1])
        return answer(state, rule.on_join(state.inner, vacant[0], time))

    def on_wake(state: Sampling, token: Any, time: float) -> tuple[Sampling, Decision]:
        return answer(state, rule.on_wake(state.inner, token, time))

    def on_observation(state: Sampling, seen: Observation) -> Sampling:
        state.inner = rule.on_observation(state.inner, seen)
        return state

    return rule._replace(
        init=init,
        on_push=on_push,
        max_lead=None,
        on_leave=on_leave,
        on_join=on_join,
        on_observation=None if rule.on_observation is None else on_observation,
        on_wake=None if rule.on_wake is None else on_wake,
        on_begin=on_begin,
    )
