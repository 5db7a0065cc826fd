"""The kind of contribution that tasks of a problem make: every driver asks here."""

from collections.abc import Iterable
from weakref import ref

from dmlcore.problems.problem import Problem
from dmlcore.training.contribution import AdditiveUpdate, Contribution, CoupledGradient, Gradient
from dmlcore.training.local_steps import LocalTraining


def contribution_of(problem: Problem, widths: Iterable[int] = (), full: bool = False) -> Contribution:
    """Returns what tasks of a problem contribute, filled up to one of `widths` samples."""
    kind: type[Contribution] = CoupledGradient if problem.coupled else Gradient
    if problem.inner is not None:
        kind = LocalTraining
    if problem.additive:
        kind = AdditiveUpdate
    return kind(ref(problem), tuple(widths), full=full)
