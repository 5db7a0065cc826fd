"""Clusters fitted to recorded traces, and the errors of their predictions for these traces."""

import dataclasses
import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dmlcore import calls, checks
from dmlcore.cluster import Cluster
from dmlcore.engines import simulate
from dmlcore.methods import loads, policies, transport
from dmlcore.reading.log import warned
from dmlcore.trace import Trace
from dmlcore.trace.calibration import fit_cluster, predicting
from dmlcore.trace.importing import record_of
from dmlcore.types import Policy

MOST = 0.15  # relative error of a prediction up to which there is no warning
CHANCE = 3  # further error without a warning, in standard deviations of the simulations
SEEDS = range(4)
TASKS = 2000  # the largest number of tasks in a simulation, about
FEWEST = 10  # updates that a trace must have for a meaningful rate


class Compared(NamedTuple):
    """A recorded trace compared with its simulations, see `prediction_errors`."""

    policy: str
    recorded: float
    predicted: float
    error: float
    spread: float

    def told(self) -> str:
        """Returns the prediction and its error as text."""
        more = "more" if self.error > 0 else "fewer"
        rates = f"{self.predicted:.4g} instead of {self.recorded:.4g}"
        return f"{self.policy} makes {abs(self.error):.0%} {more} updates a second than recorded ({rates})"


def calibrate(trace: Any, *more: Any) -> Cluster:
    """Fits a cluster to traces or logs: speeds, overheads, latencies and their jitter, the server.

    A simulation of any policy on the fitted cluster predicts that policy on the recorded machines. The fit is
    maximum likelihood. Cancelled tasks count as right-censored, so that a trace of a policy that cancels slow
    tasks (K-sync) also gives the true speeds. The law of the multipliers, one for all workers, is the
    exponential, shifted exponential, gamma, lognormal or Weibull law with the lowest AIC; if none fits, the
    empirical quantiles of the multipliers (Kaplan-Meier).

    Some quantities cannot be separated in a trace:

    - overhead and speed of a worker whose tasks all have one batch size: the fit has no overhead, and its
      speed is right for that batch size only;
    - latency and bandwidth: the fit has only latencies, and is right for this number of parameters; the
      difference between pull and push is part of it. Pushes of workers with cached copies are not used,
      because they may wait for the previous push;
    - the server's processor and its shared link: the fit attributes all waiting to the processor;
    - persistent stragglers and slow workers: the fit has slow workers.

    If successive times of a worker are correlated, the fit also has slow episodes, with the same parameters
    for all workers that have them. They describe what happened in the trace: with few episodes, the fraction
    of slow tasks is uncertain. A policy that cancels most slow tasks hides them; the fit then misses them or
    treats them as jitter. Record under `asp()` if you can choose, and also under `bsp()`.

    `service_times` estimates the server's times, with standard errors. A trace of ASP alone does not separate
    them, so record another policy as well. The fit does not have a shared link: it attributes the time of
    such a link to the processor, and predictions for other policies or more workers are then wrong. A warning
    says so if the traces do not determine the server's times, because the server was idle or the links vary
    more. The server of the fitted cluster is then free, and its time is part of the latencies.

    A fitted cluster predicts what it was fitted to: the mean time of a round that waits for all, the
    throughput and the straggling of the recorded tasks, within 3%. Where the fitted laws do not, recorded
    tasks are drawn instead: those of each worker by itself, or whole rounds if the workers' tasks are
    correlated, in runs if successive tasks are. A warning says so, and why. It needs 20 rounds, of tasks of
    which at most 5% were cancelled.

    `calibrate` then simulates the recorded policies on the cluster, as `prediction_errors` does. If the
    updates per second differ from those of a trace by more than 15%, and by more than chance explains, a
    warning gives the error and the likely reason. Traces of two policies show such an error more often than
    one trace, to which a fit can adapt. The cluster's `fitted` has the errors of all traces.

    Args:
        trace: a trace of any engine, or a log that `read_tasks` reads, or its result, which says how many
            samples a task has. A few hundred tasks per worker give speeds within a few per cent.
        more: traces or logs of the same machines under other policies.

    Returns:
        The cluster, with one worker for each worker of the traces.

    Raises:
        ValueError: an argument is no trace or log, a worker finished no task or its tasks took no time, or
            the traces have different numbers of workers.

    >>> import dmlcore as dml
    >>> calibrate(dml.simulate(dml.asp(), Cluster.from_speeds([1000, 500], latency=0.01), updates=100))
    Cluster(2 workers, 500-1000 samples/s, latency 0.01 s)

    Reference: Kaplan and Meier 1958; Buckley and James 1979 for regression with censored times.
    """
    traces = [_trace_of(each) for each in (trace, *more)]
    cluster, rounds, why = predicting(fit_cluster(*traces), traces)
    if why:
        warnings.warn(f"calibrate: {why}", stacklevel=2)
    found = [each for each in (_compare(cluster, trace) for trace in traces) if not math.isnan(each.error)]
    if told := "; ".join(each.told() for each in found if abs(each.error) > max(MOST, CHANCE * each.spread)):
        warnings.warn(
            f"calibrate: simulated on the fitted cluster, {told}. Likely reason: {_reason(traces)}. "
            "Predictions for other policies or more workers may be off by more",
            stacklevel=2,
        )
    shares = [f"{1 + each.error:.2f}x the updates/s of {each.policy}" for each in found]
    shares += [rounds] * bool(rounds)
    return dataclasses.replace(cluster, fitted=f"predicts {', '.join(shares)}" if shares else "")


def _trace_of(given: Any) -> Trace:
    """Returns a trace as it is, and a log as a trace."""
    record = record_of("trace", given)
    if isinstance(record, Trace):
        return record
    warned(record, given)
    return Trace.from_tasks(record)


def prediction_errors(cluster: Cluster, *traces: Trace) -> pd.DataFrame:
    """Compares traces with simulations of the same policies on a cluster, such as a fitted one.

    Each trace is simulated four times with different random times, for the duration of the trace, or until
    there are about 2,000 tasks. The same arguments give the same frame.

    Args:
        cluster: a cluster with as many workers as the traces.
        traces: traces of any engine. Traces that cannot be simulated are not compared: those with a policy
            that is not of this package or watches its training, with faults, with local steps, or with fewer
            than 10 updates.

    Returns:
        A frame with one row per trace: `policy`; `recorded` and `predicted`, in updates/s; `error`,
        predicted / recorded - 1; and `spread`, the standard deviation of the error over the simulations. NaN
        for a trace that is not compared.

    Raises:
        ValueError: an argument is not a trace, or a trace has another number of workers.

    >>> import dmlcore as dml
    >>> from scipy import stats
    >>> cluster = dml.Cluster.uniform(8, jitter=stats.expon())
    >>> recorded = dml.simulate(dml.bsp(), cluster, updates=1000, seed=9)
    >>> prediction_errors(cluster, recorded)["error"].abs().round(1).tolist()
    [0.0]
    """
    for trace in traces:
        checks.check_kind("trace", trace, Trace)
        if trace.num_workers != cluster.num_workers:
            checks.reject("trace", f"{trace.num_workers}", f"a trace of {cluster.num_workers} workers")
    return pd.DataFrame([_compare(cluster, trace) for trace in traces], columns=Compared._fields)


def _compare(cluster: Cluster, trace: Trace) -> Compared:
    """Compares a trace with simulations of its policy."""
    policy, known = _policy(trace), trace.metadata
    name, times = str(known.get("policy")), trace.updates["time"].to_numpy()
    unknown = Compared(name, math.nan, math.nan, math.nan, math.nan)
    if policy is None or len(times) < FEWEST or not times[-1] > 0:
        return unknown
    again: dict[str, Any] = {"seconds": float(times[-1]) * min(1.0, TASKS / len(trace.tasks))}
    again["batch_size"] = known.get("batch_size", max(1, round(trace.tasks["batch_size"].mean())))
    again |= {each: known[each] for each in ("load", "transport", "parameter_bytes") if each in known}
    again["tensor_shapes"] = known.get("tensor_shapes", known.get("tensor_sizes"))  # as it was called
    made = [simulate(policy, cluster, seed=seed, **again).updates["time"].to_numpy() for seed in SEEDS]
    rates = np.array([len(each) / each[-1] if len(each) else 0.0 for each in made])
    recorded, predicted = len(times) / float(times[-1]), float(rates.mean())
    return Compared(name, recorded, predicted, predicted / recorded - 1, float(rates.std(ddof=1)) / recorded)


def _policy(trace: Trace) -> Policy | None:
    """Returns the policy of a trace if its name says how to make it and it can be simulated, else None."""
    known = trace.metadata
    if known.get("incidents") or "local" in known:
        return None
    try:
        found: Policy = calls.made("policy", known.get("policy"), policies.MAKERS)
        loads.resolve(known.get("load"))
        transport.resolve(known.get("transport"))
    except ValueError:  # the policy, load rule or transport is not of this package
        return None
    return found if found.on_observation is None else None


def _reason(traces: Sequence[Trace]) -> str:
    """Returns the probable reason why a fit predicts these traces badly."""
    sizes = {tuple(trace.metadata.get("transfer_bytes") or ()) for trace in traces}
    if len(sizes) > 1:
        return "the traces' messages are of different sizes, and one latency is fitted to all"
    clusters = [trace.metadata.get("cluster") or {} for trace in traces]
    if any((each.get("server") or {}).get("bandwidth_bytes_per_second") for each in clusters):
        return "workers share the server's link, which is not fitted"
    if any(each.get("changes") for each in clusters):
        return "speeds change during the run, which is not fitted"
    if any(trace.metadata.get("engine") == "threads" for trace in traces):
        return f"{traces[0].num_workers} threads share the processors of one machine, which is not fitted"
    return "workers share a link or processors, or their times depend on the policy, which is not fitted"
