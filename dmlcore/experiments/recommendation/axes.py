"""Variants of a cluster along an axis: with more workers, slower links or a busier server."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from scipy import optimize

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.cluster.parameter_server import ParameterServer
from dmlcore.experiments.study.goal import Goal

FRACTION, TASKS = 0.1, 10  # slow episodes: the fraction of slow tasks, and the length in tasks


def _workers(goal: Goal, value: Any) -> Cluster:
    return goal.cluster.resized(checks.integer("workers", value, low=1))


def _ratio(goal: Goal, value: Any) -> Cluster:
    """Scales the workers' own links until the ratio is c; without links, adds equal latencies."""
    cluster, aim = goal.cluster, checks.real("c", value, low=0)
    ratio = goal.problem, goal.batch_size
    free = dataclasses.replace(
        cluster,
        latency_seconds=(0.0,) * cluster.num_workers,
        pull_latency_seconds=None,
        bandwidth_bytes_per_second=(math.inf,) * cluster.num_workers,
    )
    server = free.regime(*ratio).communication_ratio  # the part of the server's link
    if aim < server:
        checks.fail("c", value, f"a number >= {server:.3g} (from the server's link alone)")
    if cluster.regime(*ratio).communication_ratio == server:
        cluster = dataclasses.replace(free, latency_seconds=(1.0,) * cluster.num_workers)
    factor = (aim - server) / (cluster.regime(*ratio).communication_ratio - server)
    if factor == 0:
        return free
    down = cluster.pull_latency_seconds
    return dataclasses.replace(
        cluster,
        latency_seconds=tuple(each * factor for each in cluster.latency_seconds),
        pull_latency_seconds=None if down is None else tuple(each * factor for each in down),
        bandwidth_bytes_per_second=tuple(each / factor for each in cluster.bandwidth_bytes_per_second),
    )


def _load(goal: Goal, value: Any) -> Cluster:
    """Sets the seconds per push of the server's processor so that its load is rho; its link stays."""
    aim = checks.real("rho", value, low=0)
    server = goal.cluster.server or ParameterServer()
    server = dataclasses.replace(server, seconds_per_push=0.0, seconds_per_pull=0.0, seconds_per_update=0.0)

    def taking(seconds: float) -> Cluster:
        busy = dataclasses.replace(server, seconds_per_push=seconds)
        return dataclasses.replace(goal.cluster, server=busy if busy.takes_time else None)

    def load(seconds: float) -> float:
        return taking(seconds).regime(goal.problem, goal.batch_size).server_load

    least, workers = load(0.0), goal.cluster.num_workers
    if math.isclose(aim, least):
        return taking(0.0)
    if aim < least or aim >= workers:
        own = f"a number >= {least:.3g} (from the server's link alone)"
        checks.fail("rho", value, f"{own} and < {workers} (the number of workers)")
    high = 1e-9
    while load(high) < aim:
        high *= 2
    found = optimize.brentq(lambda seconds: load(seconds) - aim, 0.0, high, xtol=1e-18, rtol=1e-12)
    return taking(float(found))


def _slowdown(goal: Goal, value: Any) -> Cluster:
    even = dataclasses.replace(goal.cluster, stragglers=())
    value = checks.real("slowdown", value, low=1)
    return even.with_stragglers(value, fraction=FRACTION, mean_tasks=TASKS) if value > 1 else even


AXES: Mapping[str, Callable[[Goal, Any], Cluster]] = {
    "workers": _workers,
    "slowdown": _slowdown,
    "c": _ratio,
    "rho": _load,
}


def along(goal: Goal, values: Mapping[str, Any]) -> Cluster:
    """Returns a goal's cluster, changed along some axes, in an order in which no change undoes another.

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
