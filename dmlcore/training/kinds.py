"""The kind of contribution that tasks of a problem make: chosen once, here."""

from collections.abc import Iterable

from dmlcore.problems.problem import Problem
from dmlcore.training.contribution import AdditiveUpdate, Contribution, Gradient
from dmlcore.training.local_steps import LocalTraining


def contribution_of(problem: Problem, widths: Iterable[int] = (), full: bool = False) -> Contribution:
    """Returns what tasks of a problem contribute, filled up to one of `widths` samples."""
    kind = AdditiveUpdate if problem.additive else Gradient if problem.inner is None else LocalTraining
    return kind(problem, tuple(widths), full=full)
