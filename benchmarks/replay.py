"""Compiled replay against plain SGD, against what a user would write instead, and its memory and cold start.

.venv/bin/python benchmarks/replay.py
"""

from __future__ import annotations

import heapq
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from timing import console, race, reported, show_race, verdict

import dmlcore as dml
from dmlcore.data import Labelled
from dmlcore.problems.classification import classification
from dmlcore.problems.networks import lenet
from dmlcore.training.batches import BATCHES, INIT, run_key, task_indices
from dmlcore.training.evaluation import device_data
from dmlcore.training.program import compile_trace
from dmlcore.training.replay import Replay

BATCH = 32
OPTIMIZER = optax.sgd(0.1)


def trace_of(policy, workers, updates):
    return dml.simulate(policy, dml.Cluster.uniform(workers, jitter=stats.expon()), updates=updates)


def replayed(trace, problem, optimizer=OPTIMIZER):
    """The whole way from a trace to parameters: schedule, optimizer, loop. Nothing is evaluated."""
    driver = Replay([trace], problem, [optimizer])
    driver.advance(len(trace.updates))
    return jax.block_until_ready(driver.params())


def plain_sgd(problem, batches, optimizer=OPTIMIZER):
    """One compiled scan over batches, from `batches()`: what training costs without a parameter server."""
    data = device_data(problem)[0]

    @jax.jit
    def scan(params, indices, data):
        def step(carry, rows):
            params, state = carry
            batch = jax.tree.map(lambda column: column[rows], data)
            gradient = jax.grad(lambda p: problem.losses(p, batch).mean())(params)
            updates, state = optimizer.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, optimizer.init(params)), indices)[0][0]

    return lambda: jax.block_until_ready(scan(problem.init(run_key(0, INIT)), batches(), data))


def drawing(trace, problem):
    """Returns a function that draws the sample numbers of every update of a trace, (updates, samples)."""
    tasks = trace.tasks[trace.tasks["update"] >= 0].sort_values(["update", "worker", "clock"])
    worker, clock = tasks["worker"].to_numpy(), tasks["clock"].to_numpy()
    draw = jax.jit(jax.vmap(lambda w, c: task_indices(run_key(0, BATCHES), w, c, BATCH, problem.num_samples)))
    return lambda: draw(worker, clock).reshape(len(trace.updates), -1)


def against_plain_sgd(name, problem, policy, workers, updates, repeats, least):
    trace = trace_of(policy, workers, updates)
    draw = drawing(trace, problem)
    given = draw()
    floor = "plain SGD, batches given"
    contenders = {
        floor: plain_sgd(problem, lambda: given),
        "plain SGD, batches drawn": plain_sgd(problem, draw),
        "replay, batches drawn": lambda: replayed(trace, problem),
    }
    seconds = race(contenders, repeats)
    show_race(f"{policy.name}, {workers} workers, {name}", seconds, updates, "updates", floor)
    ours = seconds["replay, batches drawn"]
    for baseline in contenders:
        if baseline.startswith("plain"):
            verdict(f"replay / {baseline}", seconds[baseline] / ours, least)


def numpy_loop(problem, workers, updates):
    """Asynchronous SGD as one would write it by hand: an event heap and the gradient of the MLP in NumPy."""
    inputs, labels = problem.data["inputs"], problem.data["labels"]
    rng = np.random.default_rng(0)
    w1, w2 = rng.normal(0, 1 / 8, (64, 32)).astype("f4"), rng.normal(0, 32**-0.5, (32, 10)).astype("f4")
    params = [w1, np.zeros(32, "f4"), w2, np.zeros(10, "f4")]
    heap = [(rng.exponential(), worker, params) for worker in range(workers)]
    heapq.heapify(heap)
    for _ in range(updates):
        now, worker, (w1, b1, w2, b2) = heapq.heappop(heap)
        rows = rng.integers(0, len(labels), BATCH)
        x = inputs[rows]
        hidden = np.maximum(x @ w1 + b1, 0)
        logits = hidden @ w2 + b2
        error = np.exp(logits - logits.max(1, keepdims=True))
        error /= error.sum(1, keepdims=True)
        error[np.arange(BATCH), labels[rows]] -= 1
        error *= np.float32(1 / BATCH)
        back = (error @ w2.T) * (hidden > 0)
        gradient = (x.T @ back, back.sum(0), hidden.T @ error, error.sum(0))
        params = [p - np.float32(0.1) * g for p, g in zip(params, gradient, strict=True)]
        heapq.heappush(heap, (now + rng.exponential(), worker, params))
    return params


def eager_loop(problem, workers, updates):
    """The same with a jitted JAX gradient and optax, step by step."""
    data = device_data(problem)[0]
    rng = np.random.default_rng(0)

    @jax.jit
    def gradient(params, rows):
        batch = jax.tree.map(lambda column: column[rows], data)
        return jax.grad(lambda p: problem.losses(p, batch).mean())(params)

    params = problem.init(run_key(0, INIT))
    state = OPTIMIZER.init(params)
    heap = [(rng.exponential(), worker, params) for worker in range(workers)]
    heapq.heapify(heap)
    for _ in range(updates):
        now, worker, view = heapq.heappop(heap)
        rows = rng.integers(0, problem.num_samples, BATCH)
        change, state = OPTIMIZER.update(gradient(view, rows), state, params)
        params = optax.apply_updates(params, change)
        heapq.heappush(heap, (now + rng.exponential(), worker, params))
    return jax.block_until_ready(params)


def against_loops(problem):
    updates, workers = 5000, 8
    cluster = dml.Cluster.uniform(workers, jitter=stats.expon())

    def ours():
        replayed(dml.simulate(dml.asp(), cluster, updates=updates), problem)

    trace = dml.simulate(dml.asp(), cluster, updates=updates)

    rate = "NumPy loop, hand-written gradients"
    few = 300  # of the eager loop, whose seconds are scaled
    eager = f"eager JAX loop ({few} updates)"
    contenders = {
        rate: lambda: numpy_loop(problem, workers, updates),
        "dmlcore, timeline and replay": ours,
        "dmlcore, replay alone": lambda: replayed(trace, problem),
        eager: lambda: eager_loop(problem, workers, few),
    }
    seconds = race(contenders, 9)
    seconds[eager] *= updates / few
    show_race(f"asp(), {workers} workers, digits MLP", seconds, updates, "updates", rate)
    whole = seconds["dmlcore, timeline and replay"]
    verdict("dmlcore / NumPy loop", seconds[rate] / whole, 5)
    verdict("replay alone / NumPy loop", seconds[rate] / seconds["dmlcore, replay alone"], 5)
    verdict("dmlcore / eager JAX loop", seconds[eager] / whole, 15)
    names = ("w1", "b1", "w2", "b2")
    x, y = problem.data["inputs"], problem.data["labels"]
    by_hand = dict(zip(names, numpy_loop(problem, workers, updates), strict=True))
    logits = np.maximum(x @ by_hand["w1"] + by_hand["b1"], 0) @ by_hand["w2"] + by_hand["b2"]
    loss = float(optax.softmax_cross_entropy_with_integer_labels(jnp.asarray(logits), jnp.asarray(y)).mean())
    run = dml.train(problem, cluster, dml.asp(), OPTIMIZER, updates=updates, eval_every=updates)
    console.print(
        f"training loss after {updates} updates: NumPy {loss:.3f}, dmlcore {run.history['loss'].iloc[-1]:.3f}"
    )
    return updates / np.median(seconds[rate]), np.median(whole) / updates


def slot_bytes(trace, problem):
    """Bytes of the buffers in which the loop keeps versions, padding included."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(Replay([trace], problem, [OPTIMIZER])._state.slots))


def memory(problem):
    from rich.table import Table

    caption = (
        "In brackets the bytes that the loop allocates for versions: slots for workers + 1 of them and one "
        "for what is not read, padded to a power of two, so that another staleness compiles nothing. "
        "0: every view is the server's own copy."
    )
    table = Table(title="Versions held by the loop", title_justify="left", caption=caption)
    for column in ("workers", "asp()", "ssp(0)", "ssp(3)", "ssp(100)", "essp(100)"):
        table.add_column(column, justify="right")
    worst = 0.0
    for workers in (8, 64, 512):
        policies = (dml.asp(), dml.ssp(0), dml.ssp(3), dml.ssp(100), dml.essp(100))
        traces = [trace_of(policy, workers, 20 * workers) for policy in policies]
        slots = [compile_trace(trace).num_slots for trace in traces]
        allocated = [slot_bytes(trace, problem) for trace in traces]
        cells = [f"{held} ({nbytes:,})" for held, nbytes in zip(slots, allocated, strict=True)]
        table.add_row(str(workers), *cells)
        worst = max(worst, max(slots) / (workers + 1))
    console.print(table)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(problem.init(run_key(0, INIT))))
    console.print(f"one version of the digits MLP is {size:,} bytes")
    verdict("(workers + 1) / versions held, the least", 1 / worst, 1)


COLD = """
import sys, time
begun = time.perf_counter()
import optax, dmlcore as dml
from scipy import stats
cluster = dml.Cluster.uniform(8, jitter=stats.expon())
problem = dml.problems.digits_mlp()
dml.replay, dml.train
imported = time.perf_counter()
dml.train(problem, cluster, dml.asp(), optax.sgd(0.1), updates=int(sys.argv[1]), eval_every=int(sys.argv[1]))
print(imported - begun, time.perf_counter() - imported)
"""


def cold_start(numpy_rate, own_seconds):
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": folder,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
        }
        for cache in ("empty", "full"):
            command = [sys.executable, "-c", COLD, "200"]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            imports, first = map(float, done.stdout.split())
            start = first - 200 * own_seconds
            ahead = start / (1 / numpy_rate - own_seconds)
            console.print(
                f"new process, compilation cache {cache}: imports {imports:.1f} s, "
                f"first run of 200 updates {first:.2f} s; "
                f"ahead of the NumPy loop from about {ahead:,.0f} updates on"
            )


def random_lenet():
    """LeNet on as many and as large images as MNIST has, of noise: the same work."""
    rng = np.random.default_rng(0)
    parts = [(rng.integers(0, 256, (n, 28, 28), np.uint8), rng.integers(0, 10, n)) for n in (60_000, 100)]
    return classification("lenet", *lenet("float32"), Labelled(*parts[0], *parts[1]), dtype="uint8")


def main():
    digits = dml.problems.digits_mlp()
    problems = [("digits MLP", digits, 20_000, 15)]
    try:
        problems.append(("MNIST LeNet", dml.problems.mnist_lenet(), 300, 5))
    except (ConnectionError, ValueError):
        problems.append(("LeNet on random images, MNIST not being here", random_lenet(), 300, 5))
    for name, problem, updates, repeats in problems:
        for workers in (8, 64):
            against_plain_sgd(name, problem, dml.asp(), workers, updates, repeats, least=0.9)
    against_plain_sgd("digits MLP (large-batch SGD)", digits, dml.bsp(), 8, 5000, 15, least=0.85)
    memory(digits)
    cold_start(*against_loops(digits))


if __name__ == "__main__":
    with reported("replay"):
        main()
