"""What a study may spend, and what it has decided so far, so that the same call goes on and decides alike."""

import collections
import contextlib
import json
import numbers
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from dmlcore import checks, files


@dataclass
class Spending:
    """The runs and the seconds that a study spends, within its budget.

    Args:
        runs: largest number of runs of each method. None: seconds decide.
        seconds: seconds of computing for all methods together. None: runs decide.
        path: file of the decisions, or None.
        made: method -> number of its runs.
        interrupted: whether Ctrl-C was pressed.
        advance: called with the number of runs that were made.
    """

    runs: int | None
    seconds: float | None
    path: Path | None = None
    made: collections.Counter[str] = field(default_factory=collections.Counter)
    interrupted: bool = False
    advance: Callable[[int], None] = lambda number: None
    _began: float = field(default_factory=time.monotonic)
    _decided: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Goes on from the decisions of an earlier call; none if there are none, or the file is damaged."""
        if self.path is not None and self.path.is_file():
            with contextlib.suppress(ValueError, TypeError):
                known = dict(json.loads(self.path.read_text(encoding="utf-8")))
                self._began -= float(known.get("spent", 0.0))
                self._decided = known

    def count(self, runs: Mapping[str, int]) -> None:
        """Adds runs of methods that were made."""
        self.made.update(runs)
        self.advance(sum(runs.values()))

    def room(self) -> int:
        """Returns how many more runs each method may have; a large number if seconds decide."""
        return sys.maxsize if self.runs is None else self.runs - max(self.made.values(), default=0)

    @property
    def spent(self) -> float:
        """Seconds of computing, with those of an earlier call from which this one goes on."""
        return time.monotonic() - self._began

    @property
    def per_run(self) -> float:
        """Seconds of computing per run so far."""
        return self.spent / max(sum(self.made.values()), 1)

    def left(self) -> float:
        """Seconds of the budget that are left; inf if runs decide."""
        return float("inf") if self.seconds is None else self.seconds - self.spent

    def once(self, key: str, decide: Callable[[], Any]) -> Any:
        """Returns what was decided for a key, by this call or an earlier one that was interrupted."""
        if key not in self._decided:
            self._decided[key] = decide()
            self._decided["spent"] = self.spent
            if self.path is not None:
                files.write(self.path, json.dumps(self._decided))
        return self._decided[key]

    def affords(self, key: str, wanted: Mapping[str, int], reserve: int = 0) -> bool:
        """Returns whether to make further runs of methods, and still `reserve` of each method afterwards.

        Args:
            key: of the decision.
            wanted: method -> number of further runs.
            reserve: of each method.
        """
        if self.interrupted:
            return False
        if self.runs is not None:
            return all(self.made[name] + count + reserve <= self.runs for name, count in wanted.items())
        cost = (sum(wanted.values()) + reserve * len(self.made)) * self.per_run
        return bool(self.once(key, lambda: cost <= self.left()))


def check_budget(budget: Any) -> tuple[int | None, float | None]:
    """Returns a budget as runs or as seconds of each method.

    >>> check_budget(100), check_budget("1 min")
    ((100, None), (None, 60.0))
    """
    if isinstance(budget, str | timedelta):
        with contextlib.suppress(ValueError):
            if not str(budget).strip().isdecimal() and (seconds := pd.Timedelta(budget).total_seconds()) > 0:
                return None, seconds
    elif isinstance(budget, numbers.Integral) and not isinstance(budget, bool) and int(budget) >= 3:
        return int(budget), None
    expected = "a number of runs of each method, >= 3, or a time such as '30 s' or a timedelta"
    return checks.fail("budget", budget, expected)
