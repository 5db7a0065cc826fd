"""Clusters fitted to recorded traces, and how well they predict what was recorded."""

from __future__ import annotations

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
from dmlcore.trace import Trace
from dmlcore.trace.calibration import fit_cluster
from dmlcore.types import Policy

MOST = 0.15  # that a prediction may be off without a warning
CHANCE = 3  # standard deviations of the simulations, which it may be off as well
SEEDS = range(4)
TASKS = 2000  # of a simulation, at most; about
FEWEST = 10  # updates of a trace whose rate tells something


class Compared(NamedTuple):
    """A trace and its simulations, see `prediction_errors`."""

    policy: str
    recorded: float
    predicted: float
    error: float
    spread: float

    def told(self) -> str:
        """Returns by how much the prediction is off."""
        more = "more" if self.error > 0 else "fewer"
        rates = f"{self.predicted:.4g} instead of {self.recorded:.4g}"
        return f"{self.policy} makes {abs(self.error):.0%} {more} updates a second than recorded ({rates})"


def calibrate(trace: Trace, *more: Trace) -> Cluster:
    """Fits a cluster to recorded traces: speeds, overheads, latencies and their jitter, and the server.

    A simulation of any policy on the result predicts that policy on the recorded machines. The fit is maximum
    likelihood in which cut tasks count as right-censored, so a trace whose policy cancels the slow tasks
    (K-sync) gives the true speeds. The law of the multipliers, one for all workers, is the exponential,
    shifted exponential, gamma, lognormal or Weibull law of lowest AIC; where none fits, the multipliers' own
    quantiles (Kaplan-Meier).

    What a trace cannot tell apart:

    - overhead and speed of a worker whose tasks all have one size: the time is all speed, overhead 0, and
      right for that size alone;
    - latency and bandwidth: transfers are all latency, right for these parameters; the difference between
      pull and push is part of it. Pushes of cached copies are left out, as they may wait for the push before;
    - the server's processor and its link, which all workers share: what pushes wait for is all processor;
    - persistent stragglers and slow workers: both are slow workers.

    Where a worker's successive times are correlated, slow episodes are fitted too, of one kind for all that
    have them. What comes back is what happened in the trace: the share of slow tasks is as uncertain as the
    episodes were few. A policy that cancels most slow tasks hides them; they are then lost or become jitter.
    Record under `asp()` where you can choose, and under `bsp()`, too.

    The server takes time as `service_times` finds it, which gives standard errors: what ASP alone shows of
    it cannot be told apart, so record another policy besides. A link that workers share is not fitted: what
    it takes is put down to the processor, whose prediction for other policies or more workers is then off.
    Where the traces cannot tell, since the server was idle or the links vary more, a warning says so: the
    server is then free, and what it takes is part of the latencies.

    The recorded policies are simulated again on the cluster, as `prediction_errors` does. Where this misses
    the updates per second of a trace by more than 15%, and by more than chance explains, a warning says by
    how much and the likely reason; two policies show this more often than one, to which a fit can adapt. The
    cluster's `fitted` has it for all traces, also where the prediction is good.

    Args:
        trace: of any engine. A few hundred tasks for each worker give speeds within a few percent.
        more: traces of the same machines, under other policies.

    Returns:
        The cluster, one worker for each of the trace.

    Raises:
        ValueError: no trace, a worker that finished no task or whose tasks take no time, or traces of
            different numbers of workers.

    >>> import dmlcore as dml
    >>> calibrate(dml.simulate(dml.asp(), Cluster.from_speeds([1000, 500], latency=0.01), updates=100))
    Cluster(2 workers, 500-1000 samples/s, latency 0.01 s)

    Reference: Kaplan and Meier 1958; Buckley and James 1979 for regression with censored times.
    """
    cluster, traces = fit_cluster(trace, *more), (trace, *more)
    found = [each for each in (_compare(cluster, trace) for trace in traces) if not math.isnan(each.error)]
    if not found:
        return cluster
    if told := "; ".join(each.told() for each in found if abs(each.error) > max(MOST, CHANCE * each.spread)):
        warnings.warn(
            f"calibrate: simulated on the fitted cluster, {told}. Likely reason: {_reason(traces)}. "
            "Predictions for other policies or more workers may be off further",
            stacklevel=2,
        )
    shares = [f"{1 + each.error:.2f}x the updates/s of {each.policy}" for each in found]
    return dataclasses.replace(cluster, fitted=f"predicts {', '.join(shares)}")


def prediction_errors(cluster: Cluster, *traces: Trace) -> pd.DataFrame:
    """Compares traces with simulations of the same policies on a cluster, such as a fitted one.

    A trace is simulated four times, with other random times each, for as long as it took, or until there are
    some 2,000 tasks. The same arguments give the same frame.

    Args:
        cluster: with as many workers as the traces have.
        traces: of any engine. What cannot be simulated again is not compared: policies that are not of this
            package, or that watch their training, runs in which something failed, local steps, and fewer than
            10 updates.

    Returns:
        A frame with a row for each trace: its `policy`; `recorded` and `predicted`, updates per second;
        `error`, predicted / recorded - 1; and `spread`, the standard deviation of the error over simulations.
        NaN where they cannot be compared.

    Raises:
        ValueError: something is no trace, or a trace is of another number of workers.

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
            checks.fail(
                "trace", f"one of {trace.num_workers} workers", f"one of {cluster.num_workers} workers"
            )
    return pd.DataFrame([_compare(cluster, trace) for trace in traces], columns=Compared._fields)


def _compare(cluster: Cluster, trace: Trace) -> Compared:
    """Holds a trace against simulations of its policy."""
    policy, known = _policy(trace), trace.metadata
    name, times = str(known.get("policy")), trace.updates["time"].to_numpy()
    unknown = Compared(name, math.nan, math.nan, math.nan, math.nan)
    if policy is None or len(times) < FEWEST or not times[-1] > 0:
        return unknown
    again: dict[str, Any] = {"seconds": float(times[-1]) * min(1.0, TASKS / len(trace.tasks))}
    again["batch_size"] = known.get("batch_size", max(1, round(trace.tasks["batch_size"].mean())))
    again |= {
        each: known[each]
        for each in ("load", "transport", "parameter_bytes", "tensor_sizes")
        if each in known
    }
    made = [simulate(policy, cluster, seed=seed, **again).updates["time"].to_numpy() for seed in SEEDS]
    rates = np.array([len(each) / each[-1] if len(each) else 0.0 for each in made])
    recorded, predicted = len(times) / float(times[-1]), float(rates.mean())
    return Compared(name, recorded, predicted, predicted / recorded - 1, float(rates.std(ddof=1)) / recorded)


def _policy(trace: Trace) -> Policy | None:
    """Returns the policy of a trace, if it can be made from its name and simulated."""
    known = trace.metadata
    if known.get("incidents") or "local" in known:
        return None
    makers = {name: getattr(policies, name) for name in policies.__all__ if name != "ALL_POLICIES"}
    try:
        found: Policy = calls.made("policy", known.get("policy"), makers)
        loads.resolve(known.get("load"))
        transport.resolve(known.get("transport"))
    except ValueError:  # the policy, load rule or transport is not of this package
        return None
    return found if found.on_observation is None else None


def _reason(traces: Sequence[Trace]) -> str:
    """Returns why a fit probably predicts these traces badly."""
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
