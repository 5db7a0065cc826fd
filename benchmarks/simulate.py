"""Tasks per second of the timeline alone, against the number of workers.

.venv/bin/python benchmarks/simulate.py
"""

from __future__ import annotations

import heapq
import sys
import time
from pathlib import Path

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.table import Table
from timing import console, header, verdict

import dmlcore as dml

TASKS = {10: 100_000, 1_000: 200_000, 100_000: 400_000}
POLICIES = {"asp()": dml.asp(), "ssp(3)": dml.ssp(3), "essp(3)": dml.essp(3), "bsp()": dml.bsp()}
REPEATS = 3


def bare_heap(workers: int, tasks: int) -> float:
    """Pops and pushes of an event heap with nothing else: tasks per second."""
    delays = np.random.default_rng(0).exponential(size=tasks).tolist()
    heap = [(delay, worker) for worker, delay in enumerate(delays[:workers])]
    heapq.heapify(heap)
    begun = time.perf_counter()
    for delay in delays:
        now, worker = heapq.heappop(heap)
        heapq.heappush(heap, (now + delay, worker))
    return tasks / (time.perf_counter() - begun)


def timeline(policy: dml.Policy, workers: int, tasks: int) -> float:
    """Tasks per second that arrive in a simulated run, the trace's frames included."""
    cluster = dml.Cluster.uniform(workers, jitter=stats.expon())
    begun = time.perf_counter()
    trace = dml.simulate(policy, cluster, samples=32 * tasks)
    return int(trace.tasks["push_end"].notna().sum()) / (time.perf_counter() - begun)


def main() -> None:
    header("simulate")
    table = Table(title="Tasks per second (ratio to a bare heap)", title_justify="left")
    for column in ("workers", "bare heap", *POLICIES):
        table.add_column(column, justify="right")
    best: dict[tuple[str, int], float] = {}
    for workers, tasks in TASKS.items():
        rates: dict[str, list[float]] = {name: [] for name in ("bare heap", *POLICIES)}
        for _ in range(REPEATS):
            rates["bare heap"].append(bare_heap(workers, tasks))
            for name, policy in POLICIES.items():
                rates[name].append(timeline(policy, workers, tasks))
        heap = np.median(rates.pop("bare heap"))
        cells = [f"{np.median(values):,.0f} ({np.median(values) / heap:.2f})" for values in rates.values()]
        table.add_row(f"{workers:,}", f"{heap:,.0f}", *cells)
        best |= {(name, workers): float(np.median(values)) for name, values in rates.items()}
    console.print(table)
    for name in POLICIES:
        for workers in (10, 1_000):
            verdict(f"{name}, {workers:,} workers, tasks per second", best[name, workers], 120_000)
        verdict(f"{name}, speed at 100,000 workers / at 1,000", best[name, 100_000] / best[name, 1_000], 0.25)


if __name__ == "__main__":
    main()
