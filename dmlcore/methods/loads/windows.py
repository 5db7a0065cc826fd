"""Load rules that measure speeds: after each window of tasks they divide the batch again."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dmlcore import checks
from dmlcore.methods.loads.sharing import share_out
from dmlcore.types import Load, Push

Caps = int | Sequence[int] | Callable[[int, int], int] | None
MOST_PUSHES = 2  # mean pushes per worker after which a window ends although some workers did not push


def check_caps(name: str, caps: Any) -> Caps:
    """Checks and returns the largest batch size: None, one number, one per worker (W,), or a function."""
    if isinstance(caps, Iterable):
        return tuple(checks.integer(name, cap, low=1) for cap in caps)
    return caps if caps is None or callable(caps) else checks.integer(name, caps, low=1)


BOUNDS: dict[str, Any] = {"least": checks.at_least(1), "caps": check_caps}
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
