"""Load rules: how the total batch of all workers is divided among them.

Most of them measure speeds: after each window of tasks `measuring` divides the batch again, by the weights
that the rule computes of what has arrived.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from dmlcore import calls, checks
from dmlcore.calls import named
from dmlcore.checks import at_least, for_each, not_negative, one_or_each, or_none
from dmlcore.types import Load, Push


def finish_together(
    speeds: Sequence[float], total: int, least: int, caps: Sequence[int], delays: Sequence[float]
) -> np.ndarray:
    """Returns shares (W,) clip(v_i (T - o_i), least, cap_i), for the T with which they sum to `total`.

    The sum does not fall as T grows, and it is linear between the times at which a worker reaches a bound. A
    bisection finds the interval between two such times, and T follows exactly. Arguments are as for
    `share_out`.

    >>> finish_together([100, 200, 400], 70, least=1, caps=[70, 70, 30], delays=[0, 0, 0])
    array([13.33333333, 26.66666667, 30.        ])
    """
    v, o, high = (np.asarray(each, float) for each in (speeds, delays, caps))
    o = o - o.min()
    times = np.sort(np.concatenate([o + least / v, o + high / v]))

    def shares(time: float) -> np.ndarray:
        return np.clip(v * (time - o), least, high)

    index = bisect_left(times, total, hi=len(times) - 1, key=lambda time: shares(time).sum())
    around = times[max(index - 1, 0) : index + 1]
    return shares(float(np.interp(total, [shares(time).sum() for time in around], around)))


def round_to_sum(shares: np.ndarray, total: int, least: int, caps: Sequence[int]) -> list[int]:
    """Rounds shares (W,) to whole numbers that sum to `total`: down, and up for the largest remainders.

    >>> round_to_sum(np.array([13.2, 26.5, 30.3]), 70, 1, [70, 70, 70])
    [13, 27, 30]
    """
    sizes = np.clip(np.floor(shares).astype(int), least, caps)
    while left := total - int(sizes.sum()):  # one pass changes a size by at most 1
        step, bound = (1, np.asarray(caps)) if left > 0 else (-1, np.full(len(sizes), least))
        order = np.argsort(step * (sizes - shares), kind="stable")
        sizes[order[(sizes != bound)[order]][: abs(left)]] += step
    return sizes.tolist()


def share_out(
    speeds: Sequence[float],
    total: int,
    *,
    least: int = 1,
    caps: Sequence[int] | None = None,
    delays: Sequence[float] | None = None,
) -> list[int]:
    """Divides samples among workers in proportion to speeds, or so that all finish at one time.

    Guarantees: the shares are whole numbers that sum to `total`; each is at least `least` and at most its
    cap.

    Args:
        speeds: v of each worker, shape (W,), samples/s, > 0. Without `delays` any weights serve.
        total: the number of samples to divide.
        least: the smallest share of a worker, in samples, >= 1.
        caps: the largest share of each worker, in samples, shape (W,). Default: None, no bound.
        delays: o of each worker, seconds in which it does not compute samples, shape (W,). Default: None, 0.

    Returns:
        The number of samples of each worker, W numbers.

    Raises:
        ValueError: no shares within the bounds sum to `total`.

    >>> share_out([100, 200, 400], 70)
    [10, 20, 40]
    >>> share_out([100, 200, 400], 70, delays=[0, 0, 0.1])
    [16, 31, 23]
    >>> share_out([100, 200, 400], 70, caps=[20, 20, 20])
    Traceback (most recent call last):
    ValueError: caps: expected room for the total batch of 70 samples, got [20, 20, 20], 60 in all
    """
    workers = len(speeds)
    if total < (needed := workers * least):
        checks.fail("total batch", total, f"at least {needed} ({least} for each of {workers} workers)")
    most = [total] * workers if caps is None else [min(cap, total) for cap in caps]
    for worker, cap in enumerate(most):
        if cap < least:
            checks.fail(f"caps[{worker}]", cap, f"a number >= {least} (the smallest batch)")
    if sum(most) < total:
        given = f"{[*(caps or most)]}, {sum(caps or most)} in all"
        checks.reject("caps", given, f"room for the total batch of {total} samples")
    shares = finish_together(speeds, total, least, most, [0.0] * workers if delays is None else delays)
    return round_to_sum(shares, total, least, most)


__all__ = ["LOADS", "resolve"]
__all__ += ["dynamic_batching", "equal", "equal_finish_time", "fixed", "lb_bsp", "speed_proportional"]

Caps = int | Sequence[int] | Callable[[int, int], int] | None
MOST_PUSHES = 2  # mean pushes per worker after which a window ends although some workers did not push


def check_caps(name: str, caps: Any) -> Caps:
    """Checks and returns the largest batch size: None, one number, one per worker (W,), or a function."""
    return caps if caps is None or callable(caps) else one_or_each(at_least(1))(name, caps)


BOUNDS: dict[str, Any] = {"least": at_least(1), "caps": check_caps}
check_alpha = partial(checks.real, above=0, high=1)  # weight of the newest value in a moving average


@dataclass
class Window:
    """The measurements since the batch was last divided, by worker."""

    missing: set[int]  # workers with fewer tasks than a window needs
    tasks: Counter[int] = field(default_factory=Counter)  # tasks that arrived
    samples: Counter[int] = field(default_factory=Counter)  # samples in these tasks
    seconds: dict[int, float] = field(default_factory=dict)  # seconds that the worker computed them
    pushes: int = 0  # pushes of all workers


@dataclass
class Shares:
    """State of a load rule that measures speeds."""

    total: int  # the total batch: samples in one task of every worker
    least: int  # smallest batch size of a task, in samples
    caps: tuple[Any, ...]  # largest batch size of each worker: None, a number or a function
    delays: Sequence[float] | None  # seconds in which each worker does not compute samples
    present: set[int]  # workers that are present
    sizes: list[int]  # batch size of each worker's next task, in samples
    window: Window  # measurements since the sizes were set
    averages: dict[int, float] = field(default_factory=dict)  # by worker, of the quantity that the rule uses
    weights: Sequence[float] | None = None  # sizes are in proportion to these; None: equal sizes
    windows: int = 0  # windows that have ended
    allocations: int = 0  # how often sizes were set: the `round` that functions of caps receive

    def cap(self, worker: int) -> int:
        """Returns the largest batch size that a worker may have now, in samples."""
        cap = self.caps[worker]
        if callable(cap):
            name = f"caps, worker {worker}, round {self.allocations}"
            cap = checks.integer(name, cap(worker, self.allocations), low=self.least)
        return self.total if cap is None else cap

    def average(self, alpha: float, measured: dict[int, float]) -> None:
        """Adds the measurements of a window, by worker, to the moving averages."""
        for worker, value in measured.items():
            before = self.averages.get(worker)
            self.averages[worker] = value if before is None else before + alpha * (value - before)

    def average_speeds(self, alpha: float, overheads: Sequence[float]) -> list[float] | None:
        """Returns the moving average of each worker's samples/s, without its overhead in seconds.

        A worker without a measurement has the lowest speed of the others. None: no worker has one.
        """
        seen = self.window
        computing = {w: seconds - seen.tasks[w] * overheads[w] for w, seconds in seen.seconds.items()}
        self.average(alpha, {w: seen.samples[w] / seconds for w, seconds in computing.items() if seconds > 0})
        lowest = min(self.averages.values(), default=None)
        return None if lowest is None else [self.averages.get(w, lowest) for w in range(len(self.sizes))]

    def distribute(self) -> "Shares":
        """Sets the sizes by the current weights, and begins a new window."""
        workers, weights = sorted(self.present), self.weights
        if workers:
            sizes = share_out(
                [1.0 if weights is None else weights[w] for w in workers],
                self.total,
                least=self.least,
                caps=[self.cap(w) for w in workers],
                delays=None if self.delays is None or weights is None else [self.delays[w] for w in workers],
            )
            for worker, size in zip(workers, sizes, strict=True):
                self.sizes[worker] = size
        self.allocations += 1
        self.window = Window(missing={*workers})
        return self


def measuring(
    weigh: Callable[[Shares], Sequence[float] | None],  # -> weights of all workers; None: no change
    least: int,
    caps: Caps,
    tasks: int = 1,
    delays: Callable[[int], Sequence[float]] | None = None,  # number of workers -> `Shares.delays`
) -> Load:
    """Returns the load rule that divides the batch by the weights that `weigh` computes after each window.

    A window ends when every worker present has pushed `tasks` times, and at the latest after twice as many
    pushes as that takes, because a worker whose tasks are always cancelled never pushes. The whole batch is
    then divided again among the workers present. It is also divided again when a worker leaves or joins.
    """
    for cap in caps if isinstance(caps, tuple) else [caps]:
        if isinstance(cap, int):
            checks.integer("caps", cap, low=least)

    def init(num_workers: int, total: int) -> Shares:
        each = checks.for_each("caps", caps, num_workers)
        idle = None if delays is None else delays(num_workers)
        present = {*range(num_workers)}
        return Shares(total, least, each, idle, present, [0] * num_workers, Window(set())).distribute()

    def observe(state: Shares, push: Push) -> Shares:
        window, worker = state.window, push.worker
        window.pushes += 1
        window.tasks[worker] += 1
        window.samples[worker] += push.samples
        window.seconds[worker] = window.seconds.get(worker, 0.0) + push.compute_seconds
        if window.tasks[worker] >= tasks:
            window.missing.discard(worker)
        if window.missing and window.pushes < MOST_PUSHES * tasks * len(state.present):
            return state
        state.windows += 1
        state.weights = weigh(state) or state.weights
        return state.distribute()

    def on_leave(state: Shares, worker: int) -> Shares:
        state.present.remove(worker)
        return state.distribute()

    def on_join(state: Shares, worker: int) -> Shares:
        state.present.add(worker)
        return state.distribute()

    return Load("", init, lambda state, worker: state.sizes[worker], observe, on_leave, on_join)


@named()
def equal() -> Load:
    """Gives every task the same number of samples: the total batch divided by the number of workers.

    Returns:
        The load rule.

    >>> load = equal()
    >>> load.size(load.init(8, 256), 0)
    32
    """
    return Load("", lambda num_workers, total: total // num_workers, lambda state, worker: state)


@named(sizes=one_or_each(at_least(1)))
def fixed(sizes: int | Sequence[int] = 32) -> Load:
    """Gives each worker tasks of a fixed size, such as its shard: policies weigh tasks by their samples.

    With local steps of B samples and `fixed(epochs * problem.shard_sizes)`, worker k takes epochs n_k / B
    steps, rounded up, and BSP weighs what it reaches by n_k / n, as FedAvg does. Unlike there, an epoch's
    samples are drawn with replacement.

    Args:
        sizes: samples of a task, >= 1; one number for all workers, or one per worker (W,).

    Returns:
        The load rule, for which the run's `batch_size` is that of a local step only.

    Raises:
        ValueError: a size is not a whole number >= 1; from `init`: there are not as many as workers.

    >>> import dmlcore as dml
    >>> problem = dml.problems.digits_mlp().sharded(dml.shards.dirichlet(4, 0.1))
    >>> fixed(problem.shard_sizes)
    fixed(sizes=[388, 447, 238, 364])

    Reference: McMahan et al. 2017, algorithm 1.
    """

    def init(num_workers: int, total: int) -> tuple[int, ...]:
        return for_each("sizes", sizes, num_workers)

    return Load("", init, lambda state, worker: state[worker])


check_seconds = one_or_each(not_negative)


@named(**BOUNDS, overhead=check_seconds, transfer=check_seconds, alpha=check_alpha, window=at_least(1))
def equal_finish_time(
    caps: Caps = None,
    *,
    overhead: float | Sequence[float] = 0.0,
    transfer: float | Sequence[float] = 0.0,
    alpha: float = 0.5,
    least: int = 1,
    window: int = 1,
) -> Load:
    """Chooses batch sizes from measured speeds so that all workers finish at one time T, within memory.

    T solves sum_i clip(v_i (T - o_i), least, cap_i) = B. Here v_i is the moving average of worker i's speed
    in samples per second of computation, o_i the seconds in which it does not compute samples, and B the
    total batch in samples. Sizes are rounded by the largest remainder. They are equal until every worker has
    pushed once, and are computed again each time that every worker has pushed again. Tasks in flight keep
    their size.

    Guarantees: the newest sizes of the workers present sum to B and are within their bounds. Without jitter,
    and with B large compared to rounding, the spread of finish times falls below 5% of a round within 10
    rounds of a change of speed by up to 8x. If `overhead` is left out although there is one, the measured
    speeds are too low, and it takes a few more rounds.

    Args:
        caps: the largest batch size of a worker, in samples, as its memory allows: one number for all
            workers, one per worker (W,), or a function (worker, round) -> samples, where `round` counts, from
            0, how often the batch has been divided. Default: None, no bound.
        overhead: fixed seconds per task that are part of the measured computing time; one number for all
            workers, or one per worker (W,).
        transfer: seconds per round that are not part of it, such as pull and push; one number or (W,).
        alpha: weight of the newest speed in its moving average, above 0 and at most 1.
        least: the smallest batch size in samples, >= 1.
        window: tasks of each worker between two changes, >= 1.

    Returns:
        The load rule.

    Raises:
        ValueError: a number is out of range; from `init`: no sizes within the bounds sum to B; from a run:
            caps shrink, or workers leave, until no sizes within the bounds sum to B.

    >>> equal_finish_time(caps=256)
    equal_finish_time(caps=256)
    >>> load = equal_finish_time(caps=[40, 100, 100])
    >>> state = load.init(3, 192)
    >>> [load.size(state, worker) for worker in range(3)]
    [40, 76, 76]

    Reference: Xian et al. 2024, "Heterogeneous-aware parameter server" (abstract); formulas reconstructed.
    """

    def delays(num_workers: int) -> list[float]:
        both = for_each("overhead", overhead, num_workers), for_each("transfer", transfer, num_workers)
        return [own + sent for own, sent in zip(*both, strict=True)]

    def weigh(state: Shares) -> list[float] | None:
        return state.average_speeds(alpha, for_each("overhead", overhead, len(state.sizes)))

    return measuring(weigh, least, caps, window, delays)


@named(**BOUNDS, warm_up=at_least(1), alpha=check_alpha, window=at_least(1))
def speed_proportional(
    caps: Caps = None, *, least: int = 1, warm_up: int = 1, alpha: float = 0.5, window: int = 1
) -> Load:
    """Chooses batch sizes in proportion to measured speeds, so that iterations take about equally long.

    b_i = clip(round(B P_i / sum(P)), least, cap_i), with the speed P_i of worker i in samples per second of
    computation and the total batch B in samples. The sizes sum to B: samples that a bound takes from one
    worker go to the others in proportion, and rounding is by the largest remainder. During the warm-up sizes
    are equal and P_i is a plain mean; after it P_i is a moving average.

    Guarantees: the newest sizes of the workers present sum to B and are within their bounds. Without
    overheads it is `equal_finish_time` with the same bounds.

    Args:
        caps, least: the paper's b_max and b_min, as for `equal_finish_time`.
        warm_up: number of windows before the first change, >= 1.
        alpha, window: as for `equal_finish_time`.

    Returns:
        The load rule.

    Raises:
        ValueError: a number is out of range; from `init`: no sizes within the bounds sum to B.

    >>> speed_proportional(least=8, warm_up=5)
    speed_proportional(least=8, warm_up=5)

    Reference: Ji et al. 2019, "Performance-aware dynamic batch size SGD" (abstract); formulas reconstructed.
    """

    def weigh(state: Shares) -> list[float] | None:
        newest = 1 / state.windows if state.windows <= warm_up else alpha
        speeds = state.average_speeds(newest, [0.0] * len(state.sizes))
        return speeds if state.windows >= warm_up else None

    return measuring(weigh, least, caps, window)


@named(**BOUNDS, dead_band=not_negative, alpha=check_alpha, window=at_least(1))
def dynamic_batching(
    caps: Caps = None, *, least: int = 1, dead_band: float = 0.05, alpha: float = 0.5, window: int = 1
) -> Load:
    """Multiplies each batch size by the mean iteration time over the worker's own: b <- b mean(t) / t.

    t is the worker's iteration time: its moving average of seconds per sample times its current batch size b.
    While no batch size would change by more than the dead band, all stay the same, because a new size may
    need a compilation. The sizes are scaled so that they sum to the total batch B.

    Guarantees: the newest sizes of the workers present sum to B and are within their bounds. Without jitter,
    the times of workers that are not at a bound converge until |mean(t) / t - 1| <= dead_band.

    Args:
        caps, least, window: as for `equal_finish_time`.
        dead_band: sizes stay the same while all would change by at most this fraction, >= 0.
        alpha: weight of the newest time in its moving average, above 0 and at most 1.

    Returns:
        The load rule.

    Raises:
        ValueError: a number is out of range; from `init`: no sizes within the bounds sum to B.

    >>> dynamic_batching(caps=128, dead_band=0.1)
    dynamic_batching(caps=128, dead_band=0.1)

    Reference: Tyagi and Sharma 2020, "Taming resource heterogeneity in distributed ML training with dynamic
    batching". The paper weights gradients by b / sum(b), as `bsp` does.
    """

    def weigh(state: Shares) -> list[float] | None:
        seen, sizes = state.window, state.sizes
        state.average(alpha, {w: time / seen.samples[w] for w, time in seen.seconds.items() if time > 0})
        times = {w: rate * sizes[w] for w, rate in sorted(state.averages.items())}
        known = [time for worker, time in times.items() if worker in state.present]
        if not known:
            return None
        mean, slowest = sum(known) / len(known), max(known)
        factors = [mean / times.get(worker, slowest) for worker in range(len(sizes))]
        if all(abs(factors[worker] - 1) <= dead_band for worker in state.present):
            return None
        return [size * factor for size, factor in zip(sizes, factors, strict=True)]

    return measuring(weigh, least, caps, window)


@named(**BOUNDS, step=or_none(at_least(1)), window=at_least(1))
def lb_bsp(caps: Caps = None, *, least: int = 1, step: int | None = None, window: int = 1) -> Load:
    """Balances batch sizes pair by pair: after each window the slowest worker gives samples to the fastest.

    The slowest worker is the one with the longest tasks in the window, the fastest the one with the shortest,
    among the workers whose bounds allow a change. The number of samples that move is the one with which both
    would finish together at their measured speeds, rounded down.

    Guarantees: the newest sizes of the workers present sum to the total batch B and are within their bounds.
    Without jitter, and while speeds stay the same, the longest task does not get longer from one window to
    the next, nor the shortest one shorter.

    Args:
        caps, least, window: as for `equal_finish_time`.
        step: the largest number of samples that move at once, >= 1. Default: None, no bound.

    Returns:
        The load rule.

    Raises:
        ValueError: a number is out of range; from `init`: no sizes within the bounds sum to B.

    >>> lb_bsp(step=8)
    lb_bsp(step=8)

    Reference: Chen et al. 2020, "Semi-dynamic load balancing" (SoCC). The paper also predicts speeds; here
    only the move of samples is implemented.
    """

    def weigh(state: Shares) -> list[float]:
        seen, sizes = state.window, list(state.sizes)
        workers = sorted(w for w in state.present if seen.seconds.get(w, 0.0) > 0)
        room = {w: state.cap(w) - sizes[w] for w in workers}
        rate = {w: seen.seconds[w] / seen.samples[w] for w in workers}  # seconds per sample
        time = {w: rate[w] * sizes[w] for w in workers}
        slow = max((w for w in workers if sizes[w] > least), key=lambda w: time[w], default=None)
        fast = min((w for w in workers if room[w] > 0), key=lambda w: time[w], default=None)
        if slow is not None and fast is not None and time[slow] > time[fast]:
            together = int((time[slow] - time[fast]) / (rate[slow] + rate[fast]))
            moved = min(together, sizes[slow] - least, room[fast], state.total if step is None else step)
            sizes[slow] -= moved
            sizes[fast] += moved
        return [float(size) for size in sizes]

    return measuring(weigh, least, caps, window)


LOADS: dict[str, Callable[[], Load]] = {
    rule.__name__: rule
    for rule in (equal, fixed, equal_finish_time, speed_proportional, dynamic_batching, lb_bsp)
}


def resolve(load: Load | str | None) -> Load:
    """Returns a load rule from an object, the call or name that makes it, or None.

    Args:
        load: a load rule; or the call that makes it, or its bare name, as a string. None: `equal()`.

    Returns:
        The load rule.

    Raises:
        ValueError: the string is not such a call, or an argument in it is wrong.

    >>> resolve("dynamic_batching(caps=128)").name
    'dynamic_batching(caps=128)'
    """
    if load is None or isinstance(load, Load):
        return load or equal()
    if not isinstance(load, str):
        hint = checks.calling(load) or "dml.loads.fixed(...), if these are sizes of tasks"
        checks.fail("load", load, f"a load rule, or the call of one: {', '.join(LOADS)}", hint)
    return calls.made("load", load, LOADS)
