"""Policies that wait for K gradients, as in Dutta et al. 2018, section 2.

They differ in two respects. The K gradients come from any worker ("batch"), or one from each of K workers.
When the K-th arrives, the server cancels the tasks in flight ("sync"), or lets them finish, so that their
gradients arrive stale ("async"). A stale gradient is applied or dropped, as the policy says. Means are over
samples: a task of b samples has the weight b / sum(b) in its update, which is 1 / K if all batches are equal.
A round may have a deadline, after which it waits for fewer gradients.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from dmlcore import checks
from dmlcore.calls import named
from dmlcore.checks import at_least, not_negative, one_of
from dmlcore.methods.policies.damping import DAMPING, polynomial
from dmlcore.theory import Phase, Schedule
from dmlcore.types import NOTHING_YET, Decision, Policy, Push, Start


@dataclass
class Rounds:
    """State of a policy that waits for K gradients."""

    num_workers: int  # of the cluster
    k: int  # gradients to wait for, from the next round on
    batch_size: int | None = None  # samples per task, from the next round on. None: the load rule sets it
    seconds: float | None = None  # deadline, in seconds from the start of the round. None: no deadline
    fewest: int = 1  # gradients to wait for once the deadline has passed
    arrived: list[Push] = field(default_factory=list)  # pushes since the last update
    version: int = 0  # updates made

    def __post_init__(self) -> None:
        self.present = set(range(self.num_workers))
        self.needed = self.k  # gradients to wait for in this round
        self.resize()

    def resize(self) -> None:
        """Makes the starts of this round again, because its tasks have a new batch size."""
        self.size = self.batch_size
        self.starts = [Start(worker, self.size) for worker in range(self.num_workers)]


def wait_for_k(
    init: Callable[[int], Any],  # number of workers -> `Rounds`
    *,
    any_worker: bool,  # a worker may give several of the K gradients, and not only one
    cancels: bool,  # the server cancels the tasks in flight when the K-th gradient arrives
    drops: bool = False,  # the server drops gradients of older versions; needs `any_worker`
    damp: Callable[[int], float] = DAMPING["none"],  # staleness -> factor of a gradient's weight
    deadlines: bool = False,  # rounds may have a deadline
    begin: Callable[[Any, float], None] | None = None,  # sets `k` and `batch_size` of the round that begins
    **fields: Any,
) -> Policy:
    """Returns the policy that waits for K gradients; `fields` are further fields of `Policy`."""

    def complete(state: Rounds) -> bool:
        k = state.needed
        if not any_worker and k > len(state.present):
            # One gradient per worker: at most as many can come as workers are present or have pushed.
            k = min(k, len(state.present.union(push.worker for push in state.arrived)))
        return len(state.arrived) >= k and bool(state.present)

    def update(state: Rounds, idle: set[int], time: float) -> tuple[Rounds, Decision]:
        """Applies the pushes that arrived. `idle`: workers present that neither compute nor wait."""
        total = sum(push.samples for push in state.arrived)
        apply = [
            (push.worker, push.clock, push.samples / total * damp(state.version - push.version_read))
            for push in sorted(state.arrived)
        ]
        if not any_worker:
            idle = idle | {push.worker for push in state.arrived}
        if begin is not None:
            begin(state, time)
        state.needed, state.arrived = state.k, []
        state.version += 1
        if state.size != state.batch_size:
            state.resize()
        cancel = sorted(state.present - idle) if cancels else []
        free = state.present if cancels else state.present & idle
        start = [state.starts[worker] for worker in sorted(free)]
        return state, Decision(apply, (), cancel, start, timer(state))

    def timer(state: Rounds) -> tuple[float, int] | None:
        """Returns the timer of the round that begins, in seconds; its token is the round's version."""
        return None if state.seconds is None else (state.seconds, state.version)

    def on_wake(state: Rounds, version: int | None, time: float) -> tuple[Rounds, Decision]:
        if version is None:
            return state, Decision(wake=timer(state))
        if version != state.version:
            return state, NOTHING_YET  # that round ended before its deadline
        state.needed = min(state.needed, state.fewest)
        return update(state, set(), time) if complete(state) else (state, NOTHING_YET)

    def on_push(state: Rounds, push: Push) -> tuple[Rounds, Decision]:
        if drops and push.version_read < state.version:
            return state, Decision(drop=[(push.worker, push.clock)], start=(state.starts[push.worker],))
        state.arrived.append(push)
        if complete(state):
            return update(state, {push.worker}, push.time)
        return state, Decision(start=(state.starts[push.worker],)) if any_worker else NOTHING_YET

    def on_leave(state: Rounds, worker: int, time: float) -> tuple[Rounds, Decision]:
        state.present.remove(worker)
        return update(state, set(), time) if complete(state) else (state, NOTHING_YET)

    def on_join(state: Rounds, worker: int, time: float) -> tuple[Rounds, Decision]:
        state.present.add(worker)
        if complete(state):
            return update(state, {worker}, time)
        waits = not any_worker and any(push.worker == worker for push in state.arrived)
        return state, Decision(start=() if waits else (state.starts[worker],))

    lock_step = 0 if cancels and not any_worker else None
    if deadlines:
        fields["on_wake"] = on_wake
    return Policy("", init, on_push, lock_step, on_leave, on_join, **fields)


def fixed_k(k: int, *, any_worker: bool, cancels: bool, **rest: Any) -> Policy:
    """Returns the policy that waits for `k` gradients in every round; `rest` goes to `wait_for_k`."""

    def init(num_workers: int) -> Rounds:
        if not any_worker:
            check_enough(num_workers, k=k)
        return Rounds(num_workers, k)

    return wait_for_k(init, any_worker=any_worker, cancels=cancels, **rest)


def check_enough(num_workers: int, **numbers: int | None) -> None:
    """Raises ValueError if one of `numbers` exceeds the number of workers."""
    for name, number in numbers.items():
        if number is not None:
            checks.integer(name, number, low=1, high=num_workers, why="the number of workers")


def seconds_or_inf(name: str, value: float) -> float:
    """Returns a time limit in seconds: a number > 0, or `math.inf` for no limit."""
    return checks.real(name, value, above=0)


@named(k=at_least(1))
def k_sync(k: int) -> Policy:
    """K-sync: a round applies the mean of the first `k` workers' gradients and cancels the rest.

    As in `bsp` the mean is over samples: a task of b samples has the weight b / sum(b).

    Guarantees: staleness 0. With exponential task times of rate m and P workers a round takes
    (H_P - H_{P-k}) / m on average, where H_n is the n-th harmonic number. `k_sync(num_workers)` is `bsp()`.

    Args:
        k: the paper's K, gradients per update, 1 to the number of workers.

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock.

    Raises:
        ValueError: `k` is not a whole number >= 1; from `init`: it exceeds the number of workers.

    >>> k_sync(4)
    k_sync(k=4)

    Reference: Dutta et al. 2018, "Slow and stale gradients can win the race", section 2; backup workers are
    the same rule (Chen et al. 2016): `backup(b)` is `k_sync(num_workers - b)`.
    """
    return fixed_k(k, any_worker=False, cancels=True)


@named(k=at_least(1))
def k_batch_sync(k: int) -> Policy:
    """K-batch-sync: a round applies the mean of the first `k` mini-batches of any workers.

    A worker that finishes early starts another mini-batch on the same version. At the `k`-th push the server
    cancels all tasks in flight. `rennala(k)` cancels nothing, and drops late gradients when they arrive; if
    workers differ in speed, its rounds are longer.

    Guarantees: staleness 0. With exponential task times of rate m a round takes k / (P m) on average.

    Args:
        k: mini-batches per update, >= 1; may exceed the number of workers.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `k` is not a whole number >= 1.

    >>> k_batch_sync(4)
    k_batch_sync(k=4)

    Reference: Dutta et al. 2018, section 2.
    """
    return fixed_k(k, any_worker=True, cancels=True)


@named(k=at_least(1))
def k_async(k: int) -> Policy:
    """K-async: an update is the mean of the first `k` workers' gradients; the other workers continue.

    The `k` workers wait for each other and start again from the new version.

    Guarantees: every update consists of one gradient from each of `k` workers. `k_async(1)` is `asp()`.

    Args:
        k: gradients per update, 1 to the number of workers.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `k` is not a whole number >= 1; from `init`: it exceeds the number of workers.

    >>> k_async(4)
    k_async(k=4)

    Reference: Dutta et al. 2018, section 2.
    """
    return fixed_k(k, any_worker=False, cancels=False)


@named(k=at_least(1))
def k_batch_async(k: int) -> Policy:
    """K-batch-async: an update is the mean of any `k` mini-batches; no work is cancelled.

    Each worker starts its next mini-batch immediately, on the newest version.

    Guarantees: no worker waits. With exponential task times of rate m an update takes k / (P m) on average.
    `k_batch_async(1)` is `asp()`.

    Args:
        k: mini-batches per update, >= 1; may exceed the number of workers.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `k` is not a whole number >= 1.

    >>> k_batch_async(4)
    k_batch_async(k=4)

    Reference: Dutta et al. 2018, section 2.
    """
    return fixed_k(k, any_worker=True, cancels=False)


@named(n=at_least(1), damping=one_of(*DAMPING))
def n_softsync(n: int, *, damping: str = "none") -> Policy:
    """n-softsync: an update is the mean of any floor(P / n) gradients of P workers; no worker waits.

    The weight of each gradient in the mean is multiplied by damping(tau), where tau is its staleness in
    updates.

    Guarantees: `n_softsync(P)` is `asp(damping=damping)`; without damping `n_softsync(n)` is
    `k_batch_async(P // n)`. With equal workers the mean staleness over gradients is about n.

    Args:
        n: the number of updates in the time in which each worker pushes once, from 1 to the number of
            workers.
        damping: "none", factor 1; "reciprocal", 1 / max(tau, 1), which is the paper's alpha_0 / tau, and
            alpha_0 for tau = 0; or "inverse", 1 / (1 + tau).

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `n` is not a whole number >= 1, or `damping` is not one of those listed; from `init`: `n`
            exceeds the number of workers.

    >>> n_softsync(4, damping="reciprocal")
    n_softsync(n=4, damping='reciprocal')

    Reference: Zhang, Gupta, Lian and Liu 2016, "Staleness-aware async-SGD for distributed deep learning",
    section 3.
    """

    def init(num_workers: int) -> Rounds:
        check_enough(num_workers, n=n)
        return Rounds(num_workers, num_workers // n)

    return wait_for_k(init, any_worker=True, cancels=False, damp=DAMPING[damping])


@named(s=at_least(1))
def rennala(s: int) -> Policy:
    """Rennala SGD: an update is the mean of `s` gradients of the newest version; others are dropped.

    One worker may give several of the `s` gradients. The server drops a late gradient, one of an older
    version, when it arrives. It cancels nothing: a worker finishes its task and starts again from the newest
    version, whether its gradient was used or dropped. `k_batch_sync(s)` cancels late tasks instead.

    Guarantees: applied gradients have staleness 0, and no worker waits. If a task of worker i takes tau_i
    seconds, ascending in i, and links take no time, an update takes at most

        min over m of (s + 2 m) / sum_{i <= m} 1 / tau_i

    seconds, because after T seconds worker i has finished its late task and floor(T / tau_i) - 1 others. That
    is at most twice t(s) = min over m of (s + m) / sum_{i <= m} 1 / tau_i. No method that waits for s
    gradients of one version is faster than t(s) by more than a constant factor. `rennala(1)` is
    `ringmaster(1)`.

    Args:
        s: the paper's S, gradients per update, >= 1. The theory uses max(1, ceil(sigma^2 / eps)), where
            sigma^2 is the variance of a gradient and eps the target for the squared norm of its mean.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `s` is not a whole number >= 1.

    >>> rennala(4)
    rennala(s=4)

    Reference: Tyurin and Richtarik 2023, "Optimal time complexities of parallel stochastic optimization
    methods under a fixed computation model", the section on Rennala SGD and its time complexity.
    """
    return fixed_k(s, any_worker=True, cancels=False, drops=True)


@named(k=at_least(1), alpha=not_negative)
def fedbuff(k: int, alpha: float = 0.5) -> Policy:
    """FedBuff: an update is the mean of `k` pushes, each reduced by its staleness; no worker waits.

    A push of staleness tau, in updates, has the weight (1 + tau)^-alpha / k in its update; if batch sizes
    differ, b / sum(b) replaces 1 / k, for a push of b samples and the sum over the update. A push is a
    gradient, or with `dml.local_steps` the difference that several local steps make.

    Guarantees: no worker waits; the weights of an update sum to at most 1. `fedbuff(k, 0)` is
    `k_batch_async(k)`.

    Args:
        k: the paper's K, the number of pushes in the buffer, >= 1; may exceed the number of workers.
        alpha: exponent of the staleness, >= 0. Default: 0.5, the paper's factor 1 / sqrt(1 + tau).

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    Raises:
        ValueError: `k` or `alpha` is out of range.

    >>> fedbuff(10), fedbuff(10, 0)
    (fedbuff(k=10), fedbuff(k=10, alpha=0.0))

    Reference: Nguyen et al. 2022, "Federated learning with buffered asynchronous aggregation", Algorithm 1
    and the staleness scaling of its experiments. Its secure aggregation is left out.
    """
    return fixed_k(k, any_worker=True, cancels=False, damp=polynomial(alpha))


@named(b=checks.at_least(0), timeout=checks.or_none(checks.positive))
def backup(b: int, timeout: float | None = None) -> Policy:
    """Backup workers: a round ends with the first P - b pushes of P workers, or else at a timeout.

    The update is the mean of these gradients, over samples as in `bsp`. The server cancels the tasks of the
    other workers, and all workers begin the next round. With a timeout, a round ends at the latest `timeout`
    seconds after it began, with the pushes that have arrived by then, but never before its first push. If
    fewer than P - b workers are present, a round ends with the pushes of all of them.

    Guarantees: staleness 0; with a timeout no round takes longer, unless it waits for its first push.
    `backup(b)` is `k_sync(P - b)`, `backup(0)` is `bsp()`, and `backup(0, timeout=d)` is `deadline(d)`. With
    exponential task times of rate m and no timeout a round takes (H_P - H_b) / m on average, where H_n is
    the n-th harmonic number.

    Args:
        b: the paper's b, the number of workers that a round does not wait for, from 0 to the number of
            workers less 1. The paper counts N + b workers, where we write P.
        timeout: in seconds from the start of a round, > 0, including pulls and pushes. Default: None, no
            timeout.

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock. With a timeout it sets a timer
        for every round.

    Raises:
        ValueError: `b` or `timeout` is out of range; from `init`: `b` is not less than the number of workers.

    >>> backup(2), backup(2, timeout=0.5)
    (backup(b=2), backup(b=2, timeout=0.5))

    Reference: Chen, Pan, Monga, Bengio and Jozefowicz 2016, "Revisiting distributed synchronous SGD", section
    3. The timeout is our addition.
    """

    def init(num_workers: int) -> Rounds:
        checks.integer("b", b, low=0, high=num_workers - 1, why="the number of workers minus 1")
        return Rounds(num_workers, num_workers - b, seconds=timeout)

    return wait_for_k(init, any_worker=False, cancels=True, deadlines=timeout is not None)


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
        check_enough(num_workers, at_least=at_least)
        return Rounds(num_workers, num_workers, seconds=seconds, fewest=at_least)

    return wait_for_k(init, any_worker=False, cancels=late == "cancel", deadlines=True)


def _rows(name: str, phases: Any) -> list[tuple]:
    """Checks the phases and returns them: (start, k) of each, or (start, k, batch size) of each."""
    phases = phases.phases if isinstance(phases, Schedule) else phases
    if not isinstance(phases, Iterable):
        checks.fail(name, phases, "a list of (start, k) or (start, k, batch size), or a theory.Schedule")
    rows = [_row(f"{name}[{index}]", phase) for index, phase in enumerate(phases)]
    starts = [row[0] for row in rows]
    if not rows or starts[0] != 0 or starts != sorted(starts):
        checks.fail(f"{name}, starts", starts, "at least one, ascending, the first at 0")
    if len({len(row) for row in rows}) > 1:
        given = [(*row, None)[2] for row in rows]
        checks.fail(f"{name}, batch sizes", given, "one for every phase, or none at all")
    return rows


def _row(name: str, phase: Any) -> tuple:
    phase = phase[:3] if isinstance(phase, Phase) else phase
    if not hasattr(phase, "__len__") or len(phase) not in (2, 3):
        checks.fail(name, phase, "(start, k) or (start, k, batch size)")
    start, k, size = (*phase, None)[:3]
    row = checks.real(f"{name}, start", start, low=0), checks.integer(f"{name}, k", k, low=1)
    return row if size is None else (*row, checks.integer(f"{name}, batch size", size, low=1))


@named(bare=True, phases=_rows)
def k_sync_schedule(phases: Iterable[Any] | Schedule) -> Policy:
    """K-sync with a k and batch size that follow a schedule over time; a round keeps those of its start.

    Guarantees: staleness 0. With one phase and no batch size it is `k_sync(k)`; if that k is the number of
    workers, it is `bsp()`. With a schedule of `dmlcore.theory` the policy is an oracle, because such a
    schedule needs constants that are known only after the training.

    Args:
        phases: a list of (start in seconds, k), or of (start in seconds, k, batch size in samples), in
            ascending order of their starts, the first at 0; or a `theory.Schedule`. With batch sizes the load
            rule has no effect.

    Returns:
        The policy. Its `max_lead` is 0: no worker leads another by a clock. If phases have batch sizes, it
        sets the batch size of every task.

    Raises:
        ValueError: there is no phase, the starts are not in ascending order, only some phases have batch
            sizes, or a number is out of range; from `init`: a k exceeds the number of workers.

    >>> k_sync_schedule([(0, 2), (10, 4)])
    k_sync_schedule([(0.0, 2), (10.0, 4)])

    Reference: Kas Hanna et al. 2020, section 3 (k); Egger et al. 2023 (k and b).
    """
    rows: Any = phases
    starts = [row[0] for row in rows]
    sizes = tuple(sorted({row[2] for row in rows if len(row) == 3}))

    def at(time: float) -> tuple[int, int | None]:
        _, k, *size = rows[bisect_right(starts, time) - 1]
        return k, size[0] if size else None

    def init(num_workers: int) -> Rounds:
        for row in rows:
            check_enough(num_workers, k=row[1])
        return Rounds(num_workers, *at(0.0))

    def begin(state: Rounds, time: float) -> None:
        state.k, state.batch_size = at(time)

    return wait_for_k(init, any_worker=False, cancels=True, begin=begin, batch_size=at(0.0)[1], sizes=sizes)


@dataclass
class Table:
    """State of Ringleader ASGD: the gradients of each worker."""

    present: set[int]  # workers that are present
    pushes: dict[int, list[Push]] = field(default_factory=dict)  # by worker, pushes since the last update

    def take(self) -> list[tuple[int, int, float]]:
        """Returns the next update and empties the table, if every worker present has pushed; else []."""
        if not self.present or not self.present <= self.pushes.keys():
            return []
        apply = []
        for worker, pushes in sorted(self.pushes.items()):
            total = sum(push.samples for push in pushes) * len(self.pushes)
            apply += [(worker, push.clock, push.samples / total) for push in pushes]
        self.pushes = {}
        return apply


@named()
def ringleader() -> Policy:
    """Ringleader ASGD: the server averages gradients per worker, and an update is the mean of these averages.

    No worker waits: it starts again from the newest version as soon as its gradient has arrived. The server
    makes an update when every worker present has given at least one gradient. Each of the n workers then has
    the weight 1 / n, however many gradients it gave; within a worker the mean is over samples. So if workers
    have different data, fast workers do not bias the model towards their own.

    Guarantees: staleness is at most 1; the time between two updates is at most the longest task of a worker
    present. If all tasks take equally long, every worker gives one gradient per update, as in `bsp`.

    What differs from the paper: there a round first waits until every worker has given a gradient (phase 1).
    It then makes n updates from the same table of gradients, one for each worker, when the gradient that the
    worker was computing arrives and the worker starts again (phase 2). So a gradient is used in up to n
    updates. Here a gradient is used once, and one update replaces the n updates of a round. The corresponding
    learning rate is n times the paper's; gradients that arrive in phase 2 belong to the next table; and the
    delay, up to 2 n - 2 updates in the paper, is at most 1. The same as in the paper are the wait for every
    worker, the weights, and that workers start again from the newest version.

    Returns:
        The policy. Its `max_lead` is None: it declares no bound on the lead of a worker.

    >>> ringleader()
    ringleader()

    Reference: Maranjyan and Richtarik 2025, "Ringleader ASGD: The first asynchronous SGD with optimal time
    complexity under data heterogeneity" (arXiv 2509.22860), Algorithm 1.
    """

    def init(num_workers: int) -> Table:
        return Table({*range(num_workers)})

    def on_push(table: Table, push: Push) -> tuple[Table, Decision]:
        table.pushes.setdefault(push.worker, []).append(push)
        return table, Decision(table.take(), start=[Start(push.worker)])

    def on_leave(table: Table, worker: int, time: float) -> tuple[Table, Decision]:
        table.present.remove(worker)
        return table, Decision(table.take())

    def on_join(table: Table, worker: int, time: float) -> tuple[Table, Decision]:
        table.present.add(worker)
        return table, Decision(start=[Start(worker)])

    return Policy("", init, on_push, None, on_leave, on_join)
