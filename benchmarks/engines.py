"""The simulator against reality: threads with injected latencies, and a calibrated cluster against Ray.

.venv/bin/python benchmarks/engines.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import optax
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.table import Table
from timing import console, reported, within

import dmlcore as dml
from dmlcore.cluster.faults import Crash
from dmlcore.engines.on_ray.connection import start_local

POLICIES = {"bsp()": dml.bsp(), "ssp(3)": dml.ssp(3), "asp()": dml.asp(), "k_sync(3)": dml.k_sync(3)}
OPTIMIZER = optax.sgd(0.1)
SEEDS = range(3)


def makespans(problem) -> None:
    """Ends of the same run on threads and in the simulator: tasks of 40 ms on average, 1,200 of them."""
    table = Table(title="Makespan on threads / simulated, 3 seeds", title_justify="left")
    for column in ("policy", "workers", "simulated", "threads", "ratio, each seed"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    worst: dict[str, float] = {}
    for workers in (4, 8):
        cluster = dml.Cluster.uniform(
            workers, samples_per_second=32 / 0.04, jitter=stats.gamma(4, scale=0.25), latency=0.002
        )
        for name, policy in POLICIES.items():
            ends = []
            for seed in SEEDS:
                options = {"samples": 32 * 400, "seed": seed}
                run = dml.train(
                    problem, cluster, policy, OPTIMIZER, engine="threads", eval_every=10**6, **options
                )
                simulated = dml.train(problem, cluster, policy, OPTIMIZER, eval_every=10**6, **options)
                ends.append((simulated.trace.end_time, run.trace.end_time))
            meant, took = np.array(ends).T
            ratio = took / meant
            table.add_row(
                name,
                str(workers),
                f"{meant.mean():.2f} s",
                f"{took.mean():.2f} s",
                " ".join(f"{r:.3f}" for r in ratio),
            )
            worst[f"{name}, {workers} workers"] = float(np.abs(ratio - 1).max())
    console.print(table)
    for name, off in worst.items():
        within(f"makespan of threads, {name}, off the simulator's by at most", off, 0.05)


def more_threads(problem, server: str, base, tasks: int) -> None:
    """Updates per second of 16 and 48 threads, from a calibration on 4 under ASP and BSP."""

    def on_threads(policy, workers, seed):
        options = {"samples": 32 * min(400 * workers, tasks), "seed": seed, "eval_every": 10**6}
        return dml.train(problem, base.resized(workers), policy, OPTIMIZER, engine="threads", **options).trace

    fitted = dml.calibrate(*(on_threads(policy, 4, 7) for policy in (dml.asp(), dml.bsp())))
    console.print(f"{server}: calibrated on 4 threads: {fitted}", highlight=False)
    table = Table(title=f"Updates per second on threads, 3 seeds; {server}", title_justify="left")
    for column in ("policy", "workers", "predicted", "uncalibrated", "threads", "predicted / threads"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    found = []
    for workers in (4, 16, 48):
        for name, policy in (POLICIES | {"k_sync(P / 2)": dml.k_sync(workers // 2)}).items():
            actual = np.array([rate(on_threads(policy, workers, seed)) for seed in SEEDS])
            options = {"samples": 32 * min(400 * workers, tasks), "seed": 1}
            meant, free = (
                rate(dml.simulate(policy, each.resized(workers), **options)) for each in (fitted, base)
            )
            each = " ".join(f"{meant / value:.2f}" for value in actual)
            shown = [f"{value:.0f}" for value in (meant, free, actual.mean())]
            table.add_row(name, str(workers), *shown, f"{meant / actual.mean():.2f} ({each})")
            found.append((f"{name}, {workers}", abs(meant / actual.mean() - 1)))
    console.print(table)
    for name, off in found:
        within(f"updates per second of threads, {name} workers, {server}, off by at most", off, 0.15)


def servers(problem) -> None:
    """Predictions for more threads, by what limits them.

    With a modelled server its queue does; threads sleep while it works, so the machine's cores have time.
    With the machine's own server, and tasks of 10 ms, 48 threads also compete for the cores, which no
    calibration on 4 has seen: a task that K-sync cancels still computes its gradient.
    """
    jitter = stats.gamma(4, scale=0.25)
    modelled = dml.Cluster.uniform(4, samples_per_second=32 / 0.04, jitter=jitter).with_server(
        seconds_per_push=0.004, seconds_per_pull=0.001, seconds_per_update=0.002
    )
    more_threads(problem, "modelled server", modelled, 1200)
    own = dml.Cluster.uniform(4, samples_per_second=32 / 0.01, jitter=jitter)
    more_threads(problem, "the machine's own server", own, 4800)


def rate(trace) -> float:
    """Updates per second."""
    return len(trace.updates) / trace.end_time


def more_on_ray(problem) -> None:
    """Updates per second of 4 Ray workers under another policy, from a calibration on 2 under ASP and BSP."""
    start_local(5)
    base = dml.Cluster.uniform(2, samples_per_second=32 / 0.04, jitter=stats.gamma(4, scale=0.25))
    engine, options = dml.engines.ray(keep=True), {"samples": 32 * 600, "eval_every": 10**6}

    def on_ray(policy, workers, seed):
        cluster = base.resized(workers)
        return dml.train(problem, cluster, policy, OPTIMIZER, engine=engine, seed=seed, **options).trace

    on_ray(dml.asp(), 2, 0)  # starts the actors
    fitted = dml.calibrate(*(on_ray(policy, 2, 1) for policy in (dml.asp(), dml.bsp())))
    console.print(f"calibrated on 2 Ray workers: {fitted}", highlight=False)
    for name, policy in POLICIES.items():
        actual = np.mean([rate(on_ray(policy, 4, seed)) for seed in SEEDS])
        meant = rate(dml.simulate(policy, fitted.resized(4), samples=options["samples"], seed=1))
        console.print(f"{name}: {meant:.1f} predicted, {actual:.1f} on Ray", highlight=False)
        within(f"updates per second of 4 Ray workers, {name}, off by at most", abs(meant / actual - 1), 0.15)


def predictions(problem) -> None:
    """Updates per second on Ray of policies that were not recorded, from a calibration on one that was.

    Nothing is injected but a task's time: links and overheads are Ray's own.
    """
    start_local(5)
    cluster = dml.Cluster.uniform(4, samples_per_second=32 / 0.04, jitter=stats.gamma(4, scale=0.25))
    engine = dml.engines.ray(keep=True)
    options = {"samples": 32 * 600, "eval_every": 10**6}

    def on_ray(policy, seed):
        run = dml.train(problem, cluster, policy, OPTIMIZER, engine=engine, seed=seed, **options)
        return run.trace

    def predicted(policy, on):
        traces = [dml.simulate(policy, on, samples=options["samples"], seed=seed) for seed in range(20)]
        return np.mean([rate(trace) for trace in traces])

    on_ray(dml.asp(), 0)  # starts the actors
    recorded = {name: on_ray(POLICIES[name], seed=1) for name in ("asp()", "bsp()")}
    actual = {
        name: np.array([rate(on_ray(policy, seed)) for seed in SEEDS]) for name, policy in POLICIES.items()
    }
    table = Table(title="Updates per second on Ray, 4 workers, mean of 3 seeds", title_justify="left")
    for column in ("calibrated on", "of policy", "predicted", "uncalibrated", "on Ray", "predicted / on Ray"):
        table.add_column(column, justify="right")
    found = []
    for source, trace in recorded.items():
        fitted = dml.calibrate(trace)
        console.print(f"calibrated on {source}: {fitted}", highlight=False)
        for name, policy in POLICIES.items():
            if name == source:
                continue
            rates = predicted(policy, fitted), predicted(policy, cluster)
            each = " ".join(f"{rates[0] / value:.2f}" for value in actual[name])
            ratio = rates[0] / actual[name].mean()
            shown = [f"{value:.1f}" for value in (*rates, actual[name].mean())]
            table.add_row(source, name, *shown, f"{ratio:.3f} ({each})")
            found.append((f"{name} from {source}", abs(ratio - 1)))
    console.print(table)
    for name, off in found:
        within(f"updates per second on Ray, {name}, off by at most", off, 0.15)


def faults(problem) -> None:
    """What a crash for good costs each policy, simulated and on threads."""
    cluster = dml.Cluster.uniform(8, samples_per_second=32 / 0.04, jitter=stats.gamma(4, scale=0.25))
    broken = cluster.with_faults(Crash(0, 0.5), Crash(1, 1.0, 0.5))
    table = Table(title="Makespan with two of eight workers crashing / without", title_justify="left")
    for column in ("policy", "simulated", "threads"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for name, policy in POLICIES.items():
        cells = []
        for engine in ("simulate", "threads"):
            ends = [
                dml.train(problem, each, policy, OPTIMIZER, samples=32 * 400, engine=engine, eval_every=10**6)
                for each in (broken, cluster)
            ]
            cells.append(f"{ends[0].trace.end_time / ends[1].trace.end_time:.2f}")
        table.add_row(name, *cells)
    console.print(table)


def main() -> None:
    with reported("engines"):
        problem = dml.problems.digits_mlp()
        makespans(problem)
        faults(problem)
        servers(problem)
        predictions(problem)
        more_on_ray(problem)


if __name__ == "__main__":
    main()
