"""Policies in which every push is an update of its own, and no worker waits.

They differ in how they treat staleness: each multiplies the weight of a push by a factor that depends on its
staleness, or drops the push.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dmlcore.calls import named
from dmlcore.checks import at_least, boolean, fail, not_negative, one_of, or_none, positive, real
from dmlcore.methods.policies.damping import DAMPING, hinge, polynomial
from dmlcore.methods.policies.gated import Gate, gated, new
from dmlcore.types import Decision, Policy, Push, Start


@dataclass
class Each(Gate):
    """State of such a policy. It uses the gate only to know which workers are present: no worker waits."""

    version: int = 0  # updates made


def each_push(
    factor: Callable[[Any, Push, int], float | None],  # state, push, staleness -> None: the push is dropped
    weight: float | None = 1.0,  # of a push whose factor is 1. None: 1 / number of workers present
    *,
    state: type[Each] = Each,
) -> Policy:
    """Returns the policy that applies each push, scaled by its factor, and starts the push's worker again."""

    def on_push(each: Each, push: Push) -> tuple[Each, Decision]:
        worker, clock = push.worker, push.clock
        each.finished[worker] += 1
        found = factor(each, push, each.version - push.version_read)
        start = each.go[worker]
        if found is None:
            return each, Decision(drop=[(worker, clock)], start=start)
        each.version += 1
        return each, new(Decision, ([(worker, clock, each.share * found)], (), (), start, None))

    return gated(on_push, math.inf, weight, state=state)


@dataclass
class CoupledGate(Each):
    """State of ASP if weights depend on samples or on staleness."""

    samples: dict[int, int] = field(default_factory=dict)  # in the last push of each worker that is present

    def leave(self, worker: int) -> Decision:
        self.samples.pop(worker, None)
        return super().leave(worker)


@named(weight=or_none(positive), scaling=one_of("none", "samples"), damping=one_of(*DAMPING))
def asp(*, weight: float | None = 1.0, scaling: str = "none", damping: str = "none") -> Policy:
    """Asynchronous parallel: every push is an update, and no worker waits.

    A push of b samples and staleness tau, in updates, has the weight `weight` * scaling * damping. With
    `scaling="samples"` and batch sizes in proportion to worker speeds, this is DBS-SGD. `delay_adaptive`
    reduces weights less than `damping="inverse"`, and `fedasync` has other functions of tau.

    Guarantees: with P workers the mean staleness over gradients tends to P - 1, whatever their speeds. With
    one worker it is plain SGD. `k_async(1)` is the same policy as `asp()`.

    Args:
        weight: the weight of one push in its update. Default 1: each gradient makes a full step, as is usual
            for asynchronous SGD. None: 1 / number of workers, as in `ssp`.
        scaling: "none", factor 1; or "samples", b / mean(b), the mean over the last push of each worker
            present.
        damping: "none", factor 1; "inverse", 1 / (1 + tau); or "reciprocal", 1 / max(tau, 1).

    Returns:
        The policy. Its `max_lead` is infinite: the lead of a worker has no bound.

    Raises:
        ValueError: `weight` is out of range, or `scaling` or `damping` is not one of those listed.

    >>> asp(), asp(scaling="samples", damping="inverse")
    (asp(), asp(scaling='samples', damping='inverse'))

    Reference: Recht et al. 2011, "Hogwild!"; Dean et al. 2012, "Large scale distributed deep networks";
    Ji et al. 2019, "Performance-aware dynamic batch size SGD" (couplings reconstructed).
    """

    def on_push(gate: Gate, push: Push) -> tuple[Gate, Decision]:
        worker = push.worker
        gate.finished[worker] += 1
        return gate, new(Decision, ([(worker, push.clock, gate.share)], (), (), gate.go[worker], None))

    if scaling == damping == "none":
        return gated(on_push, math.inf, weight)

    def coupled(gate: CoupledGate, push: Push, tau: int) -> float:
        factor = DAMPING[damping](tau)
        gate.samples[push.worker] = push.samples
        if scaling == "samples":
            factor *= push.samples * len(gate.samples) / sum(gate.samples.values())
        return factor

    return each_push(coupled, weight, state=CoupledGate)


@named(concurrency=or_none(at_least(1)))
def delay_adaptive(concurrency: int | None = None) -> Policy:
    """Delay-adaptive asynchronous SGD: weight 1 up to a delay of n updates, and n / delay beyond.

    A push of staleness tau, in updates, has the weight min(1, n / tau), where n is the concurrency. The mean
    of tau is n - 1, whatever the speeds (see `asp`), so only the gradients of stragglers are reduced. In
    contrast, `asp(damping="inverse")` with its factor 1 / (1 + tau) reduces nearly all gradients.

    Guarantees: no worker waits; weight times delay is at most n. If all tasks take equally long it is
    `asp()`.

    Args:
        concurrency: the paper's n, the number of gradients that are computed at the same time, >= 1.
            Default: the number of workers present.

    Returns:
        The policy. Its `max_lead` is infinite: the lead of a worker has no bound.

    Raises:
        ValueError: `concurrency` is neither None nor a whole number >= 1.

    >>> delay_adaptive(), delay_adaptive(4)
    (delay_adaptive(), delay_adaptive(concurrency=4))

    Reference: Mishchenko, Bach, Even and Woodworth 2022, "Asynchronous SGD beats minibatch SGD under
    arbitrary delays", the delay-adaptive step sizes of its theorems for smooth functions. The paper's step is
    the smaller of a constant of the order 1 / (n L) and one of the order 1 / (tau L); our weight is that
    step divided by the first constant.
    """

    def factor(each: Each, push: Push, tau: int) -> float:
        n = len(each.present) if concurrency is None else concurrency
        return n / max(n, tau)

    return each_push(factor)


STEEPNESS = {"constant": 0.0, "polynomial": 0.5, "hinge": 10.0}  # the paper's a of each function s


@named(
    alpha=partial(real, above=0, high=1),
    decay=one_of(*STEEPNESS),
    a=or_none(positive),
    b=or_none(not_negative),
)
def fedasync(
    alpha: float, decay: str = "constant", *, a: float | None = None, b: float | None = None
) -> Policy:
    """FedAsync: every push is an update, with a weight alpha s(tau) that falls with its staleness tau.

    s(tau) is 1 ("constant"), (1 + tau)^-a ("polynomial"), or 1 up to tau = b and 1 / (1 + a (tau - b))
    beyond ("hinge"). No worker waits.

    What differs from the paper: there a push is a model x_new, which a worker reached by local steps from the
    x_tau that it pulled, and the server moves from x to (1 - alpha s) x + alpha s x_new. With the difference
    d = x_tau - x_new, that is x - alpha s d + alpha s (x_tau - x). Here a push is a gradient d, and the
    optimizer receives alpha s(tau) d. So this policy makes the step x - alpha s d, and leaves out the term
    alpha s (x_tau - x), which pulls the server back towards the version that the worker had read. The two
    rules agree if tau = 0.

    Guarantees: no worker waits; the weight of a push is at most alpha. `fedasync(1)` is `asp()`, and
    `fedasync(alpha)` is `asp(weight=alpha)`.

    Args:
        alpha: weight of a push with staleness 0, in (0, 1].
        decay: the function s, "constant", "polynomial" or "hinge".
        a: how steeply s falls, > 0. Default: the paper's, 0.5 for "polynomial", 10 for "hinge".
        b: the staleness, in updates, up to which the hinge is 1, >= 0. Default: the paper's, 4.

    Returns:
        The policy. Its `max_lead` is infinite: the lead of a worker has no bound.

    Raises:
        ValueError: a number is out of range, `decay` is not one of those listed, or it does not use the given
            `a` or `b`.

    >>> fedasync(0.6), fedasync(0.6, "hinge", a=2)
    (fedasync(alpha=0.6), fedasync(alpha=0.6, decay='hinge', a=2.0))

    Reference: Xie, Koyejo and Gupta 2019, "Asynchronous federated optimization", Algorithm 1 and the
    functions s(t - tau) of its experiments.
    """
    if decay == "constant" and a is not None:
        fail("a", a, "None (decay='constant' does not use it)")
    if decay != "hinge" and b is not None:
        fail("b", b, "None (only decay='hinge' uses it)")
    steepness = STEEPNESS[decay] if a is None else a
    s = {
        "constant": DAMPING["none"],
        "polynomial": polynomial(steepness),
        "hinge": hinge(steepness, 4.0 if b is None else b),
    }[decay]

    def factor(each: Each, push: Push, tau: int) -> float:
        return s(tau)

    return each_push(factor, alpha)


@dataclass
class Ages(Each):
    """State of Ringmaster ASGD with `stop`: the version on which each task in flight began."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.newest = [0] * self.num_workers  # version on which each worker's last task began
        # (version, worker) of every task, in the order in which they began. Finished tasks stay in the queue.
        self.begun = deque((0, worker) for worker in range(self.num_workers))

    def begin(self, worker: int) -> None:
        """Records that a worker begins a task on the newest version."""
        self.newest[worker] = self.version
        self.begun.append((self.version, worker))

    def too_old(self, r: float) -> list[int]:
        """Returns the workers present whose task has missed `r` updates; each task is returned once."""
        found = set()
        while self.begun and self.begun[0][0] <= self.version - r:
            version, worker = self.begun.popleft()
            if worker in self.present and self.newest[worker] == version:
                found.add(worker)
        return sorted(found)


@named(r=at_least(1, infinite=True), stop=boolean)
def ringmaster(r: float, stop: bool = False) -> Policy:
    """Ringmaster ASGD: every push is an update, but gradients of staleness `r` or more are dropped.

    The worker of a dropped gradient starts again from the newest version, as after an update. With `stop` the
    server cancels a task as soon as it has missed `r` updates, and its worker starts again, so that no worker
    finishes a task whose gradient would be dropped.

    Guarantees: no worker waits, and the staleness of applied gradients is at most r - 1. With task times as
    for `rennala`, any r successive updates take at most the time that is stated there for one update of
    `rennala(r)`, however many slow workers there are. `ringmaster(math.inf)` is `asp()`.

    Args:
        r: the paper's R, in updates, a whole number >= 1 or `math.inf`. The theory uses
            max(1, ceil(sigma^2 / eps)), where sigma^2 is the variance of a gradient and eps the target for
            the squared norm of its mean, with the learning rate min(1 / (2 r L), eps / (4 L sigma^2)) for
            the smoothness L.
        stop: True: the server cancels tasks that are too old (the paper's Algorithm 5). False: it drops their
            gradients when they arrive (Algorithm 4). In a pipeline the staleness of a worker's newest task
            decides.

    Returns:
        The policy. Its `max_lead` is infinite: the lead of a worker has no bound.

    Raises:
        ValueError: `r` is neither a whole number >= 1 nor `math.inf`, or `stop` is neither True nor False.

    >>> ringmaster(8), ringmaster(8, stop=True)
    (ringmaster(r=8), ringmaster(r=8, stop=True))

    Reference: Maranjyan, Tyurin and Richtarik 2025, "Ringmaster ASGD: The first asynchronous SGD with optimal
    time complexity" (arXiv 2501.16168), Algorithms 4 and 5.
    """
    stops = stop and r < math.inf

    def factor(ages: Each, push: Push, tau: int) -> float | None:
        return 1.0 if tau < r else None

    plain = each_push(factor, state=Ages if stops else Each)
    if not stops:
        return plain

    def on_push(ages: Ages, push: Push) -> tuple[Ages, Decision]:
        _, made = plain.on_push(ages, push)
        ages.begin(push.worker)
        old = ages.too_old(r) if made.apply else []
        for worker in old:
            ages.begin(worker)
        start = sorted([*made.start, *(Start(worker) for worker in old)])
        return ages, made._replace(cancel=old, start=start)

    def on_join(ages: Ages, worker: int, time: float) -> tuple[Ages, Decision]:
        ages.present.add(worker)
        ages.begin(worker)
        return ages, Decision(start=[Start(worker)])

    return plain._replace(on_push=on_push, on_join=on_join)
