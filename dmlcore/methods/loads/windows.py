"""Load rules that measure: they observe a window, then distribute the batch again."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dmlcore import checks
from dmlcore.methods.loads.sharing import share_out
from dmlcore.types import Load, Push

Caps = int | Sequence[int] | Callable[[int, int], int] | None
MOST_PUSHES = 2  # of a worker, on average, before a window ends although some workers did not push


def check_caps(name: str, caps: Any) -> Caps:
    """Returns the most samples of a task: None, one number, one for each worker, or a function."""
    if isinstance(caps, Iterable):
        return tuple(checks.integer(name, cap, low=1) for cap in caps)
    return caps if caps is None or callable(caps) else checks.integer(name, caps, low=1)


BOUNDS: dict[str, Any] = {"least": checks.at_least(1), "caps": check_caps}
check_alpha = partial(checks.real, above=0, high=1)  # weight of the newest value in a moving average


@dataclass
class Window:
    """What was measured since the batch was last distributed, of each worker."""

    missing: set[int]  # workers with too few tasks
    tasks: Counter[int] = field(default_factory=Counter)  # that arrived
    samples: Counter[int] = field(default_factory=Counter)  # in them
    seconds: dict[int, float] = field(default_factory=dict)  # that they were computed for
    pushes: int = 0  # of all workers


@dataclass
class Shares:
    """State of a load rule that measures."""

    total: int  # samples of one task of every worker
    least: int  # samples of a task
    caps: tuple[Any, ...]  # most samples of each worker's task: None, a number or a function
    delays: Sequence[float] | None  # seconds in which each worker computes no samples
    present: set[int]  # workers that are present
    sizes: list[int]  # samples of each worker's next task
    window: Window  # what was measured since the sizes were set
    averages: dict[int, float] = field(default_factory=dict)  # of what the rule measures, worker by worker
    weights: Sequence[float] | None = None  # to which sizes are in proportion; None: equal sizes
    windows: int = 0  # windows that have ended
    allocations: int = 0  # times that sizes were set: the round that functions of caps are given

    def cap(self, worker: int) -> int:
        """Returns the most samples that a worker's task may have now."""
        cap = self.caps[worker]
        if callable(cap):
            name = f"caps, worker {worker}, round {self.allocations}"
            cap = checks.integer(name, cap(worker, self.allocations), low=self.least)
        return self.total if cap is None else cap

    def average(self, alpha: float, measured: dict[int, float]) -> None:
        """Adds what was measured in the window to the moving averages."""
        for worker, value in measured.items():
            before = self.averages.get(worker)
            self.averages[worker] = value if before is None else before + alpha * (value - before)

    def average_speeds(self, alpha: float, overheads: Sequence[float]) -> list[float] | None:
        """Returns the moving averages of samples per second, overheads apart; the lowest where unmeasured."""
        seen = self.window
        computing = {w: seconds - seen.tasks[w] * overheads[w] for w, seconds in seen.seconds.items()}
        self.average(alpha, {w: seen.samples[w] / seconds for w, seconds in computing.items() if seconds > 0})
        lowest = min(self.averages.values(), default=None)
        return None if lowest is None else [self.averages.get(w, lowest) for w in range(len(self.sizes))]

    def distribute(self) -> "Shares":
        """Sets the sizes by the weights known now, and begins another window."""
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
    weigh: Callable[[Shares], Sequence[float] | None],  # -> weights of all workers; None: as before
    least: int,
    caps: Caps,
    tasks: int = 1,
    delays: Callable[[int], Sequence[float]] | None = None,  # number of workers -> `Shares.delays`
) -> Load:
    """Returns the load rule of a way to weigh workers.

    A window ends when every worker present has pushed `tasks` times, or after twice as many pushes as that
    takes, since a worker whose work is always cancelled never pushes. Then the whole batch is distributed
    again over the workers present; also when a worker leaves or joins.
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
