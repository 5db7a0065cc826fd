"""Progress of several notebooks: bars in a terminal, plain lines in a log."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dmlcore.reproduce.runner import Outcome

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


class Display:
    """Shows the progress of notebooks: a `Watcher` for `runner.run`, used in a `with` block."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: dict[str, TaskID] = {}
        self._spoken = 0.0
        self._progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TextColumn("{task.fields[done]}/{task.fields[cells]} cells"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            speed_estimate_period=3600,  # a cell may take minutes
        )

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def started(self, key: str, cell_seconds: list[float] | None, cells: int) -> None:
        plan = cell_seconds or [1.0] * cells  # cells count by the seconds that they should take, if known
        total = sum(plan) or 1.0
        self._bars[key] = self._progress.add_task(key, total=total, done=0, cells=cells, plan=plan)
        self._line(key)

    def advanced(self, key: str) -> None:
        fields = self._task(key).fields
        done = fields["done"]
        self._progress.update(self._bars[key], advance=fields["plan"][done], done=done + 1)
        if time.monotonic() - self._spoken > LINE_SECONDS:
            self._line(key)

    def ended(self, outcome: Outcome) -> None:
        if outcome.key in self._bars:
            self._progress.remove_task(self._bars[outcome.key])
        skipped = outcome.status == "skipped"
        took = ": unchanged since its last run" if skipped else f" in {seconds(outcome.seconds)}"
        status = f"[{COLORS[outcome.status]}]{outcome.status}[/]"
        self._console.print(f"{outcome.key:<12} {status}{took}", highlight=False)
        if outcome.message:
            self._console.print(f"  {outcome.message}", markup=False, highlight=False, soft_wrap=True)

    def _task(self, key: str) -> Task:
        return next(task for task in self._progress.tasks if task.id == self._bars[key])

    def _line(self, key: str) -> None:
        """Writes to a log what the bar shows in a terminal."""
        if self._console.is_terminal:
            return
        self._spoken = time.monotonic()
        task = self._task(key)
        left = "" if task.time_remaining is None else f", about {seconds(task.time_remaining)} left"
        said = f"{task.fields['done']}/{task.fields['cells']} cells, {seconds(task.elapsed or 0)}{left}"
        self._console.print(f"{key:<12} {said}", highlight=False)
