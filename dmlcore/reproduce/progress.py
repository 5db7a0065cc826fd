"""Progress of several notebooks: bars in a terminal, plain lines in a log."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TaskID, TextColumn
from rich.text import Text

from dmlcore.reproduce.runner import Outcome

COLORS = {"done": "green", "skipped": "dim", "failed": "red"}


@dataclass
class _State:
    cells: int
    plan: list[float] | None
    start: float = field(default_factory=time.monotonic)
    done: int = 0
    marked: float = 0.0

    def advance(self) -> None:
        self.done += 1
        self.marked = time.monotonic() - self.start

    def share(self) -> float:
        plan = self.plan or [1.0] * self.cells
        return sum(plan[: self.done]) / (sum(plan) or 1.0)

    def describe(self) -> str:
        """Cells and time; the time left is that of the cells to come, by plan or else by the pace so far."""
        elapsed = time.monotonic() - self.start
        text = f"cell {min(self.done + 1, self.cells)}/{self.cells}, {seconds(elapsed)}"
        if not self.plan and not self.done:
            return text
        plan = self.plan or [self.marked / self.done] * self.cells
        return f"{text}, about {seconds(max(self.marked + sum(plan[self.done :]) - elapsed, 0))} left"


def seconds(value: float) -> str:
    """Returns a duration for people.

    >>> seconds(4.2), seconds(75), seconds(4000)
    ('4 s', '1 min 15 s', '1 h 6 min')
    """
    minutes, rest = divmod(round(value), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Display:
    """Shows how notebooks get on: a `Watcher` for `runner.run`, used in a `with` block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._states: dict[str, _State] = {}
        self._bars: dict[str, TaskID] = {}
        self._spoken = 0.0
        self._lock = threading.Lock()
        self._progress = Progress(
            TextColumn("{task.fields[key]:<12}"),
            BarColumn(),
            _Described(self._states),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def started(self, key: str, cell_seconds: list[float] | None, cells: int) -> None:
        with self._lock:
            self._states[key] = _State(cells, cell_seconds)
            self._bars[key] = self._progress.add_task("", total=1.0, key=key)
            self._line(key, due=True)

    def advanced(self, key: str) -> None:
        with self._lock:
            state = self._states[key]
            state.advance()
            self._progress.update(self._bars[key], completed=state.share())
            self._line(key, due=time.monotonic() - self._spoken > 10)

    def ended(self, outcome: Outcome) -> None:
        if outcome.key in self._bars:
            self._progress.remove_task(self._bars[outcome.key])
        took = (
            f" in {seconds(outcome.seconds)}"
            if outcome.status != "skipped"
            else ": unchanged since its last run"
        )
        self._console.print(
            f"{outcome.key:<12} [{COLORS[outcome.status]}]{outcome.status}[/]{took}", highlight=False
        )
        if outcome.message:
            self._console.print(f"  {outcome.message}", markup=False, highlight=False, soft_wrap=True)

    def _line(self, key: str, due: bool) -> None:
        if due and not self._console.is_terminal:
            self._spoken = time.monotonic()
            self._console.print(f"{key:<12} {self._states[key].describe()}", highlight=False)


class _Described(TextColumn):
    def __init__(self, states: dict[str, _State]) -> None:
        super().__init__("")
        self._states = states

    def render(self, task: Task) -> Text:
        return Text(self._states[task.fields["key"]].describe())
