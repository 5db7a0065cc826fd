"""What users wait for: a sweep of methods x rates x seeds, against a hand-written NumPy event loop.

.venv/bin/python benchmarks/sweep.py
"""

from __future__ import annotations

import heapq
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # by hand there is a process for each core
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

WORKERS, BATCH, UNITS, MARKS = 8, 32, 32, 50
RATES, SEEDS = (0.05, 0.1, 0.2, 0.4, 0.8), range(5)
METHODS = {"BSP": 0, "SSP 3": 3, "ASP": np.inf, "SSP 1": 1, "SSP 10": 10}  # name -> how far a worker may lead
GRADIENTS = 2000  # of a run
RUNS = len(METHODS) * len(RATES) * len(SEEDS)
REPEATS = 5


def ours():
    """The frame of the sweep, and seconds from the import on."""
    begun = time.perf_counter()
    import optax

    import dmlcore as dml

    methods = {name: dml.bsp() if lead == 0 else dml.ssp(lead) for name, lead in METHODS.items()}
    cluster = dml.Cluster.uniform(WORKERS, jitter="exponential")
    options = {"samples": GRADIENTS * BATCH, "seeds": SEEDS, "batch_size": BATCH}
    frame = dml.sweep(methods, dml.problems.digits_mlp(UNITS), cluster, optax.sgd, RATES, **options)
    return frame, time.perf_counter() - begun


def gradient(params, x, labels):
    """Gradient of the mean cross-entropy of a network with one hidden layer, by hand."""
    w1, b1, w2, b2 = params
    hidden = np.maximum(x @ w1 + b1, 0)
    scores = hidden @ w2 + b2
    scores -= scores.max(1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(1, keepdims=True)
    scores[np.arange(len(x)), labels] -= 1
    scores /= len(x)
    back = (scores @ w2.T) * (hidden > 0)
    return x.T @ back, back.sum(0), hidden.T @ scores, scores.sum(0)


def loss(params, x, labels):
    w1, b1, w2, b2 = params
    scores = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    scores -= scores.max(1, keepdims=True)
    return float((np.log(np.exp(scores).sum(1)) - scores[np.arange(len(x)), labels]).mean())


def one_run(job):
    """The same by hand: events on a heap, a gradient at each arrival, a step, `MARKS` evaluations."""
    lead, rate, seed, (x, labels, test, test_labels) = job
    rng = np.random.default_rng(seed)
    draws = lambda *shape: (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)  # noqa: E731
    params = [draws(64, UNITS), np.zeros(UNITS, np.float32), draws(UNITS, 10), np.zeros(10, np.float32)]
    finished, views, waiting, pending = [0] * WORKERS, [params] * WORKERS, [], []
    heap = [(rng.exponential(), worker) for worker in range(WORKERS)]
    heapq.heapify(heap)
    losses = [loss(params, x, labels)]
    for done in range(1, GRADIENTS + 1):
        now, worker = heapq.heappop(heap)
        rows = rng.integers(0, len(x), BATCH)
        pending.append(gradient(views[worker], x[rows], labels[rows]))
        finished[worker] += 1
        slowest = min(finished)
        waiting.append(worker)
        if lead > 0 or finished[worker] == slowest:
            share = np.float32(rate / WORKERS)
            params = [p - share * sum(g) for p, g in zip(params, zip(*pending, strict=True), strict=True)]
            pending = []
            free = [each for each in waiting if finished[each] - slowest <= lead]
            waiting = [each for each in waiting if finished[each] - slowest > lead]
            for each in free:
                views[each] = params
                heapq.heappush(heap, (now + rng.exponential(), each))
        if done % (GRADIENTS // MARKS) == 0:
            losses += [loss(params, x, labels), loss(params, test, test_labels)]
    return losses


def by_hand(pool, data):
    """All runs by hand, on all cores."""
    jobs = [(lead, rate, seed, data) for lead in METHODS.values() for rate in RATES for seed in SEEDS]
    return pool.map(one_run, jobs, chunksize=1)


def processes():
    """A process for each core."""
    return multiprocessing.get_context("fork").Pool(os.cpu_count())


def data():
    """Digits, as both have them."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x, labels = (digits.data / 16).astype(np.float32), digits.target
    return x[:1437], labels[:1437], x[1437:], labels[1437:]


def new_process(what):
    """Seconds of one contender in a process of its own, its imports included."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, __file__, what], check=True)
    return time.perf_counter() - begun


def main():
    pool = processes()  # before JAX is there, whose threads a fork would not have
    seconds = {"a new process": [], "by hand, a new process": []}
    for number in range(REPEATS):
        turns = [("a new process", "ours"), ("by hand, a new process", "hand")]
        for name, what in turns[:: -1 if number % 2 else 1]:
            seconds[name].append(new_process(what))
    from timing import console, reported, show_race, verdict

    with reported("sweep"):
        ours()
        seconds["warm"], seconds["by hand, warm"], given = [], [], data()
        for number in range(REPEATS):
            for name in ("warm", "by hand, warm")[:: -1 if number % 2 else 1]:
                begun = time.perf_counter()
                ours() if name == "warm" else by_hand(pool, given)
                seconds[name].append(time.perf_counter() - begun)
        seconds = {name: np.array(values) for name, values in seconds.items()}
        work = RUNS * GRADIENTS
        show_race(f"A sweep of {RUNS} runs, {work:,} gradients", seconds, work, "gradients", "by hand, warm")
        ratio = seconds["by hand, a new process"] / seconds["a new process"]
        verdict("from a new process: the sweep / by hand", ratio, 2)
        verdict("warm: the sweep / by hand", seconds["by hand, warm"] / seconds["warm"], 3.5)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        console.print(f"peak memory of this process: {peak:,.0f} MiB")


if __name__ == "__main__":
    if sys.argv[1:] == ["ours"]:
        ours()
    elif sys.argv[1:] == ["hand"]:
        by_hand(processes(), data())
    else:
        main()
