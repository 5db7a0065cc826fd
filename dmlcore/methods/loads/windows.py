"""Load rules that measure: they observe a window, then distribute the batch again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dmlcore import checks
from dmlcore.methods.loads.sharing import share_out
from dmlcore.types import Load, Push

Caps = int | Sequence[int] | Callable[[int, int], int] | None
MOST_PUSHES = 2  # of a worker, on average, before a window ends although some workers did not push


@dataclass
class Window:
    """What was measured since the batch was last distributed."""

    tasks: list[int]  # of each worker that arrived
    samples: list[int]  # in them
    seconds: list[float]  # that they were computed for
    missing: set[int]  # workers with too few
    pushes: int = 0  # of all workers

    @classmethod
    def of(cls, num_workers: int, present: set[int]) -> Window:
        """Returns an empty window."""
        return cls([0] * num_workers, [0] * num_workers, [0.0] * num_workers, {*present})

    def add(self, push: Push, enough: int) -> None:
        """Counts a push; a worker with `enough` of them is no longer missing."""
        worker = push.worker
        self.tasks[worker] += 1
        self.samples[worker] += push.samples
        self.seconds[worker] += push.compute_seconds
        self.pushes += 1
        if self.tasks[worker] >= enough:
            self.missing.discard(worker)


@dataclass
class Shares:
    """State of a load rule that measures."""

    total: int  # samples of one task of every worker
    present: set[int]  # workers that are present
    sizes: list[int]  # samples of each worker's next task
    window: Window  # what was measured since the sizes were set
    averages: list[float | None]  # moving average of what the rule measures; None: nothing yet
    weights: list[float] | None = None  # to which sizes are in proportion; None: equal sizes
    windows: int = 0  # windows that have ended
    allocations: int = 0  # times that sizes were set: the round that functions of caps are given

    def average(self, alpha: float, measure: Callable[[int, int, float], float | None]) -> None:
        """Adds `measure(worker, samples, seconds)` of the window, where not None, to the moving averages."""
        window = self.window
        for worker, tasks in enumerate(window.tasks):
            found = measure(worker, window.samples[worker], window.seconds[worker]) if tasks else None
            if found is not None:
                before = self.averages[worker]
                self.averages[worker] = found if before is None else before + alpha * (found - before)

    def average_speeds(self, alpha: float, overheads: Sequence[float]) -> list[float] | None:
        """Returns the moving averages of samples per second, without the overhead of each task.

        A worker of which nothing was measured gets the lowest.
        """
        tasks = self.window.tasks

        def speed(worker: int, samples: int, seconds: float) -> float | None:
            seconds -= tasks[worker] * overheads[worker]
            return samples / seconds if seconds > 0 else None

        self.average(alpha, speed)
        known = [speed for speed in self.averages if speed is not None]
        return [min(known) if speed is None else speed for speed in self.averages] if known else None


@dataclass(frozen=True)
class Bounds:
    """How many samples a worker's task may have."""

    least: int = 1  # of every worker
    caps: Caps = None  # most samples, checked by `check_caps`

    def __post_init__(self) -> None:
        for cap in self.caps if isinstance(self.caps, tuple) else [self.caps]:
            if isinstance(cap, int):
                checks.integer("caps", cap, low=self.least)

    def of(self, workers: Sequence[int], allocation: int) -> list[int] | None:
        """Returns the caps of some workers now; None: there are none."""
        caps = self.caps
        if caps is None or isinstance(caps, int):
            return None if caps is None else [caps] * len(workers)
        if callable(caps):
            return [
                checks.integer(f"caps, worker {w}, round {allocation}", caps(w, allocation), low=self.least)
                for w in workers
            ]
        return [caps[w] for w in workers]


def of_each(name: str, value: Any, num_workers: int) -> Any:
    """Returns one value for each worker, where `value` is a tuple or a number."""
    if isinstance(value, float):
        return [value] * num_workers
    if isinstance(value, tuple) and len(value) != num_workers:
        checks.fail(name, f"{len(value)} values", f"one number, or one for each of {num_workers} workers")
    return value


def check_caps(name: str, caps: Any) -> Caps:
    """Returns the most samples of a task: None, one number, one for each worker, or a function."""
    if isinstance(caps, Iterable):
        return tuple(checks.integer(name, cap, low=1) for cap in caps)
    return caps if caps is None or callable(caps) else checks.integer(name, caps, low=1)


def check_alpha(name: str, alpha: Any) -> float:
    """Returns the weight of the newest value in a moving average, if it is in (0, 1]."""
    return checks.real(name, alpha, above=0, high=1)


def measuring(
    weigh: Callable[[Shares], list[float] | None],
    bounds: Bounds,
    tasks: int = 1,
    delays: Callable[[int], Sequence[float]] | None = None,
) -> Load:
    """Returns the load rule of a way to weigh workers.

    A window ends when every worker present has pushed `tasks` times, or after twice as many pushes as that
    takes, since a worker whose work is always cancelled never pushes. Then `weigh` returns the weights of all
    workers (None: as before), and the whole batch is distributed again over the workers present; also when a
    worker leaves or joins. `delays`: number of workers -> seconds in which each computes no samples.
    """

    def init(num_workers: int, total: int) -> Shares:
        of_each("caps", bounds.caps, num_workers)
        present, sizes = {*range(num_workers)}, [0] * num_workers
        window = Window.of(num_workers, present)
        return distribute(Shares(total, present, sizes, window, averages=[None] * num_workers))

    def observe(state: Shares, push: Push) -> Shares:
        window = state.window
        window.add(push, tasks)
        if window.missing and window.pushes < MOST_PUSHES * tasks * len(state.present):
            return state
        state.windows += 1
        weights = weigh(state)
        state.weights = state.weights if weights is None else weights
        return distribute(state)

    def on_leave(state: Shares, worker: int) -> Shares:
        state.present.remove(worker)
        return distribute(state)

    def on_join(state: Shares, worker: int) -> Shares:
        state.present.add(worker)
        return distribute(state)

    def distribute(state: Shares) -> Shares:
        """Sets the sizes by the weights known now, and begins another window."""
        workers, weights = sorted(state.present), state.weights
        if workers:
            seconds = None if delays is None else delays(len(state.sizes))  # checks them, at the start too
            sizes = share_out(
                [1.0 if weights is None else weights[w] for w in workers],
                state.total,
                least=bounds.least,
                caps=bounds.of(workers, state.allocations),
                delays=None if seconds is None or weights is None else [seconds[w] for w in workers],
            )
            for worker, size in zip(workers, sizes, strict=True):
                state.sizes[worker] = size
        state.allocations += 1
        state.window = Window.of(len(state.sizes), state.present)
        return state

    return Load("", init, lambda state, worker: state.sizes[worker], observe, on_leave, on_join)
