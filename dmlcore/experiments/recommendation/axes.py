"""Variants of a cluster along an axis: with more workers, slower links or a busier server."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.cluster.regime import with_load, with_ratio
from dmlcore.experiments.study.goal import Goal

FRACTION, TASKS = 0.1, 10  # slow episodes: the fraction of slow tasks, and the length in tasks


def _slowdown(goal: Goal, value: Any) -> Cluster:
    even = dataclasses.replace(goal.cluster, stragglers=())
    value = checks.real("slowdown", value, low=1)
    return even.with_stragglers(value, fraction=FRACTION, mean_tasks=TASKS) if value > 1 else even


AXES: Mapping[str, Callable[[Goal, Any], Cluster]] = {  # in an order in which no change undoes another
    "workers": lambda goal, value: goal.cluster.resized(checks.integer("workers", value, low=1)),
    "slowdown": _slowdown,
    "c": lambda goal, value: with_ratio(goal.cluster, value, goal.problem, goal.batch_size),
    "rho": lambda goal, value: with_load(goal.cluster, value, goal.problem, goal.batch_size),
}


def along(goal: Goal, values: Mapping[str, Any]) -> Cluster:
    """Returns a goal's cluster, changed along some axes.

    Args:
        goal: cluster, problem and batch size.
        values: axis -> value: `workers`, the number of workers; `slowdown`, the factor of slow episodes of
            ten tasks that have a tenth of all tasks; `c`, the communication ratio, set by the workers' own
            links; `rho`, the server's load, set by its processor.

    Raises:
        ValueError: an axis is unknown, or a value is not possible.
    """
    for name in values:
        checks.choice("axis", name, AXES)
    for name, change in AXES.items():
        if name in values:
            goal = dataclasses.replace(goal, cluster=change(goal, values[name]))
    return goal.cluster
