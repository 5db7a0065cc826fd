"""The clusters of a recommendation: given by the user, fitted to a record, or changed along an axis."""

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dmlcore import checks, files
from dmlcore.cluster import Cluster
from dmlcore.cluster.parameter_server import ParameterServer
from dmlcore.cluster.regime import with_load, with_ratio
from dmlcore.experiments.prediction import calibrate
from dmlcore.experiments.study.goal import Goal
from dmlcore.reading.log import sized
from dmlcore.trace import Trace
from dmlcore.trace.importing import record_of
from dmlcore.units import BASE, quantity

FEWEST = 20  # finished tasks of every worker that a fit needs
REAL = "threads", "ray"  # engines with a real clock
ASSUMED_SIZE = 32  # samples of a task whose number is not known
UNTOLD = files.table(__file__, "clusters")
FRACTION, SPELL = 0.1, 10  # slow episodes: the fraction of slow tasks, and the length in tasks
LINKS = {"bandwidth": "rate", "server_bandwidth": "rate", "latency": "time"}


class Fitted(NamedTuple):
    """A cluster, and facts about the record that it was fitted to.

    Args:
        cluster: given by the user, or fitted to a record.
        untold: sentences that say what the record does not determine.
        batch_size: samples per task of the record, if all tasks have the same number.
        real: whether an engine of this package with a real clock made the record.
    """

    cluster: Cluster
    untold: list[str]
    batch_size: int | None = None
    real: bool = False


def as_cluster(given: Any, batch_size: int | None = None) -> Fitted:
    """Returns the given cluster, or fits one to a record.

    Args:
        given: a `Cluster`; a `Trace`; or a log that `read_tasks` reads, or its result.
        batch_size: samples of every task of a log that does not say it. None: 32.

    Raises:
        ValueError: `given` is none of these, or a record is too short; the message says how long it must be.
    """
    if isinstance(given, Cluster):
        return Fitted(given, [])
    trace, said = record_of("cluster", given), []
    if not isinstance(trace, Trace):
        said, log = [*trace.notes], trace
        if "batch_size" not in log.tasks:
            log = sized(log, batch_size or ASSUMED_SIZE)
            said += [UNTOLD["tasks"]["unknown"].format(log.batch_size)] * (batch_size is None)
        with checks.within("cluster"):
            trace = Trace.from_tasks(log)
    _check_length(trace)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cluster = calibrate(trace)
    sized_messages = "latency" if trace.metadata.get("transfer_bytes") else "no_bytes"
    said.append(UNTOLD["links"]["computing" if "transfers" in trace.metadata else sized_messages])
    warned = [str(each.message).removeprefix("calibrate: ") for each in caught]
    said += [each for each in warned if each not in cluster.fitted]
    said += [f"The fitted cluster {cluster.fitted}"] * bool(cluster.fitted)
    sizes = trace.tasks["batch_size"].unique().tolist()
    size = sizes[0] if len(sizes) == 1 else None
    said += [UNTOLD["tasks"]["alike"].format(size)] * bool(size)
    return Fitted(cluster, said, size, trace.metadata["engine"] in REAL)


def with_links(fitted: Fitted, links: Any) -> Fitted:
    """Returns the cluster with the links that the user has.

    Args:
        fitted: a cluster, and what a record does not determine.
        links: a rate of every worker's link, such as "25Gb/s" or bytes/s, or a mapping with some of
            `bandwidth`, `server_bandwidth` and `latency`; None: the cluster's own.
    """
    if not links:
        return fitted
    links = links if isinstance(links, Mapping) else {"bandwidth": links}
    for name in links:
        checks.choice("links", name, LINKS)
    found = {name: quantity(f"links, {name}", value, LINKS[name]) for name, value in links.items()}
    workers, server = fitted.cluster.num_workers, fitted.cluster.server
    own: dict[str, Any] = {"fitted": ""}
    if {"bandwidth", "latency"} & {*found}:
        rate, latency = found.get("bandwidth", math.inf), found.get("latency", 0.0)
        own |= {"bandwidth_bytes_per_second": (rate,) * workers, "latency_seconds": (latency,) * workers}
        own |= {"latency_jitter": None, "pull_latency_seconds": None}
    if rate := found.get("server_bandwidth"):
        own["server"] = dataclasses.replace(server or ParameterServer(), bandwidth_bytes_per_second=rate)
    kept = [each for each in fitted.untold if each not in UNTOLD["links"].values()]
    told = ", ".join(f"{name} {value:.4g} {BASE[LINKS[name]]}" for name, value in found.items())
    cluster = dataclasses.replace(fitted.cluster, **own)
    return fitted._replace(cluster=cluster, untold=[*kept, f"Links are as told: {told}"])


def _check_length(trace: Trace) -> None:
    finished = trace.tasks["worker"][np.isfinite(trace.tasks["push_end"])]
    whole = np.bincount(finished, minlength=trace.num_workers)
    if (least := whole.min()) < FEWEST:
        longer = trace.end_time * FEWEST / max(least, 1)
        hint = f"a record of about {longer:.2g} s instead of {trace.end_time:.2g} s"
        found = f"one in which worker {whole.argmin()} finished {least} tasks"
        checks.reject("cluster", found, f"a record with at least {FEWEST} tasks of each worker", hint)


def _slowdown(goal: Goal, value: Any) -> Cluster:
    even = dataclasses.replace(goal.cluster, stragglers=())
    value = checks.real("slowdown", value, low=1)
    return even.with_stragglers(value, fraction=FRACTION, mean_tasks=SPELL) if value > 1 else even


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
    changes = {name: checks.choice("axis", name, AXES) for name in values}
    for name in sorted(changes, key=[*AXES].index):
        goal = dataclasses.replace(goal, cluster=changes[name](goal, values[name]))
    return goal.cluster
