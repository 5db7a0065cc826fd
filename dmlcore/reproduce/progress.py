"""Progress of several notebooks: bars in a terminal, plain lines in a log."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn

COLORS = {"done": "green", "skipped": "dim", "failed": "red"}
LINE_SECONDS = 10  # shortest time between two lines of a log


def seconds(value: float) -> str:
    """Returns a duration as text.

    >>> seconds(4.2), seconds(75), seconds(4000)
    ('4 s', '1 min 15 s', '1 h 6 min')
    """
    minutes, rest = divmod(round(value), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job."""

    key: str  # of the paper
    status: Literal["done", "skipped", "failed"]  # skipped: the results of the same inputs exist already
    seconds: float = 0.0  # duration of the job
    message: str = ""  # for a failure, the error and where to look


class Display(Progress):
    """Shows the progress of notebooks, in a `with` block; several threads may call its methods."""

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TextColumn("{task.fields[done]}/{task.fields[cells]} cells"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        # The speed is estimated over an hour, because a cell may take minutes.
        hidden = not console.is_terminal
        super().__init__(*columns, console=console, disable=hidden, speed_estimate_period=3600)
        self._spoken = 0.0
        self._pictured = False

    def started(self, key: str, cell_seconds: list[float] | None, cells: int) -> None:
        """Shows that a notebook starts; its cells are weighted by their expected seconds, if known."""
        plan = cell_seconds or [1.0] * cells
        self.add_task(key, total=sum(plan) or 1.0, done=0, cells=cells, plan=plan)
        self._line(key)

    def advanced(self, key: str, folder: Path) -> None:
        """Shows that one more code cell is finished, and says where the first picture of all jobs is.

        The picture is shown as soon as there is one: a notebook saves its own in `folder`.
        """
        task = self._task(key)
        done = task.fields["done"]
        self.update(task.id, advance=task.fields["plan"][done], done=done + 1)
        if time.monotonic() - self._spoken > LINE_SECONDS:
            self._line(key)
        if not self._pictured and (pictures := sorted(folder.glob("*.[ps][nv]g"))):
            self._pictured = True
            self.console.print(f"{key:<12} first picture: {pictures[0]}", soft_wrap=True)

    def ended(self, outcome: Outcome) -> None:
        """Shows that a job has ended, or was skipped."""
        for task in [task for task in self.tasks if task.description == outcome.key]:
            self.remove_task(task.id)
        skipped = outcome.status == "skipped"
        took = ": unchanged since its last run" if skipped else f" in {seconds(outcome.seconds)}"
        status = f"[{COLORS[outcome.status]}]{outcome.status}[/]"
        self.console.print(f"{outcome.key:<12} {status}{took}")
        if outcome.message:
            self.console.print(f"  {outcome.message}", markup=False, soft_wrap=True)

    def _task(self, key: str) -> Task:
        return next(task for task in self.tasks if task.description == key)

    def _line(self, key: str) -> None:
        """Writes the state of a job to a log, where a terminal would show a bar."""
        if self.console.is_terminal:
            return
        self._spoken = time.monotonic()
        task = self._task(key)
        left = "" if task.time_remaining is None else f", about {seconds(task.time_remaining)} left"
        said = f"{task.fields['done']}/{task.fields['cells']} cells, {seconds(task.elapsed or 0)}{left}"
        self.console.print(f"{key:<12} {said}")
