"""Progress of several notebooks: bars in a terminal, plain lines in a log."""

import time
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn

COLORS = {"done": "green", "skipped": "dim", "failed": "red"}
LINE_SECONDS = 10  # between two lines of a log, at least


def seconds(value: float) -> str:
    """Returns a duration for people.

    >>> seconds(4.2), seconds(75), seconds(4000)
    ('4 s', '1 min 15 s', '1 h 6 min')
    """
    minutes, rest = divmod(round(value), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@dataclass(frozen=True)
class Outcome:
    """How a job ended."""

    key: str  # of the paper
    status: Literal["done", "skipped", "failed"]  # skipped: a run with the same inputs is there already
    seconds: float = 0.0  # how long it took
    message: str = ""  # for a failure, what went wrong and where to look


class Display(Progress):
    """Shows the progress of notebooks, in a `with` block; its methods are called from several threads."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TextColumn("{task.fields[done]}/{task.fields[cells]} cells"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        # A cell may take minutes: the speed is estimated over an hour.
        hidden = not console.is_terminal
        super().__init__(*columns, console=console, disable=hidden, speed_estimate_period=3600)
        self._spoken = 0.0

    def started(self, key: str, cell_seconds: list[float] | None, cells: int) -> None:
        """A notebook with so many code cells starts; they count by their expected times, if known."""
        plan = cell_seconds or [1.0] * cells
        self.add_task(key, total=sum(plan) or 1.0, done=0, cells=cells, plan=plan)
        self._line(key)

    def advanced(self, key: str) -> None:
        """One more code cell is done."""
        task = self._task(key)
        done = task.fields["done"]
        self.update(task.id, advance=task.fields["plan"][done], done=done + 1)
        if time.monotonic() - self._spoken > LINE_SECONDS:
            self._line(key)

    def ended(self, outcome: Outcome) -> None:
        """A job has ended, or was skipped."""
        for task in [task for task in self.tasks if task.description == outcome.key]:
            self.remove_task(task.id)
        skipped = outcome.status == "skipped"
        took = ": unchanged since its last run" if skipped else f" in {seconds(outcome.seconds)}"
        status = f"[{COLORS[outcome.status]}]{outcome.status}[/]"
        self.console.print(f"{outcome.key:<12} {status}{took}", highlight=False)
        if outcome.message:
            self.console.print(f"  {outcome.message}", markup=False, highlight=False, soft_wrap=True)

    def _task(self, key: str) -> Task:
        return next(task for task in self.tasks if task.description == key)

    def _line(self, key: str) -> None:
        """Writes to a log what the bar shows in a terminal."""
        if self.console.is_terminal:
            return
        self._spoken = time.monotonic()
        task = self._task(key)
        left = "" if task.time_remaining is None else f", about {seconds(task.time_remaining)} left"
        said = f"{task.fields['done']}/{task.fields['cells']} cells, {seconds(task.elapsed or 0)}{left}"
        self.console.print(f"{key:<12} {said}", highlight=False)
