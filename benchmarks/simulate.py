"""Tasks per second of the timeline alone, against the number of workers.

.venv/bin/python benchmarks/simulate.py
"""

from __future__ import annotations

import heapq
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import optax
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from replay import random_lenet
from rich.table import Table
from timing import console, race, reported, spread, verdict

import dmlcore as dml

TASKS = {10: 100_000, 1_000: 200_000, 100_000: 400_000}
POLICIES = {"asp()": dml.asp(), "ssp(3)": dml.ssp(3), "essp(3)": dml.essp(3), "bsp()": dml.bsp()}
LENGTHS = 200_000, 2_000_000  # tasks of a short and of a long run with slow episodes
REPEATS = 5
MEAN, NBYTES = 0.032, 40_000  # seconds of a task, on average, and the size of the parameters
WORKERS_BEFORE_A_SERVER = 1_000
CANCELS = "k_sync(P/2)"  # rounds of half the workers, which cancel the other half
# A server that is busy nine tenths of the time, by how its link is shared; None: it takes no time.
SERVERS = {None: 0.0, "fifo": 0.9, "fair": 0.5}  # and the least of the speed without it


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


def timeline(policy: dml.Policy, workers: int, tasks: int, sharing: str | None = None) -> float:
    """Tasks per second of a simulated run, with a server whose link is shared so, or one that is free."""
    cluster = dml.Cluster.uniform(workers, jitter=stats.expon())
    if sharing is not None:
        transfer = 0.9 * MEAN / workers
        cluster = cluster.with_server(
            bandwidth=NBYTES / transfer, seconds_per_push=transfer / 2, sharing=sharing
        )
    return speed(policy, cluster, tasks)


def speed(policy: dml.Policy, cluster: dml.Cluster, tasks: int) -> float:
    """Tasks per second that arrive in a simulated run, the trace's frames included."""
    begun = time.perf_counter()
    trace = dml.simulate(policy, cluster, samples=32 * tasks, parameter_bytes=NBYTES)
    return int(trace.tasks["push_end"].notna().sum()) / (time.perf_counter() - begun)


def faults() -> None:
    """What faults cost, one to three of each kind in a run."""
    kinds = {"none": (), "faults of workers and messages": (dml.faults.ServerCrash,), "all faults": ()}
    measured: dict[tuple[int, str], list[float]] = {}
    for number in range(REPEATS):
        turns = [(workers, kind) for workers in (10, 1_000) for kind in kinds]
        for workers, kind in turns[:: -1 if number % 2 else 1]:
            cluster, tasks = dml.Cluster.uniform(workers, jitter=stats.expon()), TASKS[workers] // 2
            events = dml.faults.random_faults(workers, MEAN * tasks / workers, seed=0)
            if kind != "none":
                chosen = [event for event in events if not isinstance(event, kinds[kind])]
                cluster = cluster.with_faults(*chosen, patience=0.1)
            measured.setdefault((workers, kind), []).append(speed(dml.asp(), cluster, tasks))
    for workers in (10, 1_000):
        for kind in [*kinds][1:]:
            ratio = np.array(measured[workers, kind]) / np.array(measured[workers, "none"])
            verdict(f"asp(), {workers:,} workers, tasks per second with {kind} / without", ratio, 0.7)


def length() -> None:
    """Whether a task of a long run with slow episodes takes as long as one of a short run."""
    for workers in (10, 1_000):
        cluster, measured = dml.Cluster.uniform(workers, jitter="exponential").with_stragglers(5), {}
        for number in range(REPEATS):
            for tasks in LENGTHS[:: -1 if number % 2 else 1]:
                measured.setdefault(tasks, []).append(speed(dml.ssp(3), cluster, tasks))
        short, long = (np.array(measured[tasks]) for tasks in LENGTHS)
        console.print(f"{workers:,} workers, {LENGTHS[1]:,} tasks: {1e6 / np.median(long):.2f} us a task")
        verdict(f"ssp(3), {workers:,} workers, tasks per second: 2 million / 200,000", long / short, 0.9)


def servers() -> None:
    """What a server that takes time costs, whose link is first come, first served, or shared equally."""
    workers, measured = WORKERS_BEFORE_A_SERVER, {}
    for number in range(REPEATS):
        turns = [(name, sharing) for name in POLICIES for sharing in SERVERS]
        for name, sharing in turns[:: -1 if number % 2 else 1]:
            rate = timeline(POLICIES[name], workers, TASKS[workers] // 2, sharing)
            measured.setdefault((name, sharing), []).append(rate)
    title = f"Thousand tasks per second with a server, {workers:,} workers, and its ratio to none"
    table = Table(title=title, title_justify="left")
    for column in ("policy", *(str(sharing or "no time") for sharing in SERVERS)):
        table.add_column(column, justify="right")
    for name in POLICIES:
        free = np.array(measured[name, None])
        cells = []
        for sharing in SERVERS:
            values = np.array(measured[name, sharing])
            cells.append(f"{np.median(values) / 1000:,.0f}\n{np.median(values / free):.2f}")
        table.add_row(name, *cells, end_section=True)
    console.print(table)
    for name in POLICIES:
        for sharing, least in [*SERVERS.items()][1:]:
            ratio = np.array(measured[name, sharing]) / np.array(measured[name, None])
            verdict(f"{name}, {sharing} server, tasks per second / without", ratio, least)


def clients() -> None:
    """What a round of 100 workers costs that are drawn from 10,000, next to a cluster of 100 workers."""
    models = {"the digits MLP": (dml.problems.digits_mlp(), 500), "LeNet": (random_lenet(), 10)}
    sizes = {100: dml.bsp(), 10_000: dml.sampled(100)}
    contenders = {}
    for workers, policy in sizes.items():
        cluster = dml.Cluster.uniform(workers, jitter=stats.expon())
        contenders["timeline", workers] = partial(dml.simulate, policy, cluster, updates=500)
        for name, (problem, updates) in models.items():
            how = {"updates": updates, "eval_every": updates}
            train = partial(dml.train, problem, cluster, policy, optax.sgd(0.1), **how)
            contenders[f"training of {name}", workers] = train
    seconds = race(contenders, REPEATS)
    for what in dict.fromkeys(what for what, _ in contenders):
        few, many = (seconds[what, workers] for workers in sizes)
        least = 0.3 if what == "timeline" else 0.9
        verdict(f"{what}, 100 of 10,000 workers a round, speed / of 100 workers", few / many, least)


def main() -> None:
    rates: dict[tuple[str, int], list[float]] = {}
    names = ("bare heap", *POLICIES, CANCELS)
    for number in range(REPEATS):
        turns = [(name, workers) for workers in TASKS for name in names]
        for name, workers in turns[:: -1 if number % 2 else 1]:
            tasks = TASKS[workers]
            policy = dml.k_sync(workers // 2) if name == CANCELS else POLICIES.get(name)
            run = bare_heap if policy is None else partial(timeline, policy)
            rates.setdefault((name, workers), []).append(run(workers, tasks))
    measured = {key: np.array(values) for key, values in rates.items()}
    title = "Thousand tasks per second: median (quartiles), and its ratio to a bare heap"
    table = Table(title=title, title_justify="left")
    for column in ("workers", *names):
        table.add_column(column, justify="right")
    for workers in TASKS:
        heap = measured["bare heap", workers]
        cells = []
        for name in names:
            values = measured[name, workers]
            rate = f"{np.median(values) / 1000:,.0f} ({spread(values / 1000, 0)})"
            cells.append(f"{rate}\n{np.median(values / heap):.2f}")
        table.add_row(f"{workers:,}", *cells, end_section=True)
    console.print(table)
    for name in names[1:]:
        for workers in (10, 1_000):
            verdict(f"{name}, {workers:,} workers, tasks per second", measured[name, workers], 120_000)
        ratio = measured[name, 100_000] / measured[name, 1_000]
        verdict(f"{name}, speed at 100,000 workers / at 1,000", ratio, 0.25)
    length()
    faults()
    servers()
    clients()


if __name__ == "__main__":
    with reported("simulate"):
        main()
