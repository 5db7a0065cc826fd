"""The fit of a whole cluster to what a trace shows: compute times, overheads, episodes and links."""

from typing import Any

import numpy as np
from scipy import stats

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.trace import Trace, starts
from dmlcore.trace.calibration.episodes import find_episodes
from dmlcore.trace.calibration.laws import Times, fit_law, mean_beyond

NEGLIGIBLE = 1e-9  # share of the run below which a transfer is rounding


def calibrate(trace: Trace) -> Cluster:
    """Fits a cluster to a recorded trace: speeds, overheads, latencies and how much they fluctuate.

    A simulation of any policy on the result predicts that policy on the recorded machines. The fit is maximum
    likelihood in which cut tasks count as right-censored, so a trace whose policy cancels the slow tasks
    (K-sync) gives the true speeds. The law of the multipliers, one for all workers, is the exponential,
    shifted exponential, gamma, lognormal or Weibull law of lowest AIC; where none fits, the multipliers' own
    quantiles (Kaplan-Meier).

    What a trace cannot tell apart:

    - overhead and speed of a worker whose tasks all have one size: the time is all speed, overhead 0, and
      right for that size alone;
    - latency and bandwidth: transfers are all latency, right for these parameters; waiting in the server's
      queue and the difference between pull and push are part of it. Pushes of cached copies are left out, as
      they may wait for the push before;
    - persistent stragglers and slow workers: both are slow workers.

    Where a worker's successive times are correlated, slow episodes are fitted too, of one kind for all that
    have them. What comes back is what happened in the trace: the share of slow tasks is as uncertain as the
    episodes were few. A policy that cancels most slow tasks hides them; they are then lost or become jitter.
    Record under `asp()` where you can choose.

    Args:
        trace: of any engine. A few hundred tasks for each worker give speeds within a few percent.

    Returns:
        The cluster, one worker for each of the trace.

    Raises:
        ValueError: no trace, or a worker that finished no task or whose tasks take no time.

    >>> import dmlcore as dml
    >>> calibrate(dml.simulate(dml.asp(), Cluster.from_speeds([1000, 500], latency=0.01), updates=100))
    Cluster(2 workers, 500-1000 samples/s, latency 0.01 s)

    Reference: Kaplan and Meier 1958; Buckley and James 1979 for regression with censored times.
    """
    checks.check_kind("trace", trace, Trace)
    workers = trace.num_workers
    compute, samples, transfers = _observed(trace)
    finished = np.bincount(compute.worker[compute.whole], compute.seconds[compute.whole] > 0, workers)
    if not finished.all():
        who, allowed = int(finished.argmin()), "at least 1 in the trace; record a longer run, or under asp()"
        checks.fail(f"trace, worker {who}", "no finished task that takes time", allowed)
    per_sample, overhead, jitter = _fit_compute(compute, samples, workers)
    latency, latency_jitter = fit_law(transfers, workers)
    per_task = Times(compute.seconds / samples, compute.whole, compute.worker)
    episodes = find_episodes(per_task, overhead[compute.worker] / samples, per_sample, jitter)
    if episodes is not None:
        per_sample, jitter, overhead = episodes.mean, episodes.law, overhead / episodes.factor
    speeds, overheads, latencies = (each.tolist() for each in (1 / per_sample, overhead, latency))
    cluster = Cluster.from_speeds(
        speeds, overhead=overheads, latency=latencies, jitter=jitter, latency_jitter=latency_jitter
    )
    if episodes is None:
        return cluster
    slow = None if episodes.slow.all() else np.flatnonzero(episodes.slow).tolist()
    return cluster.with_stragglers(
        episodes.slowdown, fraction=episodes.fraction, mean_tasks=episodes.mean_tasks, workers=slow
    )


def _observed(trace: Trace) -> tuple[Times, np.ndarray, Times]:
    """Returns compute times, the samples of their tasks, and the transfers both ways."""
    if trace.metadata.get("pipelined"):
        name = trace.metadata["transport"]
        checks.fail("trace", name, "one without a pipeline, in which transfers are told from waiting")
    if "push_queued" in trace.tasks:
        allowed = "one of a server that takes no time: what its queues take is not told from the links yet"
        checks.fail("trace", trace, allowed)
    tasks = trace.tasks.sort_values(["worker", "clock"])
    worker, samples = tasks["worker"].to_numpy(), tasks["batch_size"].to_numpy()
    pull, start, end, push = tasks[["pull_start", "compute_start", "compute_end", "push_end"]].to_numpy().T
    arrived = np.isfinite(push)
    # A task is cut by another's arrival, at the latest where its worker's next task starts or the run ends.
    following = starts(tasks).groupby(tasks["worker"]).shift(-1)
    cut = following.fillna(trace.end_time).to_numpy()
    computed = arrived | ((end < cut) & ~np.isin(end, push[arrived]))
    begun = computed | (end > start)

    pulled = np.isfinite(pull)
    sent = pulled & computed
    seconds = np.concatenate([(start - pull)[pulled], (np.where(arrived, push, cut) - end)[sent]])
    seconds[seconds < NEGLIGIBLE * trace.end_time] = 0.0
    whole = np.concatenate([begun[pulled], arrived[sent]])
    transfers = Times(seconds, whole, np.concatenate([worker[pulled], worker[sent]]))
    return Times((end - start)[begun], computed[begun], worker[begun]), samples[begun], transfers


def _fit_compute(times: Times, samples: np.ndarray, workers: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Returns seconds per sample and overhead of each worker, and the jitter."""
    seconds, whole, worker = times
    overhead = np.zeros(workers)
    own = [worker == w for w in range(workers)]
    varied = [w for w in range(workers) if len(set(samples[own[w]])) > 1]
    per_sample, jitter = fit_law(Times(seconds / samples, whole, worker), workers)
    for _ in range(10 if varied else 0):
        # Cut times are replaced by what they would have come to, then overhead is the slope of the time of a
        # sample over 1 / samples, where all points have the same relative error.
        scale = samples * per_sample[worker]
        seen = (seconds - overhead[worker]) / scale
        likely = np.where(whole, seconds, overhead[worker] + scale * mean_beyond(jitter, seen))
        last = overhead.copy()
        for w in varied:
            slope = stats.linregress(1 / samples[own[w]], (likely / samples)[own[w]]).slope
            overhead[w] = np.clip(slope, 0, 0.9 * seconds[own[w] & whole].min())
        per_sample, jitter = fit_law(Times((seconds - overhead[worker]) / samples, whole, worker), workers)
        if whole.all() or np.abs(overhead - last).max() < 0.003 * seconds[whole].mean():
            break
    return per_sample, overhead, jitter
