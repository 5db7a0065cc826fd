"""What a folder keeps of a recommendation that is under way, so that the same call goes on from there."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dmlcore import files
from dmlcore.experiments.journal import Journal
from dmlcore.experiments.recommendation.goal import Goal
from dmlcore.training.identity import of_training


@dataclass(frozen=True)
class Plan:
    """What was decided by the speed of this machine, and how much of the budget is spent.

    Args:
        rates: the scouts' best learning rates, by name.
        seconds: of the cluster's time in which the better of them reached the target.
        first: trials of each method in the first rung.
        rungs: how many are finished.
        spent: seconds of computing.
    """

    rates: Mapping[str, float]
    seconds: float
    first: int
    rungs: int = 0
    spent: float = 0.0


def place(goal: Goal, optimizer: Any, about: Mapping[str, Any]) -> Path | None:
    """Returns the file of a call's plan; None where no folder keeps its runs.

    Args:
        goal: of the call.
        optimizer: one that its function of the learning rate has made.
        about: the other arguments.
    """
    if goal.save is None:
        return None
    known = {name: str(value) for name, value in about.items()} | of_training(goal.problem, optimizer)
    known |= {"goal": str(goal), "batch_size": str(goal.batch_size)}
    known |= {"cluster": json.dumps(goal.cluster.describe())}
    return Journal(goal.save, {"call": "recommend"}).path(known).with_suffix(".json")


def load(path: Path | None) -> Plan | None:
    """Returns a plan that was kept; None where there is none, or its file is damaged."""
    if path is None or not path.is_file():
        return None
    try:
        return Plan(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        return None


def keep(path: Path | None, plan: Plan) -> None:
    """Keeps a plan, in place of an earlier one."""
    if path is not None:
        files.write(path, json.dumps(dataclasses.asdict(plan)))
