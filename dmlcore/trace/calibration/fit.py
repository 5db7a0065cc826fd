"""The fit of a whole cluster to traces: compute times, overheads, slow episodes, links and the server."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

from dmlcore import checks
from dmlcore.cluster import Cluster
from dmlcore.trace import Trace, starts
from dmlcore.trace.calibration.laws import Times, find_episodes, fit_law, mean_beyond
from dmlcore.trace.calibration.server import Service, check_traces, fit_service, time_at_server

NEGLIGIBLE = 1e-9  # a transfer shorter than this share of the run is a rounding error
VIRTUAL = "simulate", "devices"  # engines that record whether their server takes time


def fit_cluster(trace: Trace, *more: Trace) -> Cluster:
    """Fits a cluster to recorded traces; `dml.calibrate` also measures how well it predicts them."""
    traces = (trace, *more)
    for each in check_traces(traces):
        if each.num_workers != trace.num_workers:
            found = f"traces of {trace.num_workers} and {each.num_workers} workers"
            checks.reject("traces", found, "traces of the same machines")
    service, workers = _service(traces), trace.num_workers
    compute, samples, transfers = _together([_observed(each, service) for each in traces])
    finished = np.bincount(compute.worker[compute.whole], compute.seconds[compute.whole] > 0, workers)
    if not finished.all():
        who, expected = int(finished.argmin()), "at least one finished task that takes time"
        checks.reject(f"trace, worker {who}", "none", expected, "recording a longer run, or one under asp()")
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
    if service is not None:
        push, update, pull = service.seconds.tolist()
        seconds = {"seconds_per_push": push, "seconds_per_update": update, "seconds_per_pull": pull}
        cluster = cluster.with_server(**seconds, jitter=service.law)
    if episodes is None:
        return cluster
    slow = None if episodes.slow.all() else np.flatnonzero(episodes.slow).tolist()
    return cluster.with_stragglers(
        episodes.slowdown, fraction=episodes.fraction, mean_tasks=episodes.mean_tasks, workers=slow
    )


def _service(traces: Sequence[Trace]) -> Service | None:
    """Returns the times of the server; None if it takes no time, or if the traces do not determine them."""
    if all(_known_to_be_free(trace) for trace in traces):
        return None
    service = fit_service(traces)
    if service.known and service.seconds.any():
        return service
    seen = f"{service.waited} of {service.pushes} pushes seem to have waited"
    why = "too few, or on links that vary too much, to estimate the server's seconds"
    warnings.warn(f"calibrate: {seen}, {why}; they are part of the latencies", stacklevel=4)
    return None


def _known_to_be_free(trace: Trace) -> bool:
    """Whether the trace has no transfers, or comes from a virtual clock whose server takes no time."""
    if "transfers" in trace.metadata:
        return True
    return trace.metadata.get("engine") in VIRTUAL and "push_queued" not in trace.tasks


def _together(seen: Sequence[tuple[Times, np.ndarray, Times]]) -> tuple[Times, np.ndarray, Times]:
    """Returns the observations of several traces as one, sorted by worker."""
    if len(seen) == 1:
        return seen[0]

    def join(each: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        columns = [np.concatenate(column) for column in zip(*each, strict=True)]
        order = np.argsort(columns[2], kind="stable")  # by worker
        return [column[order] for column in columns]

    *compute, samples = join([(*times, samples) for times, samples, _ in seen])
    return Times(*compute), samples, Times(*join([transfers for _, _, transfers in seen]))


def _observed(trace: Trace, service: Service | None) -> tuple[Times, np.ndarray, Times]:
    """Returns compute times, the samples of their tasks, and the times of transfers without the server's."""
    if trace.metadata.get("pipelined"):
        name = trace.metadata["transport"]
        checks.reject("trace", name, "a trace without a pipeline (which hides how long transfers took)")
    tasks = trace.tasks.assign(at_server=0.0, pull_at_server=0.0, waited=False)
    if service is not None:
        tasks[["pull_at_server", "at_server", "waited"]] = time_at_server(trace, service)
    tasks = tasks.sort_values(["worker", "clock"])
    waited, at_server, pull_at_server = (
        tasks[name].to_numpy() for name in ("waited", "at_server", "pull_at_server")
    )
    worker, samples = tasks["worker"].to_numpy(), tasks["batch_size"].to_numpy()
    pull, start, end, push = tasks[["pull_start", "compute_start", "compute_end", "push_end"]].to_numpy().T
    arrived = np.isfinite(push)
    # The arrival of another task cuts a task, at the latest when its worker's next task starts or the run
    # ends.
    following = starts(tasks).groupby(tasks["worker"]).shift(-1)
    cut = following.fillna(trace.end_time).to_numpy()
    computed = arrived | ((end < cut) & ~np.isin(end, push[arrived]))
    begun = computed | (end > start)

    pulled = np.isfinite(pull)
    sent = pulled & computed & ~waited
    pushes, pulls = np.where(arrived, push, cut) - end - at_server, start - pull - pull_at_server
    seconds = np.concatenate([pulls[pulled], pushes[sent]])
    seconds[seconds < NEGLIGIBLE * trace.end_time] = 0.0
    whole = np.concatenate([begun[pulled], arrived[sent]])
    transfers = Times(seconds, whole, np.concatenate([worker[pulled], worker[sent]]))
    return Times((end - start)[begun], computed[begun], worker[begun]), samples[begun], transfers


def _fit_compute(times: Times, samples: np.ndarray, workers: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Returns seconds per sample and overhead in seconds of each worker, shapes (W,), and the jitter."""
    seconds, whole, worker = times
    overhead = np.zeros(workers)
    own = [worker == w for w in range(workers)]
    varied = [w for w in range(workers) if len(set(samples[own[w]])) > 1]
    per_sample, jitter = fit_law(Times(seconds / samples, whole, worker), workers)
    for _ in range(10 if varied else 0):
        # Censored times are replaced by their expected full times. Then the overhead is the slope of the time
        # per sample over 1 / samples, where all points have the same relative error.
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
