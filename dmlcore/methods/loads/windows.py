"""What load rules that measure have in common: they observe a window, then share the batch out anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dmlcore import checks
from dmlcore.methods.loads.sharing import share_out
from dmlcore.types import Load, Push

Caps = int | Sequence[int] | Callable[[int, int], int] | None
MOST_PUSHES = 2  # of a worker, on average, before a window ends without the workers that did not push


@dataclass
class Window:
    """What was measured since the batch was last shared out.

    Args:
        tasks: of each worker that arrived.
        samples: in them.
        seconds: that they were computed for.
        missing: workers with too few.
        pushes: of anybody.
    """

    tasks: list[int]
    samples: list[int]
    seconds: list[float]
    missing: set[int]
    pushes: int = 0

    @classmethod
    def of(cls, num_workers: int, present: set[int]) -> Window:
        """Returns an empty window."""
        return cls([0] * num_workers, [0] * num_workers, [0.0] * num_workers, {*present})

    def add(self, push: Push, enough: int) -> None:
        """Counts a push of a worker that is to make `enough`."""
        worker = push.worker
        self.tasks[worker] += 1
        self.samples[worker] += push.samples
        self.seconds[worker] += push.compute_seconds
        self.pushes += 1
        if self.tasks[worker] >= enough:
            self.missing.discard(worker)


@dataclass
class Shares:
    """State of a load rule that measures.

    Args:
        total: samples of all workers' tasks together.
        present: workers that are there.
        sizes: samples of each worker's next task.
        window: what was measured since they were shared out.
        averages: moving average of what the rule measures, for each worker; None: not measured yet.
        weights: by which the batch is shared out; None: equally, as nothing is known.
        windows: that have ended.
        allocations: made; the rounds that caps are asked for.
    """

    total: int
    present: set[int]
    sizes: list[int]
    window: Window
    averages: list[float | None]
    weights: list[float] | None = None
    windows: int = 0
    allocations: int = 0

    def average(self, alpha: float, measure: Callable[[int, int, float], float | None]) -> None:
        """Updates the moving average of each worker by the window.

        Args:
            alpha: weight of the newest.
            measure: worker, samples, seconds -> what is averaged; None: they say nothing.
        """
        window = self.window
        for worker, tasks in enumerate(window.tasks):
            found = measure(worker, window.samples[worker], window.seconds[worker]) if tasks else None
            if found is not None:
                before = self.averages[worker]
                self.averages[worker] = found if before is None else before + alpha * (found - before)

    def average_speeds(self, alpha: float, overheads: Sequence[float]) -> list[float] | None:
        """Returns moving averages of samples per second; a worker without one counts as the slowest.

        Args:
            alpha: weight of the newest.
            overheads: seconds of each worker's task in which it computes no samples.
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
    """How many samples a worker's task may have.

    Args:
        least: of every worker.
        caps: most samples, see `check_caps`.
    """

    least: int = 1
    caps: Caps = None

    @classmethod
    def checked(cls, least: int, caps: Caps) -> Bounds:
        """Returns the bounds that a rule's arguments ask for."""
        least = checks.integer("least", least, low=1)
        if isinstance(caps, Iterable):
            caps = tuple(checks.integer("caps", cap, low=least) for cap in caps)
        elif caps is not None and not callable(caps):
            caps = checks.integer("caps", caps, low=least)
        return cls(least, caps)

    def check(self, num_workers: int) -> None:
        """Raises ValueError where there are caps of another number of workers."""
        if isinstance(self.caps, tuple):
            checks.for_each("caps", self.caps, num_workers)

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

    def call(self, name: str, **options: tuple[Any, Any]) -> str:
        """Returns a rule's name: the call that makes it, with the arguments that are not the defaults.

        Args:
            name: of the function.
            options: its arguments besides the bounds, each with its default.

        >>> Bounds(least=2, caps=(4, 8)).call("rule", alpha=(0.5, 0.5), window=(3, 1))
        'rule(least=2, caps=[4, 8], window=3)'
        """
        caps = getattr(self.caps, "__name__", self.caps)
        options = {"least": (self.least, 1), "caps": (caps, None), **options}
        shown = {option: value for option, (value, default) in options.items() if value != default}
        given = (f"{k}={list(v) if isinstance(v, tuple) else v}" for k, v in shown.items())
        return f"{name}({', '.join(given)})"


@dataclass(frozen=True)
class Measuring:
    """What makes a load rule of a way to weigh.

    Within a window all sizes handed out are of one allocation. It ends when every present worker has pushed
    `tasks` times since. As the tasks of a slow worker may always be cancelled, it also ends when there were
    twice as many pushes as that takes. Then the rule weighs, and the whole batch is shared out anew over the
    present workers; also when a worker leaves or joins.

    Args:
        name: the call that makes the rule.
        weigh: state -> weights of all workers, from what was measured in `state.window`; None: as before.
        bounds: of the sizes.
        tasks: of each worker in a window.
        delays: number of workers -> seconds of each in which it computes no samples; None: there are none.
    """

    name: str
    weigh: Callable[[Shares], list[float] | None]
    bounds: Bounds
    tasks: int = 1
    delays: Callable[[int], Sequence[float]] | None = None

    def load(self) -> Load:
        """Returns the rule."""
        return Load(
            self.name, self._init, lambda state, w: state.sizes[w], self._observe, self._leave, self._join
        )

    def _init(self, num_workers: int, total: int) -> Shares:
        self.bounds.check(num_workers)
        present = {*range(num_workers)}
        window, no_sizes = Window.of(num_workers, present), [0] * num_workers
        return self._shared_out(Shares(total, present, no_sizes, window, [None] * num_workers))

    def _observe(self, state: Shares, push: Push) -> Shares:
        window = state.window
        window.add(push, self.tasks)
        if window.missing and window.pushes < MOST_PUSHES * self.tasks * len(state.present):
            return state
        state.windows += 1
        weights = self.weigh(state)
        state.weights = state.weights if weights is None else weights
        return self._shared_out(state)

    def _leave(self, state: Shares, worker: int) -> Shares:
        state.present.remove(worker)
        return self._shared_out(state)

    def _join(self, state: Shares, worker: int) -> Shares:
        state.present.add(worker)
        return self._shared_out(state)

    def _shared_out(self, state: Shares) -> Shares:
        """Shares the batch out by what is known now, and begins another window."""
        workers, weights = sorted(state.present), state.weights
        if workers:
            delays = None
            if self.delays is not None:
                each = self.delays(len(state.sizes))  # which are checked at the start
                delays = None if weights is None else [each[w] for w in workers]
            sizes = share_out(
                [1.0 if weights is None else weights[w] for w in workers],
                state.total,
                least=self.bounds.least,
                caps=self.bounds.of(workers, state.allocations),
                delays=delays,
            )
            for worker, size in zip(workers, sizes, strict=True):
                state.sizes[worker] = size
        state.allocations += 1
        state.window = Window.of(len(state.sizes), state.present)
        return state


def check_alpha(alpha: float) -> float:
    """Returns the weight of the newest in a moving average, if it is one."""
    return checks.real("alpha", alpha, above=0, high=1)
