"""The saved progress of a recommendation, from which a call with the same arguments continues."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dmlcore import files
from dmlcore.experiments.journal import Journal
from dmlcore.experiments.recommendation.question import Question
from dmlcore.training.identity import of_training


@dataclass(frozen=True)
class SearchProgress:
    """Decisions that depended on the speed of this machine, and the part of the budget that is spent.

    Args:
        rates: best learning rates of the scouts, by method.
        seconds: time of the cluster until the faster scout reached the target.
        first: trials of each method in the first rung.
        rungs: number of finished rungs of all methods.
        steps: number of finished steps of the leading methods.
        leading: number of finished rungs of the leading methods.
        judged: number of finished steps of the final comparison.
        spent: seconds of computing so far.
    """

    rates: Mapping[str, float]
    seconds: float
    first: int
    rungs: int = 0
    steps: int = 0
    leading: int = 0
    judged: int = 0
    spent: float = 0.0


def place(question: Question, optimizer: Any, about: Mapping[str, Any]) -> Path | None:
    """Returns the path of a call's progress; None if the call does not save its runs.

    Args:
        question: of the call.
        optimizer: an optimizer that the call's function of the learning rate has made.
        about: the other arguments.
    """
    if question.save is None:
        return None
    known = {name: str(value) for name, value in about.items()} | of_training(question.problem, optimizer)
    known |= {"target": str(question), "batch_size": str(question.batch_size)}
    known |= {"cluster": json.dumps(question.cluster.describe())}
    return Journal(question.save, {"call": "recommend"}).path(known).with_suffix(".json")


def load(path: Path | None) -> SearchProgress | None:
    """Returns saved progress; None if there is none, or its file is damaged."""
    if path is None or not path.is_file():
        return None
    try:
        return SearchProgress(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        return None


def keep(path: Path | None, progress: SearchProgress) -> None:
    """Saves the progress in place of an earlier one."""
    if path is not None:
        files.write(path, json.dumps(dataclasses.asdict(progress)))


@dataclass
class SearchLog:
    """Counts the finished steps of a search by stage, and saves the progress after each.

    Args:
        progress: that of an earlier call, and what this one has added.
        path: file of the saved progress, or None.
        made: stage, a field of `SearchProgress` -> number of steps that this call has finished.
    """

    progress: SearchProgress
    path: Path | None
    made: dict[str, int] = field(default_factory=dict)

    def repeats(self, stage: str) -> bool:
        """Returns whether an earlier call has finished the next step of a stage."""
        return self.made.get(stage, 0) < getattr(self.progress, stage)

    def finish(self, stage: str, spent: float) -> None:
        """Counts a step, after so many seconds of computing."""
        self.made[stage] = self.made.get(stage, 0) + 1
        most = max(self.made[stage], getattr(self.progress, stage))
        self.progress = dataclasses.replace(self.progress, **{stage: most}, spent=spent)
        keep(self.path, self.progress)
