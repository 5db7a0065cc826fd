"""The choice of the kind of contribution for a problem, in one place for all drivers."""

from collections.abc import Iterable
from weakref import ref

from dmlcore.problems.problem import Problem
from dmlcore.training.contribution import AdditiveUpdate, Contribution, CoupledGradient, Gradient
from dmlcore.training.local_steps import LocalTraining


def contribution_of(problem: Problem, widths: Iterable[int] = ()) -> Contribution:
    """Returns the contribution of a problem's tasks, padded to one of `widths` samples."""
    kind: type[Contribution] = CoupledGradient if problem.coupled else Gradient
    if problem.inner is not None:
        kind = LocalTraining
    if problem.additive:
        kind = AdditiveUpdate
    return kind(ref(problem), tuple(widths))
